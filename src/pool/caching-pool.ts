// The caching pool. On the cached path an allocation pops a slot and a free pushes one: no driver call, nothing
// allocated but the buffer object. Behind it, in this order: the heaps; what has completed meanwhile; the slot caches
// given back to the heaps; idle memory moved and new memory; waiting for pending work; OutOfMemoryError.

import { assert } from '../base/assert.js'
import { checkByteCount, describe, formatBytes } from '../base/bytes.js'
import { CudaError, DeviceLostError, OutOfMemoryError, PoolError } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import { Double, RecordTable, State, Stride, Word } from '../heap/records.js'
import { SegregatedFit } from '../heap/segregated-fit.js'
import {
  CLASSES,
  classFloorUnits,
  classOf as importedClassOf,
  MAX_UNITS,
  powerOfTwoUnits,
  UNIT_BYTES,
} from '../heap/size-classes.js'
import { type Clocks, MOST_STREAMS } from '../order/clocks.js'
import type { Stream } from '../order/stream.js'
import { AddressIndex } from './address-index.js'
import { checkAlignment } from './alignment.js'
import { type Backing, MOST_ALIGNMENT_BYTES, SMALL_UNITS, virtualMemoryObstacle } from './backing.js'
import { DeviceBuffer as ImportedDeviceBuffer } from './buffer.js'
import { Deferred } from './deferred.js'
import type { BufferHome } from './home.js'
import type { PoolConfig } from './options.js'
import { Pool, type PoolStats } from './pool.js'
import { SegmentBacking } from './segment-backing.js'
import { SLOT_WORDS, SlotCache } from './slot-cache.js'
import { type PoolSnapshot, snapshotOf } from './snapshot.js'
import { VirtualBacking } from './virtual-backing.js'

// An imported binding costs a load and two checks at each use, a constant of this module none.
const classOf = importedClassOf
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

/** The cache of one stream holds at most this share of what the pool may reserve. */
const CACHE_SHARE = 1 / 64
/**
 * Large blocks given back to the heap between two marks. Marks tell how old the last use of idle memory is, so that it
 * can be moved when a miss comes; small blocks hardly ever leave a granule idle.
 */
const LARGE_FREES_PER_MARK = 8
const SMALL_CLASSES = classOf(SMALL_UNITS)
const STATE_MASK = 7
/** Tags above this have no room for another generation. */
const LAST_TAG = (2 ** 28 - 1) * 8

// Counters lie behind the slots in the words that the record table leaves to its owner: a view of their own would cost
// loads on every call. First the int32 words, then float64s.
const LIVE_UNITS = SLOT_WORDS
const PEAK_LIVE_UNITS = SLOT_WORDS + 1
const COUNTERS = SLOT_WORDS / 2 + 1
const LIVE_REQUESTED_BYTES = COUNTERS
const ALLOCATIONS = COUNTERS + 1
const FREES = COUNTERS + 2
const CACHE_MISSES = COUNTERS + 3
const GROWTHS = COUNTERS + 4
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
  readonly small = new SegregatedFit(this.records)
  readonly large = new SegregatedFit(this.records)
  readonly backing: Backing
  readonly slots: SlotCache
  /** by stream slot: the latest stamp that a block of this pool waits for */
  private readonly awaited = new Float64Array(MOST_STREAMS)
  private readonly deferred: Deferred
  private readonly addresses: AddressIndex
  /** no block can be larger, even with the pool empty */
  private readonly mostUnits: number
  private readonly roundingMask: number
  private readonly blockShift: number
  /** sizes with only these bits take the fast path; none when sizes are powers of two */
  private readonly smallMask: number
  /** the stamps of frees less one: the clocks', or all -1 for a pool that is not stream-ordered */
  private readonly marked: Float64Array
  /** the clocks that a stream must have; null once closed */
  private acceptedClocks: Clocks | null
  private unmarkedFrees = 0
  private givenBack = false
  /** stream slots that this pool has met are below this */
  private slotLimit = 0

  /** Made by the device: `device.createPool(options)`. */
  constructor(
    readonly clocks: Clocks,
    private readonly defaultStream: Stream,
    readonly config: PoolConfig,
  ) {
    super()
    this.context = clocks.context
    const deviceBytes = this.context.activate().cuDeviceTotalMem(this.context.device)
    this.backing = this.chooseBacking()
    const cacheUnits = (Math.min(config.limitBytes, deviceBytes) * CACHE_SHARE) / UNIT_BYTES
    this.slots = new SlotCache(this.records, Math.floor(cacheUnits))
    this.deferred = new Deferred(clocks)
    this.addresses = new AddressIndex(this.records)
    this.mostUnits = Math.min(config.limitBytes, deviceBytes) / UNIT_BYTES
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
      record = this.allocateFromHeap(units, alignment, slot)
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
    this.freeToHeap(record, slot, stamp)
    this.afterHeapFree()
  }

  /** Frees by address. Throws PoolError for an address that this pool did not hand out, or that lies inside a block. */
  deallocate(ptr: number, stream?: Stream): void {
    this.checkOpen('deallocate')
    const range = Number.isSafeInteger(ptr) ? this.backing.rangeAt(ptr) : -1
    const unit = range === -1 ? 0 : (ptr - this.backing.bases[range]) / UNIT_BYTES
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
    const settled = this.settle()
    const threshold = this.config.releaseThresholdBytes
    if (this.backing.reservedBytes > threshold) this.backing.trim(threshold)
    return settled
  }

  /** Gives idle memory back to the device until at most `bytes` are reserved; work still pending is not waited for. Returns the bytes given back. */
  trimTo(bytes: number): number {
    this.checkOpen('trimTo')
    if (bytes !== 0) checkByteCount(bytes, 'trimTo: bytes')
    const before = this.backing.reservedBytes
    this.drain(this.small)
    this.drain(this.large)
    this.settle()
    this.backing.trim(bytes)
    return before - this.backing.reservedBytes
  }

  stats(): PoolStats {
    const counters = this.records.doubles
    const largestClass = Math.max(
      ...[this.small, this.large].flatMap(heap => Array.from(heap.unitsByKey, (_, key) => heap.largestClass(key))),
    )
    const pendingUnits = [this.small, this.large].reduce((sum, heap) => sum + heap.freeUnits - heap.unitsByKey[0], 0)
    return {
      liveBytes: this.records.words[LIVE_UNITS] * UNIT_BYTES,
      peakLiveBytes: this.records.words[PEAK_LIVE_UNITS] * UNIT_BYTES,
      requestedBytes: counters[LIVE_REQUESTED_BYTES],
      reservedBytes: this.backing.reservedBytes,
      peakReservedBytes: this.backing.peakReservedBytes,
      cachedBytes: this.cachedUnits() * UNIT_BYTES,
      pendingBytes: this.acceptedClocks === null ? 0 : pendingUnits * UNIT_BYTES + this.deferred.bytes,
      largestFreeBytes:
        largestClass < 0 || this.acceptedClocks === null ? 0 : classFloorUnits(largestClass) * UNIT_BYTES,
      limitBytes: this.config.limitBytes,
      liveBuffers: counters[ALLOCATIONS] - counters[FREES],
      allocations: counters[ALLOCATIONS],
      frees: counters[FREES],
      cacheMisses: counters[CACHE_MISSES],
      growths: counters[GROWTHS],
    }
  }

  /** Allocations that the slot cache could not serve. */
  get cacheMisses(): number {
    return this.records.doubles[CACHE_MISSES]
  }

  /** Sets the peak of live bytes to the current value. */
  resetPeaks(): void {
    this.records.words[PEAK_LIVE_UNITS] = this.records.words[LIVE_UNITS]
    this.backing.peakReservedBytes = this.backing.reservedBytes
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
    this.small.check()
    this.large.check()
    this.backing.check()
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
      this.context.activate().cuCtxSynchronize()
      this.backing.close()
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
    this.deferred.announce(record, stream)
  }

  private address(record: number): number {
    const base = record * Stride.words
    return (
      this.backing.bases[this.records.words[base + Word.range]] + this.records.words[base + Word.offset] * UNIT_BYTES
    )
  }

  /** The miss ladder; 0 when nothing helped. */
  private allocateFromHeap(units: number, alignment: number | undefined, slot: number): number {
    const alignUnits = alignment === undefined ? 1 : alignmentUnits(alignment)
    const heap = units < SMALL_UNITS ? this.small : this.large
    const key = slot + 1
    this.records.doubles[CACHE_MISSES]++
    let record = heap.allocate(units, alignUnits, key)
    // Nothing below would help, and much would be disturbed.
    if (record === 0 && units > this.mostUnits) return 0
    if (record === 0 && heap === this.small && this.breakLarger(units, slot))
      record = heap.allocate(units, alignUnits, key)
    if (record === 0 && this.settle() > 0) record = heap.allocate(units, alignUnits, key)
    if (record === 0 && this.drain(heap) > 0) {
      this.settle()
      record = heap.allocate(units, alignUnits, key)
    }
    if (record === 0 && this.drain(heap === this.small ? this.large : this.small) > 0) this.settle()
    if (record === 0) record = this.grow(heap, units, alignUnits, key)
    if (record === 0 && this.waitForPending()) {
      record = heap.allocate(units, alignUnits, key)
      if (record === 0) record = this.grow(heap, units, alignUnits, key)
    }
    if (record === 0) return 0
    if (this.records.words[record * Stride.words + Word.tag] >= LAST_TAG) record = heap.rehouse(record)
    if (slot >= this.slotLimit) this.slotLimit = slot + 1
    this.records.words[(record << 4) | Word.key] = key
    this.records.words[(record << 4) | Word.sizeClass] = classOf(this.records.words[(record << 4) | Word.units])
    this.addresses.note(record)
    return record
  }

  private grow(heap: SegregatedFit, units: number, alignUnits: number, key: number): number {
    this.records.doubles[GROWTHS]++
    return this.backing.grow(heap, units, alignUnits, key)
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
    if (slot >= this.slotLimit) this.slotLimit = slot + 1
    const stamp = this.config.streamOrdered ? covering : 0
    if (this.records.state(record) === State.shared && this.config.streamOrdered) {
      this.records.setState(record, State.deferred)
      this.awaited[slot] = Math.max(this.awaited[slot], stamp)
      for (const used of this.deferred.add(record, slot, stamp, units * UNIT_BYTES, this.awaited)) {
        if (used >= this.slotLimit) this.slotLimit = used + 1
      }
      return
    }
    const cached = tag <= LAST_TAG && isOpen && this.slots.put(words, slot, words[base | Word.sizeClass], units, record)
    if (!cached) {
      this.freeToHeap(record, slot, stamp)
      this.afterHeapFree()
      return
    }
    this.records.setState(record, State.cached)
    words[base | Word.key] = slot + 1
    doubles[(record << 3) | Double.stamp] = stamp
  }

  /** Sizes that the fast path leaves alone: large ones, powers of two, and bad ones, which throw. */
  private unitsOf(bytes: number): number {
    checkByteCount(bytes, 'bytes')
    const { minBlockBytes } = this.config
    const units = Math.ceil(bytes / minBlockBytes) * (minBlockBytes / UNIT_BYTES)
    if (units > MAX_UNITS / 2) return MAX_UNITS
    return this.config.powerOfTwo ? powerOfTwoSize(units) : units
  }

  /** Gives a block back to its heap, to be used after `stamp` of the stream slot. */
  private freeToHeap(record: number, slot: number, stamp: number): void {
    const heap = this.records.words[record * Stride.words + Word.units] < SMALL_UNITS ? this.small : this.large
    const settled = this.clocks.completed[slot] >= stamp
    if (!settled && stamp > this.awaited[slot]) this.awaited[slot] = stamp
    const key = settled ? 0 : slot + 1
    this.backing.noteFree(record, key, stamp)
    heap.free(record, key, settled ? 0 : stamp)
    if (heap === this.large) this.unmarkedFrees++
  }

  /** A free has reached the heap; what the driver is asked for now and then because of that must not make the free fail. */
  private afterHeapFree(): void {
    const aboveThreshold = this.backing.reservedBytes > this.config.releaseThresholdBytes
    if (this.unmarkedFrees < LARGE_FREES_PER_MARK && !aboveThreshold) return
    try {
      this.placeMarks()
      if (aboveThreshold) this.processDeferred()
    } catch (error) {
      // The block is free. A driver that refuses an event will say so again to the next call that needs it to succeed.
      if (!(error instanceof CudaError) && !(error instanceof DeviceLostError)) throw error
    }
  }

  /** Places a mark on each stream that has frees which none covers yet. */
  private placeMarks(): void {
    const { clocks } = this
    this.unmarkedFrees = 0
    for (let slot = 0; slot < this.slotLimit; slot++) {
      if (this.awaited[slot] > clocks.marked[slot] && clocks.streams[slot] !== null) clocks.mark(slot)
    }
  }

  /** Asks how far the streams have come and frees their blocks of what has completed; returns how many blocks that were. */
  private settle(): number {
    const { clocks } = this
    let settled = 0
    this.placeMarks()
    for (let slot = 0; slot < this.slotLimit; slot++) {
      if (this.awaited[slot] === 0) continue
      if (this.awaited[slot] > clocks.completed[slot]) clocks.poll(slot)
      settled += this.small.settle(slot + 1, clocks.completed[slot])
      settled += this.large.settle(slot + 1, clocks.completed[slot])
    }
    for (const block of this.deferred.takeSettled()) {
      this.freeToHeap(block.record, block.slot, block.stamp)
      settled++
    }
    return settled
  }

  /** Gives the smallest cached small block of the stream that is larger than `units` back to its heap; false when there is none. */
  private breakLarger(units: number, slot: number): boolean {
    const record = this.slots.takeLarger(slot, classOf(units), SMALL_CLASSES)
    if (record === 0) return false
    this.freeToHeap(record, slot, this.records.doubles[(record << 3) | Double.stamp])
    return true
  }

  /** Gives every cached block of one heap back to it; returns how many. */
  private drain(heap: SegregatedFit): number {
    const [first, end] = heap === this.small ? [0, SMALL_CLASSES] : [SMALL_CLASSES, CLASSES]
    let drained = 0
    for (let slot = 0; slot < this.slotLimit; slot++) {
      for (const record of this.slots.drain(slot, first, end)) {
        this.freeToHeap(record, slot, this.records.doubles[(record << 3) | Double.stamp])
        drained++
      }
    }
    return drained
  }

  /** Waits on the host for everything that a freed block still depends on; false when that changed nothing. */
  private waitForPending(): boolean {
    const { clocks } = this
    let changed = this.settle() > 0
    for (let slot = 0; slot < this.slotLimit; slot++) {
      if (this.awaited[slot] <= clocks.completed[slot]) continue
      clocks.waitFor(slot, this.awaited[slot])
      changed = true
    }
    if (changed) this.settle()
    return changed
  }

  private chooseBacking(): Backing {
    const { context, config } = this
    const heaps = { small: this.small, large: this.large }
    const obstacle = config.backing === 'segments' ? 'not asked for' : virtualMemoryObstacle(context)
    if (obstacle === null) return new VirtualBacking(this.clocks, heaps, config)
    if (config.backing === 'virtual') {
      throw new PoolError(`backing 'virtual' is not possible here: ${obstacle}; use 'segments' or 'auto'`)
    }
    return new SegmentBacking(context, heaps, config)
  }

  private cachedUnits(): number {
    let units = 0
    for (let slot = 0; slot < MOST_STREAMS; slot++) units += this.slots.cachedUnits(slot)
    return units
  }

  private outOfMemory(bytes: number): OutOfMemoryError {
    const stats = this.stats()
    const { freeBytes } = this.context.activate().cuMemGetInfo()
    const text = `no room for ${formatBytes(bytes)}: ${formatBytes(stats.liveBytes)} live in ${formatBytes(stats.reservedBytes)} reserved, limit ${formatBytes(stats.limitBytes)}, ${formatBytes(freeBytes)} free on the device, largest free block at least ${formatBytes(stats.largestFreeBytes)}`
    return new OutOfMemoryError(`${text}; ${this.remedy(bytes, stats, freeBytes)}`, {
      requestedBytes: bytes,
      liveBytes: stats.liveBytes,
      pendingBytes: stats.pendingBytes,
      reservedBytes: stats.reservedBytes,
      largestFreeBytes: stats.largestFreeBytes,
      limitBytes: stats.limitBytes,
      deviceFreeBytes: freeBytes,
    })
  }

  private remedy(bytes: number, stats: PoolStats, deviceFreeBytes: number): string {
    const missing = stats.liveBytes + bytes - stats.limitBytes
    if (missing > 0) return `raise maxPoolBytes by at least ${formatBytes(missing)} or free that much`
    const idleBytes = stats.reservedBytes - stats.liveBytes
    if (idleBytes + deviceFreeBytes < bytes) return 'the device itself is full: free memory, here or in other programs'
    const { leaveFreeBytes } = this.config
    if (idleBytes + Math.max(0, deviceFreeBytes - leaveFreeBytes) < bytes) {
      return `leaveFreeBytes keeps ${formatBytes(leaveFreeBytes)} of the device free: lower it, or free memory`
    }
    const pieces = 'there is enough in all but not in one piece: free a neighbour of a free block'
    return this.backing.kind === 'segments' ? `${pieces}, or use backing 'virtual'` : `${pieces}, or leave some slack`
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

function alignmentUnits(alignment: number): number {
  checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
  return Math.max(1, alignment / UNIT_BYTES)
}

/** Powers of two from 512 B to 2 GiB; exact above. */
function powerOfTwoSize(units: number): number {
  return units > 2 ** 23 ? units : Math.max(2, powerOfTwoUnits(units))
}
