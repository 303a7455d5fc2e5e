// An arena that several threads share. Each has an object of this class over the same state (shared-arena-state.ts): to
// allocate it moves the top of the stack (heap/shared-bump.ts), and waits for nobody but a reset. What streams wait for is
// shared-epochs.ts. The memory is one allocation, which whoever closes the arena last gives back.

import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { type Context, unreachable } from '../../driver/context.js'
import { Refusal } from '../../heap/shared-bump.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { streamIn } from '../../order/borrowed.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import { checkIsStream, checkStreamOf, type Stream } from '../../order/stream.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { ClosablePool, type CloseReport } from '../closable-pool.js'
import { shortageOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import { RecordAllocation, type RecordPool } from '../record-allocation.js'
import { checkTransferred, checkTransferredList, type TransferredBuffer } from '../transferred-buffer.js'
import { openArenaMemory } from './arena-memory.js'
import { type ArenaOptions, alignUnitsOf, parseArenaOptions, unitsOf } from './arena-pool.js'
import { ArenaState, newArenaState, ownerOf, type SharedArenaState, Tally, UNDERWAY } from './shared-arena-state.js'

/** Sizes with only these bits need no further check. */
const SMALL_MASK = 2 ** 30 - 1
const DEFAULT_ALIGNMENT = 256

/** What makes an arena one that threads share. */
export type SharedArena = ArenaOptions & { readonly shared: true }

/** The state of a new one, with its memory */
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
 * An arena for several threads: each allocates from it, and a `reset` by any of them gives back what all have. A buffer is one
 * thread's, until it is handed on by `transfer` and `adopt`. There are no marks, since a height of the stack is nothing that
 * one thread of several knows. All must be done with their buffers before one resets, or the device's work runs over memory
 * that others have; what they use of them afterwards is refused.
 */
export class SharedArenaPool<D = unknown> extends ClosablePool implements RecordPool {
  /** bytes that it has */
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
    /** made the arena, and so may close it for all */
    private readonly creator: boolean,
    /** what the thread does each millisecond while it waits for another one's reset */
    private readonly meanwhile: () => void,
  ) {
    super(clocks, defaultStream)
    this.limitBytes = (descriptor.lastUnit - descriptor.firstUnit) * UNIT_BYTES
    this.state = new ArenaState(descriptor, clocks)
    this.joined = this.state.epochs.known.joined
  }

  /** The arena's number of this thread. */
  get thread(): number {
    return this.state.thread
  }

  /** What another thread of this process needs to use the arena: send it there, and give it to `attachPool`. */
  share(): SharedArenaState<D> {
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
    const { slot } = stream
    const isAccepted = stream.trusted === this.acceptedClocks || this.accepts(stream)
    if (isAccepted && slot >= 0 && alignment === DEFAULT_ALIGNMENT) {
      // This holds for whole numbers from 1 to 2^30 - 1 only.
      if ((bytes & SMALL_MASK) === bytes && bytes > 0) {
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

  /** Whether a stream is to be allocated for that its slot does not tell it of. */
  private accepts(stream: Stream): boolean {
    return stream.clocks === this.acceptedClocks && stream.isOpen && stream.isShareable
  }

  /** The buffer is stale from now on; its memory comes back with the next reset. */
  release(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    const { record, tag } = buffer
    if (!this.isLive(record, tag)) this.refuseStale('free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) throw unreachable('free: the stream', stream.context, this.context)
    stream.checkShareable('free')
    stream.checkUncaptured('free')
    this.state.epochs.use(stream, tag)
    const bytes = this.state.requested[record] // another one's, if some thread resets the arena now
    this.giveUp('free', record, tag, 0)
    this.state.count(tag, Tally.freedBuffers, Math.ceil(bytes / UNIT_BYTES), bytes)
  }

  /**
   * Gives everything back, of all threads: all buffers are stale from now on, and their memory may be used by work submitted to
   * `stream` after this call. That stream is made to wait for the others that used the arena, and those that use it again for
   * this point. Without a stream it is the only one that used the arena since the last reset, or else the device's default
   * stream. Nothing waits on the host but threads that allocate meanwhile. A wrapper around the arena does not notice.
   */
  reset(stream: Stream = this.resetStream()): void {
    this.checkStream('reset', stream)
    const { bump, epochs, tally } = this.state
    bump.reset(epoch => {
      this.state.sums() // which notes the peak
      epochs.end(epoch, stream)
    }, this.meanwhile)
    tally[Tally.insertedWaits] = epochs.insertedWaits
  }

  /** Bytes not allocated: the largest block that could be had now. */
  get availableBytes(): number {
    return this.closed ? 0 : (this.descriptor.lastUnit - this.state.bump.top) * UNIT_BYTES
  }

  /** Of all threads together, while nobody is stopped; the peak is what was noticed by looking and at resets. */
  stats(): PoolStats {
    const { buffers, units, requestedBytes, allocations, insertedWaits } = this.closed ? NOTHING : this.state.sums()
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

  override get closed(): boolean {
    return !this.isAccepting
  }

  /**
   * In the thread that made the arena: waits for pending work and gives the memory back; throws PoolError while other threads use
   * it. In another thread: that is done with the arena, and what it holds stays taken until the next reset. Says how much
   * was held. A second close does nothing.
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
    if (others.length === 0) return
    throw new PoolError(
      `close: the pool is in use by ${others.length} other threads (${others.join(', ')}); close it there first, or end them`,
    )
  }

  /**
   * Gives a live buffer of this thread up, for another thread to adopt; using it here from now on throws PoolError. Work
   * submitted to its stream before this call may still use it.
   */
  transfer({ record, tag, stream }: DeviceBuffer): TransferredBuffer {
    if (!this.isLive(record, tag)) this.refuseStale('transfer')
    this.state.streams[record] = stream.generation * MOST_STREAMS + stream.covering[0]
    this.giveUp('transfer', record, tag, ownerOf(tag, UNDERWAY))
    return { pool: this.descriptor.number, record, tag }
  }

  /**
   * Takes over a buffer that another thread has transferred; it belongs to the stream that it was allocated on. Throws
   * TypeError for what is no such thing, PoolError for a buffer that is not on its way: adopted already, of another pool, or
   * from before a reset.
   */
  adopt(transferred: TransferredBuffer): DeviceBuffer {
    this.checkOpen('adopt')
    checkTransferred('adopt', transferred, this.descriptor.number)
    if (!this.claim(transferred)) this.refuseAdoption('adopt')
    return this.adoptedBuffer(transferred)
  }

  /** Takes over all buffers of a list, or none where that throws as `adopt` does. */
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

  /** Makes a buffer on its way this thread's; false for what is none. */
  private claim({ record, tag }: TransferredBuffer): boolean {
    const { owners, bump, thread } = this.state
    const waiting = ownerOf(tag, UNDERWAY)
    if (tag !== bump.epoch || !(record >= 0 && record < owners.length)) return false
    return Atomics.compareExchange(owners, record, waiting, ownerOf(tag, thread)) === waiting
  }

  /** It is on its way again, unless a reset has freed it meanwhile. */
  private unclaim({ record, tag }: TransferredBuffer): void {
    const { owners, thread } = this.state
    Atomics.compareExchange(owners, record, ownerOf(tag, thread), ownerOf(tag, UNDERWAY))
  }

  /** The buffer just claimed, which is on its way again where the driver refuses to wait for its closed stream. */
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

  /** Whether this thread holds the buffer. Tags are epochs, in which each unit is the first of one buffer at most. */
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

  reachableFrom(context: Context): boolean {
    return context.sharesDevice(this.context)
  }

  /** An allocation that is aligned or large, on a stream that has not joined, or while another thread resets. */
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

  /** A live buffer is this thread's no more. Another one may have reset the arena at this moment, and have the memory. */
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
    const { freeBytes } = this.context.activate().cuMemGetInfo()
    const limit = formatBytes(this.limitBytes)
    const obstacle =
      bytes > this.limitBytes
        ? `the arena has ${limit} in all: make it larger`
        : `the arena has ${formatBytes(this.availableBytes)} of ${limit} left: reset it, make it larger`
    const remedy = `${obstacle}, or fall back: withFallback(arena, device.createPlainPool())`
    return shortageOf(bytes, this.stats(), freeBytes, remedy)
  }

  protected override checkStream(call: string, stream: Stream): void {
    this.checkOpen(call)
    checkStreamOf(call, stream, this.clocks)
    stream.checkShareable(call)
    stream.checkOpen(call)
  }
}

const NOTHING = { buffers: 0, units: 0, requestedBytes: 0, allocations: 0, insertedWaits: 0 }
