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
import { MOST_STREAMS } from '../../../order/clocks.js'
import type { Backing } from '../../backing/backing.js'
import type { Use } from './deferred.js'
import { ANY_STREAM, type Miss, OfPool, type PoolParts } from './parts.js'

/** By key: every block is admitted. */
const ALL: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity)
/** By key: only blocks that depend on no work are admitted. */
const NO_STREAM: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity, 0, 1)

export class CrossStreamReuse extends OfPool {
  /** how often a stream was made to wait for another stream */
  insertedWaits = 0
  /** `admissionFor` the stream of slot `admitted`, written anew by each call */
  private readonly admission: Admission = new Float64Array(MOST_STREAMS + 1)
  private admitted = 0

  constructor(
    parts: PoolParts,
    /** takes back a block out of a heap, to be used again after all of `uses` */
    private readonly giveBack: (record: number, uses: readonly Use[]) => void,
  ) {
    super(parts)
  }

  /**
   * By key: the latest stamp of other streams that comes before everything that a stream does from now on; none for
   * `ANY_STREAM`. It holds until the next call.
   */
  admissionFor(slot: number): Admission {
    if (slot === ANY_STREAM) return NO_STREAM
    const { admission, seen } = this
    const { known } = this.clocks
    const { slotLimit } = this.caches
    const row = slot * MOST_STREAMS
    admission[0] = Infinity
    // The loop leaves out streams without blocks. Another thread may bring the first block of one during a driver
    // call.
    admission[keyOfSlot(this.admitted)] = 0
    this.admitted = slot
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

  /** Takes a block out of another stream's cache that the stream may use now; or returns 0. */
  takeCached(units: number, slot: number): number {
    return this.caches.takeAdmitted(slot, units, this.admissionFor(slot))
  }

  /** Takes a free block of any stream that the stream may use now; or returns 0. */
  takeFree({ heap, units, alignUnits, slot }: Miss): number {
    const record = findAdmitted(heap, units, alignUnits, this.admissionFor(slot))
    return record === 0 ? 0 : heap.carve(record, startIn(heap, record, alignUnits), units)
  }

  /** Takes a part of adjacent free blocks that the stream may use now; or returns 0. */
  takeRun({ heap, units, alignUnits, slot }: Miss): number {
    const admission = this.admissionFor(slot)
    let admitsOthers = false // else free neighbours have merged
    for (let key = 1; key < heap.keyLimit && !admitsOthers; key++) {
      admitsOthers = key !== keyOfSlot(slot) && heap.unitsByKey[key] > 0 && admission[key] > 0
    }
    const run = admitsOthers ? findAdmittedRun(heap, units, alignUnits, admission) : null
    return run === null ? 0 : heap.takeRun(run, 1)
  }

  /**
   * Takes any free block, or a part of adjacent ones, and makes the stream wait for their last uses; or returns 0.
   */
  takeByWaiting(miss: Miss): number {
    const { heap, units, alignUnits, slot } = miss
    const block = findAdmitted(heap, units, alignUnits, ALL)
    if (block === 0) return this.takeRunByWaiting(miss)
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

  private takeRunByWaiting({ heap, units, alignUnits, slot }: Miss): number {
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
  waitForParts(backing: Backing, { units, alignUnits, slot }: Miss, mostBytes: number): boolean {
    const blocks = backing.stitchedBlocks(units, alignUnits, ALL, mostBytes)
    for (const use of this.usesOf(blocks)) this.waitFor(slot, use.slot, use.stamp)
    return blocks.length > 0
  }

  /** Makes a stream wait for a stamp of another stream, unless that is safe already. */
  waitFor(slot: number, other: number, stamp: number): void {
    if (this.isSafe(slot, other, stamp)) return
    if (this.clocks.order(slot, other, stamp, this.config.deterministic)) this.insertedWaits++
  }

  /** As `waitFor`, for a stream of another device. */
  waitForPeer(slot: number, { clocks, slot: other, stamp }: Use): void {
    if (clocks.completed[other] >= stamp) return
    if (clocks.orderPeer(other, stamp, this.clocks.streams[slot]!)) this.insertedWaits++
  }

  /** The uses that free blocks wait for. */
  private usesOf(blocks: readonly number[]): Use[] {
    const { clocks, records } = this
    const uses: Use[] = []
    for (const record of blocks) {
      const key = records.keyOf(record)
      if (key !== 0) uses.push({ clocks, slot: slotOfKey(key), stamp: records.stampOf(record) })
    }
    return uses
  }
}
