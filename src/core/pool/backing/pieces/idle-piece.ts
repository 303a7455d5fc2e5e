import { State } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { HOME_RANGE } from '../backing.js'
import type { GranuleLastUses } from './last-uses.js'
import type { Piece } from './piece.js'

/**
 * The smallest piece, since to release is dear per byte, that lies in one free block and whose last use the host has
 * seen complete; with the record of that block. Null for none. `mayGo` refuses further pieces.
 */
export function findIdlePiece(
  pieces: readonly Piece[],
  heap: SegregatedFit,
  uses: GranuleLastUses,
  granuleUnits: number,
  mayGo: (piece: Piece) => boolean,
): { piece: Piece; record: number } | null {
  const { records } = heap
  let best: { piece: Piece; record: number } | null = null
  let index = 0
  for (let record = heap.firstRecords.get(HOME_RANGE); record !== 0; record = records.nextOf(record)) {
    const start = records.offsetOf(record)
    const end = start + records.unitsOf(record)
    while (index < pieces.length && pieces[index].start < start) index++
    if (records.state(record) !== State.free) continue
    for (; index < pieces.length && pieces[index].start + pieces[index].units <= end; index++) {
      const piece = pieces[index]
      if (best !== null && piece.units >= best.piece.units) continue
      const isSettled = records.keyOf(record) === 0 || areSettled(piece, uses, granuleUnits)
      if (isSettled && mayGo(piece)) best = { piece, record }
    }
  }
  return best
}

function areSettled(piece: Piece, uses: GranuleLastUses, granuleUnits: number): boolean {
  const first = piece.start / granuleUnits
  for (let granule = first; granule < first + piece.units / granuleUnits; granule++) {
    if (!uses.isSettled(granule)) return false
  }
  return true
}
