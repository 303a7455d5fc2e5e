import type { SegregatedFit } from './segregated-fit.js'

/**
 * Repairs the heaps of one table of records after a thread died, or a call was cut short, while it changed them. No
 * block that was handed out is lost, no blocks overlap, and every unit belongs to a block. The operation that ended is
 * either done or undone; a block that it had taken and not yet marked as taken is free again. A repair that is cut
 * short starts again. `others` are blocks that lie in no range of a heap.
 */
export function rebuild(heaps: readonly SegregatedFit[], others: readonly number[] = []): void {
  const { records } = heaps[0]
  const isBlock = new Uint8Array(records.used)
  for (const heap of heaps) heap.rebuild(isBlock)
  for (const record of others) isBlock[record] = 1
  records.retain(record => isBlock[record] === 1)
}
