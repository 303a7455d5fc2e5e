// Host time of each call, measured in separate passes. Reading the clock takes longer than a cached allocation, so
// the clock's own time is measured and reported, too.

import { CachingPool } from '../../core/pool/caching/caching-pool.js'
import type { Pool } from '../../core/pool/pool.js'
import type { Latency, Percentiles } from './replay-result.js'

/** How often a policy is replayed for its times. */
export const LATENCY_PASSES = 5
const CLOCK_SAMPLES = 10_000

/** The durations of one kind of call, in nanoseconds. */
class Samples {
  private values = new Float64Array(1024)
  private count = 0
  /** where each pass begins */
  private readonly passes: number[] = []

  startPass(): void {
    this.passes.push(this.count)
  }

  add(ns: number): void {
    if (this.count === this.values.length) {
      const larger = new Float64Array(this.count * 2)
      larger.set(this.values)
      this.values = larger
    }
    this.values[this.count++] = ns
  }

  /** The sum of one pass: the median of all passes. */
  totalNs(): number {
    const sums = this.passes.map((from, pass) => {
      let sum = 0
      for (let i = from; i < (this.passes[pass + 1] ?? this.count); i++) sum += this.values[i]
      return sum
    })
    sums.sort((a, b) => a - b)
    return Math.round(sums[sums.length >> 1])
  }

  percentiles(): Percentiles | null {
    if (this.count === 0) return null
    const values = this.values.slice(0, this.count)
    let from = 0
    // By rising share: what lies below `from` is in place.
    const at = (share: number) => {
      const rank = Math.min(this.count - 1, Math.floor(share * this.count))
      select(values, rank, from)
      from = rank
      return Math.round(values[rank])
    }
    return { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1) }
  }
}

/**
 * Moves the values from index `from` on until the one at `rank` is where sorting would put it, with none below it
 * behind it. Hoare's quickselect: sorting millions of values takes several times as long.
 */
function select(values: Float64Array, rank: number, from: number): void {
  let left = from
  let right = values.length - 1
  while (left < right) {
    const pivot = values[(left + right) >>> 1]
    let low = left
    let high = right
    while (low <= high) {
      while (values[low] < pivot) low++
      while (values[high] > pivot) high--
      if (low > high) break
      const value = values[low]
      values[low++] = values[high]
      values[high--] = value
    }
    if (rank <= high) right = high
    else if (rank >= low) left = low
    else return
  }
}

/** Times the calls of the passes of one policy. */
export class LatencyMeter {
  private readonly allocations = new Samples()
  private readonly hits = new Samples()
  private readonly misses = new Samples()
  private readonly frees = new Samples()
  private runs = 0
  private caching: CachingPool | null = null
  private missesBefore = 0

  /** A pass begins; in a caching pool, it counts hits and misses apart. */
  startPass(pool: Pool | null = null): void {
    this.runs++
    this.allocations.startPass()
    this.frees.startPass()
    this.caching = pool instanceof CachingPool ? pool : null
  }

  /** The time before a call. */
  start(): number {
    if (this.caching !== null) this.missesBefore = this.caching.cacheMisses
    return performance.now()
  }

  /** An allocation that began at `start` has ended. */
  allocated(start: number): void {
    const ns = (performance.now() - start) * 1e6
    this.noteAllocation(ns)
    if (this.caching !== null) (this.caching.cacheMisses === this.missesBefore ? this.hits : this.misses).add(ns)
  }

  /** A free that began at `start` has ended. */
  freed(start: number): void {
    this.noteFree((performance.now() - start) * 1e6)
  }

  noteAllocation(ns: number): void {
    this.allocations.add(ns)
  }

  noteFree(ns: number): void {
    this.frees.add(ns)
  }

  allocateNs(): Latency | null {
    const all = this.allocations.percentiles()
    if (all === null) return null
    const hits = this.caching ? this.hits.percentiles() : null
    const misses = this.caching ? this.misses.percentiles() : null
    return { ...all, totalNs: this.allocations.totalNs(), clockNs: clockNs(), runs: this.runs, hits, misses }
  }

  freeNs(): Latency | null {
    const all = this.frees.percentiles()
    if (all === null) return null
    const totalNs = this.frees.totalNs()
    return { ...all, totalNs, clockNs: clockNs(), runs: this.runs, hits: null, misses: null }
  }
}

/** The median of the nanoseconds between two readings of the clock. */
function clockNs(): number {
  const samples = new Samples()
  for (let sample = 0; sample < CLOCK_SAMPLES; sample++) {
    const start = performance.now()
    samples.add((performance.now() - start) * 1e6)
  }
  return samples.percentiles()!.p50
}
