// Which pieces a new view joins: the free end of one piece, whole free pieces, and the free start of one more. Reads
// what free-ends.ts has noted on the pieces.

import { MiB } from '../../base/bytes.js'
import type { Piece } from './piece.js'

/** Ends, and starts, that are combined with whole pieces. */
const LONGEST = 4
/** Microseconds to map a piece once more and to give access to it, measured on an H200. */
const MAPPING_US = 28
const MAPPING_US_PER_MIB = 0.035

/** Pieces in the order of their addresses in the view. The units of new memory that follow them, or 0. */
export interface StitchPlan {
  readonly pieces: readonly Piece[]
  readonly newUnits: number
}

interface Candidate extends StitchPlan {
  readonly mappingUs: number
  /** free units that the block leaves */
  readonly leftUnits: number
}

/**
 * The pieces that make room for `units` with the cheapest mappings. Where no pieces have so much room, all whole ones,
 * the longest end, and up to `mostNewUnits` of new memory. Null if that is not enough either.
 */
export function planStitch(pieces: readonly Piece[], units: number, mostNewUnits: number): StitchPlan | null {
  const ends = pieces.filter(piece => piece.endFree > 0).sort((a, b) => a.endFree - b.endFree)
  const starts = pieces.filter(piece => piece.startFree > 0).sort((a, b) => a.startFree - b.startFree)
  const whole = pieces.filter(piece => piece.isFree).sort((a, b) => b.units - a.units)
  const cheapest = new Cheapest()
  for (const end of ends) {
    const start = shortest(starts, piece => piece.startFree >= units - end.endFree, new Set([end]))
    if (start !== null) cheapest.consider([end, start], end.endFree + start.startFree - units)
  }
  for (const end of [null, ...longest(ends)]) {
    for (const start of [null, ...longest(starts)]) {
      if (end === null || end !== start) considerWhole(cheapest, units, end, start, { ends, starts, whole })
    }
  }
  if (cheapest.found !== null) return cheapest.found
  if (mostNewUnits === 0) return null
  const end = longest(ends).at(-1)
  const joined = end === undefined ? whole : [end, ...whole]
  const missing = units - joined.reduce((sum, piece) => sum + (piece === end ? piece.endFree : piece.units), 0)
  if (joined.length === 0 || missing <= 0 || missing > mostNewUnits) return null
  return { pieces: joined, newUnits: missing }
}

/** The longest ends, or starts, out of a rising list; whole free pieces are joined as such. */
function longest(rising: readonly Piece[]): Piece[] {
  return rising.filter(piece => !piece.isFree).slice(-LONGEST)
}

/** A candidate with whole pieces between an end and a start, each of which may be missing. */
function considerWhole(
  cheapest: Cheapest,
  units: number,
  end: Piece | null,
  start: Piece | null,
  { ends, starts, whole }: { ends: readonly Piece[]; starts: readonly Piece[]; whole: readonly Piece[] },
): void {
  let missing = units - (end?.endFree ?? 0) - (start?.startFree ?? 0)
  const middle: Piece[] = []
  for (const piece of whole) {
    if (piece.units > missing) continue
    middle.push(piece)
    missing -= piece.units
  }
  const joined = [...(end === null ? [] : [end]), ...middle, ...(start === null ? [] : [start])]
  if (missing <= 0) {
    if (joined.length > 1) cheapest.consider(joined, -missing)
    return
  }
  const used = new Set(joined)
  if (start === null) {
    const last = shortest(starts, piece => piece.startFree >= missing, used)
    if (last !== null && joined.length > 0) cheapest.consider([...joined, last], last.startFree - missing)
  }
  if (end === null) {
    const first = shortest(ends, piece => piece.endFree >= missing, used)
    if (first !== null && joined.length > 0) cheapest.consider([first, ...joined], first.endFree - missing)
  }
  if (start === null || end === null) return
  const between = whole.findLast(piece => piece.units >= missing && !used.has(piece))
  if (between !== undefined) cheapest.consider([end, ...middle, between, start], between.units - missing)
}

/** The first piece of a rising list that is enough and not used; null for none. */
function shortest(rising: readonly Piece[], isEnough: (piece: Piece) => boolean, used: ReadonlySet<Piece>): Piece | null {
  let low = 0
  let high = rising.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (isEnough(rising[middle])) high = middle
    else low = middle + 1
  }
  while (low < rising.length && used.has(rising[low])) low++
  return rising[low] ?? null
}

class Cheapest {
  found: Candidate | null = null

  consider(pieces: readonly Piece[], leftUnits: number): void {
    const mappingUs = pieces.reduce((sum, piece) => sum + MAPPING_US + (piece.bytes / MiB) * MAPPING_US_PER_MIB, 0)
    const { found } = this
    if (found !== null && found.mappingUs <= mappingUs) {
      if (found.mappingUs < mappingUs || found.leftUnits <= leftUnits) return
    }
    this.found = { pieces, newUnits: 0, mappingUs, leftUnits }
  }
}
