// The memory that the work of a graph writes, as ranges of units. It stays the graph's as long as that can be launched.

import type { RecordTable } from '../../../heap/records.js'

interface Stretch {
  readonly range: number
  readonly start: number
  readonly end: number
}

export class Footprint {
  /** apart from each other, in no order */
  private stretches: Stretch[] = []

  /** Adds a block. */
  add(records: RecordTable, record: number): void {
    this.join(stretchOf(records, record))
  }

  /** Adds all of another footprint. */
  addAll({ stretches }: Footprint): void {
    for (const stretch of stretches) this.join(stretch)
  }

  /** Whether a block lies there, or a part of it. */
  overlaps(records: RecordTable, record: number): boolean {
    const { range, start, end } = stretchOf(records, record)
    return this.stretches.some(other => other.range === range && other.start < end && start < other.end)
  }

  private join(one: Stretch): void {
    let added = one
    const apart: Stretch[] = []
    for (const stretch of this.stretches) {
      if (stretch.range !== added.range || stretch.end < added.start || stretch.start > added.end) apart.push(stretch)
      else {
        const [start, end] = [Math.min(stretch.start, added.start), Math.max(stretch.end, added.end)]
        added = { range: added.range, start, end }
      }
    }
    apart.push(added)
    this.stretches = apart
  }
}

function stretchOf(records: RecordTable, record: number): Stretch {
  const start = records.offsetOf(record)
  return { range: records.rangeOf(record), start, end: start + records.unitsOf(record) }
}
