// Gives a stream memory that another stream used last: blocks that are safe because the stream comes after their last
// use, or else blocks that the stream is made to wait for.
//
// A block needs only one stamp at a time, for this reason. It was freed on stream A with stamp a, so A's mark a
// covers all its uses. Stream B gets it only when everything submitted to B from now on comes after mark a. B's free
// gets stamp b, one above the marks of B so far. Mark b will be placed after B's wait for A, so all work after mark b
// comes after mark a. When the host sees mark b complete, mark a is complete, too: stamp b implies stamp a, which can
// be forgotten. The same holds for a granule of memory, whose last use is then B's. A part of the block that B does
// not take keeps stamp a.

import { blocksOf, findAdmitted, findAdmittedRun, startIn } from '../../../heap/cross-key.js'
import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot, slotOfKey } from '../../../heap/key.js'
import type { RecordTable } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { type Clocks, MOST_STREAMS } from '../../../order/clocks.js'
import type { Backing } from '../../backing/backing.js'
import type { BlockCache } from '../block-cache.js'
import type { Use } from './deferred.js'
import { ANY_STREAM, type PoolParts } from './parts.js'

/** By key: every block is admitted. */
const ALL: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity)
/** By key: only blocks that depend on no work are admitted. */
const NO_STREAM: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity, 0, 1)

export class CrossStreamReuse {
  /** how often a stream was made to wait for another stream */
  insertedWaits = 0
  /** by key: the highest stamp that is safe for the stream of the last `look` */
  readonly admission: Admission = new Float64Array(MOST_STREAMS + 1)
  /** the slot of that last stream */
  private looked = 0

  private readonly records: RecordTable
  private readonly caches: BlockCache
  private readonly clocks: Clocks
  private readonly seen: Float64Array
  private readonly deterministic: boolean

  constructor(
    { records, caches, clocks, seen, config }: PoolParts,
    /** takes back a block out of a heap, to be used again after all of `uses` */
    private readonly giveBack: (record: number, uses: readonly Use[]) => void,
  ) {
    this.records = records
    this.caches = caches
    this.clocks = clocks
    this.seen = seen
    this.deterministic = config.deterministic
  }

  /**
   * Works out which stamps of other streams come before everything that a stream does from now on; none for
   * `ANY_STREAM`.
   */
  look(slot: number): Admission {
    if (slot === ANY_STREAM) return NO_STREAM
    const { admission, seen } = this
    const { known } = this.clocks
    const { slotLimit } = this.caches
    const row = slot * MOST_STREAMS
    admission[0] = Infinity
    // The loop leaves out streams without blocks. Another thread may bring the first block of one during a driver
    // call.
    admission[keyOfSlot(this.looked)] = 0
    this.looked = slot
    for (let other = 0; other < slotLimit; other++) {
      admission[keyOfSlot(other)] = Math.max(known[row + other], seen[other])
    }
    admission[keyOfSlot(slot)] = Infinity
    return admission
  }

  /**
   * Whether the work that `stamp` of another stream covers comes before everything that a stream does from now on.
   */
  isSafe(slot: number, other: number, stamp: number): boolean {
    return slot === other || this.clocks.known[slot * MOST_STREAMS + other] >= stamp || this.seen[other] >= stamp
  }

  /** Takes a block out of another stream's cache, safe for the stream of the last `look`; or returns 0. */
  takeCached(units: number, slot: number): number {
    return this.caches.takeAdmitted(slot, units, this.admission)
  }

  /** As `takeCached`, out of a heap. */
  takeFree(heap: SegregatedFit, units: number, alignUnits: number): number {
    const record = findAdmitted(heap, units, alignUnits, this.admission)
    return record === 0 ? 0 : heap.carve(record, startIn(heap, record, alignUnits), units)
  }

  /** As `takeFree`, a part of adjacent blocks. */
  takeRun(heap: SegregatedFit, units: number, alignUnits: number): number {
    if (!this.admitsOthers(heap)) return 0
    const run = findAdmittedRun(heap, units, alignUnits, this.admission)
    return run === null ? 0 : heap.takeRun(run, 1)
  }

  /**
   * Whether a heap has free blocks of other streams that the stream of the last `look` may use. Without them free
   * neighbours have merged.
   */
  private admitsOthers(heap: SegregatedFit): boolean {
    const own = keyOfSlot(this.looked)
    for (let key = 1; key < heap.keyLimit; key++) {
      if (key !== own && heap.unitsByKey[key] > 0 && this.admission[key] > 0) return true
    }
    return false
  }

  /**
   * Takes any free block, or a part of adjacent ones, and makes the stream wait for their last uses; or returns 0.
   */
  takeByWaiting(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    const block = findAdmitted(heap, units, alignUnits, ALL)
    if (block === 0) return this.takeRunByWaiting(heap, units, alignUnits, slot)
    const key = this.records.keyOf(block)
    const stamp = this.records.stampOf(block)
    // The block leaves the heap before the driver call, during which another thread might take it.
    const record = heap.carve(block, startIn(heap, block, alignUnits), units)
    this.records.claim(record)
    if (key === 0) return record
    try {
      this.waitFor(slot, slotOfKey(key), stamp)
    } catch (error) {
      this.giveBack(record, [{ clocks: this.clocks, slot: slotOfKey(key), stamp }])
      throw error
    }
    return record
  }

  private takeRunByWaiting(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    const run = findAdmittedRun(heap, units, alignUnits, ALL)
    if (run === null) return 0
    const uses = this.usesOf(blocksOf(heap, run))
    const record = heap.takeRun(run, 1)
    this.records.claim(record)
    try {
      for (const use of uses) this.waitFor(slot, use.slot, use.stamp)
    } catch (error) {
      this.giveBack(record, uses)
      throw error
    }
    return record
  }

  /**
   * Makes the stream wait if a block can then be stitched of free memory, and of new memory up to `mostBytes`; returns
   * whether it does.
   */
  waitForParts(backing: Backing, units: number, alignUnits: number, slot: number, mostBytes: number): boolean {
    const blocks = backing.stitchedBlocks(units, alignUnits, ALL, mostBytes)
    for (const use of this.usesOf(blocks)) this.waitFor(slot, use.slot, use.stamp)
    return blocks.length > 0
  }

  /** Makes a stream wait for a stamp of another stream, unless that is safe already. */
  waitFor(slot: number, other: number, stamp: number): void {
    if (this.isSafe(slot, other, stamp)) return
    if (this.clocks.order(slot, other, stamp, this.deterministic)) this.insertedWaits++
  }

  /** As `waitFor`, for a stream of another device. */
  waitForPeer(slot: number, { clocks, slot: other, stamp }: Use): void {
    if (clocks.completed[other] >= stamp) return
    if (clocks.orderPeer(other, stamp, this.clocks.streams[slot]!)) this.insertedWaits++
  }

  /** The uses that free blocks wait for. */
  private usesOf(blocks: readonly number[]): Use[] {
    const { clocks } = this
    const { records } = this
    const uses: Use[] = []
    for (const record of blocks) {
      const key = records.keyOf(record)
      if (key !== 0) uses.push({ clocks, slot: slotOfKey(key), stamp: records.stampOf(record) })
    }
    return uses
  }
}
