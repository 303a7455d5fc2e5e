// The address map of a pool as cells, each in the use of most of its bytes.

import type { PoolSnapshot } from '../../src/core/pool/caching/snapshot.js'
import { useOf } from '../../src/live/memory-parts.js'

/** The cells without memory, and each use of memory. */
export const Cell = { none: 0, free: 1, cached: 2, pending: 3, live: 4 } as const

/** The uses of `count` cells over all memory in the order of addresses. Addresses without memory are left out. */
export function mapCells({ ranges }: PoolSnapshot, count: number): { cells: Uint8Array; bytes: number } {
  const blocks = [...ranges]
    .sort((a, b) => a.base - b.base)
    .flatMap(range => range.blocks)
    .map(block => ({ bytes: block.bytes, use: useOf(block) ?? 'none' }) as const)
    .filter(({ use }) => use !== 'none')
  const bytes = blocks.reduce((sum, block) => sum + block.bytes, 0)
  const cells = new Uint8Array(count)
  const most = new Float64Array(count)
  const perCell = bytes / count
  let start = 0
  for (const block of blocks) {
    const end = start + block.bytes
    for (let cell = Math.floor(start / perCell); cell < count && cell * perCell < end; cell++) {
      const covered = Math.min(end, (cell + 1) * perCell) - Math.max(start, cell * perCell)
      if (covered <= most[cell]) continue
      most[cell] = covered
      cells[cell] = Cell[block.use]
    }
    start = end
  }
  return { cells, bytes }
}
