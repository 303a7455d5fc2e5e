// How much of each piece a stream may use at its start and at its end. Only ends can be joined in a view: free memory
// in the middle of a piece has memory in use on both sides.

import { type Admission, isAdmitted } from '../../../heap/free-run.js'
import { Word } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import type { Piece } from './piece.js'

/** The free ends of all pieces. Steps of one request often ask for the same, and the heap is walked once for them. */
export class FreeEnds {
  /** `SegregatedFit.changes` and the admission at the last walk; null before the first */
  private changes: number | null = null
  private admission = new Float64Array(0)
  private units = 0

  constructor(
    private readonly heap: SegregatedFit,
    private readonly range: number,
    /** whether other threads change the heap */
    private readonly isShared: boolean,
  ) {}

  /** As `findFreeEnds`. */
  find(pieces: readonly Piece[], admission: Admission): number {
    if (!this.isShared && this.isKnown(admission)) return this.units
    this.units = findFreeEnds(pieces, this.heap, this.range, admission)
    this.changes = this.heap.changes
    this.admission = admission.slice(0, this.heap.keyLimit)
    return this.units
  }

  private isKnown(admission: Admission): boolean {
    if (this.changes !== this.heap.changes) return false
    for (let key = 0; key < this.heap.keyLimit; key++) if (this.admission[key] !== admission[key]) return false
    return true
  }
}

/**
 * Notes on each piece how much is free at its ends for a stream with this admission; neighbouring free blocks count as
 * one. `pieces` are in the order of their addresses. Walks every block of the range. Returns the units that are free
 * for the stream, at ends and elsewhere.
 */
export function findFreeEnds(
  pieces: readonly Piece[],
  heap: SegregatedFit,
  range: number,
  admission: Admission,
): number {
  const { records } = heap
  const { words } = records
  // By index: as long as V8 has not compiled this, an iterator costs more than the body.
  for (let at = 0; at < pieces.length; at++) {
    pieces[at].startFree = 0
    pieces[at].endFree = 0
  }
  let index = 0
  let runStart = -1
  let runRecord = 0
  let units = 0
  for (let record = heap.firstRecords.get(range); record !== 0; record = words[(record << 4) | Word.next]) {
    if (!isAdmitted(records, record, admission)) {
      runStart = -1
      continue
    }
    const from = words[(record << 4) | Word.offset]
    const to = from + words[(record << 4) | Word.units]
    units += to - from
    if (runStart === -1) {
      runStart = from
      runRecord = record
    }
    while (index < pieces.length && pieces[index].start + pieces[index].units <= from) index++
    for (let at = index; at < pieces.length && pieces[at].start < to; at++) {
      const piece = pieces[at]
      const end = piece.start + piece.units
      if (piece.start >= runStart) {
        if (piece.start >= from) piece.startRecord = record
        piece.startFree = Math.min(to, end) - piece.start
      }
      if (to < end) continue
      piece.endFree = end - Math.max(runStart, piece.start)
      piece.endRecord = piece.start >= runStart ? piece.startRecord : runRecord
    }
  }
  return units
}
