// The caching pool. On the cached path an allocation pops a slot and a free pushes one: no driver call, nothing
// allocated but the buffer object. Behind it stands the reserve (reserve.ts), and behind that OutOfMemoryError.
//
// The file is long because the hot path, the counters it keeps and the public verbs share private state.

import { assert } from '../base/assert.js'
import { checkByteCount, describe } from '../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import { Double, LAST_GENERATION, RecordTable, State, Stride, Word } from '../heap/records.js'
import { classOf as importedClassOf, MAX_UNITS, powerOfTwoUnits, UNIT_BYTES } from '../heap/size-classes.js'
import { type Clocks, MOST_STREAMS } from '../order/clocks.js'
import type { Stream } from '../order/stream.js'
import { AddressIndex } from './address-index.js'
import { checkAlignment } from './alignment.js'
import { MOST_ALIGNMENT_BYTES } from './backing.js'
import { DeviceBuffer as ImportedDeviceBuffer } from './buffer.js'
import type { BufferHome } from './home.js'
import type { PoolConfig } from './options.js'
import { outOfMemory } from './out-of-memory.js'
import { Pool, type PoolStats } from './pool.js'
import { Reserve } from './reserve.js'
import { SLOT_WORDS, SlotCache } from './slot-cache.js'
import { type PoolSnapshot, snapshotOf } from './snapshot.js'

// An imported binding costs a load and two checks at each use, a constant of this module none.
const classOf = importedClassOf
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

/** The cache of one stream holds at most this share of what the pool may reserve. */
const CACHE_SHARE = 1 / 64
const STATE_MASK = 7
/** Tags above this have no room for another generation. */
const LAST_TAG = LAST_GENERATION * 8

// Counters lie behind the slots in the words that the record table leaves to its owner: a view of their own would cost
// loads on every call. First the int32 words, then float64s.
const LIVE_UNITS = SLOT_WORDS
const PEAK_LIVE_UNITS = SLOT_WORDS + 1
const COUNTERS = SLOT_WORDS / 2 + 1
const LIVE_REQUESTED_BYTES = COUNTERS
const ALLOCATIONS = COUNTERS + 1
const FREES = COUNTERS + 2
const CACHE_MISSES = COUNTERS + 3
const OWNER_WORDS = SLOT_WORDS + 16

/** A live block, for people: where memory is held. */
export interface LiveBlock {
  readonly ptr: number
  readonly byteLength: number
  /** bytes of the block that serves it */
  readonly blockBytes: number
  /** the driver's handle of the stream it was allocated on; once that is closed null, or the stream that took over its slot */
  readonly stream: number | null
}

/** What `close` found. */
export interface CloseReport {
  /** buffers that were still held; they are invalid from now on */
  readonly lostBuffers: number
  readonly lostBytes: number
}

export class CachingPool extends Pool implements BufferHome, Disposable {
  readonly context: Context
  readonly records = new RecordTable(OWNER_WORDS)
  readonly reserve: Reserve
  private readonly slots: SlotCache
  private readonly addresses: AddressIndex
  private readonly roundingMask: number
  private readonly blockShift: number
  /** sizes with only these bits take the fast path; none when sizes are powers of two */
  private readonly smallMask: number
  /** the stamps of frees less one: the clocks', or all -1 for a pool that is not stream-ordered */
  private readonly marked: Float64Array
  /** the clocks that a stream must have; null once closed */
  private acceptedClocks: Clocks | null
  private givenBack = false

  /** Made by the device: `device.createPool(options)`. */
  constructor(
    readonly clocks: Clocks,
    private readonly defaultStream: Stream,
    readonly config: PoolConfig,
  ) {
    super()
    this.context = clocks.context
    const deviceBytes = this.context.activate().cuDeviceTotalMem(this.context.device)
    const mostUnits = Math.min(config.limitBytes, deviceBytes) / UNIT_BYTES
    this.slots = new SlotCache(this.records, Math.floor(mostUnits * CACHE_SHARE))
    this.reserve = new Reserve(this.records, this.slots, clocks, config, mostUnits)
    this.addresses = new AddressIndex(this.records)
    this.roundingMask = config.minBlockBytes - 1
    this.blockShift = Math.log2(config.minBlockBytes)
    this.smallMask = config.powerOfTwo ? 0 : 2 ** 30 - 1
    this.marked = config.streamOrdered ? clocks.marked : new Float64Array(MOST_STREAMS).fill(-1)
    this.acceptedClocks = clocks
  }

  allocate(bytes: number, stream: Stream = this.defaultStream, alignment?: number): DeviceBuffer {
    const buffer = this.take(bytes, stream, alignment)
    if (buffer === null) throw this.outOfMemory(bytes)
    return buffer
  }

  tryAllocate(bytes: number, stream: Stream = this.defaultStream, alignment?: number): DeviceBuffer | null {
    return this.take(bytes, stream, alignment)
  }

  private take(bytes: number, stream: Stream, alignment: number | undefined): DeviceBuffer | null {
    if (stream.clocks !== this.acceptedClocks || stream.slot < 0) this.refuse('allocate', stream)
    const slot = stream.slot
    // The first comparison holds for whole numbers from 0 to 2^30 - 1 only.
    const small = (bytes & this.smallMask) === bytes && bytes > 0
    const units = small
      ? ((bytes + this.roundingMask) >>> this.blockShift) << (this.blockShift - 8)
      : this.unitsOf(bytes)
    let { words, doubles } = this.records
    let record = alignment === undefined ? this.slots.take(words, slot, classOf(units), units) : 0
    if (record === 0) {
      record = this.allocateFromReserve(units, alignment, slot)
      if (record === 0) return null
      ;({ words, doubles } = this.records)
    }
    const base = record << 4
    const tag = ((words[base | Word.tag] | STATE_MASK) + (1 + State.live)) | 0
    words[base | Word.tag] = tag
    doubles[(record << 3) | Double.requested] = bytes
    const live = (words[LIVE_UNITS] + words[base | Word.units]) | 0
    words[LIVE_UNITS] = live
    doubles[LIVE_REQUESTED_BYTES] += bytes
    if (live > words[PEAK_LIVE_UNITS]) words[PEAK_LIVE_UNITS] = live
    doubles[ALLOCATIONS]++
    return new DeviceBuffer(this, stream, this, record, tag)
  }

  release(buffer: DeviceBuffer, stream?: Stream): void {
    const record = buffer.record
    const { words, doubles } = this.records
    const base = record << 4
    const tag = words[base | Word.tag]
    const slot = buffer.stream.slot
    if (tag !== buffer.tag || slot < 0 || stream !== undefined || tag > LAST_TAG) {
      this.releaseSlowly(buffer, stream ?? buffer.stream)
      return
    }
    const units = words[base | Word.units]
    words[LIVE_UNITS] = (words[LIVE_UNITS] - units) | 0
    doubles[LIVE_REQUESTED_BYTES] -= doubles[(record << 3) | Double.requested]
    doubles[FREES]++
    const stamp = this.marked[slot] + 1
    if (this.slots.put(words, slot, words[base | Word.sizeClass], units, record)) {
      words[base | Word.tag] = (tag - (State.live - State.cached)) | 0
      doubles[(record << 3) | Double.stamp] = stamp
      return
    }
    this.reserve.free(record, slot, stamp)
  }

  /** Frees by address. Throws PoolError for an address that this pool did not hand out, or that lies inside a block. */
  deallocate(ptr: number, stream?: Stream): void {
    this.checkOpen('deallocate')
    const range = Number.isSafeInteger(ptr) ? this.reserve.backing.rangeAt(ptr) : -1
    const unit = range === -1 ? 0 : (ptr - this.reserve.backing.bases[range]) / UNIT_BYTES
    const record = range === -1 ? 0 : this.addresses.find(range, unit)
    if (record === 0) {
      throw new PoolError(
        `deallocate: ${describe(ptr)} is not the start of a live buffer of this pool; pass buffer.ptr`,
      )
    }
    const slot = this.records.words[record * Stride.words + Word.key] - 1
    const owner = stream ?? this.clocks.streams[slot]
    // The last mark of a closed stream covers all that was submitted to it.
    if (owner === null) this.takeBack(record, slot, this.clocks.marked[slot], false)
    else {
      const tag = this.records.words[record * Stride.words + Word.tag] & ~1
      this.release(new DeviceBuffer(this, owner, this, record, tag), owner)
    }
  }

  /** Notices which frees have completed, without waiting; returns how many blocks depend on nothing since. */
  processDeferred(): number {
    this.checkOpen('processDeferred')
    return this.reserve.processDeferred()
  }

  /** Gives idle memory back to the device until at most `bytes` are reserved; work still pending is not waited for. Returns the bytes given back. */
  trimTo(bytes: number): number {
    this.checkOpen('trimTo')
    if (bytes !== 0) checkByteCount(bytes, 'trimTo: bytes')
    const before = this.reserve.backing.reservedBytes
    this.reserve.trimTo(bytes)
    return before - this.reserve.backing.reservedBytes
  }

  stats(): PoolStats {
    const counters = this.records.doubles
    const open = this.acceptedClocks !== null
    return {
      liveBytes: this.records.words[LIVE_UNITS] * UNIT_BYTES,
      peakLiveBytes: this.records.words[PEAK_LIVE_UNITS] * UNIT_BYTES,
      requestedBytes: counters[LIVE_REQUESTED_BYTES],
      reservedBytes: this.reserve.backing.reservedBytes,
      peakReservedBytes: this.reserve.backing.peakReservedBytes,
      cachedBytes: this.cachedUnits() * UNIT_BYTES,
      pendingBytes: open ? this.reserve.pendingBytes : 0,
      largestFreeBytes: open ? this.reserve.largestFreeBytes : 0,
      limitBytes: this.config.limitBytes,
      liveBuffers: counters[ALLOCATIONS] - counters[FREES],
      allocations: counters[ALLOCATIONS],
      frees: counters[FREES],
      cacheMisses: counters[CACHE_MISSES],
      growths: this.reserve.growths,
    }
  }

  /** Allocations that the slot cache could not serve. */
  get cacheMisses(): number {
    return this.records.doubles[CACHE_MISSES]
  }

  /** Sets the peak of live bytes to the current value. */
  resetPeaks(): void {
    this.records.words[PEAK_LIVE_UNITS] = this.records.words[LIVE_UNITS]
    this.reserve.backing.peakReservedBytes = this.reserve.backing.reservedBytes
  }

  /** Every buffer handed out and not freed, in no particular order. */
  live(): LiveBlock[] {
    const blocks: LiveBlock[] = []
    for (let record = this.records.first; record < this.records.used; record++) {
      if (!this.records.isLive(record)) continue
      const base = record * Stride.words
      blocks.push({
        ptr: this.address(record),
        byteLength: this.records.doubles[record * Stride.doubles + Double.requested],
        blockBytes: this.records.words[base + Word.units] * UNIT_BYTES,
        stream: this.clocks.streams[this.records.words[base + Word.key] - 1]?.handle ?? null,
      })
    }
    return blocks
  }

  /** Everything, block by block, as plain JSON; walks the whole pool. */
  snapshot(): PoolSnapshot {
    this.checkOpen('snapshot')
    return snapshotOf(this)
  }

  /** Asserts that heaps, caches, backing and counters tell one story; walks the whole pool. */
  check(): void {
    this.checkOpen('check')
    this.reserve.check()
    const units = { live: 0, requested: 0, cached: 0, buffers: 0, cachedBlocks: 0 }
    for (let record = this.records.first; record < this.records.used; record++) {
      const state = this.records.state(record)
      const size = this.records.words[record * Stride.words + Word.units]
      if (this.records.isLive(record)) {
        units.live += size
        units.requested += this.records.doubles[record * Stride.doubles + Double.requested]
        units.buffers++
      }
      if (state === State.cached) units.cachedBlocks++
    }
    for (let slot = 0; slot < MOST_STREAMS; slot++) {
      for (const entry of this.slots.entries(slot)) {
        assert(this.records.state(entry.record) === State.cached, 'a block in a slot is cached')
        assert(
          this.records.words[entry.record * Stride.words + Word.units] === entry.units,
          'a slot knows the size of its block',
        )
        assert(classOf(entry.units) === entry.sizeClass, 'a cached block is in the slot of its size')
        units.cached += entry.units
        units.cachedBlocks--
      }
    }
    assert(units.cachedBlocks === 0, 'every cached block is in exactly one slot')
    assert(units.cached * UNIT_BYTES === this.stats().cachedBytes, 'cached blocks add up to the counter')
    assert(units.live === this.records.words[LIVE_UNITS], 'live blocks add up to the counter')
    assert(units.requested === this.records.doubles[LIVE_REQUESTED_BYTES], 'requested bytes add up to the counter')
    assert(
      units.buffers === this.records.doubles[ALLOCATIONS] - this.records.doubles[FREES],
      'live buffers add up to the counters',
    )
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.givenBack
  }

  /** Waits for pending work, gives all memory back and invalidates what is still held; says how much that was. A second close does nothing. */
  close(): CloseReport {
    const report = {
      lostBuffers: this.records.doubles[ALLOCATIONS] - this.records.doubles[FREES],
      lostBytes: this.records.doubles[LIVE_REQUESTED_BYTES],
    }
    this.acceptedClocks = null
    this.records.words.fill(0)
    if (!this.givenBack) {
      this.context.giveBack(driver => {
        driver.cuCtxSynchronize()
        this.reserve.backing.close()
      })
      this.givenBack = true
    }
    return report
  }

  [Symbol.dispose](): void {
    this.close()
  }

  addressOf(record: number, tag: number, call: string): number {
    if (!this.isLive(record, tag)) this.refuseStale(call)
    return this.address(record)
  }

  requestedBytesOf(record: number, tag: number, call: string): number {
    if (!this.isLive(record, tag)) this.refuseStale(call)
    return this.records.doubles[record * Stride.doubles + Double.requested]
  }

  isLive(record: number, tag: number): boolean {
    return (this.records.words[(record << 4) | Word.tag] & ~1) === tag
  }

  recordUse(record: number, tag: number, stream: Stream): void {
    if (!this.isLive(record, tag)) this.refuseStale('recordUse')
    if (stream.clocks !== this.clocks) throw new PoolError('recordUse: the stream belongs to another device')
    if (!this.config.streamOrdered) return
    this.records.setState(record, State.shared)
    this.reserve.announceUse(record, stream)
  }

  private address(record: number): number {
    const base = record * Stride.words
    return (
      this.reserve.backing.bases[this.records.words[base + Word.range]] +
      this.records.words[base + Word.offset] * UNIT_BYTES
    )
  }

  /** A free on a named or closed stream, of a block that other streams use, or of one whose record is spent. */
  private releaseSlowly(buffer: DeviceBuffer, stream: Stream): void {
    const record = buffer.record
    if (!this.isLive(record, buffer.tag)) this.refuseStale('free')
    if (stream.clocks !== this.clocks)
      throw new PoolError('free: the stream belongs to another device, or is no stream')
    if (stream.slot < 0) this.takeBack(record, stream.lastSlot, stream.lastStamp, false)
    else this.takeBack(record, stream.slot, this.marked[stream.slot] + 1, true)
  }

  /** The block may be used again after stamp `covering` of a stream slot, and is cached for it if its stream is open. */
  private takeBack(record: number, slot: number, covering: number, isOpen: boolean): void {
    const { words, doubles } = this.records
    const base = record << 4
    const tag = words[base | Word.tag]
    const units = words[base | Word.units]
    words[LIVE_UNITS] -= units
    doubles[LIVE_REQUESTED_BYTES] -= doubles[(record << 3) | Double.requested]
    doubles[FREES]++
    this.reserve.meet(slot)
    const stamp = this.config.streamOrdered ? covering : 0
    if (this.records.state(record) === State.shared) this.reserve.defer(record, slot, stamp)
    else if (tag <= LAST_TAG && isOpen && this.slots.put(words, slot, words[base | Word.sizeClass], units, record)) {
      this.records.setState(record, State.cached)
      words[base | Word.key] = slot + 1
      doubles[(record << 3) | Double.stamp] = stamp
    } else this.reserve.free(record, slot, stamp)
  }

  private allocateFromReserve(units: number, alignment: number | undefined, slot: number): number {
    if (alignment !== undefined) checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    this.records.doubles[CACHE_MISSES]++
    const record = this.reserve.allocate(units, Math.max(1, (alignment ?? 1) / UNIT_BYTES), slot)
    if (record !== 0) this.addresses.note(record)
    return record
  }

  /** Sizes that the fast path leaves alone: large ones, powers of two, and bad ones, which throw. */
  private unitsOf(bytes: number): number {
    checkByteCount(bytes, 'bytes')
    const { minBlockBytes } = this.config
    const units = Math.ceil(bytes / minBlockBytes) * (minBlockBytes / UNIT_BYTES)
    if (units > MAX_UNITS / 2) return MAX_UNITS
    return this.config.powerOfTwo ? powerOfTwoSize(units) : units
  }

  private cachedUnits(): number {
    let units = 0
    for (let slot = 0; slot < MOST_STREAMS; slot++) units += this.slots.cachedUnits(slot)
    return units
  }

  private outOfMemory(bytes: number): OutOfMemoryError {
    const { leaveFreeBytes } = this.config
    const deviceFreeBytes = this.context.activate().cuMemGetInfo().freeBytes
    return outOfMemory({
      bytes,
      stats: this.stats(),
      deviceFreeBytes,
      leaveFreeBytes,
      backing: this.reserve.backing.kind,
    })
  }

  private checkOpen(call: string): void {
    if (this.acceptedClocks === null) throw new PoolError(`${call}: the pool is closed; create another`)
  }

  private refuse(call: string, stream: Stream): never {
    this.checkOpen(call)
    if (stream.clocks !== this.clocks)
      throw new PoolError(`${call}: the stream belongs to another device, or is no stream`)
    stream.checkOpen(call)
    throw new PoolError(`${call}: the stream cannot be used`)
  }

  private refuseStale(call: string): never {
    if (this.acceptedClocks === null) throw new PoolError(`${call}: the buffer's pool is closed`)
    throw new PoolError(`${call}: the buffer was already freed; keep no reference to it after free()`)
  }
}

/** Powers of two from 512 B to 2 GiB; exact above. */
function powerOfTwoSize(units: number): number {
  return units > 2 ** 23 ? units : Math.max(2, powerOfTwoUnits(units))
}
