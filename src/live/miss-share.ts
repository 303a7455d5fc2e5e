import type { PoolStats } from '../pool/pool.js'

/** The share of a pool's requests that no cache served. A shared pool may count a miss that it refuses afterwards. */
export function missShare({ cacheMisses, allocations }: Pick<PoolStats, 'cacheMisses' | 'allocations'>): number {
  return cacheMisses === 0 ? 0 : cacheMisses / Math.max(cacheMisses, allocations)
}
