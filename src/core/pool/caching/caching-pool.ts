// The caching pool. On the cached path an allocation pops a block from a stack and a free pushes one. That path makes
// no driver call and allocates only the buffer object. All other requests go to the central heap (folder central).
//
// The file is long because the hot path, the counters it keeps and the public verbs share private state.

import { assert } from '../../base/assert.js'
import type { ByteSize } from '../../base/byte-size.js'
import { PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { isFullStack } from '../../base/stack.js'
import { type Context, unreachable } from '../../driver/context.js'
import { RecordTable, State } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { Capture } from '../../order/capture.js'
import type { Clocks } from '../../order/clocks.js'
import type { GraphMemory } from '../../order/graph-memory.js'
import { checkIsStream, checkStreamOf, type Stream } from '../../order/stream.js'
import { type AccessLocation, checkUser, type PoolAccess, peerOf } from '../access.js'
import { looksOnly } from '../allocation.js'
import { MOST_ALIGNMENT_BYTES, SMALL_RANGE } from '../backing/backing.js'
import type { SpareHandles } from '../backing/pieces/spare-handles.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import { DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { publishOutOfMemory } from '../channels.js'
import type { CloseReport } from '../closable-pool.js'
import { labelOf } from '../labels.js'
import { type AllocateOptions, allocateLong, isLongForm } from '../long-form.js'
import { policy } from '../policy.js'
import type { PoolStats } from '../pool.js'
import { ReservedWatch } from '../reserved-watch.js'
import { checkNotRunning } from '../sleep/running-work.js'
import type { SleepOptions, WakeOptions } from '../sleep/sleep-options.js'
import type { Sleeper } from '../sleep/sleeper.js'
import { type OffPath, releaseOffPath, takeOffPath } from '../slow-calls.js'
import { AddressIndex } from './address-index.js'
import { checkAlignment } from './alignment.js'
import { type Block, type BlockOwner, markBefore, slackOf, Tag } from './block.js'
import {
  type CaptureOptions,
  GraphGroup,
  type GraphGroupOptions,
  groupConfig,
  groupOf,
} from './captures/graph-group.js'
import { CentralHeap } from './central/central-heap.js'
import { seenBy } from './central/parts.js'
import type { PoolConfig } from './options.js'
import { blockUnits, type LiveBlock, ReservingPool, unknownAddress } from './reserving-pool.js'
import type { HeapShortage } from './shortage.js'
import { sleeperOf } from './sleep/pool-memory.js'
import { type PoolSnapshot, snapshotOf } from './snapshot.js'
import { classUnits, StreamCaches } from './stream-caches.js'

// An imported binding costs a load and two checks at each use, a constant of this module none.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

// Const enums are written out as numbers, which keeps the hot methods small enough to be inlined where they are
// called.
const enum Shift {
  /** from bytes to units of 256 */
  units = 8,
}

/** Counters of a caching pool, in bytes. */
export interface CachingPoolStats extends PoolStats {
  /** of a pool that sleeps: what `wake` takes from the device */
  readonly asleepBytes: number
  /** pinned host memory with contents: of a pool that sleeps, or kept by `wake({ keepCopy: true })` */
  readonly hostCopyBytes: number
}

/** The general pool: memory of any size in the order of streams, cached for each stream. */
export class CachingPool extends ReservingPool implements BlockOwner {
  /** @internal */
  readonly servesCaptures: boolean = true
  /** @internal */
  readonly records = new RecordTable()
  /** @internal */
  readonly central: CentralHeap
  /**
   * the live and the cached blocks
   * @internal
   */
  readonly caches: StreamCaches
  /** null until the first lookup of an address; most programs free buffers only */
  private addresses: AddressIndex | null = null
  /** @internal */
  protected readonly offPath: OffPath = [
    (bytes, stream, mayFail) => this.takeBelow(bytes, stream, mayFail),
    (allocation, tag, stream) => this.releaseSlowly(allocation as Block, tag, stream),
  ]
  /** @internal */
  protected allocations = 0
  /**
   * allocations that the stream caches could not serve
   * @internal
   */
  cacheMisses = 0
  protected readonly staleReason = 'the buffer was already freed; keep no reference to it after free()'
  /**
   * tells the program when the pool grows or shrinks, or makes a stream wait
   * @internal
   */
  watch = new ReservedWatch(undefined, undefined)
  protected limit: number
  /** `changes` of the central heap when observers were told last */
  private toldChanges = 0
  /**
   * found set by another call: the one that set it was cut short
   * @internal
   */
  protected isBusy = false
  /** null until the first sleep */
  private sleeper: Sleeper | null = null
  /**
   * where a sleep leaves all memory, idle memory too, and a wake takes it; null for the device
   * @internal
   */
  spares: SpareHandles | null = null
  /** @internal */
  isGuarded = false

  /** Made by the device: `device.createPool(options)`. */
  constructor(clocks: Clocks, defaultStream: Stream, config: PoolConfig) {
    super(clocks, defaultStream, config)
    this.limit = config.maxPoolBytes
    this.caches = this.newCaches(this.deviceBytes)
    const { records, caches } = this
    this.central = new CentralHeap({ records, caches, clocks, seen: seenBy(clocks, config), config })
    if (this.central.backing.kind === 'pinned') return // a host pool notes its copies
    // Which graphs use live blocks is asked when the pool sleeps, or was closed.
    const { arenas } = this.central
    arenas.onCapture = () => {
      this.isGuarded = true
    }
    clocks.captureObservers.add(arenas)
  }

  allocate(bytes: ByteSize, stream: Stream | AllocateOptions = this.defaultStream, alignment?: number): DeviceBuffer {
    return this.take(bytes as number, stream as Stream, alignment, false)!
  }

  tryAllocate(
    bytes: ByteSize,
    stream: Stream | AllocateOptions = this.defaultStream,
    alignment?: number,
  ): DeviceBuffer | null {
    return this.take(bytes as number, stream as Stream, alignment, true)
  }

  /**
   * The caches of a new pool, before it has anything else.
   * @internal
   */
  protected newCaches(deviceBytes: number): StreamCaches {
    return new StreamCaches(this.records, cacheUnits(this.config.maxPoolBytes, deviceBytes), this)
  }

  /** Returns null when memory runs out and `mayFail` is set; otherwise throws OutOfMemoryError. */
  private take(bytes: number, stream: Stream, alignment: number | undefined, mayFail: boolean): DeviceBuffer | null {
    // The comparison of bytes with some of their bits holds for whole numbers from 0 to 2^30 - 1 only.
    if (
      stream !== null &&
      stream.own === this.acceptedClocks &&
      typeof bytes === 'number' && // a bigint would throw V8's error
      (bytes & this.smallMask) === bytes &&
      alignment === undefined
    ) {
      const mask = this.roundingMask
      const small = bytes | 0 // V8 boxes the values of a field that ever held a float64
      const units = ((small + mask) & ~mask) >>> Shift.units
      const { caches } = this
      const stack = caches.stackFor(stream.slot, units)
      const block = stack.top
      if (caches.take(stack, units)) {
        // A timeout cuts a call short where a function begins, even a built-in one. So none is called until the block
        // is live.
        block.tag = ((block.tag | Tag.stateMask) + (1 + State.live)) | 0
        return this.handOut(block, (block.units << Shift.units) - small, stream)
      }
      return takeOffPath(this.offPath, small, stream, mayFail)
    }
    return this.takeSlowly(bytes, stream, alignment, mayFail)
  }

  /** A block just made live; of its bytes `slack` are not asked for. */
  private handOut(block: Block, slack: number, stream: Stream): DeviceBuffer {
    const { tag } = block
    // Most programs repeat the sizes of their requests.
    if (slack !== block.slack) this.setSlack(block, slack)
    block.stream = stream
    this.allocations++
    return new DeviceBuffer(block, tag)
  }

  private setSlack(block: Block, slack: number): void {
    this.caches.slackBytes += slack - block.slack
    block.slack = slack
  }

  /** @internal */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    const block = buffer.allocation as Block
    this.releaseBlock(block, buffer.tag, stream)
    block.wrapper = null // the block's next buffer may have none
  }

  /**
   * Takes back the block of a buffer that has `given` as its tag.
   * @internal
   */
  releaseBlock(block: Block, given: number, stream?: Stream): void {
    const { tag } = block
    const { slot } = block.stream
    if (tag !== given || tag > Tag.last || slot < 0 || stream !== undefined || !this.caches.put(block)) {
      releaseOffPath(this.offPath, block, given, stream)
      return
    }
    block.tag = (tag - (State.live - State.cached)) | 0
    block.mark = this.marked[slot]
  }

  deallocate(ptr: number, stream?: Stream): void {
    this.checkOpen('deallocate')
    if (this.isBusy) this.refuseCut('deallocate')
    this.addresses ??= AddressIndex.of(this.records, this.caches)
    const record = this.addresses.findAt(ptr, this.central.backing)
    if (record === 0) throw unknownAddress(ptr)
    const block = this.caches.blockOf(record)
    this.releaseBlock(block, block.tag & ~1, stream)
    block.wrapper = null
  }

  protected settle(): number {
    const settled = this.change('processDeferred', () => this.central.processDeferred())
    this.tellChanges(this.defaultStream)
    return settled
  }

  protected trim(bytes: number): void {
    this.change('trimTo', () => this.central.trimTo(bytes))
    this.tellChanges(this.defaultStream)
  }

  protected grow(bytes: number): number | null {
    const added = this.change('reserve', () => this.central.reserve(bytes))
    this.tellChanges(this.defaultStream)
    return added
  }

  /**
   * Gives all memory back to the device, and keeps addresses, buffers, typed views and graphs for `wake`. Contents are
   * copied to pinned host memory first, once all work on the memory is complete; Node goes on meanwhile. Buffers can
   * be freed while the pool sleeps or changes; every other use of the memory throws PoolError. Rejects with PoolError
   * while captured work or a run of ONNX Runtime uses the pool, an observer has its segments, or it sleeps already;
   * also in debug mode, or without backing 'virtual'. Rejects with OutOfMemoryError without enough host memory, and
   * with CudaError. Nothing has changed then, except if the driver refuses to take memory back: the pool sleeps, and
   * another `sleep` tries again.
   */
  async sleep(options: SleepOptions = {}): Promise<void> {
    checkNotRunning('sleep', this)
    await this.changeSleep('sleep', sleeper => sleeper.sleep(options))
  }

  /**
   * Takes the memory of a pool that sleeps from the device again, at the same addresses, and copies the contents back.
   * Rejects with OutOfMemoryError if the device has not enough, with PoolError for a pool that is awake, and with
   * CudaError. The pool sleeps on then, with all contents, and a later `wake` can succeed.
   */
  async wake(options: WakeOptions = {}): Promise<void> {
    await this.changeSleep('wake', sleeper => sleeper.wake(options))
  }

  /** True from the call of `sleep` until `wake` has succeeded. */
  get asleep(): boolean {
    return this.sleeper?.isAsleep === true
  }

  segments(): PoolSegment[] {
    this.checkOpen('segments')
    return this.central.backing.segments()
  }

  /** @internal */
  get isRegistrable(): boolean {
    return this.central.backing.kind === 'registrable'
  }

  /** @internal */
  get isManaged(): boolean {
    return this.central.backing.kind === 'managed'
  }

  observeSegments(observer: SegmentObserver): () => void {
    this.checkAwake('observeSegments')
    const { watch } = this.central.backing
    return watch.observe(observer, this.segments())
  }

  protected setLimit(maxPoolBytes: number): void {
    if (this.isBusy) this.refuseCut('maxPoolBytes')
    this.central.setLimit(maxPoolBytes, bytes => this.trimTo(bytes))
    this.limit = maxPoolBytes
    this.caches.limit(cacheUnits(maxPoolBytes, this.deviceBytes))
  }

  protected get reservedBytes(): number {
    return this.central.backing.reservedBytes
  }

  protected get mostBytes(): number {
    return this.central.backing.maxPoolBytes
  }

  protected mayHaveRoom(blockBytes: number): boolean {
    this.processDeferred()
    return this.central.mayHaveRoom(blockBytes, this.caches.liveUnits * UNIT_BYTES)
  }

  protected heapShortage(): HeapShortage {
    return this.central.shortage()
  }

  /**
   * Makes a group of graphs that share memory. Throws TypeError or RangeError for bad options, PoolError for a pool
   * that serves no captures, and CudaError.
   */
  createGraphGroup(options: GraphGroupOptions = {}): GraphGroup {
    this.checkAwake('createGraphGroup')
    const config = groupConfig(options, this.clocks, this.deviceBytes)
    if (!this.servesCaptures) {
      throw new PoolError('createGraphGroup: the pool serves no captures; use a caching pool without debug')
    }
    const captures = this.change('createGraphGroup', () => this.central.arenas.groups.create(config))
    return new GraphGroup(this, captures, bytes => this.outOfMemory(bytes))
  }

  /**
   * As of `BufferSource`.
   * @internal
   */
  groupOf(capture: Capture): number {
    return this.central.arenas.groups.of(capture)?.[0].number ?? 0
  }

  /**
   * Announces that another library is about to capture `stream`, which must be open. From now on the device's caching
   * pools give the stream memory that stays at its place; this pool the memory of `group`, if there is one. Throws
   * PoolError for a stream that is captured already, and while another capture of the group is under way.
   */
  beginCapture(stream: Stream, options: CaptureOptions = {}): void {
    this.checkCapturable('beginCapture', stream)
    checkOptionNames('beginCapture', options, ['group'])
    stream.checkOpen('beginCapture')
    if (options.group === undefined) Capture.announce(stream)
    else groupOf(options.group, this).announce(stream)
  }

  /**
   * Announces that the capture after `beginCapture` has ended. Call `beforeLaunch` and `noteLaunch` of the result at
   * each launch of the graph, and `close` when the graph is destroyed: then the memory goes back. Throws PoolError
   * while the stream is still captured.
   */
  endCapture(stream: Stream): GraphMemory {
    this.checkCapturable('endCapture', stream)
    if (stream.capture?.origin === stream) return stream.capture.endAnnounced()
    throw new PoolError(
      'endCapture: no capture of the stream was announced; call pool.beginCapture(stream) before it begins',
    )
  }

  stats(): CachingPoolStats {
    const open = this.acceptedClocks !== null // neither closed nor asleep
    const { allocations } = this
    const { blocks, slackBytes } = this.caches.cached()
    const liveBuffers = this.caches.handedBlocks - blocks
    return {
      liveBytes: this.caches.liveUnits * UNIT_BYTES,
      peakLiveBytes: this.caches.peakUnits * UNIT_BYTES,
      requestedBytes: this.caches.liveUnits * UNIT_BYTES - (this.caches.slackBytes - slackBytes),
      reservedBytes: this.central.backing.reservedBytes,
      peakReservedBytes: this.central.backing.peakReservedBytes,
      cachedBytes: (this.caches.handedUnits - this.caches.liveUnits) * UNIT_BYTES,
      pendingBytes: open ? this.central.pendingBytes : 0,
      largestFreeBytes: open ? this.central.largestFreeBytes : 0,
      maxPoolBytes: this.limit,
      liveBuffers,
      allocations,
      frees: allocations - liveBuffers,
      cacheMisses: this.cacheMisses,
      growths: this.central.growths,
      insertedWaits: this.central.insertedWaits,
      asleepBytes: this.sleeper?.asleepBytes ?? 0,
      hostCopyBytes: this.sleeper?.hostCopyBytes ?? 0,
    }
  }

  /** Sets the peaks to the current values. */
  resetPeaks(): void {
    this.caches.resetPeak()
    this.central.backing.peakReservedBytes = this.central.backing.reservedBytes
  }

  live(): LiveBlock[] {
    if (this.isBusy) this.refuseCut('live')
    const blocks: LiveBlock[] = []
    for (const record of this.records.taken()) {
      if (!this.caches.isLive(record)) continue
      const block = this.caches.blockOf(record)
      blocks.push({
        ptr: this.addressOfRecord(record),
        byteLength: block.requestedBytes,
        blockBytes: block.units * UNIT_BYTES,
        stream: block.stream.closed ? null : block.stream.handle,
        label: labelOf(this, record, block.tag & ~1),
      })
    }
    return blocks
  }

  /** The pool's state, block by block, as plain JSON; walks the whole pool. */
  snapshot(): PoolSnapshot {
    this.checkOpen('snapshot')
    if (this.isBusy) this.refuseCut('snapshot')
    return snapshotOf(this)
  }

  check(): void {
    this.checkOpen('check')
    if (this.isBusy) this.refuseCut('check')
    this.central.check()
    const units = { live: 0, requested: 0, cached: 0, buffers: 0, cachedBlocks: 0 }
    for (let record = this.records.first; record < this.records.used; record++) {
      const size = this.records.unitsOf(record)
      if (this.caches.isLive(record)) {
        const block = this.caches.blockOf(record)
        assert(block.units === size, 'a live block has the size of its record')
        units.live += size
        units.requested += block.requestedBytes
        units.buffers++
      }
      if (this.records.isLive(record) && this.caches.state(record) === State.cached) units.cachedBlocks++
    }
    for (let slot = 0; slot < this.caches.slotLimit; slot++) {
      for (const block of this.caches.entries(slot)) {
        assert(block.state === State.cached, 'a block in a slot is cached')
        assert(this.records.unitsOf(block.record) === block.units, 'a slot knows the size of its block')
        assert(block.slot === slot, 'a cached block is of the stream that caches it')
        assert(block.height === block.below!.height + 1, 'a cached block knows how high it lies')
        units.cached += block.units
        units.cachedBlocks--
      }
    }
    assert(units.cachedBlocks === 0, 'every cached block is in exactly one slot')
    assert(units.cached === this.caches.handedUnits - this.caches.liveUnits, 'cached blocks add up to the counter')
    const stats = this.stats()
    assert(units.live * UNIT_BYTES === stats.liveBytes, 'live blocks add up to the counter')
    assert(stats.liveBytes <= stats.peakLiveBytes, 'no more is live than at the peak')
    assert(units.requested === stats.requestedBytes, 'requested bytes add up to the counter')
    assert(units.buffers === stats.liveBuffers, 'live buffers add up to the counters')
  }

  close(): CloseReport {
    checkNotRunning('close', this)
    this.finishWork()
    const { liveBuffers: heldBuffers, requestedBytes: heldBytes } = this.stats()
    this.acceptedClocks = null
    this.sleeper?.close(true)
    this.isBusy = false
    this.caches.clear()
    this.records.words.fill(0)
    this.central.arenas.lose()
    if (!this.givenBack) {
      this.context.giveBack(() => this.central.backing.close())
      this.givenBack = true
    }
    return { heldBuffers, heldBytes }
  }

  /** For `close`: all waits come before the first change, because a device that captures refuses them. */
  protected finishWork(): void {
    if (this.givenBack) return
    this.central.backing.watch.checkNotTelling('close')
    this.clocks.context.finishWork()
    this.central.finishPeers()
  }

  /** @internal */
  announceUse(block: Block, stream: Stream): void {
    if (!stream.context.sharesAddresses(this.context))
      throw unreachable('recordUse: the stream', stream.context, this.context)
    if (this.isGuarded) this.checkUse('recordUse', block.record)
    this.noteUse(block, stream)
  }

  private noteUse(block: Block, stream: Stream): void {
    if (!this.config.streamOrdered) return
    block.state = State.shared
    this.central.announceUse(block.record, stream)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return this.central.backing.access.reaches(context)
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.checkAwake('setAccess')
    const peer = peerOf(this.context, location, access)
    if (peer !== null) this.central.backing.access.change(peer, access)
  }

  /** @internal */
  addressOfRecord(record: number): number {
    const { records } = this
    return this.central.backing.bases[records.rangeOf(record)] + records.offsetOf(record) * UNIT_BYTES
  }

  /**
   * The frees that `releaseBlock` leaves: on a named or closed stream, of a shared block, of a spent record, or
   * without room in the cache.
   * @internal
   */
  protected releaseSlowly(block: Block, given: number, stream: Stream = block.stream): void {
    if (!block.isLive(block.record, given)) this.refuseStale('free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) {
      checkUser('free', stream, this)
      this.noteUse(block, stream) // also of a pool that sleeps
      stream = block.stream
    }
    // A slab of small blocks has one copy, under the address of its first block, which stays.
    const mayHaveCopy = this.sleeper !== null && this.records.rangeOf(block.record) !== SMALL_RANGE
    const ptr = mayHaveCopy ? this.addressOfRecord(block.record) : 0
    this.begin('free')
    try {
      if (stream.capture !== null) this.central.arenas.free(block.record, stream)
      else if (stream.slot < 0 || (stream.own === undefined && stream.closed))
        this.takeBack(block, stream.lastSlot, stream.lastStamp, false)
      else this.takeBack(block, stream.slot, this.marked[stream.slot] + 1, true)
      // A graph keeps what it uses.
      if (mayHaveCopy && this.records.state(block.record) !== State.captured) this.sleeper!.noteFree(ptr)
    } catch (error) {
      this.endBy(error)
      throw error
    }
    this.isBusy = false
  }

  /**
   * Takes a block back, to be used again after stamp `covering` of a stream. One that a graph uses waits for the graph,
   * and one that other streams use waits for them. Any other is cached if the stream is open, or goes to its heap.
   */
  private takeBack(block: Block, slot: number, covering: number, isOpen: boolean): void {
    const { record, tag } = block
    if (block.slot !== slot) this.caches.assign(block, slot)
    const stamp = this.config.streamOrdered ? covering : 0
    const isShared = block.state === State.shared
    if (isShared && this.central.arenas.isCaptured(record)) this.central.arenas.freeLater(record, slot, stamp)
    else if (isShared && !this.central.forgetUses(record, slot, stamp)) this.central.defer(record, slot, stamp)
    else if (tag <= Tag.last && isOpen && !this.asleep && this.caches.put(block)) {
      block.state = State.cached
      block.mark = markBefore(stamp)
    } else {
      this.caches.noteFree(block)
      this.central.free(record, slot, stamp)
    }
  }

  /** Serves a request whose stack has no fitting block on top. */
  private takeBelow(bytes: number, stream: Stream, mayFail: boolean): DeviceBuffer | null {
    return this.answer(this.unitsOf(bytes), 1, bytes, stream, mayFail)
  }

  /**
   * Searches as one change of the pool, and tells observers. Without a buffer it returns null, or throws.
   * @internal
   */
  protected answer(
    units: number,
    alignUnits: number,
    bytes: number,
    stream: Stream,
    mayFail: boolean,
  ): DeviceBuffer | null {
    this.begin('allocate')
    let buffer: DeviceBuffer | null
    try {
      buffer = this.search(units, alignUnits, bytes, stream)
    } catch (error) {
      this.endBy(error)
      throw error
    }
    this.isBusy = false // a listener may call the pool
    if (this.central.changes !== this.toldChanges) this.tellChanges(stream)
    if (buffer !== null) return buffer
    this.noteRefusal(bytes)
    if (!mayFail) throw this.outOfMemory(bytes)
    return null
  }

  /** A buffer for a stream that can be used: an open one of this thread, a lent one, or one that is captured. */
  private search(units: number, alignUnits: number, bytes: number, stream: Stream): DeviceBuffer | null {
    if (stream.slot < 0)
      return this.handOutFound(this.central.arenas.allocate(units, alignUnits, stream), bytes, stream)
    const cached = alignUnits === 1 ? this.takeCached(units, bytes, stream) : null
    if (cached !== null) return cached
    if (stream.own !== undefined) return this.takeMissed(units, alignUnits, bytes, stream)
    return this.handOutFound(this.reserveLent(units, alignUnits, stream), bytes, stream)
  }

  /**
   * Serves a request that no cache has a block for.
   * @internal
   */
  protected takeMissed(units: number, alignUnits: number, bytes: number, stream: Stream): DeviceBuffer | null {
    const record = this.central.allocate(units, alignUnits, stream.slot)
    return this.handOutFound(record, bytes, stream)
  }

  private handOutFound(record: number, bytes: number, stream: Stream): DeviceBuffer | null {
    if (record === 0) return null
    this.cacheMisses++
    this.addresses?.note(record)
    return this.handOutNext(this.caches.blockOf(record), bytes, stream)
  }

  /** Takes a cached block from below the top of its stack, or out of another stream's stack. */
  private takeCached(units: number, bytes: number, stream: Stream): DeviceBuffer | null {
    const block = this.caches.takeElsewhere(stream.slot, units, this.clocks.known, this.central.seen)
    return block === null ? null : this.handOutNext(block, bytes, stream)
  }

  /**
   * Serves requests that the fast path leaves: with an alignment, on a lent or captured stream, or of an unusual
   * size.
   * @internal
   */
  protected takeSlowly(
    bytes: number,
    stream: Stream,
    alignment: number | undefined,
    mayFail: boolean,
  ): DeviceBuffer | null {
    if (stream === null) this.refuse('allocate', stream)
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, mayFail)
    const isOurs = stream.clocks === this.acceptedClocks
    const isCaptured = isOurs && stream.slot < 0 && stream.capture !== null && this.servesCaptures
    if (!isOurs || !(stream.isOpen || isCaptured)) this.refuse('allocate', stream)
    const units = this.unitsOf(bytes)
    if (alignment !== undefined) checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    if (isCaptured) this.toldChanges = -1 // the capture's arena may grow
    return this.answer(units, Math.max(1, (alignment ?? 1) / UNIT_BYTES), bytes, stream, mayFail)
  }

  private tellChanges(stream: Stream): void {
    this.toldChanges = this.central.changes
    this.watch.lookAtWaits(this, this.central.insertedWaits, stream)
    this.watch.lookAtReserved(this, this.central.backing.reservedBytes)
  }

  /** A request of `bytes` found no memory. Debug pools may try again. */
  protected noteRefusal(bytes: number): void {
    publishOutOfMemory(this, bytes)
  }

  /**
   * Marks the pool as being changed, off the cached path, until `isBusy` is false again.
   * @internal
   */
  protected begin(call: string): void {
    if (this.isBusy) this.refuseCut(call)
    this.isBusy = true
  }

  /**
   * The change has failed. A stack overflow may come out of its middle; any other exception leaves the pool whole.
   */
  private endBy(error: unknown): void {
    if (!isFullStack(error)) this.isBusy = false
  }

  /**
   * A call finds that an earlier one was cut short. Throws, unless the pool can be mended.
   * @internal
   */
  protected refuseCut(call: string): void {
    if (this.central.backing.watch.isTelling) {
      throw new PoolError(
        `${call}: the pool is calling its observer of segments, which must not use it; if a timeout cut the observer short, close the pool and create another`,
      )
    }
    throw new PoolError(
      `${call}: an earlier call of the pool was cut short in the middle, by a timeout or a full stack; close the pool and create another`,
    )
  }

  /**
   * For sleep: refuses uses of the memory from now on, or no longer.
   * @internal
   */
  refuseUses(refuses: boolean): void {
    this.acceptedClocks = refuses ? null : this.clocks
    this.isGuarded = refuses || this.mustGuard
    this.central.arenas.asleep = refuses
  }

  /**
   * Does `work`, which changes the pool, and which a timeout may cut short.
   * @internal
   */
  change<R>(call: string, work: () => R): R {
    this.begin(call)
    try {
      const result = work()
      this.isBusy = false
      return result
    } catch (error) {
      this.endBy(error)
      throw error
    }
  }

  /** @internal */
  protected handOutNext(block: Block, bytes: number, stream: Stream): DeviceBuffer {
    block.tag = ((block.tag | Tag.stateMask) + (1 + State.live)) | 0
    return this.handOut(block, slackOf(block, bytes), stream)
  }

  /**
   * A block for a stream of another thread. If that thread ends the stream meanwhile, the block goes back and the
   * call throws.
   */
  private reserveLent(units: number, alignUnits: number, stream: Stream): number {
    const { slot } = stream
    let record = 0
    try {
      record = this.central.allocate(units, alignUnits, slot)
      return record
    } finally {
      if (!stream.isOpen) {
        if (record !== 0) this.central.free(record, slot, this.clocks.coveringSoon(slot))
        stream.checkOpen('allocate')
      }
    }
  }

  /** @internal */
  protected override unitsOf(bytes: number): number {
    const mask = this.roundingMask
    if (typeof bytes === 'number' && bytes > 0 && (bytes & this.smallMask) === bytes)
      return classUnits(((bytes + mask) & ~mask) >>> Shift.units)
    return blockUnits(bytes, this.config) // `super` would make `handOut` longer, see docs/internals/v8.md
  }

  private checkCapturable(call: string, stream: Stream): void {
    this.checkOpen(call)
    checkStreamOf(call, stream, this.clocks)
    stream.checkCapturable(call)
  }

  /** A pool that sleeps takes no more requests, but its buffers are valid. */
  protected override get isAccepting(): boolean {
    return this.acceptedClocks !== null || this.asleep
  }

  protected override checkAwake(call: string): void {
    this.checkOpen(call)
    if (this.asleep) throw this.sleeper!.asleepError(call)
  }

  /** @internal */
  checkUse(call: string, record = 0): void {
    if (looksOnly(call)) return
    // An address alone uses no memory.
    if (this.asleep && call !== 'ptr') throw this.sleeper!.asleepError(call)
    const { arenas } = this.central
    if (call !== 'ptr') arenas.groups.checkUse(call, record)
    arenas.noteAddress()
    if (!this.asleep && !this.mustGuard) this.isGuarded = false
  }

  /** Whether uses are noted, or refused, while the pool is awake. */
  private get mustGuard(): boolean {
    return this.clocks.captures.size > 0 || this.central.arenas.groups.hasSpoilt
  }

  private async changeSleep(call: string, change: (sleeper: Sleeper) => Promise<void>): Promise<void> {
    this.checkOpen(call)
    this.sleeper ??= sleeperOf(call, this)
    try {
      await change(this.sleeper)
    } finally {
      if (this.isAccepting) this.tellChanges(this.defaultStream)
    }
  }

  private refuse(call: string, stream: Stream): never {
    this.checkAwake(call)
    checkStreamOf(call, stream, this.clocks)
    stream.checkOpen(call)
    throw new PoolError(`${call}: the stream cannot be used`)
  }
}

/** Units that one stream may cache in a pool with this limit. */
function cacheUnits(maxPoolBytes: number, deviceBytes: number): number {
  return Math.floor((Math.min(maxPoolBytes, deviceBytes) / UNIT_BYTES) * policy.streamShare)
}
