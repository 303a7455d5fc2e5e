// Memory that another stream used last, for a stream that asks: blocks whose last use is known to come before everything
// the stream does from now on, and for want of those blocks that it is made to wait for.
//
// Why a block may go from hand to hand with one stamp at a time. It was freed on A with stamp a, so A's mark a covers all its
// uses. Stream B gets it only when everything submitted to B from now on comes after mark a. B's free gets stamp b, one
// above the marks of B so far, and mark b will be placed behind whatever made B wait for A. So whoever comes after mark b
// comes after mark a, and when the host sees mark b complete, a is complete: stamp b says all that a said, and a can be
// forgotten. The same holds for a granule of memory, whose last use is then B's. A part that B does not take keeps a.

import { blocksOf, findAdmitted, findAdmittedRun, startIn } from '../../heap/cross-key.js'
import type { Admission } from '../../heap/free-run.js'
import { keyOfSlot, slotOfKey } from '../../heap/key.js'
import type { RecordTable } from '../../heap/records.js'
import type { SegregatedFit } from '../../heap/segregated-fit.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import type { Backing } from '../backing/backing.js'
import type { BlockCache } from './block-cache.js'
import type { Use } from './deferred.js'

/** By key: every block is admitted. */
const ALL: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity)

export class CrossStreamReuse {
  /** waits of a stream for another one */
  insertedWaits = 0
  /** by key, of the stream asked for last: up to which stamp blocks are admitted without more ado */
  readonly admission: Admission = new Float64Array(MOST_STREAMS + 1)
  /** the slot of that stream */
  private looked = 0

  constructor(
    private readonly records: RecordTable,
    private readonly caches: BlockCache,
    private readonly clocks: Clocks,
    /** by slot: the latest stamp that the host has seen complete */
    private readonly seen: Float64Array,
    private readonly deterministic: boolean,
    /** takes a block back that was taken out of a heap, to be used again after all of `uses` */
    private readonly giveBack: (record: number, uses: readonly Use[]) => void,
  ) {}

  /** Works out anew what is known to come before everything that a slot's stream does from now on. */
  look(slot: number): Admission {
    const { admission, seen } = this
    const { known } = this.clocks
    const { slotLimit } = this.caches
    const row = slot * MOST_STREAMS
    admission[0] = Infinity
    // Of a stream that had no block then, which the loop leaves out: another thread may bring its first while the driver is called.
    admission[keyOfSlot(this.looked)] = 0
    this.looked = slot
    for (let other = 0; other < slotLimit; other++) {
      admission[keyOfSlot(other)] = Math.max(known[row + other], seen[other])
    }
    admission[keyOfSlot(slot)] = Infinity
    return admission
  }

  /** Whether what `stamp` of another stream covers is known to come before everything that a slot's stream does from now on. */
  isSafe(slot: number, other: number, stamp: number): boolean {
    return slot === other || this.clocks.known[slot * MOST_STREAMS + other] >= stamp || this.seen[other] >= stamp
  }

  /** A block that is safe for the stream looked at last, out of another one's cache; taken as by `heap.allocate`, 0 for none. */
  takeCached(units: number, slot: number): number {
    for (let other = 0; other < this.caches.slotLimit; other++) {
      if (other === slot || this.caches.cachedUnits(other) === 0) continue
      const record = this.caches.takeOlder(other, units, this.admission[keyOfSlot(other)])
      if (record !== 0) return record
    }
    return 0
  }

  /** The same out of a heap. */
  takeFree(heap: SegregatedFit, units: number, alignUnits: number): number {
    const record = findAdmitted(heap, units, alignUnits, this.admission)
    return record === 0 ? 0 : heap.carve(record, startIn(heap, record, alignUnits), units)
  }

  /** The same, a part of neighbouring blocks. */
  takeRun(heap: SegregatedFit, units: number, alignUnits: number): number {
    const run = findAdmittedRun(heap, units, alignUnits, this.admission)
    return run === null ? 0 : heap.takeRun(run, 1)
  }

  /** Makes the stream of a slot wait for what it takes to use some block, or some neighbouring blocks; 0 where there are none. */
  takeByWaiting(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    const block = findAdmitted(heap, units, alignUnits, ALL)
    if (block === 0) return this.takeRunByWaiting(heap, units, alignUnits, slot)
    const key = this.records.keyOf(block)
    const stamp = this.records.stampOf(block)
    // First of all out of the heap, where another thread might take it while the driver is called.
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

  /** Makes the stream of a slot wait where that lets a block be placed with less new memory; returns whether it does. */
  waitForRun(backing: Backing, heap: SegregatedFit, units: number, alignUnits: number, slot: number): boolean {
    const run = backing.runFor(heap, units, alignUnits, ALL)
    if (run === null) return false
    const without = backing.runFor(heap, units, alignUnits, this.look(slot))
    if (without !== null && without.absentUnits <= run.absentUnits) return false
    for (const use of this.usesOf(blocksOf(heap, run))) this.waitFor(slot, use.slot, use.stamp)
    return true
  }

  /** Makes the stream of a slot wait for a stamp of another one, unless it is known to come after it. */
  waitFor(slot: number, other: number, stamp: number): void {
    if (this.isSafe(slot, other, stamp)) return
    if (this.clocks.order(slot, other, stamp, this.deterministic)) this.insertedWaits++
  }

  /** The same for a stream of another device. */
  waitForPeer(slot: number, { clocks, slot: other, stamp }: Use): void {
    if (clocks.completed[other] >= stamp) return
    if (clocks.orderPeer(other, stamp, this.clocks.streams[slot]!)) this.insertedWaits++
  }

  /** What free blocks wait for. */
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
