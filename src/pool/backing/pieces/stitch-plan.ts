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
  /** in the order of their addresses; a whole free piece is an end and a start, too */
  private readonly ends: readonly Piece[]
  /** from the shortest on */
  private readonly starts: readonly Piece[]
  /** from the largest on */
  private readonly whole: readonly Piece[]
  private best: readonly Piece[] | null = null
  private bestUs = Infinity
  private bestLeft = Infinity

  constructor(
    pieces: readonly Piece[],
    private readonly units: number,
  ) {
    this.ends = pieces.filter(piece => piece.endFree > 0)
    this.starts = sorted(pieces, piece => piece.startFree)
    this.whole = sorted(pieces, piece => (piece.isFree ? piece.units : 0)).reverse()
  }

  /** An end and a start that together suffice. */
  pair(): readonly Piece[] | null {
    const { ends, starts, units } = this
    if (starts.length === 0) return null
    const longestStart = starts[starts.length - 1].startFree
    for (const end of ends) {
      const missing = units - end.endFree
      if (missing > longestStart) continue
      let at = this.firstStart(missing)
      if (starts[at] === end) at++
      if (at < starts.length) this.consider([end, starts[at]], starts[at].startFree - missing)
    }
    return this.best
  }

  /** Whole pieces between one of the longest ends and one of the longest starts, each of which may be missing. */
  withWhole(): readonly Piece[] | null {
    const ends = longest(this.ends, piece => piece.endFree)
    const starts = longest(this.starts, piece => piece.startFree)
    for (const end of [null, ...ends]) {
      for (const start of [null, ...starts]) if (end === null || end !== start) this.between(end, start)
    }
    return this.best
  }

  /** All whole pieces behind the longest end, and the units that they leave. */
  allWhole(): { joined: readonly Piece[]; missing: number } {
    const [end] = longest(this.ends, piece => piece.endFree)
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
    const { starts, whole } = this
    if (start === null) {
      const last = firstOther(starts, this.firstStart(missing), joined)
      if (last !== null && joined.length > 0) this.consider([...joined, last], last.startFree - missing)
    }
    if (end === null) {
      const others = start === null ? joined : [...joined, start]
      const first = this.shortestEnd(missing, others)
      if (first !== null && others.length > 0) this.consider([first, ...others], first.endFree - missing)
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

  /** The shortest end of at least `units` that is none of `used`; null for none. */
  private shortestEnd(units: number, used: readonly Piece[]): Piece | null {
    let best: Piece | null = null
    for (const end of this.ends) {
      if (end.endFree < units || (best !== null && end.endFree >= best.endFree)) continue
      if (!used.includes(end)) best = end
    }
    return best
  }

  /** The index of the shortest start of at least `units`. */
  private firstStart(units: number): number {
    const { starts } = this
    let [low, high] = [0, starts.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (starts[middle].startFree >= units) high = middle
      else low = middle + 1
    }
    return low
  }
}

/** The pieces of which something is free, from the least on. Sorts numbers, which is several times as fast. */
function sorted(pieces: readonly Piece[], freeOf: (piece: Piece) => number): Piece[] {
  const keys = new Float64Array(pieces.length)
  let count = 0
  for (let index = 0; index < pieces.length; index++) {
    const free = freeOf(pieces[index])
    if (free > 0) keys[count++] = free * 2 ** 20 + index
  }
  return Array.from(keys.subarray(0, count).sort(), key => pieces[key % 2 ** 20])
}

/** The longest ends, or starts, from the longest on; whole free pieces are joined as such. */
function longest(pieces: readonly Piece[], freeOf: (piece: Piece) => number): Piece[] {
  const found: Piece[] = []
  for (const piece of pieces) {
    if (piece.isFree || (found.length === LONGEST && freeOf(piece) <= freeOf(found[LONGEST - 1]))) continue
    const at = found.findIndex(other => freeOf(other) < freeOf(piece))
    found.splice(at === -1 ? found.length : at, 0, piece)
    if (found.length > LONGEST) found.length = LONGEST
  }
  return found
}

/** The first piece from an index on that is none of `used`; null for none. */
function firstOther(pieces: readonly Piece[], index: number, used: readonly Piece[]): Piece | null {
  let at = index
  while (at < pieces.length && used.includes(pieces[at])) at++
  return pieces[at] ?? null
}
