// Paints the held blocks one above the other, the oldest at the bottom.

import { firstIndex } from '../../core/base/binary-search.js'
import { Cell, EDGE, EDGE_ROWS, type Painting, widen } from './cells.js'
import type { LiveBlocks } from './live-blocks.js'
import type { Moments } from './moments.js'

/** The scale of a painting of stacked blocks. */
export interface StackedScale {
  readonly width: number
  readonly height: number
  /** the bytes at the upper edge */
  readonly topBytes: number
}

/**
 * Paints each block at least half a row high in its cell of `cellOf`. The smaller ones lie together on top of the
 * others, faded where all of them are.
 */
export function paintStacked(
  live: LiveBlocks,
  moments: Moments,
  cellOf: Uint8Array,
  { width, height, topBytes }: StackedScale,
): Painting {
  const cells = new Uint8Array(width * height)
  const scale = height / topBytes
  const { bytes, freeRequestedAt } = live.picture.blocks
  const least = 0.5 / scale
  const large = new LargeBlocks(bytes, freeRequestedAt, least)
  const smallCells = smallCellsOf(live, moments, cellOf, least)
  for (let column = 0; column < moments.count; column++) {
    const event = moments.event[column]
    if (event < 0) continue
    large.moveTo(event, live)
    const left = moments.left[column]
    const bottom = (left + 1) * height - 1
    let sum = 0
    let row = 0
    for (let i = 0; i < large.count; i++) {
      const block = large.list[i]
      sum += bytes[block]
      const end = Math.min(height, Math.round(sum * scale))
      if (end === row) continue
      const cell = cellOf[block]
      cells.fill(cell, bottom - end + 1, bottom - row + 1)
      if (end - row >= EDGE_ROWS) cells[bottom - end + 1] = cell + EDGE
      row = end
    }
    const top = Math.min(height, Math.round(live.inUse[event] * scale))
    cells.fill(smallCells[column], bottom - top + 1, bottom - row + 1)
    widen(cells, height, left, moments.left[column + 1])
  }
  return { width, height, cells }
}

/** By column, the cell of the blocks of less than `least` bytes: faded without one that is not. */
function smallCellsOf(live: LiveBlocks, moments: Moments, cellOf: Uint8Array, least: number): Uint8Array {
  const cells = new Uint8Array(moments.count)
  if (!cellOf.includes(Cell.faded)) return cells.fill(Cell.small)
  const { count, bytes, allocatedAt, freeRequestedAt } = live.picture.blocks
  // By column, how many more small blocks are held than in the column before.
  const more = new Int32Array(moments.count + 1)
  // Columns without an event are after all others.
  const columnOf = (event: number) => firstIndex(moments.count, i => moments.event[i] < 0 || moments.event[i] >= event)
  for (let block = 0; block < count; block++) {
    if (bytes[block] >= least || cellOf[block] === Cell.faded) continue
    more[columnOf(allocatedAt[block])]++
    more[columnOf(freeRequestedAt[block])]--
  }
  let held = 0
  for (let column = 0; column < moments.count; column++) {
    held += more[column]
    cells[column] = held > 0 ? Cell.small : Cell.faded
  }
  return cells
}

/**
 * The band of one block in each column: its lower and its upper edge in rows from the bottom, -1 where it is not held.
 * That of a block too small for a band is the one of all small blocks.
 */
export function bandsOf(
  live: LiveBlocks,
  moments: Moments,
  block: number,
  { height, topBytes }: Pick<StackedScale, 'height' | 'topBytes'>,
): Int32Array {
  const bands = new Int32Array(2 * moments.count).fill(-1)
  const scale = height / topBytes
  const { bytes, allocatedAt, freeRequestedAt } = live.picture.blocks
  const large = new LargeBlocks(bytes, freeRequestedAt, 0.5 / scale)
  for (let column = 0; column < moments.count; column++) {
    const event = moments.event[column]
    if (event < Math.max(0, allocatedAt[block]) || event >= freeRequestedAt[block]) continue
    large.moveTo(event, live)
    let [sum, i] = [0, 0]
    while (i < large.count && large.list[i] !== block) sum += bytes[large.list[i++]]
    const top = i < large.count ? sum + bytes[block] : live.inUse[event]
    const lower = Math.min(height - 1, Math.round(sum * scale))
    bands[2 * column] = lower
    bands[2 * column + 1] = Math.max(lower + 1, Math.min(height, Math.round(top * scale)))
  }
  return bands
}

/** The held blocks of at least a size, at moments that only go forwards. */
class LargeBlocks {
  list: Int32Array
  count = 0
  private seen = -1

  constructor(
    private readonly bytes: Float64Array,
    private readonly freeRequestedAt: Int32Array,
    private readonly least: number,
  ) {
    this.list = new Int32Array(1024)
  }

  moveTo(event: number, live: LiveBlocks): void {
    if (this.seen < 0) {
      for (const block of live.at(event)) if (this.bytes[block] >= this.least) this.push(block)
      this.seen = live.allocatedBy(event)
      return
    }
    let kept = 0
    for (let i = 0; i < this.count; i++) {
      const block = this.list[i]
      if (this.freeRequestedAt[block] > event) this.list[kept++] = block
    }
    this.count = kept
    const end = live.allocatedBy(event)
    for (; this.seen < end; this.seen++) {
      if (this.bytes[this.seen] >= this.least && this.freeRequestedAt[this.seen] > event) this.push(this.seen)
    }
  }

  private push(block: number): void {
    if (this.count === this.list.length) {
      const larger = new Int32Array(2 * this.count)
      larger.set(this.list)
      this.list = larger
    }
    this.list[this.count++] = block
  }
}

/** The band at a height of `bytes` above the base; that of block -1 is of the small ones together. Null for none. */
export function bandAt(
  live: LiveBlocks,
  event: number,
  bytes: number,
  { height, topBytes }: Pick<StackedScale, 'height' | 'topBytes'>,
): { readonly block: number; readonly from: number; readonly to: number } | null {
  const { blocks } = live.picture
  const least = (0.5 * topBytes) / height
  let sum = 0
  for (const block of live.at(event)) {
    if (blocks.bytes[block] < least) continue
    const from = sum
    sum += blocks.bytes[block]
    if (bytes < sum) return { block, from, to: sum }
  }
  const top = live.inUse[event]
  return bytes < top ? { block: -1, from: sum, to: top } : null
}
