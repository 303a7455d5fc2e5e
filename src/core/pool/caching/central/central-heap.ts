// The central heap behind the stream caches: two heaps, the memory under them, and when a freed block may be used
// again. slow-path.ts lists the steps for a request that the heaps cannot serve.

import type { StreamMemory } from '../../../base/errors.js'
import { isDriverError } from '../../../base/thrown.js'
import { HOLES_ONLY } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { State } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { classOf, UNIT_BYTES } from '../../../heap/size-classes.js'
import type { Stream } from '../../../order/stream.js'
import { type Backing, mostReservedBytes, SMALL_UNITS } from '../../backing/backing.js'
import { SlabSource } from '../../backing/slab-source.js'
import { GraphArenas } from '../captures/graph-arenas.js'
import { chooseBacking } from '../choose-backing.js'
import type { HeapShortage } from '../shortage.js'
import { CrossStreamReuse } from './cross-stream.js'
import { Deferred, type Use } from './deferred.js'
import { FreeMemory } from './free-memory.js'
import { ANY_STREAM, finish, type Miss, OfPool, type PoolParts, type Waiting } from './parts.js'
import { Settling } from './settling.js'
import { giveBackEmptySlabs } from './slabs.js'
import { CAPTURE_PLAN, follow, type Plan, planFor } from './slow-path.js'
import { Steps } from './steps.js'

export class CentralHeap extends OfPool {
  readonly small: SegregatedFit
  readonly large: SegregatedFit
  readonly backing: Backing
  readonly deferred: Deferred
  /** the memory of captures and their graphs */
  readonly arenas: GraphArenas
  /** how often an allocation or a free may have changed the reserved bytes or the waits of streams */
  changes = 0
  private readonly crossStream: CrossStreamReuse
  private readonly settling: Settling
  private readonly steps: Steps
  private readonly plan: Plan

  constructor(
    parts: PoolParts,
    readonly memory = new FreeMemory(parts),
  ) {
    super(parts)
    const { records, caches, clocks, config } = parts
    this.small = memory.small
    this.large = memory.large
    this.deferred = new Deferred(parts, config.streamOrdered)
    this.crossStream = new CrossStreamReuse(parts, (record, uses) => this.giveBackAfter(record, uses))
    this.backing = chooseBacking(clocks, memory, config)
    const { deferred, crossStream, backing } = this
    this.arenas = new GraphArenas(records, caches, clocks, deferred, this)
    this.settling = new Settling(parts, memory, deferred, crossStream, backing)
    this.steps = new Steps(parts, memory, deferred, crossStream, backing, this.settling)
    this.plan = planFor(config, memory.hasSlabs)
  }

  /**
   * A taken block for a stream, without a state but with its key and class in its record; 0 when no step of the slow
   * path helps.
   */
  allocate(units: number, alignUnits: number, slot: number): number {
    const heap = this.memory.heapFor(units)
    const record = heap.allocate(units, alignUnits, keyOfSlot(slot))
    if (record !== 0) return this.handOut(record, slot)
    return this.handOut(finish(this.searchSlowly({ heap, units, alignUnits, slot })), slot)
  }

  /** As `allocate`, for a caller that does something else during waits for the GPU. */
  *search(units: number, alignUnits: number, slot: number): Waiting<number> {
    const heap = this.memory.heapFor(units)
    const record = heap.allocate(units, alignUnits, keyOfSlot(slot))
    return this.handOut(record || (yield* this.searchSlowly({ heap, units, alignUnits, slot })), slot)
  }

  private *searchSlowly(miss: Miss): Waiting<number> {
    const { reservedBytes } = this.backing
    this.changes++
    const found = yield* this.find(this.plan, miss)
    if (this.backing.reservedBytes !== reservedBytes) this.noteSize(miss.units)
    return found
  }

  /** The block of a plan, at last in the memory of groups that no graph needs. */
  private *find(plan: Plan, miss: Miss): Waiting<number> {
    const found = yield* follow(this.steps, plan, miss)
    return found === 0 && this.arenas.groups.giveBack() > 0 ? yield* follow(this.steps, plan, miss) : found
  }

  /**
   * Whether a waiting request could be served once all work is complete, even if another request takes `lessUnits` of
   * new memory.
   */
  couldServe({ units, alignUnits, slot }: Omit<Miss, 'heap'>, lessUnits: number): boolean {
    const heap = this.memory.heapFor(units)
    const { granuleBytes } = this.backing
    const lessBytes = Math.ceil((lessUnits * UNIT_BYTES) / granuleBytes) * granuleBytes
    return this.settling.couldServe({ heap, units, alignUnits, slot }, lessBytes)
  }

  /** The pool has grown for a request of `units`, or has shrunk: it may be tight now, or loose again. */
  private noteSize(units = 0): void {
    const isTight = this.backing.reservedBytes > this.steps.looseBound(units)
    if (this.caches.setTight?.(isTight) === true && isTight) this.memory.drain(this.large)
  }

  /** Completes the record of a block that was found for a stream; 0 for none. */
  private handOut(found: number, slot: number): number {
    let record = found
    if (record === 0) return 0
    const { records } = this
    if (records.isSpent(record)) record = this.memory.rehouse(record)
    records.setKey(record, keyOfSlot(slot))
    records.setSizeClass(record, classOf(records.unitsOf(record)))
    this.caches.handOut(slot, record)
    return record
  }

  /** Takes a block back, to be used again after `stamp` of the stream slot. */
  free(record: number, slot: number, stamp: number): void {
    if (this.arenas.isOfArena(record)) {
      this.arenas.freeLater(record, slot, stamp)
      return
    }
    this.caches.handBack(record)
    this.memory.giveToHeap(record, slot, stamp)
    const { releaseThresholdBytes } = this.config
    // To read the reserved bytes costs an object, as they are no small integer to V8.
    const aboveThreshold = releaseThresholdBytes !== Infinity && this.backing.reservedBytes > releaseThresholdBytes
    if (!this.memory.wantsMarks && !aboveThreshold) return
    this.changes++
    try {
      this.placeMarks()
      if (aboveThreshold) this.settleAndTrim() // not the caches: the next frees and requests would miss them
    } catch (error) {
      // The block is free. A driver that refuses an event will say so again to the next call that needs it to
      // succeed.
      if (!isDriverError(error)) throw error
    }
  }

  /** Waits on the host for all work of other devices that may use the pool's memory. */
  finishPeers(): void {
    this.deferred.finishPeers()
    for (const peer of this.backing.access.peers) peer.finishWork()
  }

  /** A stream other than its own uses a live block: until `stamp` of that stream's clock, or until the free. */
  announceUse(record: number, stream: Stream, stamp = Infinity): void {
    if (stream.capture === null && stamp !== Infinity) this.deferred.announce(record, stream, stamp)
    else this.arenas.announceUse(record, stream)
  }

  /** Takes back a block that was captured, to be used again after all of `uses`. */
  giveBackAfter(record: number, uses: readonly Use[]): void {
    const { clocks } = this
    const own = uses.filter(use => use.clocks === clocks)
    const first = own[0] ?? { slot: 0, stamp: 0 }
    const bytes = this.records.unitsOf(record) * UNIT_BYTES
    this.records.setState(record, State.deferred)
    for (const use of own) this.memory.await(use.slot, use.stamp)
    this.deferred.addAfter({ record, slot: first.slot, stamp: first.stamp, bytes, uses })
  }

  /** Whether all blocks have one size. */
  get hasOneSize(): boolean {
    return this.config.backing instanceof SlabSource
  }

  /** A taken block of at least `leastUnits` that depends on no work; 0 when no step helps. */
  takeIdle(leastUnits: number): number {
    // With blocks of many sizes a small one would go back to the other heap.
    const units = this.hasOneSize ? leastUnits : Math.max(leastUnits, SMALL_UNITS)
    const miss = { heap: this.memory.heapFor(units), units, alignUnits: 1, slot: ANY_STREAM }
    return finish(this.find(CAPTURE_PLAN, miss))
  }

  /**
   * Whether all announced uses of a live block, about to be freed on `slot`, come before `stamp` of that slot; if so,
   * forgets them.
   */
  forgetUses(record: number, slot: number, stamp: number): boolean {
    return !this.arenas.isCaptured(record) && this.deferred.forgetCompleted(record, slot, stamp)
  }

  /** Takes back a block that other streams use. It goes to the heap once those uses have completed. */
  defer(record: number, slot: number, stamp: number): void {
    this.caches.handBack(record)
    const bytes = this.records.unitsOf(record) * UNIT_BYTES
    this.records.setState(record, State.deferred)
    this.memory.await(slot, stamp)
    this.deferred.add(record, slot, stamp, bytes, (earlier, until) => this.memory.await(earlier, until))
  }

  /** A freed block is kept from use until `FreeMemory.giveToHeap`. */
  setAside(record: number): void {
    this.caches.handBack(record)
    this.records.setState(record, State.deferred)
  }

  /**
   * Settles, then gives back idle memory above the release threshold, out of the caches as well if that is needed;
   * returns the number of settled blocks.
   */
  processDeferred(): number {
    const settled = this.settleAndTrim()
    const { releaseThresholdBytes } = this.config
    if (this.backing.reservedBytes > releaseThresholdBytes && this.caches.isEmpty !== true) {
      this.trimTo(releaseThresholdBytes)
    }
    return settled
  }

  /** The same without the caches. */
  private settleAndTrim(): number {
    const settled = this.settling.settle()
    const threshold = this.config.releaseThresholdBytes
    if (this.backing.reservedBytes > threshold) {
      giveBackEmptySlabs(this.memory)
      this.backing.trim(threshold)
      this.noteSize()
    }
    return settled
  }

  /**
   * Takes `units` of new memory for the next requests, unless as much is free, or the limit or the release threshold
   * is near.
   */
  growAhead(wanted: SegregatedFit, units: number): void {
    const { backing, config } = this
    const heap = this.memory.hasSlabs ? this.large : wanted
    const most = Math.min(backing.maxPoolBytes, config.releaseThresholdBytes)
    const mostBytes = Math.min(most, backing.reservedBytes + units * UNIT_BYTES)
    if (heap.freeUnits >= units) return
    const record = backing.grow(heap, units, 1, HOLES_ONLY, mostBytes)
    if (record !== 0) heap.free(record, 0, 0)
  }

  /**
   * Takes free memory from the device until `bytes` are reserved. Returns the bytes added; null if limit or device do
   * not allow all of it, and then adds nothing.
   */
  reserve(bytes: number): number | null {
    const { backing } = this
    const before = backing.reservedBytes
    const newBytes = Math.ceil((bytes - before) / backing.granuleBytes) * backing.granuleBytes
    if (newBytes <= 0) return 0
    if (before + newBytes > backing.maxPoolBytes || newBytes > this.deviceRoom) return null
    const record = backing.grow(this.large, newBytes / UNIT_BYTES, 1, HOLES_ONLY, before + newBytes)
    if (record === 0) return null
    this.large.free(record, 0, 0)
    this.steps.aheadBytes = bytes
    this.noteSize()
    return backing.reservedBytes - before
  }

  /** Bytes that the device has left for the pool. */
  get deviceRoom(): number {
    if (this.backing.kind === 'managed' || this.backing.kind === 'pinned') return Infinity
    return this.clocks.context.activate().cuMemGetInfo().freeBytes - this.config.leaveFreeBytes
  }

  /** Whether there may be room for a block of `bytes` while `liveBytes` are in use, if free memory can be joined. */
  mayHaveRoom(bytes: number, liveBytes: number): boolean {
    const { maxPoolBytes, reservedBytes } = this.backing
    const usedBytes = liveBytes + this.pendingBytes
    const idleBytes = reservedBytes - usedBytes
    if (usedBytes + bytes > maxPoolBytes) return false
    return idleBytes >= bytes || idleBytes + this.deviceRoom >= bytes
  }

  /**
   * Sets the limit, which may be Infinity, and calls `trim` with it if more is reserved. Throws RangeError if it is
   * less than one step of the backing. After an error the limit is as before.
   */
  setLimit(maxPoolBytes: number, trim = (bytes: number) => this.trimTo(bytes)): void {
    const { backing } = this
    const totalBytes = this.clocks.context.activate().cuDeviceTotalMem(this.clocks.context.device)
    const mostBytes = backing.kind === 'managed' ? Infinity : totalBytes
    const before = backing.maxPoolBytes
    backing.maxPoolBytes = mostReservedBytes(maxPoolBytes, backing.granuleBytes, mostBytes)
    try {
      if (backing.reservedBytes > backing.maxPoolBytes) trim(backing.maxPoolBytes)
    } catch (error) {
      backing.maxPoolBytes = before
      throw error
    }
  }

  /** Gives all idle memory back, that of other graph groups included. */
  makeRoom(): void {
    this.arenas.groups.giveBack()
    this.gather()
    this.backing.trim(0)
  }

  /** Gives idle memory back until at most `bytes` are reserved. */
  trimTo(bytes: number): void {
    if (this.backing.reservedBytes > bytes) this.arenas.groups.giveBack()
    this.gather()
    this.backing.trim(bytes)
    this.steps.aheadBytes = Math.min(this.steps.aheadBytes, bytes)
    this.noteSize()
  }

  /** Gives cached blocks, settled ones and empty slabs back to the heaps, where they merge. */
  gather(): void {
    this.memory.drain(this.small)
    this.memory.drain(this.large)
    this.settling.settle()
    giveBackEmptySlabs(this.memory)
  }

  /** The number of requests that took new memory, or had to gather what there is. */
  get growths(): number {
    return this.steps.growths
  }

  /** How often a stream was made to wait for another stream's memory. */
  get insertedWaits(): number {
    return this.crossStream.insertedWaits
  }

  /** Bytes that were freed and may still depend on work. */
  get pendingBytes(): number {
    return this.memory.pendingUnits * UNIT_BYTES + this.deferred.bytes
  }

  /** The floor of the largest free block's class. */
  get largestFreeBytes(): number {
    return this.memory.largestFreeUnits * UNIT_BYTES
  }

  /** For the error of a request that got no block; walks all blocks. */
  shortage(): HeapShortage {
    const { kind, granuleBytes } = this.backing
    return {
      streams: this.byStream(),
      largestFreeBytes: this.longestFreeBytes(),
      backing: { kind, granuleBytes },
      groups: { bytes: this.arenas.groups.reservedBytes, isFull: this.arenas.groups.isFull },
    }
  }

  /** The memory that each stream used last and that is not live. */
  byStream(): StreamMemory[] {
    const slots = Array.from({ length: this.caches.slotLimit }, (_, slot) => {
      const key = keyOfSlot(slot)
      const free = (this.small.unitsByKey[key] ?? 0) + (this.large.unitsByKey[key] ?? 0)
      return {
        stream: this.clocks.isOpen(slot) ? this.clocks.handles[slot] : null,
        pendingBytes: free * UNIT_BYTES + this.deferred.bytesOf(slot),
        cachedBytes: this.caches.cachedUnits(slot) * UNIT_BYTES,
      }
    })
    return slots.filter(({ pendingBytes, cachedBytes }) => pendingBytes + cachedBytes > 0)
  }

  /** The longest run of free blocks, no matter which work they wait for. */
  longestFreeBytes(): number {
    const { records } = this
    let longest = 0
    for (const heap of [this.small, this.large]) {
      for (const [, first] of heap.firstRecords) {
        let units = 0
        for (let record = first; record !== 0; record = records.nextOf(record)) {
          units = records.state(record) === State.free ? units + records.unitsOf(record) : 0
          longest = Math.max(longest, units)
        }
      }
    }
    return longest * UNIT_BYTES
  }

  check(): void {
    this.small.check()
    this.large.check()
    this.backing.check()
    this.arenas.check()
  }

  /** Places the marks that `FreeMemory.wantsMarks` asks for. */
  placeMarks(): void {
    this.settling.placeMarks(false)
  }
}
