import type { PoolStats } from '../pool/pool.js'

/** The share of the requests of a pool that no cache served. Refused requests count as misses, not as allocations. */
export function missShare({ cacheMisses, allocations }: Pick<PoolStats, 'cacheMisses' | 'allocations'>): number {
  return cacheMisses === 0 ? 0 : cacheMisses / Math.max(cacheMisses, allocations)
}
