import { UNIT_BYTES } from '../../core/heap/size-classes.js'
import { CachingPool } from '../../core/pool/caching/caching-pool.js'
import type { Pool } from '../../core/pool/pool.js'
import type { Trace } from './trace.js'

/** Follows reserved and granted memory, event by event. docs/metrics.md defines the figures. */
export class Footprint {
  peakReservedBytes = 0
  readonly peaksOfRounds: number[] = []
  peakGrantedBytes = 0
  fragmentationAtPeak: number | null = null
  contiguity: number | null = null
  /** after events; a pool may have more within an event */
  private peakAfterEvents = 0
  private peakOfRound = 0
  private weighted = 0
  private weights = 0

  constructor(
    private readonly trace: Trace,
    private readonly pool: Pool,
  ) {}

  event(event: number): void {
    const { reservedBytes, liveBytes } = usageOf(this.pool)
    const fragmentation = reservedBytes === 0 ? 0 : 1 - liveBytes / reservedBytes
    if (liveBytes > this.peakGrantedBytes) this.peakGrantedBytes = liveBytes
    if (reservedBytes > this.peakOfRound) this.peakOfRound = reservedBytes
    if (reservedBytes > this.peakAfterEvents) {
      this.peakAfterEvents = reservedBytes
      this.fragmentationAtPeak = fragmentation
      const freeBytes = reservedBytes - liveBytes
      const largestFreeBytes = largestFreeBytesOf(this.pool)
      // A pool that does not know its largest free block reports 0.
      if (freeBytes === 0) this.contiguity = 1
      else this.contiguity = largestFreeBytes === 0 ? null : Math.min(1, largestFreeBytes / freeBytes)
    }
    const { timeUs, events } = this.trace
    // Where the clock goes back no time passed; negative weights would make the mean anything, or divide by 0.
    const weight = event + 1 < events ? Math.max(0, timeUs[event + 1] - timeUs[event]) : 0
    this.weighted += fragmentation * weight
    this.weights += weight
  }

  /** Notes the peak of a round; one within an event is seen if it is the highest so far. */
  round(): void {
    const { peakReservedBytes, peakLiveBytes } = this.pool.stats()
    this.peakGrantedBytes = Math.max(this.peakGrantedBytes, peakLiveBytes)
    this.peaksOfRounds.push(peakReservedBytes > this.peakReservedBytes ? peakReservedBytes : this.peakOfRound)
    this.peakReservedBytes = Math.max(this.peakReservedBytes, peakReservedBytes)
    this.peakOfRound = 0
  }

  get fragmentationMean(): number | null {
    return this.weights === 0 ? null : this.weighted / this.weights
  }
}

// The three figures, without `stats()` of a caching pool, which walks all cached blocks to count others.

/** The reserved bytes of a pool. */
export function reservedBytesOf(pool: Pool): number {
  return pool instanceof CachingPool ? pool.central.backing.reservedBytes : pool.stats().reservedBytes
}

function usageOf(pool: Pool): { reservedBytes: number; liveBytes: number } {
  if (!(pool instanceof CachingPool)) return pool.stats()
  const { caches, central } = pool
  return { reservedBytes: central.backing.reservedBytes, liveBytes: caches.liveUnits * UNIT_BYTES }
}

function largestFreeBytesOf(pool: Pool): number {
  return pool instanceof CachingPool ? pool.central.largestFreeBytes : pool.stats().largestFreeBytes
}
