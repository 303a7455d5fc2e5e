// The blocks of a shared pool that are out of its heaps, by the owner words of their records. A thread keeps its
// cached blocks in stacks of its own (stream-caches.ts), which no other thread can see. The owner words say the same
// in shared memory, so that the pool server can take a cached block away: it shuts the biased locks (biased-lock.ts)
// and changes the owner word. The thread compares that word, behind its biased lock, for each block that it takes
// from a stack.

import type { Admission } from '../../heap/free-run.js'
import { keyOfSlot } from '../../heap/key.js'
import { Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { Double, type RecordTable, Word } from '../../heap/records.js'
import { classOf } from '../../heap/size-classes.js'
import { BiasedLock } from '../../threads/biased-lock.js'
import type { Region } from '../../threads/region.js'
import { MOST_WORKERS, type ThreadRegistry } from '../../threads/thread-registry.js'
import type { BlockCache } from '../caching/block-cache.js'
import { RemoteFrees } from './remote-frees.js'

/** 1 GiB: while all threads together cache less, draining their caches does not pay. */
const LITTLE_UNITS = 2 ** 22
/** int32 words from one thread's word to the next, so that no two share a cache line. */
const LINE_WORDS = 32

const enum Total {
  handedUnits,
  handedBlocks,
  /** as of the last look */
  cachedUnits,
  peakUnits,
  count,
}

export class ThreadCaches implements BlockCache {
  /** freed blocks on their way to the threads that have the pages of their records */
  readonly remoteFrees: RemoteFrees
  /** held shut while blocks are taken away from threads */
  readonly biasedLock: BiasedLock
  private readonly totals: Float64Array
  /** one more than the highest stream slot that had blocks */
  private readonly limit: Int32Array
  /** by thread, a line each: how often blocks were taken away from it */
  private readonly losses: Int32Array
  private readonly words: Int32Array
  private readonly doubles: Float64Array

  /** Takes its memory from `region`; `records` have a fixed size. */
  constructor(
    private readonly records: RecordTable,
    region: Region,
    registry: ThreadRegistry,
    isFenced: boolean,
  ) {
    this.biasedLock = new BiasedLock(region, registry, isFenced)
    this.remoteFrees = new RemoteFrees(records, region)
    this.totals = region.float64(Total.count)
    this.limit = region.int32(1)
    this.losses = region.int32((MOST_WORKERS + 1) * LINE_WORDS)
    this.words = records.words
    this.doubles = records.doubles
  }

  /** Sets the number of the calling thread. */
  enter(thread: number): void {
    this.remoteFrees.enter(thread)
    this.biasedLock.assign(thread)
  }

  get slotLimit(): number {
    return this.limit[0]
  }

  /** Needs no lock. */
  includeSlot(slot: number): void {
    for (let known = this.limit[0]; slot >= known; known = Atomics.load(this.limit, 0)) {
      Atomics.compareExchange(this.limit, 0, known, slot + 1)
    }
  }

  /** How often blocks were taken away from a thread. When the count has changed, the thread drops those blocks. */
  lossesOf(thread: number): number {
    return Atomics.load(this.losses, thread * LINE_WORDS)
  }

  handOut(slot: number, record: number): void {
    this.includeSlot(slot)
    this.totals[Total.handedUnits] += this.records.unitsOf(record)
    this.totals[Total.handedBlocks]++
    this.doubles[(record << 3) | Double.requested] = 0
  }

  handBack(record: number): void {
    this.totals[Total.handedUnits] -= this.records.unitsOf(record)
    this.totals[Total.handedBlocks]--
  }

  get handedUnits(): number {
    return this.totals[Total.handedUnits]
  }

  get peakUnits(): number {
    return this.totals[Total.peakUnits]
  }

  /** Counts what threads cache, too: no other thread can use it. */
  mostUsedUnits(units: number): number {
    return Math.max(this.peakUnits, this.handedUnits + units)
  }

  /** Walks all records. */
  get liveUnits(): number {
    return this.sums().liveUnits
  }

  /** Walks all records to note how much is cached, and the peak of live memory. */
  noteSums(): void {
    const { cachedUnits, liveUnits } = this.sums()
    this.totals[Total.cachedUnits] = cachedUnits
    this.totals[Total.peakUnits] = Math.max(this.peakUnits, liveUnits)
  }

  /** Sets the peak to the live units. */
  resetPeak(): void {
    this.totals[Total.peakUnits] = this.liveUnits
  }

  /** Draining empties every thread's cache. It pays once cached memory exceeds both live memory and LITTLE_UNITS. */
  get isWorthDraining(): boolean {
    const cachedUnits = this.totals[Total.cachedUnits]
    return cachedUnits > Math.max(this.handedUnits - cachedUnits, LITTLE_UNITS)
  }

  /**
   * Counts the blocks outside the heaps again, after a thread died in a change of the counters. Under the lock. A
   * block without an owner is not counted: the pool server has just taken it out of a heap, and counts it when it
   * hands the block out.
   */
  recount(): void {
    const { records } = this
    let units = 0
    let blocks = 0
    for (const record of records.taken()) {
      if (records.ownerWord(record) === 0) continue
      units += records.unitsOf(record)
      blocks++
    }
    this.totals[Total.handedUnits] = units
    this.totals[Total.handedBlocks] = blocks
  }

  cachedUnits(slot: number): number {
    let units = 0
    for (const record of this.freed()) {
      if (this.records.keyOf(record) === keyOfSlot(slot)) units += this.records.unitsOf(record)
    }
    return units
  }

  /**
   * Sums of live and cached blocks, counted while threads work: each block counts once, in the state that it has
   * then. Every sum lies between 0 and the total outside the heaps.
   */
  sums(): { liveBlocks: number; liveUnits: number; requestedBytes: number; cachedUnits: number } {
    const { records, words } = this
    const sums = { liveBlocks: 0, liveUnits: 0, requestedBytes: 0, cachedUnits: 0 }
    const [unitsBefore, blocksBefore] = this.totals.subarray(Total.handedUnits)
    for (let record = records.first; record < records.used; record++) {
      let tag: number
      let ownerWord: number
      let isOut: boolean
      let units: number
      let requested: number
      do {
        tag = words[record << 4]
        ownerWord = records.ownerWord(record)
        isOut = ownerWord !== 0 && records.isLive(record)
        units = records.unitsOf(record)
        requested = records.requestedBytesOf(record)
        // Again if its owner has changed it meanwhile.
      } while (isOut && (words[record << 4] !== tag || records.ownerWord(record) !== ownerWord))
      if (!isOut) continue
      if (phaseOf(ownerWord) === Phase.live) {
        sums.liveBlocks++
        sums.liveUnits += units
        sums.requestedBytes += requested
      } else sums.cachedUnits += units
    }
    // Memory that changes hands meanwhile may count twice.
    const mostUnits = Math.max(unitsBefore, this.handedUnits)
    sums.liveBlocks = Math.min(sums.liveBlocks, Math.max(blocksBefore, this.totals[Total.handedBlocks]))
    sums.liveUnits = Math.min(sums.liveUnits, mostUnits)
    sums.cachedUnits = Math.min(sums.cachedUnits, mostUnits)
    return sums
  }

  takeAdmitted(slot: number, units: number, admission: Admission): number {
    const { records } = this
    const [own, sizeClass] = [keyOfSlot(slot), classOf(units)]
    this.biasedLock.shut() // keeps the stamps unchanged
    for (const record of this.freed()) {
      const key = records.keyOf(record)
      if (key === own || records.sizeClassOf(record) !== sizeClass) continue
      const fits = records.unitsOf(record) >= units && records.stampOf(record) <= admission[key]
      if (fits && this.takeAway(record)) return record
    }
    return 0
  }

  drainAll(first: number, end: number): number[] {
    const { records } = this
    const isWanted = (record: number) => {
      const sizeClass = records.sizeClassOf(record)
      return sizeClass >= first && sizeClass < end
    }
    const drained = [...this.freed()].filter(record => isWanted(record) && this.takeAway(record))
    for (let thread = 1; thread <= MOST_WORKERS; thread++) drained.push(...this.drainQueue(thread, isWanted))
    return drained
  }

  /** Takes away all blocks that an ended or leaving thread caches, and those in its queue. */
  drainThread(thread: number): number[] {
    const { records } = this
    const drained: number[] = []
    for (const record of this.freed()) {
      if (workerOf(records.ownerWord(record)) === thread && this.takeAway(record)) drained.push(record)
    }
    drained.push(...this.drainQueue(thread, () => true))
    this.remoteFrees.completeOf(thread)
    return drained
  }

  /** Blocks that threads cache, and those on their way to the thread that will cache them. */
  *freed(): Generator<number> {
    const { records, words } = this
    for (let record = records.first; record < records.used; record++) {
      // An acquire load: the thread wrote the rest of the record before.
      if (phaseOf(Atomics.load(words, (record << 4) | Word.owner)) > Phase.live && records.isLive(record)) yield record
    }
  }

  /**
   * For the pool server. False for a block that no thread caches, or whose thread was stopped inside its biased lock.
   */
  private takeAway(record: number): boolean {
    const { biasedLock, words, losses } = this
    const index = (record << 4) | Word.owner
    biasedLock.shut()
    const ownerWord = Atomics.load(words, index)
    const thread = workerOf(ownerWord)
    // While the biased lock is shut, a cached block stays cached: its thread would have to enter to take it.
    if (phaseOf(ownerWord) !== Phase.cached || !biasedLock.isOut(thread) || Atomics.load(words, index) !== ownerWord)
      return false
    Atomics.store(words, index, 0)
    Atomics.add(losses, thread * LINE_WORDS, 1)
    this.handBack(record)
    return true
  }

  /** Takes the blocks that `isWanted` accepts out of a thread's queue, as `takeAway` does out of its cache. */
  private drainQueue(thread: number, isWanted: (record: number) => boolean): number[] {
    this.biasedLock.shut()
    if (!this.biasedLock.isOut(thread)) return []
    const drained = this.remoteFrees.drain(thread, isWanted)
    for (const record of drained) this.handBack(record)
    return drained
  }
}
