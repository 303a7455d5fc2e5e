// What stands behind the stream caches: two heaps, the memory under them, and when a freed block may be used again. What is
// tried for a request that the heap cannot serve is miss-ladder.ts.

import { CudaError, DeviceLostError, type StreamMemory } from '../../base/errors.js'
import { HOLES_ONLY } from '../../heap/free-run.js'
import { Double, type RecordTable, State, Word } from '../../heap/records.js'
import type { SegregatedFit } from '../../heap/segregated-fit.js'
import { CLASSES, classOf, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { relaxed } from '../../order/relaxed.js'
import type { Stream } from '../../order/stream.js'
import { type Backing, SMALL_CLASSES, SMALL_UNITS } from '../backing/backing.js'
import type { BlockCache } from './block-cache.js'
import { GraphArenas } from './captures/graph-arenas.js'
import { chooseBacking } from './choose-backing.js'
import { CrossStreamReuse } from './cross-stream.js'
import { Deferred, type Use } from './deferred.js'
import { FreeMemory } from './free-memory.js'
import type { Miss } from './miss.js'
import type { PoolConfig } from './options.js'
import { SlowPath } from './slow-path.js'
import { finish, type Waiting } from './waiting.js'

/**
 * Large blocks given back to the heap between two marks. Marks tell how old the last use of idle memory is, so that it
 * can be moved when a miss comes; small blocks hardly ever leave a granule idle.
 */
const LARGE_FREES_PER_MARK = 32

export class CentralHeap {
  readonly small: SegregatedFit
  readonly large: SegregatedFit
  readonly backing: Backing
  readonly deferred: Deferred
  readonly crossStream: CrossStreamReuse
  /** by stream slot: the latest stamp that the host has seen complete, as far as the pool may know */
  readonly seen: Float64Array
  private readonly slowPath: SlowPath
  /** what captures, and their graphs, have of the memory */
  readonly arenas: GraphArenas

  constructor(
    private readonly records: RecordTable,
    private readonly caches: BlockCache,
    private readonly clocks: Clocks,
    private readonly config: PoolConfig,
    /** whose free blocks wait for what the clocks, or for a deterministic pool its own waits, say */
    private readonly memory: FreeMemory = new FreeMemory(records, caches, seenBy(clocks, config)),
  ) {
    this.small = memory.small
    this.large = memory.large
    this.seen = seenBy(clocks, config)
    this.deferred = new Deferred(clocks, this.seen, config.streamOrdered)
    this.crossStream = new CrossStreamReuse(records, caches, clocks, this.seen, config.deterministic, (record, uses) =>
      this.giveBackAfter(record, uses),
    )
    this.arenas = new GraphArenas(records, caches, clocks, this.deferred, this)
    this.slowPath = new SlowPath(this, caches, clocks, this.seen, config)
    this.backing = chooseBacking(clocks, memory, config)
  }

  /** A block for the stream slot, taken but without a state, its key and class in its record; 0 when no step of the slow path helps. */
  allocate(units: number, alignUnits: number, slot: number): number {
    const heap = this.memory.heapFor(units)
    const record = heap.allocate(units, alignUnits, slot + 1)
    return this.handOut(record === 0 ? finish(this.slowPath.take({ heap, units, alignUnits, slot })) : record, slot)
  }

  /** The same for whoever does something else while that waits for the GPU. */
  *search(units: number, alignUnits: number, slot: number): Waiting<number> {
    const heap = this.memory.heapFor(units)
    const record = heap.allocate(units, alignUnits, slot + 1)
    return this.handOut(record === 0 ? yield* this.slowPath.take({ heap, units, alignUnits, slot }) : record, slot)
  }

  /** Whether a request that waits could be served once all work is complete, even if another one takes `lessUnits` of new memory. */
  couldServe({ units, alignUnits, slot }: Omit<Miss, 'heap'>, lessUnits: number): boolean {
    const heap = this.memory.heapFor(units)
    const { stepBytes } = this.backing
    const lessBytes = Math.ceil((lessUnits * UNIT_BYTES) / stepBytes) * stepBytes
    return this.slowPath.couldServe({ heap, units, alignUnits, slot }, lessBytes)
  }

  /** A block that was found for the stream slot, with what its record says of it; 0 for none. */
  private handOut(found: number, slot: number): number {
    let record = found
    if (record === 0) return 0
    const key = slot + 1
    if (this.records.isSpent(record)) record = this.memory.heapOf(record).rehouse(record)
    const { words } = this.records
    words[(record << 4) | Word.key] = key
    words[(record << 4) | Word.sizeClass] = classOf(words[(record << 4) | Word.units])
    this.caches.meet(slot)
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
    this.giveToHeap(record, slot, stamp)
    const aboveThreshold = this.backing.reservedBytes > this.config.releaseThresholdBytes
    if (!this.wantsMarks && !aboveThreshold) return
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
    if (stream.capture === null && stamp !== Infinity) this.deferred.announce(record, stream, stamp)
    else this.arenas.announceUse(record, stream)
  }

  /** Takes back a block that was captured, to be used again after all of `uses`. */
  giveBackAfter(record: number, uses: readonly Use[]): void {
    const { clocks } = this
    const own = uses.filter(use => use.clocks === clocks)
    const first = own[0] ?? { slot: 0, stamp: 0 }
    const bytes = this.records.words[(record << 4) | Word.units] * UNIT_BYTES
    this.records.setState(record, State.deferred)
    for (const use of own) this.memory.await(use.slot, use.stamp)
    this.deferred.addAfter({ record, slot: first.slot, stamp: first.stamp, bytes, uses })
  }

  /** A block of the large heap, of at least `leastUnits`, without any dependency, taken; 0 when nothing helps. */
  takeIdle(leastUnits: number): number {
    return this.slowPath.takeIdle(Math.max(leastUnits, SMALL_UNITS)) // a smaller block would go back to the other heap
  }

  /** Whether all announced uses of a live block, about to be freed on `slot`, come before `stamp` of it; they are forgotten then. */
  forgetUses(record: number, slot: number, stamp: number): boolean {
    return !this.arenas.isCaptured(record) && this.deferred.forgetCompleted(record, slot, stamp)
  }

  /** Takes back a block that other streams use: it goes to the heap once those uses have completed. */
  defer(record: number, slot: number, stamp: number): void {
    this.caches.handBack(record)
    const bytes = this.records.words[(record << 4) | Word.units] * UNIT_BYTES
    this.records.setState(record, State.deferred)
    this.memory.await(slot, stamp)
    this.deferred.add(record, slot, stamp, bytes, (earlier, until) => this.memory.await(earlier, until))
  }

  /** A freed block is kept from use until `giveToHeap`. */
  setAside(record: number): void {
    this.caches.handBack(record)
    this.records.setState(record, State.deferred)
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

  /** Takes `units` of new memory for whoever asks next, if that is much against what is free, and there is room for it. */
  growAhead(heap: SegregatedFit, units: number): void {
    const { backing } = this
    const mostBytes = Math.min(backing.limitBytes, backing.reservedBytes + units * UNIT_BYTES)
    if (heap.freeUnits >= units) return
    const record = relaxed(this.clocks.context.activate(), () => backing.grow(heap, units, 1, HOLES_ONLY, mostBytes))
    if (record !== 0) heap.free(record, 0, 0)
  }

  /** Gives idle memory back until at most `bytes` are reserved. */
  trimTo(bytes: number): void {
    this.drain(this.small)
    this.drain(this.large)
    this.settle()
    relaxed(this.clocks.context.activate(), () => this.backing.trim(bytes))
  }

  /** Requests for which memory had to be found or moved. */
  get growths(): number {
    return this.slowPath.growths
  }

  /** How often a stream was made to wait for another one's memory. */
  get insertedWaits(): number {
    return this.crossStream.insertedWaits
  }

  /** Freed, and not yet known to be free of work. */
  get pendingBytes(): number {
    return this.memory.pendingUnits * UNIT_BYTES + this.deferred.bytes
  }

  /** The floor of the largest free block's class. */
  get largestFreeBytes(): number {
    return this.memory.largestFreeUnits * UNIT_BYTES
  }

  /** What is kept that each stream used last; walks the waiting blocks. */
  byStream(): StreamMemory[] {
    const slots = Array.from({ length: this.caches.slotLimit }, (_, slot) => {
      const free = (this.small.unitsByKey[slot + 1] ?? 0) + (this.large.unitsByKey[slot + 1] ?? 0)
      return {
        stream: this.clocks.isOpen(slot) ? this.clocks.handles[slot] : null,
        pendingBytes: free * UNIT_BYTES + this.deferred.bytesOf(slot),
        cachedBytes: this.caches.cachedUnits(slot) * UNIT_BYTES,
      }
    })
    return slots.filter(({ pendingBytes, cachedBytes }) => pendingBytes + cachedBytes > 0)
  }

  /** The longest run of free blocks, whatever they wait for; walks every block. */
  longestFreeBytes(): number {
    const { words } = this.records
    let longest = 0
    for (const heap of [this.small, this.large]) {
      for (const [, first] of heap.firstRecords) {
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

  /** Gives a block back to its heap without asking the driver for anything; returns the heap. */
  giveToHeap(record: number, slot: number, stamp: number): SegregatedFit {
    return this.memory.giveToHeap(record, slot, stamp)
  }

  /** Slots of streams that blocks wait for. */
  awaitedSlots(): number[] {
    return Array.from({ length: this.caches.slotLimit }, (_, slot) => slot).filter(
      slot => this.memory.awaited[slot] > this.seen[slot],
    )
  }

  /** So many frees wait for a mark that one should be placed. */
  get wantsMarks(): boolean {
    return this.memory.unmarkedFrees >= LARGE_FREES_PER_MARK
  }

  /** Places a mark on each stream that has frees which none covers yet. */
  placeMarks(): void {
    const { clocks } = this
    const { awaited } = this.memory
    this.memory.noteMarks()
    if (this.config.deterministic) return
    for (let slot = 0; slot < this.caches.slotLimit; slot++) {
      if (awaited[slot] > clocks.marked[slot] && clocks.isOpen(slot)) clocks.mark(slot)
    }
  }

  /** Asks how far the streams have come and frees their blocks of what has completed; returns how many blocks that were. */
  settle(): number {
    this.ask() // all, before any block is settled: an answer says something of other streams, too
    return this.settleKnown()
  }

  /** Asks how far the streams that blocks wait for have come; false when that is no further than was known. */
  ask(): boolean {
    const { clocks, seen } = this
    const { awaited } = this.memory
    this.placeMarks()
    let learnt = false
    const end = this.config.deterministic ? 0 : this.caches.slotLimit
    for (let slot = 0; slot < end; slot++) if (awaited[slot] > seen[slot] && clocks.poll(slot)) learnt = true
    return this.deferred.pollPeers(false) || learnt
  }

  /** Frees the blocks of what is known to have completed, without asking the driver; returns how many that were. */
  settleKnown(): number {
    let settled = 0
    for (let slot = 0; slot < this.caches.slotLimit; slot++) settled += this.memory.settle(slot)
    if (this.deferred.empty) return settled
    for (const block of this.deferred.takeSettled()) {
      this.giveToHeap(block.record, block.slot, block.stamp)
      settled++
    }
    return settled
  }

  /** Gives the smallest cached small block of the stream that is larger than `units` back to its heap; false when there is none. */
  breakLarger(units: number, slot: number): boolean {
    const record = this.caches.takeLarger(slot, classOf(units), SMALL_CLASSES)
    if (record === 0) return false
    this.giveToHeap(record, slot, this.records.doubles[(record << 3) | Double.stamp])
    return true
  }

  /** Gives cached blocks of the stream back to their heap that make room for `units` there, if it caches many; false where it does not. */
  makeRoom(heap: SegregatedFit, units: number, slot: number): boolean {
    const [first, end] = this.classesOf(heap)
    const records = this.caches.takeRoom(slot, units, first, end)
    for (const record of records) this.giveToHeap(record, slot, this.records.doubles[(record << 3) | Double.stamp])
    return records.length > 0
  }

  /** Gives every cached block of one heap back to it; returns how many. */
  drain(heap: SegregatedFit): number {
    const [first, end] = this.classesOf(heap)
    let drained = 0
    for (let slot = 0; slot < this.caches.slotLimit; slot++) {
      for (const record of this.caches.drain(slot, first, end)) {
        this.giveToHeap(record, slot, this.records.doubles[(record << 3) | Double.stamp])
        drained++
      }
    }
    return drained
  }

  /** Whether some stream caches so many blocks of a heap that a request had better not cost them all. */
  cachesMany(heap: SegregatedFit): boolean {
    const [first, end] = this.classesOf(heap)
    for (let slot = 0; slot < this.caches.slotLimit; slot++) if (this.caches.cachesMany(slot, first, end)) return true
    return false
  }

  /** The classes of the blocks of a heap, from the first to before the end. */
  private classesOf(heap: SegregatedFit): [first: number, end: number] {
    return heap === this.small ? [0, SMALL_CLASSES] : [SMALL_CLASSES, CLASSES]
  }
}

/** By stream slot: the latest stamp that the host has seen complete, as far as a pool of this configuration may know. */
export function seenBy(clocks: Clocks, config: Pick<PoolConfig, 'deterministic'>): Float64Array {
  return config.deterministic ? clocks.waited : clocks.completed
}
