// A heap over numbers, which decides which part of an address range a block gets. Blocks tile each range in address
// order. Free blocks also sit in bins by key and size class, found through two levels of bitmaps (TLSF, see
// size-classes.ts). Inside a bin the best fit is taken, not the first. Splits are exact. Free neighbours merge at
// once if their dependencies allow it: their keys are equal, or one of them is 0.
//
// The file is long because splitting, merging and binning share the same private state.
//
// A range also has holes, which are addresses without memory behind them. `findRun` finds the place for a block that
// needs the least new memory, `takeRun` takes it, and `decommit` turns idle memory into a hole.

import { assert } from '../base/assert.js'
import { Region } from '../threads/region.js'
import { type CheckedHeap, checkHeap } from './check.js'
import { type Admission, type FreeRun, FreeRunSearch } from './free-run.js'
import { Ranges } from './ranges.js'
import { Double, type RecordTable, State, Stride, Word } from './records.js'
import { CLASS_GROUPS, CLASSES, classOf } from './size-classes.js'

// Powers of two, so that shifts and ors compute indices without a check for overflow.
const HEADS_OF_KEY = 512
const GROUPS_OF_KEY = 32
assert(CLASSES <= HEADS_OF_KEY && CLASS_GROUPS <= GROUPS_OF_KEY, 'the classes of a key fit')

/**
 * Blocks of a bin that are compared before the best so far is taken. Before a miss is declared, whole bins are
 * searched.
 */
const SCAN = 16
const WHOLE_BIN = 2 ** 30
const STATE_MASK = 7
/** Room for the arrays of a heap with one key; they double when a further key needs room. */
const ONE_KEY_BYTES = 4096

/** A free block or a hole, or a part of one. */
export interface Extent {
  readonly start: number
  readonly units: number
  /** whether it is a hole */
  readonly absent: boolean
  /** the dependency of a free block */
  readonly key: number
  readonly stamp: number
}

/** The counters of a heap besides the units of each key. */
const enum Total {
  absent,
  all,
  words,
}

export class SegregatedFit implements CheckedHeap {
  /** free units by the key that they depend on; index 0 counts units without a dependency */
  unitsByKey: Float64Array
  /** the first record of each range of this heap, in address order within it */
  readonly firstRecords: Ranges
  /** counts the changes of the lists of free blocks and of holes that were made through this object */
  changes = 0

  /** keys that the arrays have room for */
  private room: number
  /** the highest key in use; no loop goes further, so that the arrays of higher keys take no memory */
  private readonly mostKey: Int32Array
  private heads: Int32Array
  private groups: Int32Array
  private bins: Int32Array
  private readonly totals: Float64Array
  /** the first record in the list of holes */
  private readonly holes: Int32Array

  /** With `fixed`, which must be zeroed, there is room for that many keys and ranges; without it the heap grows. */
  constructor(
    readonly records: RecordTable,
    private readonly fixed: { region: Region; keys: number; ranges: number } | null = null,
  ) {
    this.room = fixed?.keys ?? 1
    const region = fixed?.region ?? new Region(new ArrayBuffer(ONE_KEY_BYTES))
    this.totals = region.float64(Total.words)
    this.unitsByKey = region.float64(this.room)
    this.holes = region.int32(1)
    this.mostKey = region.int32(1)
    this.heads = region.int32(this.room * HEADS_OF_KEY)
    this.groups = region.int32(this.room)
    this.bins = region.int32(this.room * GROUPS_OF_KEY)
    this.firstRecords = new Ranges(fixed?.region, fixed?.ranges)
  }

  /** Units without memory behind them. */
  get absentUnits(): number {
    return this.totals[Total.absent]
  }

  /** Units of all ranges. */
  get totalUnits(): number {
    return this.totals[Total.all]
  }

  /** The first hole; Word.binNext leads to all others. 0 if the heap has no hole. */
  get firstHole(): number {
    return this.holes[0]
  }

  /** Adds `units` of addresses from `start` as range number `range`, with or without memory behind them. */
  addRange(range: number, start: number, units: number, state: 'free' | 'absent'): number {
    const record = this.records.acquire()
    const words = this.records.words
    const base = record << 4
    words[base | Word.offset] = start
    words[base | Word.units] = units
    words[base | Word.previous] = 0
    words[base | Word.next] = 0
    words[base | Word.range] = range
    words[base | Word.key] = 0
    this.records.doubles[(record << 3) | Double.stamp] = 0
    this.records.setState(record, state === 'free' ? State.free : State.absent)
    this.firstRecords.set(range, record, units)
    this.totals[Total.all] += units
    if (state === 'free') this.insert(record)
    else this.insertHole(record)
    return record
  }

  /** Removes a range, which must be one free or absent block. */
  removeRange(record: number): void {
    const words = this.records.words
    const base = record << 4
    assert(words[base | Word.previous] === 0 && words[base | Word.next] === 0, 'a range that goes away is one block')
    if ((words[base | Word.tag] & STATE_MASK) === State.free) this.remove(record)
    else this.removeHole(record)
    this.totals[Total.all] -= words[base | Word.units]
    this.firstRecords.delete(words[base | Word.range])
    this.records.release(record)
  }

  /**
   * Takes `units` whose start is a multiple of `alignUnits`, from blocks with key `key` or 0. Returns a record
   * outside all bins, and the caller sets its state; 0 if no free block fits.
   */
  allocate(units: number, alignUnits: number, key: number): number {
    if (alignUnits === 1) {
      const record = this.find(units, key)
      if (record === 0) return 0
      this.remove(record)
      this.splitTail(record, units)
      return record
    }
    const record = this.findAligned(units, alignUnits, key)
    if (record === 0) return 0
    const start = this.records.words[(record << 4) | Word.offset]
    return this.carve(record, Math.ceil(start / alignUnits) * alignUnits, units)
  }

  /** Takes exactly `units` from `start` out of the free block `record`. */
  carve(record: number, start: number, units: number): number {
    this.remove(record)
    const taken = this.splitFront(record, start)
    this.splitTail(taken, units)
    return taken
  }

  /**
   * Gives back a taken block, which may be used once `stamp` of `key` has passed (0, 0: at once), and merges it with
   * its neighbours.
   */
  free(record: number, key: number, stamp: number): number {
    if (key > this.mostKey[0]) this.includeKey(key)
    const { words, doubles } = this.records
    let block = record
    let base = block << 4
    // The state comes last. A thread may die between any two stores, and the block is then either not yet free, or
    // free with all its dependencies.
    doubles[(block << 3) | Double.stamp] = stamp
    words[base | Word.key] = key
    words[base | Word.tag] = (words[base | Word.tag] & ~STATE_MASK) | State.free
    const previous = words[base | Word.previous]
    if (previous !== 0 && this.mayMerge(previous, key)) {
      this.remove(previous)
      this.inherit(previous, block)
      this.absorbNext(previous)
      block = previous
      base = block << 4
    }
    const next = words[base | Word.next]
    if (next !== 0 && this.mayMerge(next, words[base | Word.key])) {
      this.remove(next)
      this.inherit(block, next)
      this.absorbNext(block)
    }
    this.insert(block)
    return block
  }

  /**
   * Frees of `key` up to `stamp` have completed, so their blocks lose their dependency. Returns the number of these
   * blocks.
   */
  settle(key: number, stamp: number): number {
    if (key > this.mostKey[0] || this.unitsByKey[key] === 0) return 0
    const { words, doubles } = this.records
    let settled = 0
    for (let sizeClass = this.nextClass(key, 0); sizeClass !== -1; sizeClass = this.nextClass(key, sizeClass + 1)) {
      for (let record = this.heads[(key << 9) | sizeClass]; record !== 0; ) {
        const next = words[(record << 4) | Word.binNext]
        if (doubles[(record << 3) | Double.stamp] <= stamp) {
          this.remove(record)
          this.free(record, 0, 0)
          settled++
        }
        record = next
      }
    }
    return settled
  }

  /**
   * Takes a run as one live block. From holes it takes whole granules, so the block may exceed the run; `keep` gives
   * back what is too much, once there is memory behind all of it. The heap must not change between `findRun` and this.
   */
  takeRun(run: FreeRun, granuleUnits: number): number {
    const end = run.start + run.units
    const record = this.takePart(run.record, run.start, end, granuleUnits)
    this.records.setState(record, State.live)
    for (let reached = this.end(record); reached < end; reached = this.end(record)) {
      this.takePart(this.records.words[(record << 4) | Word.next], reached, end, granuleUnits)
      this.absorbNext(record)
    }
    return record
  }

  /**
   * Shortens a taken block to `units` from `start`. Frees the rest, for reuse after `stamp` of `key`, or at once.
   */
  keep(record: number, start: number, units: number, key = 0, stamp = 0): number {
    const before = start - this.records.words[(record << 4) | Word.offset]
    const kept = before === 0 ? record : this.split(record, before)
    if (before !== 0) this.free(record, key, stamp)
    if (this.end(kept) > start + units) this.free(this.split(kept, units), key, stamp)
    return kept
  }

  /** The free blocks and holes that `takeRun` would take, with their dependencies. */
  extentsOf(run: FreeRun, granuleUnits: number): Extent[] {
    const { records } = this
    const extents: Extent[] = []
    const end = run.start + run.units
    for (let record = run.record; record !== 0 && records.offsetOf(record) < end; record = records.nextOf(record)) {
      const absent = records.state(record) === State.absent
      const from = Math.max(run.start, records.offsetOf(record))
      const to = Math.min(end, this.end(record))
      const start = absent ? Math.floor(from / granuleUnits) * granuleUnits : from
      const units = (absent ? Math.ceil(to / granuleUnits) * granuleUnits : to) - start
      extents.push({ start, units, absent, key: records.keyOf(record), stamp: records.stampOf(record) })
    }
    return extents
  }

  /** Undoes `takeRun`, or the part of it in `record`: each extent is again as it was. */
  giveBackRun(record: number, extents: readonly Extent[]): void {
    const { records } = this
    for (const { start, absent, key, stamp } of [...extents].reverse()) {
      const before = start - records.offsetOf(record)
      const part = before > 0 ? this.split(record, before) : record
      if (absent) this.becomeHole(part)
      else this.free(part, key, stamp)
    }
  }

  /** The block or hole of a range in which a unit lies. */
  recordAt(range: number, unit: number): number {
    let record = this.firstRecords.get(range)
    while (this.end(record) <= unit) record = this.records.words[(record << 4) | Word.next]
    return record
  }

  /** Makes `units` from `start`, which lie in a hole, a free block: usable after `stamp` of `key`. */
  commit(start: number, units: number, key: number, stamp: number): void {
    this.free(this.fillHole(start, units), key, stamp)
  }

  /** Makes `units` from `start`, which lie in a hole, a taken block. */
  fillHole(start: number, units: number): number {
    const { words } = this.records
    let hole = this.firstHole
    while (words[(hole << 4) | Word.offset] > start || this.end(hole) <= start) hole = words[(hole << 4) | Word.binNext]
    this.removeHole(hole)
    const taken = this.splitFront(hole, start, true)
    this.splitTail(taken, units, true)
    this.records.setState(taken, State.live)
    return taken
  }

  /**
   * Turns `units` from `start` inside the free block `record` into a hole, or adds them to a neighbouring hole. Their
   * memory is leaving.
   */
  decommit(record: number, start: number, units: number): void {
    this.remove(record)
    const hole = this.splitFront(record, start)
    this.splitTail(hole, units)
    this.becomeHole(hole)
  }

  /** Makes a taken block a hole, and merges it with its neighbours. */
  private becomeHole(record: number): void {
    let hole = record
    this.records.setState(hole, State.absent)
    const previous = this.records.words[(hole << 4) | Word.previous]
    if (previous !== 0 && this.records.state(previous) === State.absent) {
      this.removeHole(previous)
      this.absorbNext(previous)
      hole = previous
    }
    const next = this.records.words[(hole << 4) | Word.next]
    if (next !== 0 && this.records.state(next) === State.absent) {
      this.removeHole(next)
      this.absorbNext(hole)
    }
    this.insertHole(hole)
  }

  /** Moves a taken block to a fresh record, because its own has no generation left. */
  rehouse(record: number): number {
    const fresh = this.records.acquire()
    const words = this.records.words
    const tag = words[(fresh << 4) | Word.tag]
    words.copyWithin(fresh * Stride.words, record * Stride.words, record * Stride.words + Stride.words)
    words[(fresh << 4) | Word.tag] = (tag & ~STATE_MASK) | (words[(record << 4) | Word.tag] & STATE_MASK)
    const previous = words[(fresh << 4) | Word.previous]
    const next = words[(fresh << 4) | Word.next]
    if (previous !== 0) words[(previous << 4) | Word.next] = fresh
    else {
      const range = words[(fresh << 4) | Word.range]
      this.firstRecords.set(range, fresh, this.firstRecords.unitsOf(range))
    }
    if (next !== 0) words[(next << 4) | Word.previous] = fresh
    this.records.release(record)
    return fresh
  }

  /**
   * The place for `units` that needs the least new memory, in whole granules, among runs of holes and of admitted
   * free blocks; null if no run is long enough.
   */
  findRun(units: number, admission: Admission, granuleUnits: number): FreeRun | null {
    const search = new FreeRunSearch(this.records, units, admission, granuleUnits)
    const { words } = this.records
    for (let hole = this.firstHole; hole !== 0; hole = words[(hole << 4) | Word.binNext]) search.tryAround(hole)
    return search.best
  }

  /** The class of the largest free block that `key` may use, or -1. */
  largestClass(key: number): number {
    const group = 31 - Math.clz32(this.groups[key])
    return group < 0 ? -1 : group * 16 + 31 - Math.clz32(this.bins[(key << 5) | group])
  }

  /** The first non-empty class of `key` from `from` on, or -1. */
  nextClass(key: number, from: number): number {
    if (from >= CLASSES) return -1
    const group = from >>> 4
    const inGroup = this.bins[(key << 5) | group] & (-1 << (from & 15))
    if (inGroup !== 0) return group * 16 + 31 - Math.clz32(inGroup & -inGroup)
    const later = group === 31 ? 0 : this.groups[key] & (-2 << group)
    if (later === 0) return -1
    const found = 31 - Math.clz32(later & -later)
    const bits = this.bins[(key << 5) | found]
    return found * 16 + 31 - Math.clz32(bits & -bits)
  }

  /** The first block of a bin; 0 if the bin is empty. */
  head(key: number, sizeClass: number): number {
    return this.heads[(key << 9) | sizeClass]
  }

  /** All free units, with and without a dependency. */
  get freeUnits(): number {
    let units = 0
    for (let key = 0; key < this.keyLimit; key++) units += this.unitsByKey[key]
    return units
  }

  /** All keys in use are below this. */
  get keyLimit(): number {
    return this.mostKey[0] + 1
  }

  /**
   * Computes bins, bitmaps and sums anew from the chains of blocks, which are whole after any store of a dead thread.
   * One store to the chain splits, merges or moves a block, and a block's dependency is stored before it is free.
   * Sets `isBlock` at the records that describe a block. See rebuild.ts.
   */
  rebuild(isBlock: Uint8Array): void {
    const { words } = this.records
    const keys = this.keyLimit
    this.heads.fill(0, 0, keys * HEADS_OF_KEY)
    this.bins.fill(0, 0, keys * GROUPS_OF_KEY)
    for (const array of [this.groups, this.unitsByKey]) array.fill(0, 0, keys)
    for (const array of [this.holes, this.totals]) array.fill(0)
    for (const [range, first] of this.firstRecords) {
      const units = this.firstRecords.unitsOf(range)
      this.totals[Total.all] += units
      this.mendChain(first, words[(first << 4) | Word.offset] + units)
      for (let record = first; record !== 0; record = words[(record << 4) | Word.next]) {
        isBlock[record] = 1
        const state = this.records.state(record)
        if (state === State.free) {
          this.absorbFree(record)
          const key = words[(record << 4) | Word.key]
          if (key > this.mostKey[0]) this.includeKey(key) // a dead thread had taken the block for a stream
          this.insert(record)
        } else if (state === State.absent) this.insertHole(record)
      }
    }
  }

  /** Walks everything twice, by address and by bin, and asserts that both agree. */
  check(): void {
    checkHeap(this)
  }

  private find(units: number, key: number): number {
    const own = key <= this.mostKey[0] ? key : 0
    const floor = classOf(units)
    const best = this.bestInClass(floor, own, units, SCAN)
    if (best !== 0) return best
    const above = this.nextClassOfBoth(own, floor + 1)
    return above === -1 ? this.bestInClass(floor, own, units, WHOLE_BIN) : this.bestInClass(above, own, units, SCAN)
  }

  /** The best among the first `scan` blocks of `key`, and of those that depend on no work. */
  private bestInClass(sizeClass: number, key: number, units: number, scan: number): number {
    const best = this.bestInBin((key << 9) | sizeClass, units, scan, 0)
    return key === 0 ? best : this.bestInBin(sizeClass, units, scan, best)
  }

  /** The first class from `from` on with blocks of `key` or without a dependency, or -1. */
  private nextClassOfBoth(key: number, from: number): number {
    const own = this.nextClass(key, from)
    if (key === 0) return own
    const settled = this.nextClass(0, from)
    return own === -1 || (settled !== -1 && settled < own) ? settled : own
  }

  /**
   * The smallest sufficient block among `best` and the first `scan` blocks of a bin; the lowest address wins a tie.
   */
  private bestInBin(bin: number, units: number, scan: number, best: number): number {
    const words = this.records.words
    let bestUnits = best === 0 ? 0 : words[(best << 4) | Word.units]
    for (let record = this.heads[bin]; record !== 0 && scan > 0; record = words[(record << 4) | Word.binNext], scan--) {
      const size = words[(record << 4) | Word.units]
      if (size < units) continue
      if (best === 0 || size < bestUnits || (size === bestUnits && this.isBelow(record, best))) {
        best = record
        bestUnits = size
      }
    }
    return best
  }

  private isBelow(record: number, other: number): boolean {
    const words = this.records.words
    const ranges = words[(record << 4) | Word.range] - words[(other << 4) | Word.range]
    return ranges === 0 ? words[(record << 4) | Word.offset] < words[(other << 4) | Word.offset] : ranges < 0
  }

  /**
   * A free block with room for `units` at a multiple of `alignUnits`: first a block with room at any offset, then any
   * that fits.
   */
  private findAligned(units: number, alignUnits: number, key: number): number {
    const roomy = this.find(units + alignUnits - 1, key)
    if (roomy !== 0) return roomy
    const words = this.records.words
    for (const own of key === 0 || key > this.mostKey[0] ? [0] : [key, 0]) {
      let sizeClass = this.nextClass(own, classOf(units))
      for (; sizeClass !== -1; sizeClass = this.nextClass(own, sizeClass + 1)) {
        for (let record = this.head(own, sizeClass); record !== 0; record = words[(record << 4) | Word.binNext]) {
          const start = words[(record << 4) | Word.offset]
          const skipped = Math.ceil(start / alignUnits) * alignUnits - start
          if (skipped + units <= words[(record << 4) | Word.units]) return record
        }
      }
    }
    return 0
  }

  /**
   * Takes the part between `start` and `end` out of a free block, or the whole granules around that part out of a
   * hole.
   */
  private takePart(record: number, start: number, end: number, granuleUnits: number): number {
    const absent = this.records.state(record) === State.absent
    let to = Math.min(end, this.end(record))
    if (absent) {
      this.removeHole(record)
      start = Math.floor(start / granuleUnits) * granuleUnits
      to = Math.ceil(to / granuleUnits) * granuleUnits
    } else this.remove(record)
    const taken = this.splitFront(record, start, absent)
    this.splitTail(taken, to - start, absent)
    return taken
  }

  private end(record: number): number {
    return this.records.words[(record << 4) | Word.offset] + this.records.words[(record << 4) | Word.units]
  }

  /** Cuts a taken block at `start`, and gives back the part before. Returns the record of the rest. */
  private splitFront(record: number, start: number, absent = false): number {
    const units = start - this.records.words[(record << 4) | Word.offset]
    if (units === 0) return record
    const rest = this.split(record, units)
    this.putBack(record, absent)
    return rest
  }

  /** Cuts a taken block to `units`, and gives back the part behind. */
  private splitTail(record: number, units: number, absent = false): void {
    if (units === this.records.words[(record << 4) | Word.units]) return
    this.putBack(this.split(record, units), absent)
  }

  /** Gives a part that was cut off to the list of the whole, with the dependency of the whole. */
  private putBack(record: number, absent: boolean): void {
    if (absent) this.insertHole(record)
    else this.insert(record)
  }

  /**
   * `record` keeps the first `units`. The rest gets a record of its own, which is returned, with the same state and
   * dependency.
   */
  private split(record: number, units: number): number {
    const rest = this.records.acquire()
    const { words, doubles } = this.records
    const base = record << 4
    const behind = rest << 4
    const next = words[base | Word.next]
    words[behind | Word.offset] = words[base | Word.offset] + units
    words[behind | Word.units] = words[base | Word.units] - units
    words[behind | Word.previous] = record
    words[behind | Word.next] = next
    words[behind | Word.range] = words[base | Word.range]
    words[behind | Word.key] = words[base | Word.key]
    doubles[(rest << 3) | Double.stamp] = doubles[(record << 3) | Double.stamp]
    words[behind | Word.tag] = (words[behind | Word.tag] & ~STATE_MASK) | (words[base | Word.tag] & STATE_MASK)
    words[base | Word.next] = rest // the block is two blocks from here on
    words[base | Word.units] = units
    if (next !== 0) words[(next << 4) | Word.previous] = rest
    return rest
  }

  /** Merges the block behind `record`, which is in no list, into `record`. */
  private absorbNext(record: number): void {
    const words = this.records.words
    const base = record << 4
    const next = words[base | Word.next]
    const behind = next << 4
    const after = words[behind | Word.next]
    words[base | Word.next] = after // the blocks are one block from here on
    words[base | Word.units] += words[behind | Word.units]
    if (after !== 0) words[(after << 4) | Word.previous] = record
    this.records.release(next)
  }

  /** Whether a neighbour of a free block of `key` is free, too, and their dependencies allow a merge. */
  private mayMerge(neighbour: number, key: number): boolean {
    const { words } = this.records
    const base = neighbour << 4
    if ((words[base | Word.tag] & STATE_MASK) !== State.free) return false
    const otherKey = words[base | Word.key]
    return otherKey === key || otherKey === 0 || key === 0
  }

  /** Gives a free block in no bin the dependency of another block, which it is about to absorb. */
  private inherit(record: number, other: number): void {
    const { words, doubles } = this.records
    const key = words[(other << 4) | Word.key]
    if (key === 0) return
    const stamp = doubles[(other << 3) | Double.stamp]
    const own = (record << 3) | Double.stamp
    if (words[(record << 4) | Word.key] === 0 || stamp > doubles[own]) doubles[own] = stamp
    words[(record << 4) | Word.key] = key
  }

  /** Puts a free block into the bin of its key and size. */
  private insert(record: number): void {
    this.changes = (this.changes + 1) | 0
    const { words } = this.records
    const base = record << 4
    const units = words[base | Word.units]
    const key = words[base | Word.key]
    const sizeClass = classOf(units)
    const bin = (key << 9) | sizeClass
    const head = this.heads[bin]
    words[base | Word.binPrevious] = 0
    words[base | Word.binNext] = head
    if (head !== 0) words[(head << 4) | Word.binPrevious] = record
    this.heads[bin] = record
    this.groups[key] |= 1 << (sizeClass >>> 4)
    this.bins[(key << 5) | (sizeClass >>> 4)] |= 1 << (sizeClass & 15)
    this.unitsByKey[key] += units
  }

  private remove(record: number): void {
    this.changes = (this.changes + 1) | 0
    const words = this.records.words
    const base = record << 4
    const previous = words[base | Word.binPrevious]
    const next = words[base | Word.binNext]
    const key = words[base | Word.key]
    const units = words[base | Word.units]
    if (next !== 0) words[(next << 4) | Word.binPrevious] = previous
    if (previous !== 0) words[(previous << 4) | Word.binNext] = next
    else {
      const sizeClass = classOf(units)
      this.heads[(key << 9) | sizeClass] = next
      if (next === 0) {
        const group = (key << 5) | (sizeClass >>> 4)
        this.bins[group] &= ~(1 << (sizeClass & 15))
        if (this.bins[group] === 0) this.groups[key] &= ~(1 << (sizeClass >>> 4))
      }
    }
    this.unitsByKey[key] -= units
  }

  private insertHole(record: number): void {
    this.changes = (this.changes + 1) | 0
    const words = this.records.words
    const base = record << 4
    words[base | Word.tag] = (words[base | Word.tag] & ~STATE_MASK) | State.absent
    words[base | Word.binPrevious] = 0
    words[base | Word.binNext] = this.holes[0]
    if (this.holes[0] !== 0) words[(this.holes[0] << 4) | Word.binPrevious] = record
    this.holes[0] = record
    this.totals[Total.absent] += words[base | Word.units]
  }

  private removeHole(record: number): void {
    this.changes = (this.changes + 1) | 0
    const words = this.records.words
    const base = record << 4
    const previous = words[base | Word.binPrevious]
    const next = words[base | Word.binNext]
    if (next !== 0) words[(next << 4) | Word.binPrevious] = previous
    if (previous !== 0) words[(previous << 4) | Word.binNext] = next
    else this.holes[0] = next
    this.totals[Total.absent] -= words[base | Word.units]
  }

  /** Computes sizes and left neighbours from offsets and right neighbours. Merges holes whose merge was cut short. */
  private mendChain(first: number, end: number): void {
    const { words, doubles } = this.records
    let previous = 0
    for (let record = first; record !== 0; record = words[(record << 4) | Word.next]) {
      const base = record << 4
      let next = words[base | Word.next]
      while (next !== 0 && this.records.state(record) === State.absent && this.records.state(next) === State.absent) {
        this.absorbNext(record)
        next = words[base | Word.next]
      }
      words[base | Word.previous] = previous
      words[base | Word.units] = (next === 0 ? end : words[(next << 4) | Word.offset]) - words[base | Word.offset]
      if (words[base | Word.key] === 0) doubles[(record << 3) | Double.stamp] = 0
      previous = record
    }
  }

  /** Merges a free block with free blocks behind it while their dependencies allow it. None of them is in a bin. */
  private absorbFree(record: number): void {
    const base = record << 4
    const { words } = this.records
    for (let next = words[base | Word.next]; next !== 0; next = words[base | Word.next]) {
      if (!this.mayMerge(next, words[base | Word.key])) return
      this.inherit(record, next)
      this.absorbNext(record)
    }
  }

  /** A key is in use. */
  private includeKey(key: number): void {
    while (key >= this.room) this.grow()
    this.mostKey[0] = key
  }

  private grow(): void {
    assert(this.fixed === null, 'a key is one that a fixed heap has room for')
    const room = this.room * 2
    const heads = grown(this.heads, room * HEADS_OF_KEY)
    const groups = grown(this.groups, room)
    const bins = grown(this.bins, room * GROUPS_OF_KEY)
    const unitsByKey = new Float64Array(room)
    unitsByKey.set(this.unitsByKey)
    // No call comes between these, where a timeout could cut them short.
    this.heads = heads
    this.groups = groups
    this.bins = bins
    this.unitsByKey = unitsByKey
    this.room = room
  }
}

function grown(array: Int32Array, length: number): Int32Array {
  const larger = new Int32Array(length)
  larger.set(array)
  return larger
}
