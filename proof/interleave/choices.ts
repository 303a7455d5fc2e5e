// Choosers pick one of the ways in which a run can go on. The first way is the usual one: the same thread goes on, or
// a store is seen at once. Other ways count against a bound. If no way is usual, as when a thread waits, the choice
// is free.

import type { Random } from '../../src/core/base/random.js'

export interface Chooser {
  /** Chooses one of `count` ways, from 0. With `isFree`, no way is the usual one. */
  choose(count: number, isFree: boolean): number
}

/** The unusual choices of a run, enough to repeat it: the number of the choice, and the way. */
export type Deviations = readonly (readonly [at: number, way: number])[]

/** All ways one after another, depth first, with at most `bound` that are not usual in a run (CHESS). */
export class Exhaustive implements Chooser {
  private readonly path: { way: number; readonly count: number; readonly isFree: boolean; readonly spent: number }[] =
    []
  private at = 0
  private spent = 0

  constructor(private readonly bound: number) {}

  choose(count: number, isFree: boolean): number {
    if (!isFree && this.spent >= this.bound) return 0
    if (this.at === this.path.length) this.path.push({ way: 0, count, isFree, spent: this.spent })
    const { way } = this.path[this.at++]
    if (!isFree && way > 0) this.spent++
    return way
  }

  /** Goes to the next run; false when there was every one. */
  advance(): boolean {
    this.at = this.spent = 0
    for (let last = this.path.at(-1); last !== undefined; last = this.path.at(-1)) {
      if (last.way + 1 < last.count) {
        last.way++
        return true
      }
      this.path.pop()
    }
    return false
  }
}

/** By chance, in each run with another inclination to leave the usual way. */
export class AtRandom implements Chooser {
  private readonly unusual: number

  constructor(private readonly random: Random) {
    this.unusual = 1 / [3, 8, 20, 60][random.below(4)]
  }

  choose(count: number, isFree: boolean): number {
    if (isFree) return this.random.below(count)
    return this.random.fraction() < this.unusual ? 1 + this.random.below(count - 1) : 0
  }
}

export class Again implements Chooser {
  private at = 0
  private readonly ways: ReadonlyMap<number, number>

  constructor(deviations: Deviations) {
    this.ways = new Map(deviations)
  }

  choose(): number {
    return this.ways.get(this.at++) ?? 0
  }
}

/** Notes what another chooser chooses. */
export class Noting implements Chooser {
  readonly deviations: [at: number, way: number][] = []
  private at = 0

  constructor(private readonly chooser: Chooser) {}

  choose(count: number, isFree: boolean): number {
    const way = this.chooser.choose(count, isFree)
    if (way !== 0) this.deviations.push([this.at, way])
    this.at++
    return way
  }
}
