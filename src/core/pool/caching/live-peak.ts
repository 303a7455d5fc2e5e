// The most units that were ever live, exactly, although the cached path counts only what each stream caches. Live is
// what the heaps have handed out and what no stream caches. So each stream gets an allowance: as long as it caches at
// least `StreamTotals.leastCached` units, no more can be live than at the peak. The cached path compares with that
// number, and calls `note` when a stream falls below it.
//
// Few streams divide what is left between live and the peak equally, whenever a stream falls below. To look at
// hundreds of streams would take long. So of many streams only those that fall below get an allowance. They lose what
// they do not use when a further stream falls below and nothing is left.
//
// Handed-out units and bytes of slack stay in stream-caches.ts, because the cached path notes slack.

import type { StreamTotals } from './block.js'

/**
 * `StreamTotals.leastCached` of a cache that does not count: below whatever a stream caches, and a small integer as all
 * its values.
 */
export const UNCOUNTED = -(2 ** 30)
/** Up to so many streams divide what is left. */
const FEW_STREAMS = 64

export class LivePeak {
  /** the most units that were live */
  units = 0
  /**
   * of many streams: as long as no stream caches less than that, at most this is live. It is the handed-out units
   * less the `leastCached` units of all streams, or more once blocks went back to their heaps
   */
  private mostLive = 0
  /** whether `mostLive` holds: not before the first look at many streams */
  private isCounted = false
  /** of many streams: those with an allowance since the last look at all streams */
  private readonly allowed: StreamTotals[] = []

  constructor(
    /** by stream slot */
    private readonly totals: readonly StreamTotals[],
  ) {}

  /** A stream caches less than `leastCached`: lowers that, and raises the peak if more is live than ever. */
  note(totals: StreamTotals, handedUnits: number): void {
    if (this.totals.length <= FEW_STREAMS) this.divide(handedUnits)
    else this.allow(totals, handedUnits)
  }

  /** Sets the peak to what is live. */
  reset(handedUnits: number): void {
    this.units = 0
    this.divide(handedUnits)
  }

  /** Counts anew what is live. */
  restart(handedUnits: number): void {
    if (this.totals.length <= FEW_STREAMS) this.divide(handedUnits)
    else this.recount(handedUnits)
  }

  private divide(handedUnits: number): void {
    const { totals } = this
    let live = handedUnits
    for (let slot = 0; slot < totals.length; slot++) live -= totals[slot].cached
    if (live > this.units) this.units = live
    const part = Math.floor((this.units - live) / totals.length)
    for (let slot = 0; slot < totals.length; slot++) totals[slot].leastCached = totals[slot].cached - part
    this.isCounted = false
  }

  private allow(totals: StreamTotals, handedUnits: number): void {
    if (this.left < totals.leastCached - totals.cached) this.takeBack()
    if (!this.isCounted || this.left < totals.leastCached - totals.cached) this.recount(handedUnits)
    const missing = totals.leastCached - totals.cached
    const allowance = missing + Math.floor((this.left - missing) / this.totals.length)
    totals.leastCached -= allowance
    this.mostLive += allowance
    this.allowed.push(totals)
  }

  /** Units that streams may still be allowed. */
  private get left(): number {
    return this.units - this.mostLive
  }

  /** Takes back what streams do not use of their allowances. */
  private takeBack(): void {
    for (const totals of this.allowed) {
      const unused = Math.max(0, totals.cached - totals.leastCached)
      totals.leastCached += unused
      this.mostLive -= unused
    }
    this.allowed.length = 0
  }

  /** Takes back all allowances. So `mostLive` is what is live. */
  private recount(handedUnits: number): void {
    this.mostLive = handedUnits
    for (const totals of this.totals) {
      totals.leastCached = totals.cached
      this.mostLive -= totals.cached
    }
    this.units = Math.max(this.units, this.mostLive)
    this.isCounted = true
    this.allowed.length = 0
  }
}
