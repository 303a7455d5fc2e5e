// A caching pool that several threads of a process share. Each thread has an object of this class over the same
// state. The cached path takes a block from the thread's own stacks and puts it back there (thread-cache.ts). It
// neither waits nor writes where another thread writes. Behind the stacks stand the heaps, under a lock
// (locked-heaps.ts). Behind the heaps stands the pool server (pool-server.ts), which alone calls the driver.
//
// One thread uses and frees a live block; `transfer` and `adopt` hand it on (block-ownership.ts). A free needs no
// atomic operation, since no other thread changes the owner word of a live block.
//
// The file is long because the cached path and the public verbs share private state.

import { OutOfRangeError } from '../../base/argument-errors.js'
import type { ByteSize } from '../../base/byte-size.js'
import { describe } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { ownerWordOf, Phase } from '../../heap/owner-word.js'
import { Double, State, Word } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { checkIsStream, checkStreamOf, type Stream } from '../../order/stream.js'
import { MOST_WORKERS, ThreadRegistry } from '../../threads/thread-registry.js'
import type { DeviceArray } from '../array.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import { bufferThatLeaves, DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { type Block, type BlockOwner, markBefore, slackOf, Tag } from '../caching/block.js'
import { type GraphGroup, type GraphGroupOptions, groupConfig } from '../caching/captures/graph-group.js'
import type { SharedGraphGroup } from '../caching/captures/group-captures.js'
import type { PoolConfig } from '../caching/options.js'
import { ReservingPool, unknownAddress } from '../caching/reserving-pool.js'
import type { HeapShortage } from '../caching/shortage.js'
import { classUnits } from '../caching/stream-caches.js'
import { publishOutOfMemory } from '../channels.js'
import type { CloseReport } from '../closable-pool.js'
import { type AllocateOptions, allocateLong, isLongForm } from '../long-form.js'
import type { PoolStats } from '../pool.js'
import { checkNotRunning } from '../sleep/running-work.js'
import { checkTransferred, checkTransferredList, type TransferredBuffer } from '../transferred-buffer.js'
import { AddressLookup } from './address-lookup.js'
import { AdoptedBlock, type AdoptedOwner } from './adopted-block.js'
import { BlockOwnership } from './block-ownership.js'
import { CapturedBlock, heldByGraph } from './groups/captured-block.js'
import { SharedGroups } from './groups/shared-groups.js'
import { LockedHeaps } from './locked-heaps.js'
import type { Question, Reclaimed } from './pool-server.js'
import { ServerClient } from './server-client.js'
import type { SharedLabels } from './shared-labels.js'
import { Count, type PoolThread, type SharedLiveBlock, SharedReport } from './shared-report.js'
import { COUNT_LINE, Figure, type SharedPoolState, SharedState } from './shared-state.js'
import { type CacheLimits, cacheLimits, ThreadCache } from './thread-cache.js'

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

/** Shares of the pool's limit: the largest block that a thread caches, and all that it caches for one stream. */
const CACHED_BLOCK_SHARE = 1 / 512
const CACHED_STREAM_SHARE = 1 / 64
/** How long to wait for /proc to drop a thread that has exited. */
const REAP_TIMEOUT_MS = 200
/** Most milliseconds between two looks of `whenAvailable`. A look walks all blocks and asks the pool server. */
const MOST_POLL_MS = 16

const enum Shift {
  units = 8,
}

/** The caching pool of several worker threads: one object in each thread, over the same memory. */
export class SharedPool<D = unknown> extends ReservingPool implements BlockOwner, AdoptedOwner {
  /** @internal */
  readonly isGuarded = false
  /**
   * true, so that this pool itself refuses a captured stream
   * @internal
   */
  readonly servesCaptures = true
  /** the pool's number of this thread; no later thread gets the same number */
  readonly thread: number
  private readonly state: SharedState
  private readonly cache: ThreadCache
  private readonly words: Int32Array
  private readonly doubles: Float64Array
  private readonly addresses: AddressLookup
  private readonly ownership: BlockOwnership
  private readonly heaps: LockedHeaps
  private readonly server: ServerClient
  private readonly groups: SharedGroups
  private readonly report: SharedReport
  private readonly counts: Float64Array
  /** see `seenBy` */
  private readonly seen: Float64Array
  /**
   * the bytes that the pool server reports, for the callbacks of the thread that made the pool; null without them
   * @internal
   */
  changes: { close(): void } | null = null
  protected readonly staleReason =
    'the buffer was already freed, or handed to another thread; keep no reference to it after that'

  /** Made by the device: `device.createSharedPool()`, and in other threads `attachPool(shared)`. */
  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    protected readonly descriptor: SharedPoolState<D>,
    /** whether this thread made the pool, and so closes it for all threads */
    protected readonly creator: boolean,
    /** runs each millisecond while the thread waits for the pool server */
    meanwhile: () => void,
  ) {
    const { config } = descriptor
    super(clocks, defaultStream, config)
    this.state = new SharedState(descriptor, clocks, meanwhile)
    this.seen = this.state.seen
    const { records, thread } = this.state
    this.thread = this.state.registry.nameOf(thread)
    this.cache = new ThreadCache(this.state, this, this.cacheLimits(config))
    this.words = records.words
    this.doubles = records.doubles
    this.addresses = new AddressLookup(this.state)
    const { number } = descriptor
    this.ownership = new BlockOwnership(this.state, this.cache, this.addresses, this, clocks, defaultStream, number)
    this.heaps = new LockedHeaps(this.state, this.cache, clocks, config)
    this.server = new ServerClient(this.state, clocks, this.heaps, meanwhile)
    this.groups = new SharedGroups(this, this.server, this.state, number, bytes => this.outOfMemory(bytes))
    this.report = new SharedReport(this.state, clocks)
    this.counts = this.state.counts.subarray(thread * COUNT_LINE, (thread + 1) * COUNT_LINE)
  }

  /**
   * Returns when the pool server has begun; throws the error that kept it from making the pool.
   * @internal
   */
  begin(): void {
    this.ask({ ask: 'begin' })
  }

  /** The pool's state, for other threads of this process: send it there, and pass it to `attachPool`. */
  override share(): SharedPoolState<D> {
    this.checkOpen('share')
    return this.descriptor
  }

  /** @internal */
  get labels(): SharedLabels {
    return this.state.labels
  }

  /** How much one thread may cache. */
  protected cacheLimits(config: PoolConfig): CacheLimits {
    return cacheLimits(config, CACHED_BLOCK_SHARE, CACHED_STREAM_SHARE)
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

  private take(bytes: number, stream: Stream, alignment: number | undefined, mayFail: boolean): DeviceBuffer | null {
    if (stream === null) checkIsStream('allocate', stream)
    const { slot } = stream
    // The comparison of bytes with some of their bits holds for whole numbers from 0 to 2^30 - 1 only.
    if (
      stream.trusted === this.acceptedClocks &&
      slot >= 0 &&
      typeof bytes === 'number' && // a bigint would throw V8's error
      (bytes & this.smallMask) === bytes &&
      alignment === undefined
    ) {
      const mask = this.roundingMask
      const small = bytes | 0
      const units = ((small + mask) & ~mask) >>> Shift.units
      const { blocks } = this.cache
      const stack = blocks.stackFor(slot, units)
      const block = stack.top
      if (blocks.holds(stack, units) && this.cache.claimTop(stack)) {
        return this.handOut(block, ((block.units << Shift.units) - small) | 0, stream)
      }
      return this.takeBelow(units, small, stream, mayFail)
    }
    return this.takeSlowly(bytes, stream, alignment, mayFail)
  }

  /** A block that is not on top of the stream's stack, or not cached. */
  private takeBelow(units: number, bytes: number, stream: Stream, mayFail: boolean): DeviceBuffer | null {
    const { cache } = this
    cache.begin()
    const block = cache.blocks.takeAny(stream.slot, classUnits(units))
    const isMine = block !== null && cache.claim(block)
    if (block !== null && !isMine) cache.abandon(block)
    cache.end()
    if (isMine) return this.handOut(block, slackOf(block, bytes), stream)
    return this.takeSlowly(bytes, stream, undefined, mayFail)
  }

  /** `block` is live and this thread's; `slack` of its bytes were not requested. */
  private handOut(block: Block, slack: number, stream: Stream): DeviceBuffer {
    // Most programs request the same size again, for the same stream, without a wrapper.
    if (slack !== block.slack) this.setSlack(block, slack)
    if (block.stream !== stream) block.stream = stream
    if (block.wrapper !== null) block.wrapper = null
    this.counts[Count.allocations]++
    return new DeviceBuffer(block, block.tag)
  }

  /** Notes how many of a block's bytes were not requested, for other threads too. */
  private setSlack(block: Block, slack: number): void {
    block.slack = slack
    this.doubles[(block.record << 3) | Double.requested] = block.units * UNIT_BYTES - slack
  }

  /** Makes a buffer shorter than the request that its block was found for. */
  protected shorten(buffer: DeviceBuffer, bytes: number): void {
    const block = buffer.allocation as Block
    this.setSlack(block, slackOf(block, bytes))
  }

  /** @internal */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    const { allocation } = buffer
    if (allocation instanceof CapturedBlock) allocation.end(stream)
    else this.releaseBlock(allocation as Block, buffer.tag, stream)
  }

  /**
   * Takes back the block of a buffer that has `given` as its tag.
   * @internal
   */
  releaseBlock(block: Block, given: number, stream?: Stream): void {
    const { tag } = block
    const { slot } = block.stream
    if (
      tag !== given ||
      tag > Tag.last ||
      slot < 0 ||
      stream !== undefined ||
      !this.cache.keep(block, this.marked[slot])
    ) {
      this.releaseSlowly(block, given, stream)
    }
  }

  /**
   * Frees an adopted block. Most go back to the thread that has the page of their record.
   * @internal
   */
  releaseAdopted(block: AdoptedBlock, tag: number, stream?: Stream): void {
    const { slot } = block.stream
    if (
      block.tag !== (tag | 1) ||
      tag > Tag.last ||
      slot < 0 ||
      stream !== undefined ||
      block.state === State.shared ||
      !this.returns(block, slot, this.marked[slot] + 1)
    ) {
      this.releaseSlowly(block, tag, stream)
    }
  }

  /**
   * Sends a freed block to the thread that has the page of its record; false for this thread's blocks and large ones.
   */
  private returns(block: Block | AdoptedBlock, slot: number, stamp: number): boolean {
    const { words, state } = this
    const { record } = block
    const base = record << 4
    const owner = state.records.ownerOf(record)
    const isSmall = this.cache.isSmall(words[base | Word.units])
    if (owner === state.thread || words[base | Word.key] !== slot + 1 || !isSmall) return false
    this.makeStale(block)
    this.doubles[(record << 3) | Double.stamp] = stamp
    const sent = ownerWordOf(words[base], state.thread, Phase.sent)
    if (!state.caches.remoteFrees.send(record, sent, owner) || !this.arrives(record, owner))
      this.heaps.giveBack(record, slot, stamp)
    return true
  }

  /**
   * Whether the receiver of a sent block lives, or the pool server takes its queue. If not, the block is in no queue.
   */
  private arrives(record: number, owner: number): boolean {
    const { state } = this
    const { caches } = state
    if (state.registry.isAlive(owner)) return true
    // Under the lock the pool server clears up behind no thread, and no other thread gets that number.
    return state.locked(() => state.registry.isAlive(owner) || !caches.remoteFrees.takeBack(record, owner))
  }

  deallocate(ptr: number, stream?: Stream): void {
    this.checkOpen('deallocate')
    if (this.server.mayStillBeHeard) this.ask({ ask: 'settle' }) // completes a free that was cut short
    const record = this.addresses.find(ptr)
    if (record === 0) {
      const captured = this.groups.blockAt(ptr)
      if (captured === null) throw unknownAddress(ptr)
      captured.end(stream)
      return
    }
    const block = this.ownership.recordedBlock(record)
    const tag = this.words[record << 4] & ~1
    if (block instanceof AdoptedBlock) this.releaseAdopted(block, tag, stream)
    else this.releaseBlock(block, tag, stream)
  }

  /**
   * Gives up a live buffer or array of this thread, for another thread to adopt. Using it here from now on throws
   * PoolError. Work submitted to its stream before this call may still use it. A buffer that is never adopted stays
   * live.
   */
  transfer(buffer: DeviceBuffer | DeviceArray): TransferredBuffer {
    return this.handOver(bufferThatLeaves(buffer, this))
  }

  /** @internal */
  override handOver(buffer: DeviceBuffer): TransferredBuffer {
    if (buffer.allocation instanceof CapturedBlock) {
      throw new PoolError('transfer: memory of a graph group stays in its thread; copy it to a buffer of the pool')
    }
    return this.ownership.transfer(buffer)
  }

  /**
   * Takes over a buffer that another thread has transferred. It keeps the stream that it was allocated on. Throws
   * TypeError for any other value, PoolError for a buffer that was adopted already or belongs to another pool.
   */
  adopt(transferred: TransferredBuffer): DeviceBuffer {
    this.checkOpen('adopt')
    checkTransferred('adopt', transferred, this.descriptor.number)
    return this.ownership.adopt(transferred)
  }

  /**
   * Takes over all buffers of a list. Throws as `adopt` does, and adopts none then. Faster than one `adopt` after
   * another, since the records' cache lines are fetched together. The list can be reused.
   */
  adoptAll(transferred: readonly TransferredBuffer[]): DeviceBuffer[] {
    this.checkOpen('adoptAll')
    checkTransferredList('adoptAll', transferred)
    for (let index = 0; index < transferred.length; index++) {
      checkTransferred('adoptAll', transferred[index], this.descriptor.number)
      this.ownership.prefetch(transferred[index].record)
    }
    return this.ownership.adoptAll(transferred)
  }

  /** A live block leaves this thread: its handles are stale from now on. */
  private makeStale(block: Block | AdoptedBlock): void {
    block.tag = 0
  }

  protected settle(): number {
    return this.ask({ ask: 'settle' }) as number
  }

  protected trim(bytes: number): void {
    this.ask({ ask: 'trim', bytes })
  }

  protected grow(bytes: number): number | null {
    return this.ask({ ask: 'reserve', bytes }) as number | null
  }

  segments(): PoolSegment[] {
    this.checkOpen('segments')
    const found: PoolSegment[] = []
    let more: PoolSegment[]
    do {
      more = this.ask({ ask: 'segments', after: found.at(-1)?.ptr ?? -1 }) as PoolSegment[]
      found.push(...more)
    } while (more.length > 0)
    return found
  }

  /** @internal */
  get isRegistrable(): boolean {
    return this.config.backing === 'registrable'
  }

  /** @internal */
  get isManaged(): boolean {
    return this.config.backing === 'managed'
  }

  /** Throws PoolError: the pool server maps memory in its own thread, where no observer can be called. */
  observeSegments(_observer: SegmentObserver): never {
    this.checkOpen('observeSegments')
    throw new PoolError(
      'observeSegments: another thread maps the memory of a shared pool; look at segments(), or make it with ' +
        'createPool',
    )
  }

  protected setLimit(maxPoolBytes: number): void {
    this.ask({ ask: 'limit', bytes: maxPoolBytes === Infinity ? null : maxPoolBytes })
  }

  protected get limit(): number {
    return this.state.figures[Figure.maxPoolBytes]
  }

  protected get reservedBytes(): number {
    return this.state.figures[Figure.reservedBytes]
  }

  protected get mostBytes(): number {
    return this.config.backing === 'managed' ? this.limit : Math.min(this.limit, this.deviceBytes)
  }

  /** @internal */
  override get mostPollMs(): number {
    return MOST_POLL_MS
  }

  protected mayHaveRoom(blockBytes: number): boolean {
    return this.ask({ ask: 'hasRoom', bytes: blockBytes, liveBytes: this.stats().liveBytes }) as boolean
  }

  protected heapShortage(): HeapShortage {
    const shortage = this.ask({ ask: 'shortage' }) as HeapShortage
    return { ...shortage, groups: { bytes: shortage.groups?.bytes ?? 0, isFull: this.groups.isFull } }
  }

  /**
   * Counters of all threads together. No thread is stopped: while others work, each block is counted as it is found.
   * Peaks are those noticed by this call, or when the pool server looked at all blocks. After `close` there is no
   * memory to count.
   */
  stats(): PoolStats {
    return this.report.stats(!this.closed)
  }

  /**
   * Every buffer that a thread holds, or that is on its way between threads, in no particular order. Those of graph
   * groups are listed in their own thread alone.
   */
  live(): SharedLiveBlock[] {
    return this.closed ? [] : [...this.report.live(), ...this.groups.live(this.thread)]
  }

  /** The threads that use the pool, its pool server included, and those that ended while they held buffers. */
  threads(): PoolThread[] {
    return this.report.threads()
  }

  /**
   * Gives back the buffers of a thread that has ended, once all work submitted so far has completed. `thread` is its
   * number in `threads()`; 0 stands for buffers that were transferred and never adopted. Returns how much that was:
   * nothing for a thread that lives or held nothing. Waits up to 200 ms for a thread that is about to end.
   */
  reclaim(thread: number): Reclaimed {
    this.checkOpen('reclaim')
    const worker = ThreadRegistry.numberIn(thread)
    if (!Number.isInteger(thread) || thread < 0 || worker > MOST_WORKERS) {
      throw new OutOfRangeError(`reclaim: thread must be a number of threads(), not ${describe(thread)}`)
    }
    const { registry } = this.state
    const patience = new Int32Array(new SharedArrayBuffer(4))
    const isThere = () => registry.isAlive(worker) && registry.nameOf(worker) === thread
    for (let looks = 0; looks < REAP_TIMEOUT_MS && isThere() && !registry.hasDied(worker); looks++) {
      Atomics.wait(patience, 0, 0, 1)
    }
    return this.ask({ ask: 'reclaim', thread }) as Reclaimed
  }

  check(): void {
    this.checkOpen('check')
    this.ask({ ask: 'check' })
    this.cache.check()
  }

  override get closed(): boolean {
    return !this.isAccepting
  }

  /**
   * In the thread that made the pool: waits for pending work and gives all memory back; throws PoolError while other
   * threads use the pool. In another thread: leaves the pool, and frees the buffers still held on their streams.
   * Returns how much was held. A second close does nothing.
   */
  close(): CloseReport {
    if (this.closed) return { heldBuffers: 0, heldBytes: 0 }
    checkNotRunning('close', this)
    if (this.creator) this.clocks.registry.checkNoCapture('close')
    else this.groups.announceUses()
    const { buffers, bytes } = this.server.isLost ? this.leaveLost() : this.askToClose()
    // Only now that the answer is here: the next thread of this number asks in the same place.
    this.state.registry.forget(this.state.thread)
    this.acceptedClocks = null
    this.ownership.clear()
    this.changes?.close()
    return { heldBuffers: buffers, heldBytes: bytes }
  }

  /**
   * Makes a group of graphs that share memory. Other threads capture and launch graphs of it, too: see `group.share`.
   * Throws TypeError or RangeError for bad options, PoolError for a pool without virtual memory, and CudaError.
   */
  createGraphGroup(options: GraphGroupOptions = {}): GraphGroup {
    this.checkOpen('createGraphGroup')
    const config = groupConfig(options, this.clocks, this.deviceBytes)
    if (this.descriptor.kind !== 'caching' || this.config.backing !== 'virtual') {
      throw new PoolError(
        "createGraphGroup: threads share graph groups in a pool of createSharedPool with backing 'virtual' alone; " +
          'use such a pool, or one of this thread',
        'ERR_NOT_SUPPORTED',
      )
    }
    if (config.arena !== null) {
      throw new PoolError(
        'createGraphGroup: a group that threads share has no arena; make the group in a pool of createPool',
      )
    }
    return this.groups.create(config)
  }

  /**
   * The graph group that `group.share()` of another thread describes: the same object each time. Throws TypeError for
   * any other value, PoolError for a closed group or one of another pool.
   */
  attachGraphGroup(shared: SharedGraphGroup): GraphGroup {
    this.checkOpen('attachGraphGroup')
    return this.groups.attach(shared)
  }

  /** @internal */
  announceUse(block: Block | AdoptedBlock, stream: Stream): void {
    this.checkStream('recordUse', stream)
    if (!this.config.streamOrdered) return
    this.askToRecord(block.record, stream.slot, null)
  }

  /** Work of a stream slot uses a live block, up to `stamp`; null: until the free. */
  protected askToRecord(record: number, slot: number, stamp: number | null): void {
    const allocation = this.ownership.blockOf(record)
    const { state } = allocation
    allocation.state = State.shared // set first: if this call is cut short, the free still asks the pool server
    try {
      this.ask({ ask: 'recordUse', record, slot, stamp })
    } catch (error) {
      if (!this.server.mayStillBeHeard) allocation.state = state
      throw error
    }
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return context.sharesDevice(this.context)
  }

  /** @internal */
  checkUse(): void {}

  /** @internal */
  requestedBytesOfRecord(record: number): number {
    return this.doubles[(record << 3) | Double.requested]
  }

  /** @internal */
  addressOfRecord(record: number): number {
    const base = record << 4
    return this.state.bases[this.words[base | Word.range]] + this.words[base | Word.offset] * UNIT_BYTES
  }

  /** Requests with an alignment, of unusual streams or sizes, and those that the top of a stack cannot serve. */
  private takeSlowly(
    bytes: number,
    stream: Stream,
    alignment: number | undefined,
    mayFail: boolean,
  ): DeviceBuffer | null {
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, mayFail)
    this.checkUsable('allocate', stream)
    const units = this.unitsOf(bytes)
    if (alignment !== undefined) checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    if (stream.capture !== null) return this.takeCaptured(bytes, units, stream, alignment, mayFail)
    const block =
      stream.trusted === undefined
        ? this.findLent(units, stream, alignment)
        : this.findBlock(units, stream.slot, alignment)
    if (block === null) publishOutOfMemory(this, bytes)
    if (block === null && mayFail) return null
    if (block === null) throw this.outOfMemory(bytes)
    return this.handOut(block, slackOf(block, bytes), stream)
  }

  private takeCaptured(
    bytes: number,
    units: number,
    stream: Stream,
    alignment: number | undefined,
    mayFail: boolean,
  ): DeviceBuffer | null {
    const buffer = this.groups.take(bytes, units, Math.max(1, (alignment ?? 1) / UNIT_BYTES), stream)
    if (buffer !== null) {
      this.counts[Count.allocations]++
      return buffer
    }
    publishOutOfMemory(this, bytes)
    if (mayFail) return null
    throw this.outOfMemory(bytes)
  }

  /** A live block for the open stream of a slot; null for none. */
  private findBlock(units: number, slot: number, alignment: number | undefined): Block | null {
    const cached = alignment === undefined ? this.cache.take(units, slot, this.clocks.known, this.seen) : null
    if (cached !== null) return cached
    const alignUnits = Math.max(1, (alignment ?? 1) / UNIT_BYTES)
    const record = this.heaps.take(units, alignUnits, slot) || this.askFor(units, alignUnits, slot)
    if (record === 0) return null
    this.counts[Count.misses]++
    this.addresses.note(record)
    return this.cache.admit(record)
  }

  /** The same for a stream that another thread may end meanwhile: then the block goes back, and the call throws. */
  private findLent(units: number, stream: Stream, alignment: number | undefined): Block | null {
    const { slot } = stream
    let block: Block | null = null
    try {
      block = this.findBlock(units, slot, alignment)
      return block
    } finally {
      if (!stream.isOpen) {
        if (block !== null) {
          this.makeStale(block)
          this.heaps.giveBack(block.record, slot, this.clocks.coveringSoon(slot))
        }
        stream.checkOpen('allocate')
      }
    }
  }

  /** A free on a named or closed stream, or of a block that other streams use or that the cache has no room for. */
  private releaseSlowly(block: Block | AdoptedBlock, given: number, stream: Stream = block.stream): void {
    const { record } = block
    if (!block.isLive(record, given)) this.refuseStale('free')
    checkStreamOf('free', stream, this.clocks)
    stream.checkShareable('free')
    if (stream.capture !== null) throw heldByGraph('free')
    const hasSlot = !stream.closed && stream.slot >= 0
    const slot = hasSlot ? stream.slot : stream.lastSlot
    const covering = hasSlot ? this.clocks.coveringSoon(slot) : stream.lastStamp
    const stamp = this.config.streamOrdered ? covering : 0
    if (block.state === State.shared) this.defer(block, slot, stamp)
    else if (stream.isOpen && given <= Tag.last) this.sendOrCache(block, slot, stamp)
    else {
      this.makeStale(block)
      this.heaps.giveBack(record, slot, stamp)
    }
  }

  /**
   * Asks for the free of a block that other streams use. Its handles are stale before, in case the call is cut short.
   */
  private defer(block: Block | AdoptedBlock, slot: number, stamp: number): void {
    const { tag, record } = block
    this.makeStale(block)
    try {
      this.ask({ ask: 'defer', record, slot, stamp })
    } catch (error) {
      if (!this.server.mayStillBeHeard) block.tag = tag
      throw error
    }
  }

  /** A block freed on an open stream goes to the thread of its page, else into a stack, else to its heap. */
  private sendOrCache(block: Block | AdoptedBlock, slot: number, stamp: number): void {
    if (this.returns(block, slot, stamp)) return
    const { record } = block
    const { state, words, cache } = this
    this.makeStale(block)
    if (cache.isSmall(words[(record << 4) | Word.units])) {
      state.caches.includeSlot(slot)
      words[(record << 4) | Word.key] = slot + 1
      const own = cache.admit(record, words[(record << 4) | Word.sizeClass])
      if (cache.keep(own, markBefore(stamp))) return
      this.makeStale(own)
    }
    this.heaps.giveBack(record, slot, stamp)
  }

  private askFor(units: number, alignUnits: number, slot: number): number {
    return this.ask({ ask: 'allocate', units, alignUnits, slot }) as number
  }

  protected ask(question: Question): unknown {
    return this.server.ask(question)
  }

  private askToClose(): Reclaimed {
    return this.ask({ ask: this.creator ? 'close' : 'leave' }) as Reclaimed
  }

  private leaveLost(): Reclaimed {
    if (this.creator) this.state.checkAlone(this.state.thread)
    const held = this.live().filter(block => block.thread === this.thread)
    return { buffers: held.length, bytes: held.reduce((sum, { byteLength }) => sum + byteLength, 0) }
  }

  protected override checkStream(call: string, stream: Stream): void {
    this.checkUsable(call, stream)
    if (stream.capture !== null) throw heldByGraph(call)
  }

  /** As `checkStream`; a captured stream takes work, too. */
  private checkUsable(call: string, stream: Stream): void {
    this.checkOpen(call)
    checkStreamOf(call, stream, this.clocks)
    stream.checkShareable(call)
    stream.checkUsable(call)
  }
}
