// What stands behind the slot cache: two heaps, the memory under them, and when a freed block may be used again. A
// request goes down a ladder: the heap; a larger cached block; blocks of other streams that are known to be safe; what has
// completed meanwhile; the slot caches given back; idle memory moved and new memory; making the stream wait for another
// one's block; waiting on the host, for the oldest work that is enough. No step that a former one makes needless is taken.

import { MiB } from '../base/bytes.js'
import { CudaError, DeviceLostError, PoolError, type StreamMemory } from '../base/errors.js'
import { CU_STREAM_LEGACY_DEFAULT } from '../driver/constants.js'
import type { Driver } from '../driver/driver.js'
import { findAdmitted, findStretch } from '../heap/other-keys.js'
import { Double, type RecordTable, State, Word } from '../heap/records.js'
import { SegregatedFit } from '../heap/segregated-fit.js'
import { CLASSES, classFloorUnits, classOf, UNIT_BYTES } from '../heap/size-classes.js'
import type { Admission } from '../heap/window.js'
import { type Clocks, type Mark, MOST_STREAMS } from '../order/clocks.js'
import { relaxed } from '../order/relaxed.js'
import type { Stream } from '../order/stream.js'
import { type Backing, SMALL_UNITS, virtualMemoryObstacle } from './backing.js'
import { Deferred, type Use } from './deferred.js'
import { GraphArenas } from './graph-arenas.js'
import type { PoolConfig } from './options.js'
import { OtherStreams } from './other-streams.js'
import { SegmentBacking } from './segment-backing.js'
import { deviceSegments, managedSegments, type SegmentSource } from './segment-source.js'
import type { SlotCache } from './slot-cache.js'
import { VirtualBacking } from './virtual-backing.js'

/**
 * Large blocks given back to the heap between two marks. Marks tell how old the last use of idle memory is, so that it
 * can be moved when a miss comes; small blocks hardly ever leave a granule idle.
 */
const LARGE_FREES_PER_MARK = 32
/** With 'wait-before-grow' the host waits before more than this is reserved, relative to the most that was live, and beyond it. */
const MOST_SLACK = 1.2
const LEAST_SLACK_BYTES = 32 * MiB
const SMALL_CLASSES = classOf(SMALL_UNITS)
/** By key: only blocks that depend on nothing are admitted. */
const NONE: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity, 0, 1)
/** Instead of a slot: memory for whoever it may be. */
const ANYBODY = -1

export class Reserve {
  readonly small: SegregatedFit
  readonly large: SegregatedFit
  readonly backing: Backing
  /** requests for which memory had to be found or moved */
  growths = 0
  /** by stream slot: the latest stamp that a block waits for */
  private readonly awaited = new Float64Array(MOST_STREAMS)
  private readonly deferred: Deferred
  readonly others: OtherStreams
  /** by stream slot: the latest stamp that the host has seen complete, as far as the pool may know */
  private readonly seen: Float64Array
  private unmarkedFrees = 0
  /** what captures, and their graphs, have of the memory */
  readonly arenas: GraphArenas

  constructor(
    private readonly records: RecordTable,
    private readonly slots: SlotCache,
    private readonly clocks: Clocks,
    private readonly config: PoolConfig,
  ) {
    this.small = new SegregatedFit(records)
    this.large = new SegregatedFit(records)
    this.seen = config.deterministic ? clocks.waited : clocks.completed
    this.deferred = new Deferred(clocks, this.seen, config.streamOrdered)
    this.others = new OtherStreams(records, slots, clocks, this.seen, config.deterministic)
    this.arenas = new GraphArenas(records, slots, clocks, this.deferred, this)
    this.backing = this.chooseBacking()
  }

  /** A block for the stream slot, taken but without a state, its key and class in its record; 0 when no step of the ladder helps. */
  allocate(units: number, alignUnits: number, slot: number): number {
    const heap = units < SMALL_UNITS ? this.small : this.large
    const key = slot + 1
    let record = heap.allocate(units, alignUnits, key)
    if (record === 0) record = this.allocateAfterMiss(heap, units, alignUnits, key)
    if (record === 0) return 0
    if (this.records.isSpent(record)) record = heap.rehouse(record)
    this.slots.meet(slot)
    this.slots.handOut(slot, record)
    const { words } = this.records
    words[(record << 4) | Word.key] = key
    words[(record << 4) | Word.sizeClass] = classOf(words[(record << 4) | Word.units])
    return record
  }

  /** Takes a block back, to be used again after `stamp` of the stream slot. */
  free(record: number, slot: number, stamp: number): void {
    if (this.arenas.isOfArena(record)) {
      this.arenas.freeLater(record, slot, stamp)
      return
    }
    this.slots.handBack(record)
    this.giveToHeap(record, slot, stamp)
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

  /** Waits on the host for all work of other devices that may be using the pool's memory. */
  finishPeers(): void {
    this.deferred.finishPeers()
    for (const peer of this.backing.peers) peer.finishWork()
  }

  /** A stream other than its own uses a live block: until `stamp` of its clock, or until the free. */
  announceUse(record: number, stream: Stream, stamp = Infinity): void {
    if (stream.capture === null) this.deferred.announce(record, stream, stamp)
    else this.arenas.announceUse(record, stream)
  }

  /** Takes back a block that was captured, to be used again after all of `uses`. */
  giveBackAfter(record: number, uses: readonly Use[]): void {
    const { clocks } = this
    const own = uses.filter(use => use.clocks === clocks)
    const first = own[0] ?? { slot: 0, stamp: 0 }
    const bytes = this.records.words[(record << 4) | Word.units] * UNIT_BYTES
    this.records.setState(record, State.deferred)
    for (const use of own) this.await(use.slot, use.stamp)
    this.deferred.addAfter({ record, slot: first.slot, stamp: first.stamp, bytes, uses })
  }

  /** A block of the large heap, of at least `leastUnits`, without any dependency, taken; 0 when nothing helps. */
  takeIdle(leastUnits: number): number {
    const units = Math.max(leastUnits, SMALL_UNITS) // a smaller block would go back to the other heap
    if (units * UNIT_BYTES > this.backing.limitBytes) return 0
    const { large } = this
    let record = large.allocate(units, 1, 0)
    if (record === 0) {
      this.drain(large)
      this.drain(this.small)
      this.settle()
      record = large.allocate(units, 1, 0)
    }
    if (record === 0) {
      this.growths++
      record = this.backing.grow(large, units, 1, NONE, Infinity)
    }
    while (record === 0 && this.waitOnHost(large, units, 1, ANYBODY)) {
      record = large.allocate(units, 1, 0)
      if (record === 0) record = this.backing.grow(large, units, 1, NONE, Infinity)
    }
    return record
  }

  /** Whether all announced uses of a live block, about to be freed on `slot`, are known to come before; they are forgotten then. */
  forgetUses(record: number, slot: number): boolean {
    return this.deferred.forgetCompleted(record, slot)
  }

  /** Takes back a block that other streams use: it goes to the heap once those uses have completed. */
  defer(record: number, slot: number, stamp: number): void {
    this.slots.handBack(record)
    const bytes = this.records.words[(record << 4) | Word.units] * UNIT_BYTES
    this.records.setState(record, State.deferred)
    this.await(slot, stamp)
    for (const use of this.deferred.add(record, slot, stamp, bytes)) this.await(use.slot, use.stamp)
  }

  /** A freed block is kept from use until `takeAside`. */
  setAside(record: number): void {
    this.slots.handBack(record)
    this.records.setState(record, State.deferred)
  }

  /** A block that was set aside goes to the heap, to be used again after `stamp` of the stream slot. */
  takeAside(record: number, slot: number, stamp: number): void {
    this.giveToHeap(record, slot, stamp)
  }

  /** Settles, then gives back what is idle above the release threshold; returns how many blocks were settled. */
  processDeferred(): number {
    const settled = this.settle()
    const threshold = this.config.releaseThresholdBytes
    if (this.backing.reservedBytes > threshold) {
      relaxed(this.clocks.context.activate(), () => this.backing.trim(threshold))
    }
    return settled
  }

  /** Gives idle memory back until at most `bytes` are reserved. */
  trimTo(bytes: number): void {
    this.drain(this.small)
    this.drain(this.large)
    this.settle()
    relaxed(this.clocks.context.activate(), () => this.backing.trim(bytes))
  }

  /** How often a stream was made to wait for another one's memory. */
  get insertedWaits(): number {
    return this.others.insertedWaits
  }

  /** Freed, and not yet known to be free of work. */
  get pendingBytes(): number {
    const units = [this.small, this.large].reduce((sum, heap) => sum + heap.freeUnits - heap.unitsByKey[0], 0)
    return units * UNIT_BYTES + this.deferred.bytes
  }

  /** The floor of the largest free block's class. */
  get largestFreeBytes(): number {
    const heaps = [this.small, this.large]
    const classes = heaps.flatMap(heap => Array.from(heap.unitsByKey, (_, key) => heap.largestClass(key)))
    return classFloorUnits(Math.max(0, ...classes)) * UNIT_BYTES
  }

  /** What is kept that each stream used last; walks the waiting blocks. */
  byStream(): StreamMemory[] {
    const slots = Array.from({ length: this.slots.slotLimit }, (_, slot) => {
      const free = (this.small.unitsByKey[slot + 1] ?? 0) + (this.large.unitsByKey[slot + 1] ?? 0)
      return {
        stream: this.clocks.streams[slot]?.handle ?? null,
        pendingBytes: free * UNIT_BYTES + this.deferred.bytesOf(slot),
        cachedBytes: this.slots.cachedUnits(slot) * UNIT_BYTES,
      }
    })
    return slots.filter(({ pendingBytes, cachedBytes }) => pendingBytes + cachedBytes > 0)
  }

  /** The longest stretch of free blocks, whatever they wait for; walks every block. */
  longestFreeBytes(): number {
    const { words } = this.records
    let longest = 0
    for (const heap of [this.small, this.large]) {
      for (const first of heap.firstRecords.values()) {
        let units = 0
        for (let record = first; record !== 0; record = words[(record << 4) | Word.next]) {
          units = this.records.state(record) === State.free ? units + words[(record << 4) | Word.units] : 0
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

  private allocateAfterMiss(heap: SegregatedFit, units: number, alignUnits: number, key: number): number {
    // Nothing below would help, even with the pool empty, and much would be disturbed.
    if (units * UNIT_BYTES > this.backing.limitBytes) return 0
    const { others } = this
    const slot = key - 1
    let record = 0
    others.look(slot)
    if (alignUnits === 1) record = others.takeCached(units, slot)
    if (record === 0 && heap === this.small && this.breakLarger(units, slot))
      record = heap.allocate(units, alignUnits, key)
    if (record === 0) record = others.takeFree(heap, units, alignUnits, false)
    if (record === 0 && this.settleKnown() > 0) record = this.takeKnown(heap, units, alignUnits, slot)
    if (record === 0) record = this.takeDeferred(heap, units, alignUnits, slot, false)
    if (record !== 0) return record
    const driver = this.clocks.context.activate()
    return relaxed(driver, () => {
      this.checkAnnounced(driver, slot)
      return this.allocateByDriver(heap, units, alignUnits, slot)
    })
  }

  /** Refuses a stream that another library captures without our knowledge: its memory would be used again under the graph. */
  private checkAnnounced(driver: Driver, slot: number): void {
    const { handle } = this.clocks.streams[slot]!
    if (handle === CU_STREAM_LEGACY_DEFAULT || !driver.cuStreamIsCapturing(handle)) return
    throw new PoolError(
      'allocate: the stream is being captured by another library; call pool.beginCapture(stream) before the capture begins',
    )
  }

  /** The steps that may need the driver. */
  private allocateByDriver(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    const { others } = this
    const { crossStreamReuse } = this.config
    let record = 0
    if (this.settle() > 0) record = this.takeKnown(heap, units, alignUnits, slot)
    if (record === 0 && this.drain(heap) > 0) {
      this.settle()
      record = this.takeKnown(heap, units, alignUnits, slot)
    }
    if (record === 0) record = others.takeFree(heap, units, alignUnits, true)
    if (record === 0 && this.drain(heap === this.small ? this.large : this.small) > 0) this.settle()
    if (record === 0 && crossStreamReuse === 'wait-before-grow') {
      record = this.takeByWaiting(heap, units, alignUnits, slot)
      if (record !== 0) return record
      this.growths++
      record = this.takeWithSlack(heap, units, alignUnits, slot)
      if (record === 0) record = this.grow(heap, units, alignUnits, slot)
    } else if (record === 0) {
      this.growths++
      record = this.grow(heap, units, alignUnits, slot)
    }
    if (record === 0 && crossStreamReuse === 'wait-before-oom') {
      record = this.takeByWaiting(heap, units, alignUnits, slot)
      if (record === 0 && others.waitForWindow(this.backing, heap, units, alignUnits, slot)) {
        record = this.grow(heap, units, alignUnits, slot)
      }
    }
    while (record === 0 && this.waitOnHost(heap, units, alignUnits, slot)) {
      record = this.takeKnown(heap, units, alignUnits, slot)
      if (record === 0) record = this.grow(heap, units, alignUnits, slot)
    }
    return record
  }

  /** A free block that the stream may use now. */
  private takeKnown(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    const record = heap.allocate(units, alignUnits, slot + 1)
    if (record !== 0) return record
    this.others.look(slot)
    return this.others.takeFree(heap, units, alignUnits, false)
  }

  private takeByWaiting(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    const record = this.others.takeByWaiting(heap, units, alignUnits, slot)
    return record === 0 ? this.takeDeferred(heap, units, alignUnits, slot, true) : record
  }

  /** A freed block that other streams use: one that the stream may use now, or with `wait` any, which it is made to wait for. */
  private takeDeferred(heap: SegregatedFit, units: number, alignUnits: number, slot: number, wait: boolean): number {
    const { deferred, others } = this
    const end = heap === this.small ? SMALL_UNITS : Infinity
    const isSafe = (use: Use) => use.clocks === this.clocks && others.isSafe(slot, use.slot, use.stamp)
    const block = deferred.smallest(
      (units + alignUnits - 1) * UNIT_BYTES,
      end * UNIT_BYTES,
      candidate => wait || (others.isSafe(slot, candidate.slot, candidate.stamp) && candidate.uses.every(isSafe)),
    )
    if (block === null) return 0
    others.waitFor(slot, block.slot, block.stamp)
    for (const use of block.uses) {
      if (use.clocks === this.clocks) others.waitFor(slot, use.slot, use.stamp)
      else others.waitForPeer(slot, use)
    }
    deferred.remove(block)
    this.giveToHeap(block.record, slot, this.clocks.marked[slot] + 1)
    return heap.allocate(units, alignUnits, slot + 1)
  }

  /** Grows as long as that leaves little slack, and waits on the host as long as it would leave much; 0 when that does not help. */
  private takeWithSlack(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    const usedUnits = Math.max(this.slots.peakUnits, this.slots.liveUnits + units)
    const mostBytes = Math.max(usedUnits * UNIT_BYTES * MOST_SLACK, usedUnits * UNIT_BYTES + LEAST_SLACK_BYTES)
    let record = this.grow(heap, units, alignUnits, slot, mostBytes)
    while (record === 0 && this.waitOnHost(heap, units, alignUnits, slot, mostBytes)) {
      record = this.takeKnown(heap, units, alignUnits, slot)
      if (record === 0) record = this.grow(heap, units, alignUnits, slot, mostBytes)
    }
    return record
  }

  private grow(heap: SegregatedFit, units: number, alignUnits: number, slot: number, mostBytes = Infinity): number {
    return this.backing.grow(heap, units, alignUnits, this.others.look(slot), mostBytes)
  }

  /** Gives a block back to its heap without asking the driver for anything. */
  private giveToHeap(record: number, slot: number, stamp: number): void {
    const heap = this.records.words[(record << 4) | Word.units] < SMALL_UNITS ? this.small : this.large
    const settled = this.seen[slot] >= stamp
    if (!settled) this.await(slot, stamp)
    const key = settled ? 0 : slot + 1
    this.backing.noteFree(record, key, stamp)
    heap.free(record, key, settled ? 0 : stamp)
    if (heap === this.large) this.unmarkedFrees++
  }

  /** A block waits for `stamp` of a stream slot. */
  private await(slot: number, stamp: number): void {
    this.slots.meet(slot)
    if (stamp > this.awaited[slot]) this.awaited[slot] = stamp
  }

  /** Places a mark on each stream that has frees which none covers yet. */
  private placeMarks(): void {
    const { clocks } = this
    this.unmarkedFrees = 0
    if (this.config.deterministic) return
    for (let slot = 0; slot < this.slots.slotLimit; slot++) {
      if (this.awaited[slot] > clocks.marked[slot] && clocks.streams[slot] !== null) clocks.mark(slot)
    }
  }

  /** Asks how far the streams have come and frees their blocks of what has completed; returns how many blocks that were. */
  private settle(): number {
    const { clocks, seen } = this
    this.placeMarks()
    // All are asked before any block is settled: an answer says something of other streams, too.
    for (let slot = 0; slot < this.slots.slotLimit; slot++) {
      if (this.awaited[slot] > seen[slot] && !this.config.deterministic) clocks.poll(slot)
    }
    this.deferred.pollPeers(false)
    return this.settleKnown()
  }

  /** Frees the blocks of what is known to have completed, without asking the driver; returns how many that were. */
  private settleKnown(): number {
    const { seen } = this
    let settled = 0
    for (let slot = 0; slot < this.slots.slotLimit; slot++) {
      if (this.awaited[slot] === 0) continue
      settled += this.small.settle(slot + 1, seen[slot])
      settled += this.large.settle(slot + 1, seen[slot])
    }
    for (const block of this.deferred.takeSettled()) {
      this.giveToHeap(block.record, block.slot, block.stamp)
      settled++
    }
    return settled
  }

  /** Gives the smallest cached small block of the stream that is larger than `units` back to its heap; false when there is none. */
  private breakLarger(units: number, slot: number): boolean {
    const record = this.slots.takeLarger(slot, classOf(units), SMALL_CLASSES)
    if (record === 0) return false
    this.giveToHeap(record, slot, this.records.doubles[(record << 3) | Double.stamp])
    return true
  }

  /** Gives every cached block of one heap back to it; returns how many. */
  private drain(heap: SegregatedFit): number {
    const [first, end] = heap === this.small ? [0, SMALL_CLASSES] : [SMALL_CLASSES, CLASSES]
    let drained = 0
    for (let slot = 0; slot < this.slots.slotLimit; slot++) {
      for (const record of this.slots.drain(slot, first, end)) {
        this.giveToHeap(record, slot, this.records.doubles[(record << 3) | Double.stamp])
        drained++
      }
    }
    return drained
  }

  /**
   * Waits on the host for the work that would give room for the request, as little and as old as possible, or for the oldest
   * that freed blocks depend on, and frees blocks of what has completed then; false when nothing is left to wait for.
   * Without polling it waits for all of a stream, since which mark is the oldest depends on what has completed.
   */
  private waitOnHost(
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    slot: number,
    mostBytes = Infinity,
  ): boolean {
    const { clocks, seen } = this
    this.placeMarks()
    const awaited = Array.from({ length: this.slots.slotLimit }, (_, other) => other).filter(
      other => this.awaited[other] > seen[other],
    )
    if (this.config.deterministic && awaited.length > 0) clocks.waitForAll(awaited[0])
    else {
      const marks = awaited.flatMap(other => clocks.watched(other)).sort((a, b) => a.number - b.number)
      if (marks.length === 0) {
        const waited = this.deferred.pollPeers(true)
        return this.settle() > 0 || waited // by an answer that came since
      }
      const newBytes = this.newBytes(mostBytes)
      const chosen = leastOf(marks, some => this.wouldHelp(some, heap, units, alignUnits, slot, newBytes))
      for (const mark of chosen) clocks.waitFor(mark.slot, mark.stamp) // of two, the first may have told of the second
    }
    this.settle()
    return true
  }

  /** Whether the request could be served once the host had seen some marks complete. */
  private wouldHelp(
    marks: readonly Mark[],
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    slot: number,
    newBytes: number,
  ): boolean {
    const settled: Admission = new Float64Array(MOST_STREAMS + 1)
    settled[0] = Infinity
    settled.set(this.seen.subarray(0, this.slots.slotLimit), 1)
    for (const { reach } of marks) {
      for (let other = 0; other < reach.length; other++) settled[other + 1] = Math.max(settled[other + 1], reach[other])
    }
    const known = slot === ANYBODY ? NONE : this.others.look(slot)
    const admission = known.map((stamp, key) => Math.max(stamp, settled[key]))
    const end = heap === this.small ? SMALL_UNITS : Infinity
    return (
      findAdmitted(heap, units, alignUnits, admission) !== 0 ||
      findStretch(heap, units, alignUnits, admission) !== null ||
      this.deferred.wouldFree((units + alignUnits - 1) * UNIT_BYTES, end * UNIT_BYTES, settled) ||
      this.backing.couldGrow(heap, units, alignUnits, admission, settled, newBytes)
    )
  }

  /** What may still be reserved, as far as limit and device go. */
  private newBytes(mostBytes: number): number {
    const { leaveFreeBytes } = this.config
    const { limitBytes, reservedBytes } = this.backing
    const { freeBytes } = this.clocks.context.activate().cuMemGetInfo()
    return Math.max(0, Math.min(Math.min(limitBytes, mostBytes) - reservedBytes, freeBytes - leaveFreeBytes))
  }

  private chooseBacking(): Backing {
    const { clocks, config } = this
    const { context } = clocks
    const { backing } = config
    const heaps = { small: this.small, large: this.large }
    const inSegments = (source: SegmentSource) => new SegmentBacking(context, source, heaps, config)
    if (typeof backing === 'object') return inSegments(backing)
    if (backing === 'managed') return inSegments(managedSegments(context, config))
    const obstacle = backing === 'segments' ? 'not asked for' : virtualMemoryObstacle(context)
    if (obstacle === null) return new VirtualBacking(clocks, heaps, config, config.deterministic)
    if (backing === 'virtual') {
      throw new PoolError(`backing 'virtual' is not possible here: ${obstacle}; use 'segments' or 'auto'`)
    }
    return inSegments(deviceSegments(context))
  }
}

/** Of marks in order of age, a few that are enough, with none older or more than it takes; the oldest one where all are not enough. */
function leastOf(marks: readonly Mark[], isEnough: (some: readonly Mark[]) => boolean): readonly Mark[] {
  const oldest = marks.slice(0, 1)
  if (!isEnough(marks)) return oldest
  let [tooFew, count] = [0, marks.length]
  while (count - tooFew > 1) {
    const middle = (tooFew + count) >> 1
    if (isEnough(marks.slice(0, middle))) count = middle
    else tooFew = middle
  }
  const newest = new Map(marks.slice(0, count).map(mark => [mark.slot, mark]))
  let chosen = [...newest.values()]
  for (const mark of newest.values()) {
    const others = chosen.filter(other => other !== mark)
    if (isEnough(others)) chosen = others
  }
  return chosen.length === 0 ? oldest : chosen
}
