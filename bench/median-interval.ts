// The median of few measurements, and how well it is known.

import { median } from './machine.js'

/** Half the ranks, in units of the root of their number, that hold the median with 95 % confidence. */
const REACH = 0.98

/** The median, and the measurements that hold it with 95 % confidence. */
export function medianInterval(values: readonly number[]): readonly [median: number, from: number, to: number] {
  const sorted = [...values].sort((a, b) => a - b)
  const reach = REACH * Math.sqrt(sorted.length)
  const ranked = (rank: number) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(rank)))]
  const middle = (sorted.length - 1) / 2
  return [median(sorted), ranked(middle - reach), ranked(middle + reach)]
}
