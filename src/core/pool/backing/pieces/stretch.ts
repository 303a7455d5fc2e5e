// Where a block lies among pieces that are mapped one behind another. Offsets count from the start of the first piece.

import type { Piece } from './piece.js'

/** Free memory that is contiguous there: from the end of one piece to the start of another. */
export interface Stretch {
  /** index of the first and the last piece */
  readonly first: number
  readonly last: number
  readonly start: number
  readonly units: number
}

/** A part of a block: a place in the home range, and a record at or before that place. */
export interface Part {
  readonly start: number
  readonly units: number
  readonly near: number
}

/** The units of all pieces. */
export function unitsOf(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, piece) => sum + piece.units, 0)
}

/** The stretch from the end of the first piece to the start of the last; those between are free. */
export function stretchOf(pieces: readonly Piece[]): Stretch {
  const [first, last] = [pieces[0], pieces[pieces.length - 1]]
  const start = first.units - first.endFree
  const end = unitsOf(pieces) - (last.units - last.startFree)
  return { first: 0, last: pieces.length - 1, start, units: end - start }
}

/**
 * The start of a block of `units`. Free memory that it leaves of a whole piece stays at the outer end of that piece:
 * the block begins with the stretch, or ends with it if only the first piece is whole.
 */
export function placeIn(
  { first, last, start, units: room }: Stretch,
  pieces: readonly Piece[],
  units: number,
  alignUnits: number,
): number {
  if (pieces[first].isFree && !pieces[last].isFree) return Math.floor((start + room - units) / alignUnits) * alignUnits
  return Math.ceil(start / alignUnits) * alignUnits
}

/** The parts under `units` from `start`, in the order of their addresses in the view. */
export function partsIn(pieces: readonly Piece[], start: number, units: number): Part[] {
  const parts: Part[] = []
  let offset = 0
  for (const piece of pieces) {
    const from = Math.max(start - offset, 0)
    const to = Math.min(start + units - offset, piece.units)
    if (from < to) {
      const near = from >= piece.units - piece.endFree ? piece.endRecord : piece.startRecord
      parts.push({ start: piece.start + from, units: to - from, near })
    }
    offset += piece.units
  }
  return parts
}
