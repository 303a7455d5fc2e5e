// An arena that several threads share. Each thread has an object of this class over the same state
// (shared-arena-state.ts). An allocation moves the top of the stack (heap/shared-bump.ts), and waits only for a thread
// that resets. Stream order: shared-epochs.ts. The memory is one driver allocation. Its maker gives it back, or the
// last thread if the maker has died. The file is long because allocating, resetting and closing share private state.

import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { Refusal } from '../../heap/shared-bump.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { streamIn } from '../../order/borrowed.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import { checkIsStream, checkStreamOf, type Stream } from '../../order/stream.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { checkLeaves, DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { ClosablePool, type CloseReport, inUseError } from '../closable-pool.js'
import { beyondDevice, shortageOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import { RecordAllocation, type RecordPool } from '../record-allocation.js'
import { checkTransferred, checkTransferredList, type TransferredBuffer } from '../transferred-buffer.js'
import { openArenaMemory } from './arena-memory.js'
import { type ArenaOptions, alignUnitsOf, parseArenaOptions, unitsOf } from './arena-pool.js'
import { ArenaState, newArenaState, ownerOf, type SharedArenaState, Tally, UNDERWAY } from './shared-arena-state.js'

/** Sizes with only these bits need no further check. */
const SMALL_MASK = 2 ** 30 - 1
const DEFAULT_ALIGNMENT = 256
/** Epochs begin at 1. */
const NO_EPOCH = 0

/** Options of an arena that threads share. */
export type SharedArena = ArenaOptions & { readonly shared: true }

/** The state of a new shared arena, with its memory. */
export function newSharedArena<D>(clocks: Clocks, options: ArenaOptions, device: D): SharedArenaState<D> {
  const { bytes, maxBytes } = parseArenaOptions(options)
  if (maxBytes > bytes) {
    throw new TypeError('maxBytes and shared exclude each other: give bytes all that the arena will need')
  }
  const { context } = clocks
  const memory = openArenaMemory(context, bytes, bytes)
  try {
    // Units are numbered so that a unit's number is aligned exactly as its address is.
    const firstUnit = (memory.base % MOST_ALIGNMENT_BYTES) / UNIT_BYTES
    const room = { firstUnit, lastUnit: firstUnit + bytes / UNIT_BYTES }
    return newArenaState(memory.base - firstUnit * UNIT_BYTES, room, device)
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
export class SharedArenaPool<D = unknown> extends ClosablePool implements RecordPool {
  /** bytes of the arena */
  readonly limitBytes: number
  private readonly state: ArenaState
  private readonly joined: Int32Array
  protected readonly staleReason =
    'the buffer was already freed, or handed to another thread, or some thread has reset the arena since'

  /** Made by the device: `device.createArenaPool({ shared: true, … })`, and in other threads `attachPool(shared)`. */
  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    private readonly descriptor: SharedArenaState<D>,
    /** whether this thread made the arena, and so closes it for all threads */
    private readonly creator: boolean,
    /** runs each millisecond while the thread waits for another thread's reset */
    private readonly meanwhile: () => void,
  ) {
    super(clocks, defaultStream)
    this.limitBytes = (descriptor.lastUnit - descriptor.firstUnit) * UNIT_BYTES
    this.state = new ArenaState(descriptor, clocks)
    this.joined = this.state.epochs.known.joined
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

  allocate(bytes: number, stream: Stream = this.defaultStream, alignment: number = DEFAULT_ALIGNMENT): DeviceBuffer {
    const buffer = this.tryAllocate(bytes, stream, alignment)
    if (buffer === null) throw this.outOfMemory(bytes)
    return buffer
  }

  tryAllocate(
    bytes: number,
    stream: Stream = this.defaultStream,
    alignment: number = DEFAULT_ALIGNMENT,
  ): DeviceBuffer | null {
    if (stream === null) checkIsStream('allocate', stream)
    const { slot } = stream
    const isAccepted = stream.trusted === this.acceptedClocks || this.accepts(stream)
    if (isAccepted && slot >= 0 && alignment === DEFAULT_ALIGNMENT) {
      // This holds for whole numbers from 1 to 2^30 - 1 only. A bigint would throw V8's error.
      if (typeof bytes === 'number' && (bytes & SMALL_MASK) === bytes && bytes > 0) {
        const { bump } = this.state
        const { epoch } = bump
        if (this.joined[slot] === epoch) {
          const unit = bump.take(epoch, (bytes + 255) >>> 8)
          if (unit >= 0) return this.handOut(unit, bytes, epoch, stream)
        }
      }
    }
    return this.takeSlowly(bytes, stream, alignment)
  }

  /** Whether the arena serves a stream that is not `trusted`. */
  private accepts(stream: Stream): boolean {
    return stream.clocks === this.acceptedClocks && stream.isOpen && stream.isShareable
  }

  /**
   * Makes the buffer stale. Its memory comes back with the next reset.
   * @internal
   */
  release(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    const { record, tag } = buffer
    if (!this.isLive(record, tag)) this.refuseStale('free')
    checkStreamOf('free', stream, this.clocks)
    stream.checkShareable('free')
    stream.checkUncaptured('free')
    this.state.epochs.use(stream, tag)
    const bytes = this.state.requested[record] // another buffer's, if a thread resets the arena now; `giveUp` throws then
    this.giveUp('free', record, tag, 0)
    this.state.count(tag, Tally.freedBuffers, Math.ceil(bytes / UNIT_BYTES), bytes)
  }

  /**
   * Gives back the memory of all threads. All buffers are stale from now on, and work submitted to `stream` after
   * this call may use their memory. The stream waits for all streams that used the arena; streams that use it again
   * wait for this point. The default is the only stream that used the arena since the last reset, or else the
   * device's default stream. The host does not wait, except threads that allocate meanwhile.
   */
  reset(stream: Stream = this.resetStream()): void {
    this.checkStream('reset', stream)
    const { bump, epochs, tally } = this.state
    bump.reset(epoch => {
      this.state.sums() // notes the peak
      epochs.end(epoch, stream)
    }, this.meanwhile)
    tally[Tally.insertedWaits] = epochs.insertedWaits
  }

  /** Bytes not allocated: the largest possible allocation now. */
  get availableBytes(): number {
    return this.closed ? 0 : (this.descriptor.lastUnit - this.state.bump.top) * UNIT_BYTES
  }

  /** Counters of all threads together; no thread is stopped. The peak is noticed by `stats()` and at resets. */
  stats(): PoolStats {
    const sums = this.state.sums()
    const { allocations, insertedWaits } = sums
    const { buffers, units, requestedBytes } = this.closed ? NOTHING : sums
    const reservedBytes = this.closed ? 0 : this.limitBytes
    return {
      liveBytes: units * UNIT_BYTES,
      peakLiveBytes: this.state.peakUnits * UNIT_BYTES,
      requestedBytes,
      reservedBytes,
      peakReservedBytes: this.limitBytes,
      cachedBytes: 0,
      pendingBytes: 0,
      largestFreeBytes: this.availableBytes,
      limitBytes: this.limitBytes,
      liveBuffers: buffers,
      allocations,
      frees: Math.max(0, allocations - buffers), // a thread counts an allocation last
      cacheMisses: 0,
      insertedWaits,
      growths: 0,
    }
  }

  /** @internal */
  override get drops(): number {
    return this.closed ? -1 : this.state.bump.epoch
  }

  /** `close()` at the end of a `using` block. Buffers of an arena need no free, so nothing is warned of. */
  override [Symbol.dispose](): void {
    this.close()
  }

  /** @internal */
  override get mayReset(): boolean {
    return true
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
    if (this.closed) {
      this.context.destroyRest()
      return { lostBuffers: 0, lostBytes: 0 }
    }
    const { state } = this
    if (!this.creator) {
      if (state.others().length === 0) this.clocks.finishWork()
      const { buffers, requestedBytes } = state.held()
      this.acceptedClocks = null
      state.registry.forget(state.thread)
      if (state.others().length === 0 && state.shut()) this.giveBack() // the thread that made the arena has died
      return { lostBuffers: buffers, lostBytes: requestedBytes }
    }
    state.shut()
    try {
      this.checkAlone()
      this.clocks.finishWork()
    } catch (error) {
      state.reopen()
      throw error
    }
    const { buffers, requestedBytes } = state.sums()
    this.acceptedClocks = null
    state.registry.forget(state.thread)
    this.giveBack()
    return { lostBuffers: buffers, lostBytes: requestedBytes }
  }

  private checkAlone(): void {
    const others = this.state.others()
    if (others.length > 0) throw inUseError(others)
  }

  /**
   * Gives up a live buffer of this thread, for another thread to adopt. Using it here from now on throws PoolError.
   * Work submitted to its stream before this call may still use it.
   */
  transfer(buffer: DeviceBuffer): TransferredBuffer {
    checkLeaves(buffer, this)
    return this.handOver(buffer)
  }

  /** @internal */
  override handOver(buffer: DeviceBuffer): TransferredBuffer {
    const { record, tag, stream } = buffer
    if (!this.isLive(record, tag)) this.refuseStale('transfer')
    this.state.streams[record] = stream.generation * MOST_STREAMS + stream.covering[0]
    this.giveUp('transfer', record, tag, ownerOf(tag, UNDERWAY))
    buffer.tag = NO_EPOCH // stale also if the buffer comes back to this thread
    return { pool: this.descriptor.number, record, tag }
  }

  /**
   * Takes over a buffer that another thread has transferred. It keeps the stream that it was allocated on. Throws
   * TypeError for any other value, PoolError for a buffer that was adopted already, belongs to another pool, or is
   * from before a reset.
   */
  adopt(transferred: TransferredBuffer): DeviceBuffer {
    this.checkOpen('adopt')
    checkTransferred('adopt', transferred, this.descriptor.number)
    if (!this.claim(transferred)) this.refuseAdoption('adopt')
    return this.adoptedBuffer(transferred)
  }

  /** Takes over all buffers of a list. Throws as `adopt` does, and adopts none then. */
  adoptAll(transferred: readonly TransferredBuffer[]): DeviceBuffer[] {
    this.checkOpen('adoptAll')
    checkTransferredList('adoptAll', transferred)
    for (const one of transferred) checkTransferred('adoptAll', one, this.descriptor.number)
    const buffers: DeviceBuffer[] = []
    try {
      for (const one of transferred) {
        if (!this.claim(one)) this.refuseAdoption('adoptAll')
        buffers.push(this.adoptedBuffer(one))
      }
    } catch (error) {
      for (const claimed of transferred.slice(0, buffers.length)) this.unclaim(claimed)
      throw error
    }
    return buffers
  }

  /** Makes a transferred buffer this thread's; false when it is not on its way. */
  private claim({ record, tag }: TransferredBuffer): boolean {
    const { owners, bump, thread } = this.state
    const waiting = ownerOf(tag, UNDERWAY)
    if (tag !== bump.epoch || !(record >= 0 && record < owners.length)) return false
    return Atomics.compareExchange(owners, record, waiting, ownerOf(tag, thread)) === waiting
  }

  /** Puts a claimed buffer back on its way, unless a reset has freed it. */
  private unclaim({ record, tag }: TransferredBuffer): void {
    const { owners, thread } = this.state
    Atomics.compareExchange(owners, record, ownerOf(tag, thread), ownerOf(tag, UNDERWAY))
  }

  /** The buffer just claimed. If the driver refuses to wait for its closed stream, it is on its way again. */
  private adoptedBuffer(claimed: TransferredBuffer): DeviceBuffer {
    const { record, tag } = claimed
    try {
      const word = this.state.streams[record]
      const slot = word % MOST_STREAMS
      const stream = streamIn(this.clocks, slot, (word - slot) / MOST_STREAMS) ?? this.defaultStream
      return new DeviceBuffer(new RecordAllocation(this, record, stream), tag)
    } catch (error) {
      this.unclaim(claimed)
      throw error
    }
  }

  private refuseAdoption(call: string): never {
    throw new PoolError(
      `${call}: the buffer is not on its way to another thread; each buffer.transfer() of this pool can be adopted once, until a reset`,
    )
  }

  /** @internal */
  addressOf(record: number, tag: number, call: string): number {
    if (!this.isLive(record, tag)) this.refuseStale(call)
    return this.descriptor.base + record * UNIT_BYTES
  }

  /** @internal */
  requestedBytesOf(record: number, tag: number, call: string): number {
    if (!this.isLive(record, tag)) this.refuseStale(call)
    return this.state.requested[record]
  }

  /**
   * Whether this thread holds the buffer. Its tag is the epoch: in one epoch a unit is the first of one buffer at
   * most.
   * @internal
   */
  isLive(record: number, tag: number): boolean {
    const { owners, bump, thread } = this.state
    return !this.closed && owners[record] === ownerOf(tag, thread) && bump.epoch === tag
  }

  /** @internal */
  recordUse(record: number, tag: number, stream: Stream): void {
    if (!this.isLive(record, tag)) this.refuseStale('recordUse')
    this.checkStream('recordUse', stream)
    this.state.epochs.use(stream, tag)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return context.sharesDevice(this.context)
  }

  /** An allocation that is aligned or large, on a stream that has not joined, or during another thread's reset. */
  private takeSlowly(bytes: number, stream: Stream, alignment: number): DeviceBuffer | null {
    const units = unitsOf(bytes)
    checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    this.checkStream('allocate', stream)
    const { bump, epochs, tally } = this.state
    if (units * UNIT_BYTES > this.limitBytes) return null
    for (;;) {
      const { epoch } = bump
      if (!epochs.join(stream, epoch, () => bump.epoch === epoch)) continue
      tally[Tally.insertedWaits] = epochs.insertedWaits
      const unit = bump.takeAligned(epoch, units, alignUnitsOf(alignment))
      if (unit >= 0) return this.handOut(unit, bytes, epoch, stream)
      if (unit === Refusal.full) return null
      if (unit === Refusal.closed) bump.awaitOpen(this.meanwhile)
    }
  }

  private handOut(unit: number, bytes: number, epoch: number, stream: Stream): DeviceBuffer {
    const { state } = this
    state.requested[unit] = bytes
    state.owners[unit] = ownerOf(epoch, state.thread)
    state.count(epoch, Tally.buffers, this.unitsAt(unit), bytes)
    state.tally[Tally.allocations]++
    return new DeviceBuffer(new RecordAllocation(this, unit, stream), epoch)
  }

  /** Sets another owner word of this thread's buffer. Throws if another thread has reset the arena at this moment. */
  private giveUp(call: string, record: number, tag: number, to: number): void {
    const { owners, thread } = this.state
    const mine = ownerOf(tag, thread)
    if (Atomics.compareExchange(owners, record, mine, to) !== mine) this.refuseStale(call)
  }

  private unitsAt(record: number): number {
    return Math.ceil(this.state.requested[record] / UNIT_BYTES)
  }

  private resetStream(): Stream {
    const { clocks, state } = this
    const slot = this.closed ? -1 : state.epochs.only(state.bump.epoch)
    if (slot === -1) return this.defaultStream
    return streamIn(clocks, slot, clocks.slots.generationOf(slot)) ?? this.defaultStream
  }

  private giveBack(): void {
    const { base, firstUnit } = this.descriptor
    this.context.destroy(driver => driver.cuMemFree(base + firstUnit * UNIT_BYTES))
  }

  private outOfMemory(bytes: number): OutOfMemoryError {
    checkByteCount(bytes, 'bytes')
    const { freeBytes, totalBytes } = this.context.activate().cuMemGetInfo()
    const limit = formatBytes(this.limitBytes)
    const obstacle =
      bytes > this.limitBytes
        ? `the arena has ${limit} in all: make it larger`
        : `the arena has ${formatBytes(this.availableBytes)} of ${limit} left: reset it, make it larger`
    const remedy =
      beyondDevice(0, bytes, totalBytes) ?? `${obstacle}, or fall back: withFallback(arena, device.createPlainPool())`
    return shortageOf(bytes, this.stats(), freeBytes, remedy)
  }

  protected override checkStream(call: string, stream: Stream): void {
    this.checkOpen(call)
    checkStreamOf(call, stream, this.clocks)
    stream.checkShareable(call)
    stream.checkOpen(call)
  }
}

const NOTHING = { buffers: 0, units: 0, requestedBytes: 0 }
