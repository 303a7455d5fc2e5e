// How far an allocator could go that knows the future, beside what others need.

import { formatBytes } from '../../core/base/bytes.js'
import { formatRatio } from './number-format.js'

/**
 * The sentence about a packing; none if some policy of the same answer needs less. A packing keeps one address for each
 * block and gives nothing back. A policy that gives back pages may need less, and a packing beside it would mislead.
 */
export function packingOf(
  packedBytes: number | null,
  neededBytes: number,
  leastBytes: readonly (number | null)[],
): string[] {
  if (packedBytes === null || neededBytes === 0) return []
  if (leastBytes.some(bytes => bytes !== null && bytes < packedBytes)) return []
  const ratio = formatRatio(packedBytes / neededBytes)
  const above = ratio === formatRatio(1) ? '' : ` (${ratio} times as much)`
  return [`Placed with all of the future known, its blocks fit into ${formatBytes(packedBytes)}${above}.`]
}
