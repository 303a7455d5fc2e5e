// When a stream caches many blocks and a request needs room, a few adjacent cached blocks go back to the heap. A
// best-fit search chooses them.

import { keyOfSlot } from '../../heap/key.js'
import { type RecordTable, State } from '../../heap/records.js'
import { classOf } from '../../heap/size-classes.js'
import { SMALL_CLASSES } from '../backing/backing.js'
import type { Block, Stack, StreamTotals } from './block.js'
import type { CacheEviction } from './block-cache.js'

/**
 * If a stream caches at least this many full stacks of blocks, a miss evicts only the few that make room for it. With
 * fewer cached, all of them go back to the heap, so that they can merge.
 */
const MANY_STACKS = 16
/** The search looks at this many blocks at least, and at more until it finds a place: to grow costs more. */
const LEAST_LOOKS = 24
/** The search ends at a place that exceeds the request by at most this fraction, as a shift: 1/32. */
const GOOD_EXCESS_SHIFT = 5
const NO_RECORDS: readonly number[] = []

/** The stream caches as the planner sees them. */
interface EvictableCache {
  blockOf(record: number): Block
  /** small blocks that a stream caches, or large ones */
  totalsOf(slot: number, isLarge: boolean): StreamTotals
  /** most blocks in a stack of a class */
  placesOf(sizeClass: number): number
  /** takes a cached block out, to go back to its heap */
  takeOut(block: Block): void
}

export class Eviction implements CacheEviction {
  constructor(
    private readonly records: RecordTable,
    private readonly caches: EvictableCache,
  ) {}

  cachesMany(slot: number, first: number, end: number): boolean {
    const { stacks } = this.caches.totalsOf(slot, first >= SMALL_CLASSES)
    if (stacks.length < MANY_STACKS) return false
    const many = MANY_STACKS * this.caches.placesOf(first)
    let height = 0
    for (const { sizeClass, top } of stacks) if (sizeClass >= first && sizeClass < end) height += top.height
    return height >= many
  }

  /** Looks at the runs around larger blocks first, and takes the shortest run that is long enough. */
  takeRoom(slot: number, units: number, first: number, end: number): readonly number[] {
    const totals = this.caches.totalsOf(slot, first >= SMALL_CLASSES)
    const many = totals.cached > 0 && this.cachesMany(slot, first, end)
    totals.many = many
    if (!many) return NO_RECORDS
    const best = this.bestFor(units, totals.stacks, first, end)
    if (best === null) return NO_RECORDS
    const taken: number[] = []
    this.runAround(best, units, taken)
    for (const record of taken) this.caches.takeOut(this.caches.blockOf(record))
    return taken
  }

  /**
   * The block whose run exceeds `units` least, among the classes from `first` to `end`; null if no run is long enough.
   * Starts at the smallest class above that of `units` that has blocks, and goes on with smaller classes.
   */
  private bestFor(units: number, stacks: readonly Stack[], first: number, end: number): Block | null {
    const goodUnits = units + (units >>> GOOD_EXCESS_SHIFT)
    let best: Block | null = null
    let bestUnits = Infinity
    let looks = 0
    for (let at = startOf(stacks, units, end); at >= 0 && stacks[at].sizeClass >= first; at--) {
      if (best !== null && (looks >= LEAST_LOOKS || bestUnits <= goodUnits)) break
      for (let block = stacks[at].top; block.height > 0; block = block.below!, looks++) {
        if (block.units >= bestUnits) continue
        const run = this.runAround(block, units, null)
        if (run < units || run >= bestUnits) continue
        best = block
        bestUnits = run
      }
    }
    return best
  }

  /**
   * The length of the run around a cached block, in units. Neighbours count until `units` are reached, if the same
   * stream caches them, or if they are free for it. Adds the cached blocks of the run to `cached`.
   */
  private runAround(block: Block, units: number, cached: number[] | null): number {
    const { records } = this
    const { totals } = block.stack!
    if (cached !== null) cached.push(block.record)
    let length = block.units
    for (let record = records.nextOf(block.record); length < units; record = records.nextOf(record)) {
      if (!this.isPartOfRun(record, totals)) break
      length += records.unitsOf(record)
      if (cached !== null && records.state(record) === State.live) cached.push(record)
    }
    for (let record = records.previousOf(block.record); length < units; record = records.previousOf(record)) {
      if (!this.isPartOfRun(record, totals)) break
      length += records.unitsOf(record)
      if (cached !== null && records.state(record) === State.live) cached.push(record)
    }
    return length
  }

  private isPartOfRun(record: number, totals: StreamTotals): boolean {
    if (record === 0) return false
    const { records } = this
    const state = records.state(record)
    if (state === State.live) {
      const block = this.caches.blockOf(record)
      return block.state === State.cached && block.stack!.totals === totals
    }
    const key = records.keyOf(record)
    return state === State.free && (key === 0 || key === keyOfSlot(totals.slot))
  }
}

/** The index of the smallest class above that of `units` that has blocks; without one the last class below `end`. */
function startOf(stacks: readonly Stack[], units: number, end: number): number {
  const sizeClass = classOf(units)
  let at = 0
  for (; at < stacks.length && stacks[at].sizeClass < end; at++) {
    if (stacks[at].sizeClass > sizeClass && stacks[at].top.height > 0) return at
  }
  return at - 1
}
