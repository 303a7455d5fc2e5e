// Finds where a block fits with the least new memory. A run consists of holes, and of free blocks that the stream may
// use.

import { Double, type RecordTable, State, Word } from './records.js'

/**
 * By key: a block is usable if its stamp is at most this. 0 admits no block of a key, Infinity admits all; keys
 * beyond the end are as 0. Blocks of key 0 have stamp 0.
 */
export type Admission = Float64Array

/** Admits no free block at all. */
export const HOLES_ONLY: Admission = Float64Array.of(-1)

/** A place for a block; `absentUnits` of it have no memory yet. */
export interface FreeRun {
  readonly range: number
  readonly start: number
  readonly units: number
  readonly absentUnits: number
  /** the block in which the run starts, until the heap changes */
  readonly record: number
}

/** One search for the best run of `units` over admitted blocks; memory comes in whole granules. */
export class FreeRunSearch {
  best: FreeRun | null = null
  private readonly words: Int32Array

  constructor(
    private readonly records: RecordTable,
    private readonly units: number,
    private readonly admission: Admission,
    private readonly granuleUnits: number,
  ) {
    this.words = records.words
  }

  /** Tries every place in the longest run around `hole`, unless an earlier hole belongs to the same run. */
  tryAround(hole: number): void {
    const { words } = this
    const first = this.startOfRun(hole)
    for (let record = first; record !== 0 && this.isUsable(record); record = words[(record << 4) | Word.next]) {
      const start = words[(record << 4) | Word.offset]
      this.try(record, start)
      const last = start + words[(record << 4) | Word.units] - this.units
      if (!this.isHole(record) && last < start) this.tryEndingWith(record, last)
    }
  }

  /** The first record of the longest run around `hole`; 0 if an earlier hole belongs to the same run. */
  private startOfRun(hole: number): number {
    const { words } = this
    let first = hole
    for (let before = words[(hole << 4) | Word.previous]; before !== 0; before = words[(before << 4) | Word.previous]) {
      if (!this.isUsable(before)) break
      if (this.isHole(before)) return 0
      first = before
    }
    return first
  }

  /** Tries the place that ends with `record` and starts at `start`, in some earlier record of the run. */
  private tryEndingWith(record: number, start: number): void {
    const { words } = this
    for (let block = record; block !== 0 && this.isUsable(block); block = words[(block << 4) | Word.previous]) {
      if (words[(block << 4) | Word.offset] > start) continue
      this.try(block, start)
      return
    }
  }

  /** Compares the place from `start`, in `record`, with the best so far. The lowest address wins a tie. */
  private try(record: number, start: number): void {
    const { words, best, granuleUnits } = this
    const end = start + this.units
    let absentUnits = 0
    for (let block = record; block !== 0 && this.isUsable(block); block = words[(block << 4) | Word.next]) {
      const from = words[(block << 4) | Word.offset]
      const to = from + words[(block << 4) | Word.units]
      if (this.isHole(block)) {
        const low = Math.floor(Math.max(from, start) / granuleUnits) * granuleUnits
        const high = Math.min(Math.ceil(Math.min(to, end) / granuleUnits) * granuleUnits, to)
        absentUnits += high - low
        if (best !== null && absentUnits > best.absentUnits) return
      }
      if (to < end) continue
      const range = words[(record << 4) | Word.range]
      const isLower = best === null || range < best.range || (range === best.range && start < best.start)
      if (isLower || absentUnits < best.absentUnits)
        this.best = { range, start, units: this.units, absentUnits, record }
      return
    }
  }

  private isHole(record: number): boolean {
    return (this.words[(record << 4) | Word.tag] & 7) === State.absent
  }

  private isUsable(record: number): boolean {
    if (this.isHole(record)) return true
    return isAdmitted(this.records, record, this.admission)
  }
}

/** Whether a block is free, and its dependency is admitted. */
export function isAdmitted({ words, doubles }: RecordTable, record: number, admission: Admission): boolean {
  if ((words[(record << 4) | Word.tag] & 7) !== State.free) return false
  const key = words[(record << 4) | Word.key]
  // A free block of a stream has a stamp above 0. V8 discards compiled code that reads beyond the end.
  return key < admission.length && doubles[(record << 3) | Double.stamp] <= admission[key]
}
