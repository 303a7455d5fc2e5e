// Chooses the pieces that a new view joins: the free end of one piece, whole free pieces, and the free start of one
// more. Reads the notes of free-ends.ts on the pieces.

import { MiB } from '../../../base/bytes.js'
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

/**
 * The pieces with room for `units` and the cheapest mappings. If they are too few: all whole ones, the longest end, and
 * up to `mostNewUnits` of new memory; null if this is too little.
 */
export function planStitch(pieces: readonly Piece[], units: number, mostNewUnits: number): StitchPlan | null {
  const search = new Search(pieces, units)
  const found = search.pair() ?? search.withWhole()
  if (found !== null) return { pieces: found, newUnits: 0 }
  const { joined, missing } = search.allWhole()
  return joined.length > 0 && missing > 0 && missing <= mostNewUnits ? { pieces: joined, newUnits: missing } : null
}

class Search {
  // In the order of their addresses. A whole free piece is an end and a start, too.
  private readonly ends: Piece[] = []
  private readonly starts: Piece[] = []
  /** from the largest on */
  private readonly whole: readonly Piece[]
  // The longest ends and starts that are no whole pieces, from the longest on.
  private readonly longestEnds: Piece[] = []
  private readonly longestStarts: Piece[] = []
  private mostEnd = 0
  private mostStart = 0
  private best: readonly Piece[] | null = null
  private bestUs = Infinity
  private bestLeft = Infinity

  constructor(
    pieces: readonly Piece[],
    private readonly units: number,
  ) {
    const { ends, starts, longestEnds, longestStarts } = this
    const whole: Piece[] = []
    for (const piece of pieces) {
      const { startFree, endFree } = piece
      if (endFree > 0) ends.push(piece)
      if (startFree > 0) starts.push(piece)
      this.mostEnd = Math.max(this.mostEnd, endFree)
      this.mostStart = Math.max(this.mostStart, startFree)
      if (piece.isFree) whole.push(piece)
      else {
        if (endFree > 0) keepLongest(longestEnds, piece, freeEnd)
        if (startFree > 0) keepLongest(longestStarts, piece, freeStart)
      }
    }
    this.whole = sorted(whole, freeStart).reverse()
  }

  /** An end and a start that together suffice. */
  pair(): readonly Piece[] | null {
    const { ends, units, mostEnd, mostStart } = this
    if (mostEnd + mostStart < units) return null
    const starts = sorted(this.starts, freeStart)
    for (const end of ends) {
      const missing = units - end.endFree
      if (missing > mostStart) continue
      let at = firstOf(starts, missing)
      if (starts[at] === end) at++
      if (at < starts.length) this.consider([end, starts[at]], starts[at].startFree - missing)
    }
    return this.best
  }

  /** Whole pieces between one of the longest ends and one of the longest starts, each of which may be missing. */
  withWhole(): readonly Piece[] | null {
    for (const end of [null, ...this.longestEnds]) {
      for (const start of [null, ...this.longestStarts]) if (end === null || end !== start) this.between(end, start)
    }
    return this.best
  }

  /** All whole pieces behind the longest end, and the units that they leave. */
  allWhole(): { joined: readonly Piece[]; missing: number } {
    const [end] = this.longestEnds
    const wholeUnits = this.whole.reduce((sum, piece) => sum + piece.units, 0)
    if (end === undefined) return { joined: this.whole, missing: this.units - wholeUnits }
    return { joined: [end, ...this.whole], missing: this.units - wholeUnits - end.endFree }
  }

  private between(end: Piece | null, start: Piece | null): void {
    let missing = this.units - (end?.endFree ?? 0) - (start?.startFree ?? 0)
    const joined = end === null ? [] : [end]
    for (const piece of this.whole) {
      if (piece.units > missing) continue
      joined.push(piece)
      missing -= piece.units
    }
    if (missing > 0) {
      this.cover(joined, missing, end, start)
      return
    }
    if (start !== null) joined.push(start)
    if (joined.length > 1) this.consider(joined, -missing)
  }

  /** Adds the shortest start, end or whole piece that covers what whole pieces leave. */
  private cover(joined: readonly Piece[], missing: number, end: Piece | null, start: Piece | null): void {
    const { ends, starts, whole } = this
    if (start === null && joined.length > 0) {
      const last = shortest(starts, missing, joined, freeStart)
      if (last !== null) this.consider([...joined, last], last.startFree - missing)
    }
    if (end === null) {
      const others = start === null ? joined : [...joined, start]
      const first = others.length === 0 ? null : shortest(ends, missing, others, freeEnd)
      if (first !== null) this.consider([first, ...others], first.endFree - missing)
    }
    if (start === null || end === null) return
    const between = whole.findLast(piece => piece.units >= missing && !joined.includes(piece))
    if (between !== undefined) this.consider([...joined, between, start], between.units - missing)
  }

  private consider(pieces: readonly Piece[], left: number): void {
    let us = 0
    for (const { bytes } of pieces) us += MAPPING_US + (bytes / MiB) * MAPPING_US_PER_MIB
    if (us > this.bestUs || (us === this.bestUs && left >= this.bestLeft)) return
    this.best = pieces
    this.bestUs = us
    this.bestLeft = left
  }
}

const freeStart = (piece: Piece): number => piece.startFree
const freeEnd = (piece: Piece): number => piece.endFree

/** From the piece with the least on. Sorts numbers, which is several times as fast. */
function sorted(pieces: readonly Piece[], freeOf: (piece: Piece) => number): Piece[] {
  const keys = Float64Array.from(pieces, (piece, index) => freeOf(piece) * 2 ** 20 + index)
  return Array.from(keys.sort(), key => pieces[key % 2 ** 20])
}

/** The index of the first of sorted starts with at least `units`. */
function firstOf(starts: readonly Piece[], units: number): number {
  let [low, high] = [0, starts.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (starts[middle].startFree >= units) high = middle
    else low = middle + 1
  }
  return low
}

/** The first of the shortest pieces of at least `units` that is none of `used`; null for none. */
function shortest(
  pieces: readonly Piece[],
  units: number,
  used: readonly Piece[],
  freeOf: (piece: Piece) => number,
): Piece | null {
  let best: Piece | null = null
  let bestUnits = Infinity
  for (const piece of pieces) {
    const free = freeOf(piece)
    if (free < units || free >= bestUnits || used.includes(piece)) continue
    best = piece
    bestUnits = free
  }
  return best
}

/** Adds a piece to the longest ones, if it is one. */
function keepLongest(longest: Piece[], piece: Piece, freeOf: (piece: Piece) => number): void {
  const free = freeOf(piece)
  let at = longest.length
  while (at > 0 && freeOf(longest[at - 1]) < free) at--
  if (at === LONGEST) return
  longest.splice(at, 0, piece)
  if (longest.length > LONGEST) longest.length = LONGEST
}
