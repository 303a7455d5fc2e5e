// The most units that were ever live, exactly, although the cached path counts only what each stream caches. Live is
// what the heaps have handed out and what no stream caches. So each stream gets an allowance: as long as it caches at
// least `StreamTotals.watched` units, no more can be live than at the peak. The cached path compares with that number, and
// calls `note` when a stream falls below it.
//
// Handed-out units and bytes of slack stay in stream-caches.ts, because `setSlack` belongs to the cached path.

import type { StreamTotals } from './block.js'

/**
 * `StreamTotals.watched` of a cache that does not count: below whatever a stream caches, and a small integer as all its
 * values.
 */
export const UNWATCHED = -(2 ** 30)

export class LivePeak {
  /** the most units that were live */
  units = 0

  constructor(
    /** by stream slot, two each */
    private readonly totals: readonly StreamTotals[],
  ) {}

  /**
   * Raises the peak to `live` units if it is lower. Divides the rest among the streams: their caches may shrink by
   * that much unseen.
   */
  note(live: number, slotLimit: number): void {
    if (live > this.units) this.units = live
    const count = 2 * slotLimit
    const part = Math.floor((this.units - live) / count)
    for (let index = 0; index < count; index++) this.totals[index].watched = this.totals[index].cached - part
  }

  /** Sets the peak to `live` units. */
  reset(live: number, slotLimit: number): void {
    this.units = live
    this.note(live, slotLimit)
  }
}
