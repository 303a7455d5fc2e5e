// Paints where blocks lie: addresses upwards, one row of pixels for each share of them. Each row keeps running sums,
// so the cost of a column depends on the changes, not on how many blocks are held.

import { Action } from '../trace/trace.js'
import { CELLS, Cell, type Painting, widen } from './cells.js'
import type { LiveBlocks } from './live-blocks.js'
import type { Moments } from './moments.js'
import { blockUnits, type PolicyPicture, visitBlock } from './picture.js'

/** The scale of an address map; several maps share one. */
export interface MapScale {
  readonly width: number
  readonly height: number
  /** squeezed units from the bottom to the top */
  readonly units: number
}

/**
 * Paints each row in the cell that fills most of it: blocks of one cell, unused memory, or no memory. Of equals the
 * higher cell wins.
 */
export function paintMap(
  live: LiveBlocks,
  policy: PolicyPicture,
  moments: Moments,
  cellOf: Uint8Array,
  { width, height, units }: MapScale,
): Painting {
  const cells = new Uint8Array(width * height)
  const { place } = policy
  const first = moments.event.find(event => event >= 0)
  if (place === null || units === 0 || first === undefined) return { width, height, cells }
  const rows = new Rows(height, units)
  const { action, block, blocks } = live.picture
  const { bytes, allocatedAt, freeRequestedAt } = blocks
  const change = (number: number, sign: 1 | -1) => {
    if (place[number] >= 0) rows.add(cellOf[number], place[number], blockUnits(bytes[number]), sign)
    else visitBlock(policy, number, bytes[number], (at, length) => rows.add(cellOf[number], at, length, sign))
  }
  for (const number of live.at(first)) change(number, 1)
  const memory = new MemoryChanges(policy, first, rows)
  let seen = first
  for (let column = 0; column < moments.count; column++) {
    const event = moments.event[column]
    if (event < 0) continue
    for (let each = seen + 1; each <= event; each++) {
      const number = block[each]
      if (number < 0) continue
      // A block that comes and goes between two columns is never seen.
      if (action[each] === Action.alloc) {
        if (freeRequestedAt[number] > event) change(number, 1)
      } else if (allocatedAt[number] <= seen) change(number, -1)
    }
    memory.moveTo(event)
    seen = event
    rows.copyTo(cells, moments.left[column] * height)
    widen(cells, height, moments.left[column], moments.left[column + 1])
  }
  return { width, height, cells }
}

/** The first unit of each row from the bottom up, and the end of the last. Each row has a unit at least. */
export function rowStart(row: number, { height, units }: Pick<MapScale, 'height' | 'units'>): number {
  return Math.floor((row * units) / height)
}

/** Running sums of units for each row and cell. */
class Rows {
  private readonly start: Float64Array
  private readonly end: Float64Array
  private readonly sums: Float64Array
  /** the cell of each row, from the top down */
  private readonly column: Uint8Array
  private readonly isStale: Uint8Array
  private lowest = 0
  private highest: number

  constructor(
    private readonly height: number,
    private readonly units: number,
  ) {
    this.start = Float64Array.from({ length: height }, (_, row) => rowStart(row, { height, units }))
    this.end = Float64Array.from({ length: height }, (_, row) =>
      Math.max(this.start[row] + 1, rowStart(row + 1, { height, units })),
    )
    this.sums = new Float64Array(height * CELLS)
    for (let row = 0; row < height; row++) this.sums[row * CELLS + Cell.nothing] = this.end[row] - this.start[row]
    this.column = new Uint8Array(height)
    this.isStale = new Uint8Array(height)
    this.highest = height - 1
  }

  /** Adds or removes a block, which takes unused memory. */
  add(cell: number, at: number, units: number, sign: 1 | -1): void {
    this.change(cell, Cell.unused, at, units, sign)
  }

  /** Adds or removes memory. */
  addMemory(at: number, units: number, sign: 1 | -1): void {
    this.change(Cell.unused, Cell.nothing, at, units, sign)
  }

  copyTo(cells: Uint8Array, from: number): void {
    for (let row = this.lowest; row <= this.highest; row++) {
      if (this.isStale[row] === 0) continue
      this.isStale[row] = 0
      const base = row * CELLS
      let best: number = Cell.nothing
      for (let cell = 1; cell < CELLS; cell++) {
        if (this.sums[base + cell] > 0 && this.sums[base + cell] >= this.sums[base + best]) best = cell
      }
      this.column[this.height - 1 - row] = best
    }
    this.lowest = this.height
    this.highest = -1
    cells.set(this.column, from)
  }

  private change(gains: number, loses: number, at: number, units: number, sign: 1 | -1): void {
    const stop = at + units
    let row = Math.min(this.height - 1, Math.floor((at * this.height) / this.units))
    while (row > 0 && this.end[row - 1] > at) row--
    while (row < this.height && this.end[row] <= at) row++
    if (row < this.lowest) this.lowest = row
    for (; row < this.height && this.start[row] < stop; row++) {
      const overlap = Math.min(stop, this.end[row]) - Math.max(at, this.start[row])
      this.sums[row * CELLS + gains] += sign * overlap
      this.sums[row * CELLS + loses] -= sign * overlap
      this.isStale[row] = 1
    }
    if (row - 1 > this.highest) this.highest = row - 1
  }
}

/** Follows the memory of a policy forwards. */
class MemoryChanges {
  private readonly events: readonly { readonly event: number; readonly sign: 1 | -1; at: number; units: number }[]
  private next = 0

  constructor(
    { memory }: PolicyPicture,
    first: number,
    private readonly rows: Rows,
  ) {
    this.events = memory
      .flatMap(({ at, units, from, to }) => [
        { event: from, sign: 1 as const, at, units },
        { event: to, sign: -1 as const, at, units },
      ])
      .sort((a, b) => a.event - b.event)
    this.moveTo(first)
  }

  moveTo(event: number): void {
    for (; this.next < this.events.length && this.events[this.next].event <= event; this.next++) {
      const { at, units, sign } = this.events[this.next]
      this.rows.addMemory(at, units, sign)
    }
  }
}
