// An arena that several threads share. Each thread has an object of this class over the same state
// (shared-arena-state.ts). An allocation moves the top that all threads share (core/heap/shared-bump.ts), and waits
// only for a thread that resets; the thread then has a buffer on a stack of its own, where units of other threads are
// holes. The memory is one driver allocation. Its maker gives it back, or the last thread if the maker has died.

import type { ByteSize } from '../../base/byte-size.js'
import { PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Context } from '../../driver/context.js'
import { Span } from '../../heap/bump.js'
import { Refusal, type SharedBump } from '../../heap/shared-bump.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { streamIn } from '../../order/borrowed.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import { checkStreamOf, type Stream } from '../../order/stream.js'
import type { DeviceArray } from '../array.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { WholeMapping } from '../backing/registrable-segments.js'
import { type PoolSegment, type SegmentObserver, SegmentWatch } from '../backing/segment-watch.js'
import { bufferThatLeaves, DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { type CloseReport, inUseError } from '../closable-pool.js'
import { type AllocateOptions, allocateLong, isLongForm } from '../long-form.js'
import type { PoolStats } from '../pool.js'
import { checkNotRunning } from '../sleep/running-work.js'
import { checkTransferred, checkTransferredList, type TransferredBuffer } from '../transferred-buffer.js'
import { Arena, alignUnitsOf, unitsOf } from './arena.js'
import { ArenaAllocation } from './arena-allocation.js'
import { openArenaMemory } from './arena-memory.js'
import { parseArenaOptions } from './arena-options.js'
import type { Epochs } from './epochs.js'
import { ArenaState, newArenaState, type SharedArenaState, Tally, wordOf } from './shared-arena-state.js'

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer
const UNIT_SHIFT = 8
const UNIT_MASK = 255
const DEFAULT_ALIGNMENT = 256

/** Epochs begin at 1. */
const NO_EPOCH = 0
/** Below the entries of all adopted buffers, which are complements of units. */
const DEAD = -(2 ** 31)

/** Options of `createSharedArenaPool`. */
export interface SharedArenaOptions {
  /** memory that the arena takes from the device at once, rounded up to 256; all that it will have */
  readonly bytes: ByteSize
  /** as of `createArenaPool` ('auto') */
  readonly backing?: 'auto' | 'registrable'
}

/** The state of a new shared arena, with its memory. */
export function newSharedArena<D>(clocks: Clocks, options: SharedArenaOptions, device: D): SharedArenaState<D> {
  checkOptionNames('createSharedArenaPool', options, ['bytes', 'backing'])
  const config = parseArenaOptions(clocks.context, options)
  const memory = openArenaMemory('createSharedArenaPool', clocks.context, config)
  try {
    return newArenaState(memory, device)
  } catch (error) {
    memory.close()
    throw error
  }
}

/**
 * An arena for several threads: each allocates from it, and a `reset` by any of them gives back the memory of all. A
 * buffer belongs to one thread, until `transfer` and `adopt` hand it on. There are no marks, since other threads move
 * the top of the stack too. All threads must be done with their buffers before one resets: work on an old buffer
 * could run over another thread's memory. Later uses of old buffers throw.
 */
export class SharedArenaPool<D = unknown> extends Arena {
  private readonly state: ArenaState
  private readonly shared: SharedBump
  protected readonly epochs: Epochs
  /** by entry: buffers of other threads that this thread has adopted. The entry is the complement of the first unit */
  private readonly adopted = new Map<number, Span>()
  /** of this thread's observer */
  private readonly watch = new SegmentWatch()
  protected readonly staleReason =
    'the buffer was already freed, or handed to another thread, or some thread has reset the arena since'

  /** Made by the device: `device.createSharedArenaPool({ … })`, and in other threads `attachPool(shared)`. */
  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    private readonly descriptor: SharedArenaState<D>,
    /** whether this thread made the arena, and so closes it for all threads */
    private readonly creator: boolean,
    /** runs each millisecond while the thread waits for another thread's reset */
    private readonly meanwhile: () => void,
  ) {
    super(clocks, defaultStream, descriptor.base, descriptor.bytes, NO_EPOCH, null)
    this.state = new ArenaState(descriptor, clocks, this.firstUnit, this.lastUnit)
    this.shared = this.state.bump
    this.epochs = this.state.epochs
  }

  /** The number of this thread in the arena. */
  get thread(): number {
    return this.state.thread
  }

  /** The arena's state, for other threads of this process: send it there, and pass it to `attachPool`. */
  override share(): SharedArenaState<D> {
    this.checkOpen('share')
    return this.descriptor
  }

  allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    return this.take(bytes as number, stream as Stream, alignment, true)!
  }

  tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    return this.take(bytes as number, stream as Stream, alignment, false)
  }

  /** Throws without room if `orThrow` is set: a check by the caller would cost each allocation. */
  private take(
    bytes: number,
    stream: Stream = this.defaultStream,
    alignment: number = DEFAULT_ALIGNMENT,
    orThrow: boolean,
  ): DeviceBuffer | null {
    const { allocation, bump, shared, epoch } = this
    if (
      stream === allocation.stream &&
      allocation.stream.slot >= 0 &&
      (allocation.stream.trusted !== undefined || allocation.stream.isOpen) &&
      alignment === DEFAULT_ALIGNMENT
    ) {
      // This holds for whole numbers from 1 to 2^31 - 1 only.
      if (typeof bytes === 'number' && (bytes | 0) === bytes && bytes > 0) {
        const units = (bytes + UNIT_MASK) >>> UNIT_SHIFT
        if (shared.epoch === epoch && bump.fits(units)) {
          const unit = shared.take(epoch, units)
          if (unit >= 0) return this.handOut(unit, units, bytes)
        }
      }
    }
    return this.takeSlowly(bytes, stream, alignment, orThrow)
  }

  /**
   * Makes the buffer stale. Its memory comes back with the next reset.
   * @internal
   */
  release(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    const { tag } = buffer
    if (!buffer.allocation.isLive(-1, tag)) this.refuseStale('free')
    checkStreamOf('free', stream, this.clocks)
    stream.checkShareable('free')
    stream.checkUncaptured('free')
    this.epochs.use(stream, this.epoch)
    const bytes = this.requestedBytesOfEntry(tag)
    this.giveUp(tag)
    this.state.count(this.epoch, Tally.freedBuffers, Math.ceil(bytes / UNIT_BYTES), bytes)
  }

  /**
   * Gives back the memory of all threads. All buffers are stale from now on, and work submitted to `stream` after
   * this call may use their memory. The stream waits for all streams that used the arena; streams that use it again
   * wait for this point. The default is the only stream that used the arena since the last reset, or else the
   * device's default stream. The host does not wait, except threads that allocate meanwhile.
   */
  reset(stream: Stream = this.resetStream()): void {
    this.checkStream('reset', stream)
    const { state, shared, epochs } = this
    shared.reset(epoch => {
      state.sums() // notes the peak
      epochs.end(epoch, stream, true)
    }, this.meanwhile)
    state.tally[Tally.insertedWaits] = epochs.insertedWaits
    this.catchUp()
  }

  /** The memory that buffers can lie on: one segment. */
  segments(): PoolSegment[] {
    this.checkOpen('segments')
    return [{ ptr: this.descriptor.base, bytes: this.descriptor.bytes }]
  }

  /**
   * Tells `observer` of the arena's segment, and that it goes before this thread closes the arena. Call the result to
   * end this. Throws PoolError if this thread has an observer.
   */
  observeSegments(observer: SegmentObserver): () => void {
    return this.watch.observe(observer, this.segments())
  }

  /**
   * Whether libraries such as NCCL can register its segment.
   * @internal
   */
  get isRegistrable(): boolean {
    return this.descriptor.isRegistrable
  }

  /** Counters of all threads together; no thread is stopped. The peak is noticed by `stats()` and at resets. */
  stats(): PoolStats {
    const sums = this.state.sums()
    const { buffers, units, requestedBytes } = this.closed ? NOTHING : sums
    return {
      liveBytes: units * UNIT_BYTES,
      peakLiveBytes: this.state.peakUnits * UNIT_BYTES,
      requestedBytes,
      reservedBytes: this.closed ? 0 : this.maxPoolBytes,
      peakReservedBytes: this.maxPoolBytes,
      cachedBytes: 0,
      pendingBytes: 0,
      largestFreeBytes: this.availableBytes,
      maxPoolBytes: this.maxPoolBytes,
      liveBuffers: buffers,
      allocations: sums.allocations,
      frees: Math.max(0, sums.allocations - buffers), // a thread counts an allocation last
      cacheMisses: 0,
      insertedWaits: sums.insertedWaits,
      growths: 0,
    }
  }

  /** @internal */
  override get drops(): number {
    return this.closed ? -1 : this.shared.epoch
  }

  override get closed(): boolean {
    return !this.isAccepting
  }

  /**
   * In the thread that made the arena: waits for pending work and gives the memory back; throws PoolError while other
   * threads use it. In another thread: leaves the arena; its buffers stay allocated until the next reset. Returns how
   * much was held. A second close does nothing.
   */
  close(): CloseReport {
    checkNotRunning('close', this)
    this.watch.checkNotTelling('close')
    if (this.closed) {
      this.context.destroyRest()
      return { heldBuffers: 0, heldBytes: 0 }
    }
    const { state } = this
    if (!this.creator) {
      if (state.others().length === 0 || this.watch.isObserved) this.clocks.context.finishWork()
      this.watch.leaving(this.descriptor.base)
      const report = this.leave()
      if (state.others().length === 0 && state.shut()) this.giveBack() // the thread that made the arena has died
      return report
    }
    state.shut()
    try {
      const others = state.others()
      if (others.length > 0) throw inUseError(others)
      this.clocks.context.finishWork()
      this.watch.leaving(this.descriptor.base)
    } catch (error) {
      state.reopen()
      throw error
    }
    const { buffers, requestedBytes } = state.sums()
    this.leave()
    this.giveBack()
    return { heldBuffers: buffers, heldBytes: requestedBytes }
  }

  /**
   * Gives up a live buffer or array of this thread, for another thread to adopt. Using it here from now on throws
   * PoolError. Work submitted to its stream before this call may still use it.
   */
  transfer(buffer: DeviceBuffer | DeviceArray): TransferredBuffer {
    return this.handOver(bufferThatLeaves(buffer, this))
  }

  /** @internal */
  override handOver(buffer: DeviceBuffer): TransferredBuffer {
    const { tag, stream } = buffer
    if (!buffer.allocation.isLive(-1, tag)) this.refuseStale('transfer')
    const { underway, requested, streams } = this.state.parts
    const record = this.unitOf(tag) - this.firstUnit
    const before = Atomics.load(underway, record)
    if (this.shared.epoch !== this.epoch) this.refuseStale('transfer')
    requested[record] = this.requestedBytesOfEntry(tag)
    streams[record] = stream.generation * MOST_STREAMS + stream.covering[0]
    this.giveUp(tag)
    // Fails if another thread has reset the arena by now, and the memory is on its way again.
    if (Atomics.compareExchange(underway, record, before, wordOf(this.epoch)) !== before) this.refuseStale('transfer')
    return { pool: this.descriptor.number, record, tag: this.epoch }
  }

  /**
   * Takes over a buffer that another thread has transferred. It keeps the stream that it was allocated on. Throws
   * TypeError for any other value, PoolError for a buffer that was adopted already, belongs to another pool, or is
   * from before a reset.
   */
  adopt(transferred: TransferredBuffer): DeviceBuffer {
    this.checkOpen('adopt')
    return this.adoptOne('adopt', transferred)
  }

  /** Takes over all buffers of a list. Throws as `adopt` does, and adopts none then. */
  adoptAll(transferred: readonly TransferredBuffer[]): DeviceBuffer[] {
    this.checkOpen('adoptAll')
    checkTransferredList('adoptAll', transferred)
    for (const one of transferred) checkTransferred('adoptAll', one, this.descriptor.number)
    const buffers: DeviceBuffer[] = []
    try {
      for (const one of transferred) buffers.push(this.adoptOne('adoptAll', one))
    } catch (error) {
      for (const [index, { tag }] of buffers.entries()) {
        this.giveUp(tag)
        this.sendOn(transferred[index])
      }
      throw error
    }
    return buffers
  }

  /** If the driver refuses to wait for the closed stream of a buffer, it is on its way again. */
  private adoptOne(call: string, transferred: TransferredBuffer): DeviceBuffer {
    checkTransferred(call, transferred, this.descriptor.number)
    const { record, tag } = transferred
    const { underway, streams } = this.state.parts
    const isHere = tag === this.catchUp() && record >= 0 && record < underway.length
    if (!isHere || Atomics.compareExchange(underway, record, wordOf(tag), 0) !== wordOf(tag)) {
      throw new PoolError(
        `${call}: the buffer is not on its way to another thread; each buffer.transfer() of this pool can be adopted once, until a reset`,
      )
    }
    try {
      const word = streams[record]
      const slot = word % MOST_STREAMS
      const stream = streamIn(this.clocks, slot, (word - slot) / MOST_STREAMS) ?? this.defaultStream
      const [entry, span] = [~(this.firstUnit + record), new Span(0)]
      this.adopted.set(entry, span)
      return new DeviceBuffer(new ArenaAllocation(this, this, stream, span, null), entry)
    } catch (error) {
      this.sendOn(transferred)
      throw error
    }
  }

  /** Puts a claimed buffer back on its way. After a reset by another thread nobody can adopt it. */
  private sendOn({ record, tag }: TransferredBuffer): void {
    Atomics.compareExchange(this.state.parts.underway, record, 0, wordOf(tag))
  }

  /** @internal */
  override addressOfEntry(entry: number): number {
    return this.base + this.unitOf(entry) * UNIT_BYTES
  }

  /** @internal */
  override requestedBytesOfEntry(entry: number): number {
    return entry < 0 ? this.state.parts.requested[~entry - this.firstUnit] : this.bump.requestedBytesOf(entry)
  }

  /** @internal */
  override isFreed(entry: number): boolean {
    return this.shared.epoch !== this.epoch || (entry > 0 && this.bump.isFreed(entry))
  }

  /** @internal */
  announceUse(stream: Stream): void {
    this.checkStream('recordUse', stream)
    this.epochs.use(stream, this.epoch)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return context.sharesDevice(this.context)
  }

  protected get topUnit(): number {
    return this.shared.top
  }

  /** An allocation that is aligned or large, on another stream than the last one, or during another thread's reset. */
  private takeSlowly(bytes: number, stream: Stream, alignment: number, orThrow: boolean): DeviceBuffer | null {
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, !orThrow)
    const units = unitsOf(bytes)
    checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    this.checkStream('allocate', stream)
    const { shared, epochs } = this
    if (units * UNIT_BYTES > this.maxPoolBytes) return this.refuse(bytes, alignment, orThrow)
    for (;;) {
      const epoch = this.catchUp()
      if (!epochs.join(stream, epoch, () => shared.epoch === epoch)) continue
      this.state.tally[Tally.insertedWaits] = epochs.insertedWaits
      this.follow(stream)
      this.bump.limit = this.lastUnit
      const unit = shared.takeAligned(epoch, units, alignUnitsOf(alignment))
      if (unit >= 0) return this.handOut(unit, units, bytes)
      if (unit === Refusal.full) return this.refuse(bytes, alignment, orThrow)
      if (unit === Refusal.closed) shared.awaitOpen(this.meanwhile)
    }
  }

  private handOut(unit: number, units: number, bytes: number): DeviceBuffer {
    const { state, allocation } = this
    const entry = this.bump.pushAt(unit, units, bytes)
    state.count(this.epoch, Tally.buffers, units, bytes)
    state.tally[Tally.allocations]++
    return new DeviceBuffer(allocation, entry)
  }

  /**
   * Drops this thread's buffers if some thread has reset the arena since. Nothing fits until a stream has joined.
   * Returns the present epoch.
   */
  private catchUp(): number {
    const { epoch } = this.shared
    if (epoch !== this.epoch) this.dropAll()
    this.epoch = epoch
    return epoch
  }

  private dropAll(): void {
    this.bump.limit = this.firstUnit
    this.bump.dropTo(0)
    for (const entry of this.adopted.keys()) this.giveUp(entry)
  }

  /** Makes a live buffer stale. */
  private giveUp(entry: number): void {
    const span = this.adopted.get(entry)
    if (span !== undefined) span.last = DEAD
    this.adopted.delete(entry)
    if (entry > 0) this.bump.free(entry)
  }

  /** The first unit of a live buffer. */
  private unitOf(entry: number): number {
    return entry < 0 ? ~entry : this.bump.startOf(entry)
  }

  /** Leaves the arena. Returns what this thread held. */
  private leave(): CloseReport {
    this.catchUp()
    const { bump, adopted, state } = this
    let heldBytes = bump.requestedBytes
    for (const entry of adopted.keys()) heldBytes += this.requestedBytesOfEntry(entry)
    const report = { heldBuffers: bump.liveBlocks + adopted.size, heldBytes }
    this.acceptedClocks = null
    this.dropAll()
    state.registry.forget(state.thread)
    return report
  }

  private resetStream(): Stream {
    const { clocks } = this
    const slot = this.closed ? -1 : this.epochs.only(this.shared.epoch)
    if (slot === -1) return this.defaultStream
    return streamIn(clocks, slot, clocks.slots.generationOf(slot)) ?? this.defaultStream
  }

  private giveBack(): void {
    const { base, bytes, isRegistrable } = this.descriptor
    const mapping = WholeMapping.at(base, bytes)
    this.context.destroy(driver => (isRegistrable ? mapping.giveBack(driver) : driver.cuMemFree(base)))
  }

  protected override checkStream(call: string, stream: Stream): void {
    super.checkStream(call, stream)
    stream.checkShareable(call)
  }
}

const NOTHING = { buffers: 0, units: 0, requestedBytes: 0 }
