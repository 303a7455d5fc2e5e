// Sleep and wake of memory that keeps its addresses. Sleep copies the contents to the host, and gives the memory back
// to the device. Wake takes memory from the device, maps it at the same addresses, and copies the contents back.
//
// Both are all or nothing. Sleep gives no memory back before every copy has arrived. Wake maps no memory before it has
// all of it, and drops no copy before the contents are back. The memory counts as asleep during both, so that
// no program uses it meanwhile.

import { formatBytes } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { isDriverError } from '../../base/thrown.js'
import type { BatchedCopy } from '../../driver/driver.js'
import type { Clocks } from '../../order/clocks.js'
import { untilDone } from '../../order/polling.js'
import { isOutOfMemory } from '../backing/backing.js'
import { deviceFull, figuresOf } from '../out-of-memory.js'
import { COPY_STEP_BYTES, CopyStream } from './copy-stream.js'
import { type Extent, HostCopies } from './host-copies.js'
import { readSleepOptions, readWakeOptions, type SleepOptions, type WakeOptions } from './sleep-options.js'

/** Work of a stream, of this or another device. */
export interface Work {
  readonly clocks: Clocks
  readonly slot: number
  readonly stamp: number
}

/** Addresses that were mapped last. */
export interface MappedRange {
  readonly ptr: number
  readonly bytes: number
}

/** Memory that can sleep: of a pool, or of a growable buffer. */
export interface SleepingMemory {
  readonly clocks: Clocks
  /** 'pool' or 'buffer', for errors */
  readonly kind: string
  /** Throws PoolError in the name of `call` if the memory is closed, or cannot sleep now. */
  check(call: 'sleep' | 'wake'): void
  /** Refuses uses while the memory is asleep. Tells the sleeper of frees then, and while the host has copies. */
  guard(isAsleep: boolean, hasCopies: boolean): void
  /** Work of other devices that may use the memory. */
  workOfPeers(): readonly Work[]
  /** Waits on the host for work of other devices that no stream here is known for. */
  finishPeers(): void
  /** The memory to keep, by address. All work on it is complete. */
  extents(): readonly Extent[]
  /** Gives all memory back, and keeps the addresses. After a refusal it can be repeated. */
  unmap(): void
  /** bytes that it has of the device now */
  readonly reservedBytes: number
  /** bytes that `create` takes from the device */
  readonly asleepBytes: number
  /** Takes memory from the device, all of it or none. Throws the driver's error. */
  create(): void
  /** Maps the memory; after each step the range that can be used, one that touches the range before if it can. */
  map(): Iterable<MappedRange>
  /** Whether other devices may use the memory. */
  readonly hasPeers: boolean
}

export class Sleeper {
  private phase: 'awake' | 'fallingAsleep' | 'asleep' | 'waking' = 'awake'
  private readonly copies: HostCopies
  /** addresses whose buffers were freed while copies may use them */
  private readonly freed = new Set<number>()
  /** whether copies go on after the call that submitted them */
  private isArriving = false
  private isLost = false

  constructor(private readonly memory: SleepingMemory) {
    this.copies = new HostCopies(memory.clocks.context)
  }

  /** Whether copies may be under way. */
  get isChanging(): boolean {
    return this.phase === 'fallingAsleep' || this.phase === 'waking' || this.isArriving
  }

  /** Whether uses are refused. */
  get isAsleep(): boolean {
    return this.phase !== 'awake' && !this.isLost
  }

  /** bytes that wait for a wake */
  get asleepBytes(): number {
    return this.phase === 'asleep' || this.phase === 'waking' ? this.memory.asleepBytes : 0
  }

  /** bytes of host memory with copies */
  get hostCopyBytes(): number {
    return this.copies.bytes
  }

  async sleep(options: SleepOptions): Promise<void> {
    const { memory } = this
    memory.check('sleep')
    const given = readSleepOptions(options, memory.clocks.context)
    if (this.phase === 'asleep' && memory.reservedBytes > 0) {
      await this.untilArrived('sleep')
      if (this.phase === 'asleep') memory.unmap() // the driver has refused it before
      return
    }
    if (this.phase !== 'awake') throw this.refusal('sleep', 'is asleep already, or about to change; await that call')
    this.enter('fallingAsleep')
    try {
      await this.untilArrived('sleep')
      await this.untilIdle()
      this.checkOpen('sleep')
      if (given.keep === 'nothing') this.copies.retain([])
      else await this.copyOut(given)
    } catch (error) {
      if (!this.isArriving) this.copies.retain([])
      this.enter('awake')
      throw error
    }
    this.enter('asleep')
    memory.unmap()
  }

  async wake(options: WakeOptions): Promise<void> {
    const { memory } = this
    memory.check('wake')
    const given = readWakeOptions(options)
    if (this.phase !== 'asleep') throw this.refusal('wake', 'is awake, or about to change; await that call')
    this.enter('waking')
    try {
      if (this.isArriving) await this.untilArrived('wake') // copies of a wake that has failed
      await this.bringBack(given)
    } catch (error) {
      this.enter('asleep')
      if (!this.isArriving) this.undoWake()
      throw error
    }
    this.enter('awake')
  }

  /** The buffer at an address was freed. */
  noteFree(ptr: number): void {
    if (this.isChanging) this.freed.add(ptr)
    else this.copies.drop(ptr)
  }

  /**
   * Memory and addresses are gone: all copies go, and calls that are under way end with an error. `isIdle` says that
   * the host has waited for all work.
   */
  close(isIdle: boolean): void {
    this.isLost = true
    if (isIdle || !this.isChanging) this.copies.retain([]) // otherwise the call that is under way does it
  }

  /** The error for a use while asleep. */
  asleepError(call: string): PoolError {
    return new PoolError(
      `${call}: the ${this.memory.kind} is asleep; await its wake() before it is used`,
      'ERR_POOL_ASLEEP',
    )
  }

  /** After a failed wake. Memory that the driver does not take back stays; `sleep` tries again, and `wake` uses it. */
  private undoWake(): void {
    if (this.isLost) {
      this.copies.retain([])
      return
    }
    try {
      this.memory.unmap()
    } catch (error) {
      if (!isDriverError(error)) throw error
    }
  }

  /** Resolves when the copies of the last call have arrived. */
  private async untilArrived(call: string): Promise<void> {
    await untilDone(() => this.isLost || !this.isArriving)
    this.checkOpen(call)
  }

  private async untilIdle(): Promise<void> {
    const work = [...workOf(this.memory.clocks), ...this.memory.workOfPeers()]
    await untilDone(() => this.isLost || work.filter(one => !isComplete(one)).length === 0)
    this.checkOpen('sleep')
    this.memory.finishPeers()
  }

  private async copyOut({ into, unchanged, onProgress }: ReturnType<typeof readSleepOptions>): Promise<void> {
    const { memory, copies } = this
    const extents = memory.extents()
    copies.keepFor(extents)
    const changed = extents.filter(extent => !unchanged || !copies.holds(extent))
    await copies.fit(extents, into, () => this.checkOpen('sleep'))
    const stream = new CopyStream(memory.clocks, bytesOf(changed), onProgress)
    try {
      copies.noteUse(stream.stream)
      for (const step of inSteps(copies.placesOf(changed))) {
        stream.copy('toHost', step)
        await stream.untilFew()
        this.checkOpen('sleep')
      }
      await stream.untilArrived()
      this.checkOpen('sleep')
    } finally {
      this.end(stream, false)
    }
  }

  private async bringBack({ keepCopy, wait, onProgress }: ReturnType<typeof readWakeOptions>): Promise<void> {
    const { memory, copies } = this
    const kept = memory.extents()
    const extents = kept.filter(extent => copies.has(extent))
    try {
      memory.create()
    } catch (error) {
      throw isOutOfMemory(error) ? this.outOfMemory() : error
    }
    const stream = new CopyStream(memory.clocks, bytesOf(extents), onProgress)
    let isHeld = false
    try {
      copies.noteUse(stream.stream)
      for (const mapped of inMappedOrder(copies.placesOf(extents), memory.map())) {
        for (const step of inSteps(mapped)) stream.copy('toDevice', step)
      }
      isHeld = wait === 'streams' && !memory.hasPeers && stream.holdStreams()
      if (!isHeld) await stream.untilArrived()
      this.checkOpen('wake')
    } finally {
      if (isHeld) this.goOn(stream.untilEnded(), keepCopy)
      else this.end(stream, true)
    }
    if (!isHeld && !keepCopy) copies.retain([])
  }

  /** Ends the stream of a call. If that has failed, and the driver refuses to wait for its copies, they go on. */
  private end(stream: CopyStream, keepCopy: boolean): void {
    if (!stream.close()) this.goOn(stream.untilClosed(), keepCopy)
  }

  /** Copies go on after their call: the memory stays mapped and the host's copies pinned until they have ended. */
  private goOn(ended: Promise<void>, keepCopy: boolean): void {
    this.isArriving = true
    void ended.then(() => {
      this.isArriving = false
      if (!keepCopy || this.isLost) this.copies.retain([])
      this.dropFreed()
    })
  }

  private enter(phase: Sleeper['phase']): void {
    this.phase = phase
    if (this.isLost) return
    this.memory.guard(phase !== 'awake', this.copies.bytes > 0)
    if (!this.isChanging) this.dropFreed()
  }

  private dropFreed(): void {
    for (const ptr of this.freed) this.copies.drop(ptr)
    this.freed.clear()
  }

  private checkOpen(call: string): void {
    if (this.isLost) throw new PoolError(`${call}: the ${this.memory.kind} was closed meanwhile`, 'ERR_POOL_CLOSED')
  }

  private refusal(call: string, why: string): PoolError {
    return new PoolError(`${call}: the ${this.memory.kind} ${why}`)
  }

  private outOfMemory(): OutOfMemoryError {
    const { asleepBytes, clocks, reservedBytes, kind } = this.memory
    const { context } = clocks
    const { freeBytes } = context.activate().cuMemGetInfo()
    const missing = Math.max(0, asleepBytes - freeBytes)
    return deviceFull(
      context,
      `wake: no room for ${formatBytes(asleepBytes)}: ${formatBytes(freeBytes)} are free on the device, ` +
        `${formatBytes(missing)} too few; the ${kind} sleeps on with its contents; free memory, and wake it again`,
      figuresOf(asleepBytes, { reservedBytes, largestFreeBytes: freeBytes }, freeBytes),
    )
  }
}

/** All work that was submitted to streams which this thread can ask about. */
function workOf(clocks: Clocks): Work[] {
  const slots = Array.from({ length: clocks.slotLimit }, (_, slot) => slot)
  return slots
    .filter(slot => !clocks.isOpen(slot) || clocks.slots.isReachable(slot))
    .map(slot => ({ clocks, slot, stamp: clocks.coveringSoon(slot) }))
}

function isComplete({ clocks, slot, stamp }: Work): boolean {
  if (clocks.completed[slot] < stamp) clocks.catchUp(slot, stamp, false)
  return clocks.completed[slot] >= stamp
}

function bytesOf(extents: readonly Extent[]): number {
  return extents.reduce((sum, { bytes }) => sum + bytes, 0)
}

/** Copies in groups that a mark covers each. */
function* inSteps(copies: readonly BatchedCopy[]): Generator<readonly BatchedCopy[]> {
  let [first, bytes] = [0, 0]
  for (let next = 0; next < copies.length; ) {
    bytes += copies[next++].host.byteLength
    if (bytes < COPY_STEP_BYTES && next < copies.length) continue
    yield copies.slice(first, next)
    first = next
    bytes = 0
  }
}

/** Copies to the device: after each step of the mapping those whose targets are mapped now. */
function* inMappedOrder(
  copies: readonly BatchedCopy[],
  ranges: Iterable<MappedRange>,
): Generator<readonly BatchedCopy[]> {
  const sorted = [...copies].sort((a, b) => a.ptr - b.ptr)
  let next = 0
  let end = Number.NaN
  for (const { ptr, bytes } of ranges) {
    if (ptr !== end) next = firstFrom(sorted, ptr)
    end = ptr + bytes
    const first = next
    while (next < sorted.length && sorted[next].ptr + sorted[next].host.byteLength <= end) next++
    if (next > first) yield sorted.slice(first, next)
  }
}

/** The index of the first copy to an address or a later one. */
function firstFrom(sorted: readonly BatchedCopy[], ptr: number): number {
  const index = sorted.findIndex(copy => copy.ptr >= ptr)
  return index === -1 ? sorted.length : index
}
