// Chooses the pieces that a new view joins: the free end of one piece, whole free pieces, and the free start of one
// more. Reads the notes of free-ends.ts on the pieces.

import { MiB } from '../../../base/bytes.js'
import type { Piece } from './piece.js'

/** Ends, and starts, that are combined with whole pieces. */
const LONGEST = 4
/** Microseconds to map a piece once more and to give access to it, measured on an H200. */
const MAPPING_US = 28
const MAPPING_US_PER_MIB = 0.035
/** More than a pool has pieces. In a sort key the index of a piece follows its free units. */
const INDICES = 2 ** 20

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
  // From the least free on. A whole free piece is an end and a start, too.
  private readonly ends: readonly Piece[]
  private readonly starts: readonly Piece[]
  /** from the largest on */
  private readonly whole: readonly Piece[]
  // The longest ends and starts that are no whole pieces, from the longest on.
  private readonly longestEnds: readonly Piece[]
  private readonly longestStarts: readonly Piece[]
  private best: readonly Piece[] | null = null
  private bestUs = Infinity
  private bestLeft = Infinity

  constructor(
    pieces: readonly Piece[],
    private readonly units: number,
  ) {
    const { length } = pieces
    const endKeys = new Float64Array(length)
    const startKeys = new Float64Array(length)
    let ends = 0
    let starts = 0
    // A plan is made too seldom to be compiled well, and a pool has hundreds of pieces. So the loop calls nothing.
    for (let index = 0; index < length; index++) {
      const { startFree, endFree } = pieces[index]
      if (endFree > 0) endKeys[ends++] = endFree * INDICES + index
      if (startFree > 0) startKeys[starts++] = startFree * INDICES + index
    }
    this.ends = inOrder(pieces, endKeys.subarray(0, ends))
    this.starts = inOrder(pieces, startKeys.subarray(0, starts))
    this.whole = this.starts.filter(isFree).reverse()
    this.longestEnds = longestOf(this.ends)
    this.longestStarts = longestOf(this.starts)
  }

  /** An end and a start that together suffice. */
  pair(): readonly Piece[] | null {
    const { ends, starts, units } = this
    if (ends.length === 0 || starts.length === 0) return null
    const mostStart = starts[starts.length - 1].startFree
    for (let index = ends.length - 1; index >= 0; index--) {
      const end = ends[index]
      const missing = units - end.endFree
      if (missing > mostStart) break
      let at = firstOf(starts, missing, freeStart)
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
      const last = firstOther(starts, firstOf(starts, missing, freeStart), joined)
      if (last !== undefined) this.consider([...joined, last], last.startFree - missing)
    }
    if (end === null) {
      const others = start === null ? joined : [...joined, start]
      const first = others.length === 0 ? undefined : firstOther(ends, firstOf(ends, missing, freeEnd), others)
      if (first !== undefined) this.consider([first, ...others], first.endFree - missing)
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
const isFree = (piece: Piece): boolean => piece.isFree

/** The pieces whose indices are in the keys, in the order of the keys. Numbers sort several times as fast. */
function inOrder(pieces: readonly Piece[], keys: Float64Array): Piece[] {
  keys.sort()
  const ordered: Piece[] = []
  for (let at = 0; at < keys.length; at++) ordered.push(pieces[keys[at] % INDICES])
  return ordered
}

/** The last pieces that are not whole, from the last on. */
function longestOf(ordered: readonly Piece[]): Piece[] {
  const longest: Piece[] = []
  for (let at = ordered.length - 1; at >= 0 && longest.length < LONGEST; at--) {
    if (!ordered[at].isFree) longest.push(ordered[at])
  }
  return longest
}

/** The index of the first of ordered pieces with at least `units`. */
function firstOf(ordered: readonly Piece[], units: number, freeOf: (piece: Piece) => number): number {
  let [low, high] = [0, ordered.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (freeOf(ordered[middle]) >= units) high = middle
    else low = middle + 1
  }
  return low
}

/** The first piece from an index on that is none of `used`. */
function firstOther(ordered: readonly Piece[], from: number, used: readonly Piece[]): Piece | undefined {
  let at = from
  while (at < ordered.length && used.includes(ordered[at])) at++
  return ordered[at]
}
