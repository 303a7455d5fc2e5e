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
  const search = new StitchSearch(pieces, units)
  const pair = search.pair()
  if (pair !== null) return { pieces: pair, newUnits: 0 }
  const free = search.longest()
  const found = search.withWhole(free)
  if (found !== null) return { pieces: found, newUnits: 0 }
  const end = free.ends.slice(0, 1)
  const joined = [...end, ...free.whole]
  const missing = joined.reduce((left, piece) => left - piece.endFree, units) // of a whole piece all is free
  return joined.length > 0 && missing > 0 && missing <= mostNewUnits ? { pieces: joined, newUnits: missing } : null
}

/** Free memory to plan with. */
interface Free {
  /** the pieces that are free as a whole, from the largest on */
  readonly whole: readonly Piece[]
  /** the longest ends and starts of other pieces, from the longest on */
  readonly ends: readonly Piece[]
  readonly starts: readonly Piece[]
}

class StitchSearch {
  // A whole free piece is an end and a start, too.
  private readonly ends: Ordered
  private readonly starts: Ordered
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
    this.ends = new Ordered(pieces, endKeys.subarray(0, ends))
    this.starts = new Ordered(pieces, startKeys.subarray(0, starts))
  }

  /** An end and a start that together suffice. */
  pair(): readonly Piece[] | null {
    const { ends, starts, units } = this
    if (ends.length === 0 || starts.length === 0) return null
    const mostStart = starts.at(starts.length - 1).startFree
    for (let index = ends.length - 1; index >= 0; index--) {
      const end = ends.at(index)
      const missing = units - end.endFree
      if (missing > mostStart) break
      const start = starts.leastOf(missing, [end])
      if (start !== null) this.consider([end, start], start.startFree - missing)
    }
    return this.best
  }

  longest(): Free {
    const { ends, starts } = this
    return {
      whole: ends.longest(true, Infinity),
      ends: ends.longest(false, LONGEST),
      starts: starts.longest(false, LONGEST),
    }
  }

  /** Whole pieces between one of the longest ends and one of the longest starts, each of which may be missing. */
  withWhole({ whole, ends, starts }: Free): readonly Piece[] | null {
    for (const end of [null, ...ends]) {
      for (const start of [null, ...starts]) if (end === null || end !== start) this.between(end, whole, start)
    }
    return this.best
  }

  /** The largest whole pieces that an end and a start leave room for, and one more piece for what is missing then. */
  private between(end: Piece | null, whole: readonly Piece[], start: Piece | null): void {
    let missing = this.units - (end?.endFree ?? 0) - (start?.startFree ?? 0)
    const joined = end === null ? [] : [end]
    for (const piece of whole) {
      if (piece.units > missing) continue
      joined.push(piece)
      missing -= piece.units
      if (joined.length * MAPPING_US > this.bestUs) return
    }
    if (missing <= 0) {
      if (start !== null) joined.push(start)
      if (joined.length > 1) this.consider(joined, -missing)
      return
    }
    if ((joined.length + (start === null ? 1 : 2)) * MAPPING_US > this.bestUs) return
    const { ends, starts } = this
    if (start === null && joined.length > 0) {
      const last = starts.leastOf(missing, joined)
      if (last !== null) this.consider([...joined, last], last.startFree - missing)
    }
    if (end === null) {
      const others = start === null ? joined : [...joined, start]
      const first = others.length === 0 ? null : ends.leastOf(missing, others)
      if (first !== null) this.consider([first, ...others], first.endFree - missing)
    }
    if (start !== null && end !== null) {
      const piece = whole.findLast(other => other.units >= missing && !joined.includes(other))
      if (piece !== undefined) this.consider([...joined, piece, start], piece.units - missing)
    }
  }

  /** Keeps the cheapest pieces; of equally cheap ones those that leave least. */
  private consider(pieces: readonly Piece[], left: number): void {
    let us = 0
    for (const { bytes } of pieces) us += MAPPING_US + (bytes / MiB) * MAPPING_US_PER_MIB
    if (us > this.bestUs || (us === this.bestUs && left >= this.bestLeft)) return
    this.best = pieces
    this.bestUs = us
    this.bestLeft = left
  }
}

/** Pieces in the order of how much of each is free at one end, from the least on. */
class Ordered {
  constructor(
    private readonly pieces: readonly Piece[],
    /** free units, and behind them the index of the piece; numbers sort several times as fast as pieces */
    private readonly keys: Float64Array,
  ) {
    keys.sort()
  }

  get length(): number {
    return this.keys.length
  }

  at(position: number): Piece {
    const key = this.keys[position]
    return this.pieces[key - Math.floor(key / INDICES) * INDICES]
  }

  /** The piece with the least free units that suffice, apart from those in `used`; null for none. */
  leastOf(units: number, used: readonly Piece[]): Piece | null {
    const { keys } = this
    let [low, high] = [0, keys.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (keys[middle] >= units * INDICES) high = middle
      else low = middle + 1
    }
    while (low < keys.length && used.includes(this.at(low))) low++
    return low < keys.length ? this.at(low) : null
  }

  /** The pieces that are free as a whole, or those that are not, from the last on; at most `most`. */
  longest(isFree: boolean, most: number): Piece[] {
    const longest: Piece[] = []
    for (let position = this.keys.length - 1; position >= 0 && longest.length < most; position--) {
      const piece = this.at(position)
      if (piece.isFree === isFree) longest.push(piece)
    }
    return longest
  }
}
