// Device arenas and heaps for kernels of the simulated device, which are TypeScript functions. The structures in
// device memory are those of cuda/cuda_mempool.cuh, so the host's side cannot tell the difference. A simulated kernel
// runs without interruption, so this is the plain algorithm, not a model of its threads. Sizes are rounded as on a
// GPU; addresses may differ.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { hex, showAsText } from '../core/base/readable.js'
import { type DeviceMemory, registerSimulatedKernel } from '../core/driver/simulated-kernels.js'
import {
  BITMAP_BYTES,
  bytesOfClass,
  DEVICE_HEAP,
  DEVICE_POOL,
  LARGEST_BLOCK,
  RECORD_BYTES,
  recordsFor,
  STRIPE,
  SUPERBLOCK_BYTES,
} from './device-layout.js'
import {
  capacityOfClass,
  HeapTables,
  IDLE_SET,
  idleWord,
  Place,
  runWord,
  State,
  smallWord,
  superblockWord,
} from './heap-tables.js'

/** nullptr in C++ */
const NULL = 0
const TWO_32 = 2 ** 32

/** The words of a structure in device memory. */
class Fields {
  constructor(
    private readonly memory: DeviceMemory,
    private readonly ptr: number,
  ) {
    if (typeof memory?.load !== 'function') {
      throw new WrongTypeError(`memory must be the memory of a simulated kernel's launch, not ${describe(memory)}`)
    }
    if (!Number.isSafeInteger(ptr)) throw new WrongTypeError(`ptr must be args.pointer(…), not ${describe(ptr)}`)
  }

  u32(at: number): number {
    return this.memory.load(Uint32Array, this.ptr + at, 1)[0]
  }

  setU32(at: number, ...values: readonly number[]): void {
    this.memory.store(this.ptr + at, Uint32Array.from(values))
  }

  u64(at: number): number {
    const [low, high] = this.memory.load(Uint32Array, this.ptr + at, 2)
    return high * TWO_32 + low
  }

  setU64(at: number, value: number): void {
    this.setU32(at, value % TWO_32, Math.floor(value / TWO_32))
  }

  addU64(at: number, value: number): void {
    this.setU64(at, this.u64(at) + value)
  }
}

/**
 * A `DeviceArena *` (or `DevicePool *`) argument of a simulated kernel: `new SimulatedArena(memory,
 * args.pointer(0))`.
 */
export class SimulatedArena {
  private readonly fields: Fields

  constructor(
    memory: DeviceMemory,
    private readonly ptr: number,
  ) {
    this.fields = new Fields(memory, ptr)
  }

  /** The address of at least `bytes` bytes, a multiple of 16. A full arena returns 0, and counts that. */
  allocate(bytes: number): number {
    const size = Math.ceil(bytes / 16) * 16
    const offset = this.fields.u64(DEVICE_POOL.offset)
    if (!(bytes > 0) || offset + size > this.fields.u64(DEVICE_POOL.limit)) {
      this.fields.addU64(DEVICE_POOL.failures, 1)
      return NULL
    }
    this.fields.setU64(DEVICE_POOL.offset, offset + size)
    return this.fields.u64(DEVICE_POOL.base) + offset
  }

  /** One line for people, such as `SimulatedArena { at 0x7f0000000000 }`; console.log shows it. */
  toString(): string {
    return `SimulatedArena { at ${hex(this.ptr)} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { ptr: this.ptr }
  }
}

/** A `DeviceHeap *` argument of a simulated kernel: `new SimulatedHeap(memory, args.pointer(0))`. */
export class SimulatedHeap {
  private readonly fields: Fields
  private readonly tables: HeapTables

  constructor(
    private readonly memory: DeviceMemory,
    private readonly ptr: number,
  ) {
    this.fields = new Fields(memory, ptr)
    this.tables = new HeapTables(this.fields.u32(DEVICE_HEAP.reserved))
  }

  /** The address of at least `bytes` bytes, a multiple of 16. Without room it returns 0, and counts that. */
  allocate(bytes: number): number {
    const block = !(bytes > 0) ? NULL : bytes > LARGEST_BLOCK ? this.allocateRun(bytes) : this.allocateBlock(bytes)
    if (block === NULL) this.fields.addU64(DEVICE_HEAP.stripes + STRIPE.failures, 1)
    return block
  }

  /**
   * Gives back a block of `allocate`; 0 does nothing. A free of anything else than a live block is counted and
   * ignored.
   */
  free(block: number): void {
    if (block === NULL) return
    const offset = block - this.fields.u64(DEVICE_HEAP.base)
    const superblock = Math.floor(offset / SUPERBLOCK_BYTES)
    const within = offset - superblock * SUPERBLOCK_BYTES
    const outside = superblock < 0 || superblock >= this.fields.u32(DEVICE_HEAP.reserved)
    const refused = outside ? DEVICE_HEAP.invalidFrees : this.freeWithin(superblock, within)
    if (refused !== null) this.fields.addU64(refused, 1)
  }

  /** For the kernels that initialise and reset: makes all superblocks idle and all counters 0. */
  clear(): void {
    const { memory, ptr, tables } = this
    const { doubleFrees, slots, byteLength, reserved, limit, peak, highest } = DEVICE_HEAP
    memory.fill(ptr + doubleFrees, slots - doubleFrees, 0)
    memory.fill(ptr + slots, byteLength - slots, 0xffffffff)
    const words = (RECORD_BYTES / 4) * recordsFor(this.fields.u32(reserved))
    const records = Uint32Array.from({ length: words }, (_, index) => idleWord()[index % (RECORD_BYTES / 4)] ?? 0)
    memory.store(ptr + byteLength, records)
    const start = tables.bitsAt(0, 0)
    memory.fill(ptr + start, tables.bitsAt(IDLE_SET + 1, 0) - start, 0)
    const bitmapBytes = BITMAP_BYTES * this.fields.u32(reserved)
    memory.fill(this.fields.u64(DEVICE_HEAP.base) - bitmapBytes, bitmapBytes, 0)
    this.fields.setU32(peak, 0)
    this.fields.setU32(highest, 0)
    const count = this.fields.u32(limit)
    this.storeBits(tables.bitsAt(IDLE_SET, 0), count)
    this.storeBits(tables.summaryAt(IDLE_SET, 0), Math.ceil(count / 64))
    this.fields.setU32(tables.countAt(IDLE_SET), Math.ceil(count / 64))
    this.fields.setU32(DEVICE_HEAP.idleCount, count)
  }

  /** For the kernel that grows: adds superblocks up to `limit`. */
  extend(limit: number): void {
    const before = this.fields.u32(DEVICE_HEAP.limit)
    if (limit <= before || limit > this.fields.u32(DEVICE_HEAP.reserved)) return
    this.fields.setU32(DEVICE_HEAP.limit, limit)
    for (let superblock = before; superblock < limit; superblock++) this.insert(IDLE_SET, superblock)
  }

  /**
   * Frees the block that begins `within` a superblock, and returns null; without such a block, returns the counter of
   * the mistake.
   */
  private freeWithin(superblock: number, within: number): number | null {
    const { state, sizeClass, place, freeBlocks, length } = this.word(superblock)
    if (state === State.Small) {
      const [index, capacity] = [within / bytesOfClass(sizeClass), capacityOfClass(sizeClass)]
      if (!Number.isInteger(index) || index >= capacity) return DEVICE_HEAP.invalidFrees
      if (!this.setTaken(superblock, index, false)) return DEVICE_HEAP.doubleFrees
      if (place === Place.Listed) this.remove(sizeClass, superblock)
      if (freeBlocks + 1 < capacity) {
        this.setWord(superblock, smallWord(sizeClass, Place.Listed, freeBlocks + 1))
        this.insert(sizeClass, superblock)
      } else this.release(superblock, 1)
      return null
    }
    if (state === State.Run && within === 0) {
      this.release(superblock, length)
      return null
    }
    const wasBlock = this.has(IDLE_SET, superblock) && within % 16 === 0
    return wasBlock ? DEVICE_HEAP.doubleFrees : DEVICE_HEAP.invalidFrees
  }

  private allocateBlock(bytes: number): number {
    let sizeClass = 0
    while (bytesOfClass(sizeClass) < bytes) sizeClass++
    let superblock = this.first(sizeClass)
    if (superblock === -1) {
      superblock = this.first(IDLE_SET)
      if (superblock === -1) return NULL
      this.remove(IDLE_SET, superblock)
      this.noteUsed(superblock)
      this.setWord(superblock, smallWord(sizeClass, Place.Listed, capacityOfClass(sizeClass)))
      this.insert(sizeClass, superblock)
    }
    const free = this.word(superblock).freeBlocks - 1
    if (free === 0) this.remove(sizeClass, superblock)
    this.setWord(superblock, smallWord(sizeClass, free === 0 ? Place.Loose : Place.Listed, free))
    const index = this.firstClearBit(superblock)
    this.setTaken(superblock, index, true)
    this.countAllocation()
    return this.fields.u64(DEVICE_HEAP.base) + superblock * SUPERBLOCK_BYTES + index * bytesOfClass(sizeClass)
  }

  private allocateRun(bytes: number): number {
    const length = Math.ceil(bytes / SUPERBLOCK_BYTES)
    const limit = this.fields.u32(DEVICE_HEAP.limit)
    let found = 0
    for (let superblock = 0; superblock < limit; superblock++) {
      found = this.has(IDLE_SET, superblock) ? found + 1 : 0
      if (found < length) continue
      const start = superblock - length + 1
      for (let each = start; each <= superblock; each++) this.remove(IDLE_SET, each)
      this.noteUsed(superblock)
      this.setWord(start, runWord(length))
      this.countAllocation()
      return this.fields.u64(DEVICE_HEAP.base) + start * SUPERBLOCK_BYTES
    }
    return NULL
  }

  /** Sets the first `count` bits of a range that is all zero. */
  private storeBits(at: number, count: number): void {
    const words = new Uint32Array(Math.ceil(count / 32)).fill(0xffffffff)
    if (count % 32 !== 0) words[words.length - 1] = 2 ** (count % 32) - 1
    this.memory.store(this.ptr + at, words)
  }

  private release(superblock: number, length: number): void {
    this.setWord(superblock, idleWord())
    for (let each = superblock; each < superblock + length; each++) this.insert(IDLE_SET, each)
  }

  /** Notes the peak after idle superblocks up to `superblock` were taken. */
  private noteUsed(superblock: number): void {
    const used = this.fields.u32(DEVICE_HEAP.limit) - this.fields.u32(DEVICE_HEAP.idleCount)
    if (used > this.fields.u32(DEVICE_HEAP.peak)) this.fields.setU32(DEVICE_HEAP.peak, used)
    const { highest } = DEVICE_HEAP
    if (superblock >= this.fields.u32(highest)) this.fields.setU32(highest, superblock + 1)
  }

  private countAllocation(): void {
    this.fields.addU64(DEVICE_HEAP.stripes + STRIPE.allocations, 1)
  }

  private firstClearBit(superblock: number): number {
    for (let byte = 0; ; byte++) {
      const clear = ~this.memory.load(Uint8Array, this.mapByteAt(superblock, byte), 1)[0] & 0xff
      if (clear !== 0) return 8 * byte + 31 - Math.clz32(clear & -clear)
    }
  }

  private mapByteAt(superblock: number, index: number): number {
    return this.ptr + HeapTables.mapByteAt(superblock, index, this.fields.u64(DEVICE_HEAP.base) - this.ptr)
  }

  /** Sets or clears a block's bit; false if the bit was so before. */
  private setTaken(superblock: number, index: number, taken: boolean): boolean {
    const at = this.mapByteAt(superblock, index >> 3)
    const [before] = this.memory.load(Uint8Array, at, 1)
    const after = taken ? before | (1 << (index & 7)) : before & ~(1 << (index & 7))
    this.memory.store(at, Uint8Array.of(after))
    return before !== after
  }

  private word(superblock: number) {
    const at = HeapTables.wordAt(superblock)
    return superblockWord(this.fields.u32(at), this.fields.u32(at + 4))
  }

  private setWord(superblock: number, [low, high]: readonly [number, number]): void {
    this.fields.setU32(HeapTables.wordAt(superblock), low, high)
  }

  private has(set: number, superblock: number): boolean {
    return ((this.fields.u32(this.tables.bitsAt(set, superblock)) >>> (superblock % 32)) & 1) === 1
  }

  /** The first member of a set; -1 for an empty set. */
  private first(set: number): number {
    if (this.fields.u32(this.tables.countAt(set)) === 0) return -1
    for (let superblock = 0; ; superblock += 32) {
      const bits = this.fields.u32(this.tables.bitsAt(set, superblock))
      if (bits !== 0) return superblock + 31 - Math.clz32(bits & -bits)
    }
  }

  private insert(set: number, superblock: number): void {
    if (this.wordIsEmpty(set, superblock)) this.changeWords(set, superblock, 1)
    const at = this.tables.bitsAt(set, superblock)
    this.fields.setU32(at, this.fields.u32(at) | (1 << (superblock % 32)))
    this.changeIdle(set, 1)
  }

  private remove(set: number, superblock: number): void {
    const at = this.tables.bitsAt(set, superblock)
    this.fields.setU32(at, this.fields.u32(at) & ~(1 << (superblock % 32)))
    if (this.wordIsEmpty(set, superblock)) this.changeWords(set, superblock, -1)
    this.changeIdle(set, -1)
  }

  private wordIsEmpty(set: number, superblock: number): boolean {
    const first = superblock - (superblock % 64)
    return this.fields.u64(this.tables.bitsAt(set, first)) === 0
  }

  /** A set has one word with members more or less. */
  private changeWords(set: number, superblock: number, change: 1 | -1): void {
    const { tables } = this
    const summary = tables.summaryAt(set, superblock)
    this.fields.setU32(summary, this.fields.u32(summary) ^ (1 << (Math.floor(superblock / 64) % 32)))
    this.fields.setU32(tables.countAt(set), this.fields.u32(tables.countAt(set)) + change)
  }

  private changeIdle(set: number, change: 1 | -1): void {
    if (set !== IDLE_SET) return
    this.fields.setU32(DEVICE_HEAP.idleCount, this.fields.u32(DEVICE_HEAP.idleCount) + change)
  }

  /** One line for people, such as `SimulatedHeap { at 0x7f0000000000 }`; console.log shows it. */
  toString(): string {
    return `SimulatedHeap { at ${hex(this.ptr)} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { ptr: this.ptr }
  }
}

showAsText(SimulatedArena, SimulatedHeap)

// The shipped kernels of cuda/control.cu.

registerSimulatedKernel('bump_initialise', ({ args, memory }) => {
  memory.fill(args.pointer(0), DEVICE_POOL.byteLength, 0)
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_POOL.base, args.pointer(1))
  fields.setU64(DEVICE_POOL.limit, args.pointer(2))
  fields.setU64(DEVICE_POOL.reserved, args.pointer(3))
})

registerSimulatedKernel('bump_reset', ({ args, memory }) => {
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_POOL.peak, Math.max(fields.u64(DEVICE_POOL.peak), fields.u64(DEVICE_POOL.offset)))
  fields.setU64(DEVICE_POOL.failures, 0)
  fields.setU64(DEVICE_POOL.offset, 0)
})

registerSimulatedKernel('bump_grow', ({ args, memory }) => {
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_POOL.limit, Math.max(fields.u64(DEVICE_POOL.limit), args.pointer(1)))
})

registerSimulatedKernel('heap_initialise', ({ args, memory }) => {
  const fields = new Fields(memory, args.pointer(0))
  fields.setU64(DEVICE_HEAP.base, args.pointer(1))
  fields.setU32(DEVICE_HEAP.reserved, args.uint32(2))
  fields.setU32(DEVICE_HEAP.limit, args.uint32(3))
  fields.setU32(DEVICE_HEAP.claimed, args.uint32(3))
  fields.setU32(DEVICE_HEAP.slotMask, args.uint32(4))
  new SimulatedHeap(memory, args.pointer(0)).clear()
})

registerSimulatedKernel('heap_reset', ({ args, memory }) => {
  new SimulatedHeap(memory, args.pointer(0)).clear()
})

registerSimulatedKernel('heap_grow', ({ args, memory }) => {
  new SimulatedHeap(memory, args.pointer(0)).extend(args.uint32(1))
})
