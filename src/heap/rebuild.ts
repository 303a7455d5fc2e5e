import type { SegregatedFit } from './segregated-fit.js'

/**
 * Repairs the heaps of one table of records after a thread died in the middle of changing them: nothing that was handed out
 * is lost, nothing overlaps, every unit belongs to a block. Whatever the dead thread had begun is done or not done; what it
 * had taken and not yet marked as taken is free again. A repair that is cut short itself is simply begun again.
 */
export function rebuild(heaps: readonly SegregatedFit[]): void {
  const { records } = heaps[0]
  const isBlock = new Uint8Array(records.used)
  for (const heap of heaps) heap.rebuild(isBlock)
  records.retain(record => isBlock[record] === 1)
}
