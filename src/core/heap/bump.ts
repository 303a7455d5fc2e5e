// A stack allocator over numbers: each block begins where the previous block ends. Each block has an entry, counted
// from 1, with the end of the block. The number of the last entry is the state of the stack, so one assignment drops
// any number of entries. Counts and sums follow from the entries, which costs an allocation nothing. Units that an
// alignment skips have a vacant entry of their own.
//
// Entries are used again. A span identifies one use of an entry. A new span starts at each drop; it knows its highest
// entry that is still on the stack. A handle is an entry and a span.
//
// V8 can cut a call short wherever a function or the next round of a loop begins. Each change is therefore worked out
// first, and then stored without a call or a loop between the stores, so that a cut call leaves the stack whole.

import { assert } from '../base/assert.js'
import { UNIT_BYTES } from './size-classes.js'

/** Const enums for the reason given in records.ts. */
const enum Unit {
  bytes = 256,
  /** masks the bytes of a block's last unit beyond the requested bytes */
  slackMask = 255,
}
assert(UNIT_BYTES === Unit.bytes, 'a unit has 256 bytes')

const FIRST_CAPACITY = 1024
const MOST_ENTRIES = 2 ** 27

/** The entries that were taken between two drops. */
export class Span {
  /** the highest of its entries that is still on the stack */
  last = MOST_ENTRIES

  /** A span of the entries above `below`. */
  constructor(readonly below: number) {}
}

export class Bump {
  /** the entry of the last block, 0 for an empty stack, and the first unit behind it */
  last = 0
  top: number
  /** the span of the next entry */
  span: Span
  /**
   * the spans with entries and the present one, in the order of their entries; the first has entry 0, which is never
   * dropped
   */
  private readonly spans: Span[]
  /**
   * by entry: the end of the requested bytes of its block, counted from unit 0; negative for a freed or vacant entry
   */
  private ends = new Float64Array(FIRST_CAPACITY)
  /** the last entry that fits into `ends` */
  private lastPlace = FIRST_CAPACITY - 1
  /** freed and vacant entries up to the last, their units, and their slack in bytes */
  private freed = 0
  private freedUnits = 0
  private freedSlack = 0
  /** blocks that were taken and then dropped, less the vacant entries on the stack */
  private dropped = 0
  private peakUnits = 0
  /** the slack of the entries up to `summed`; an entry is added when a sum is first asked for */
  private summed = 0
  private slackSum = 0

  /**
   * A stack of the units from `start` to `limit`, which may be raised later. With `limit` at `start` nothing fits,
   * whatever is on the stack.
   */
  constructor(
    private readonly start: number,
    public limit: number,
  ) {
    this.top = start
    this.span = new Span(0)
    this.spans = [new Span(-1), this.span]
    this.ends[0] = start * Unit.bytes
  }

  /** Whether `units` can be pushed; also false while `pushAligned` would have to make room for an entry. */
  fits(units: number): boolean {
    // Both are read before the first condition, so that `push` need not read them again.
    const { last, top } = this
    return units <= ((this.limit - top) | 0) && last !== this.lastPlace
  }

  /**
   * Takes `units`, which must fit, for `bytes` requested bytes, and returns the entry. Only the last unit may be
   * partly unused.
   */
  push(units: number, bytes: number): number {
    const { top } = this
    const entry = (this.last + 1) | 0
    this.ends[entry] = top * Unit.bytes + bytes
    this.last = entry
    this.top = (top + units) | 0
    return entry
  }

  /**
   * As `push`, from a multiple of `alignUnits`, and makes room for an entry. Returns 0, and changes nothing, if the
   * units do not fit.
   */
  pushAligned(units: number, bytes: number, alignUnits: number): number {
    const start = this.nextStart(alignUnits)
    return units > this.limit - start ? 0 : this.pushAt(start, units, bytes)
  }

  /** As `push`, from a unit that is not below the top, and makes room for an entry. The units must fit. */
  pushAt(start: number, units: number, bytes: number): number {
    if (start > this.top) this.pushVacant(start)
    if (this.last === this.lastPlace) this.extend()
    return this.push(units, bytes)
  }

  /** The first unit of a block aligned to `alignUnits`. */
  nextStart(alignUnits: number): number {
    return Math.ceil(this.top / alignUnits) * alignUnits
  }

  /** Frees a live entry. Its units stay taken until the stack is dropped below it. */
  free(entry: number): void {
    this.notePeak()
    const units = this.unitsOf(entry)
    const slack = this.slackOf(entry)
    this.ends[entry] = -this.ends[entry]
    this.freed++
    this.freedUnits += units
    this.freedSlack += slack
  }

  /**
   * Drops every entry above `entry`, in constant time except for freed entries above a mark, summed entries and spans.
   * A call that is cut short has dropped the entries of the newest spans only.
   */
  dropTo(entry: number): void {
    this.notePeak()
    for (let index = this.spans.length - 1; this.last > entry; index--) {
      const { below } = this.spans[index]
      if (below < this.last) this.dropFrom(index, Math.max(entry, below))
    }
  }

  /** Whether an entry of a span is on the stack and was not freed. */
  isLive(entry: number, span: Span): boolean {
    return entry <= span.last && !this.isFreed(entry)
  }

  /**
   * The span of an entry on the stack, freed or not. While the span's `last` is not below the entry, neither the
   * entry nor any below was dropped.
   */
  spanOf(entry: number): Span {
    let index = this.spans.length - 1
    while (this.spans[index].below >= entry) index--
    return this.spans[index]
  }

  /** Whether the last use of an entry was freed. */
  isFreed(entry: number): boolean {
    return this.ends[entry] < 0
  }

  startOf(entry: number): number {
    return this.endOf(entry - 1)
  }

  requestedBytesOf(entry: number): number {
    return Math.abs(this.ends[entry]) - this.startOf(entry) * Unit.bytes
  }

  get liveUnits(): number {
    return this.top - this.start - this.freedUnits
  }

  get peakLiveUnits(): number {
    this.notePeak()
    return this.peakUnits
  }

  /** Requested bytes of all live blocks. */
  get requestedBytes(): number {
    while (this.summed < this.last) {
      this.slackSum += this.slackOf(this.summed + 1)
      this.summed++
    }
    return this.liveUnits * Unit.bytes - (this.slackSum - this.freedSlack)
  }

  get liveBlocks(): number {
    return this.last - this.freed
  }

  /** Blocks taken so far, dropped ones included. */
  get allocations(): number {
    return this.dropped + this.last
  }

  /** Walks all entries and asserts that they tile the stack and add up to the counters. */
  check(): void {
    let [freed, freedUnits, freedSlack, slack] = [0, 0, 0, 0]
    for (let entry = 1; entry <= this.last; entry++) {
      const units = this.unitsOf(entry)
      assert(units >= 0, 'a block ends behind the one before')
      if (entry <= this.summed) slack += this.slackOf(entry)
      if (!this.isFreed(entry)) {
        assert(this.requestedBytesOf(entry) > (units - 1) * Unit.bytes, 'a block has no unit too many')
        continue
      }
      freed++
      freedUnits += units
      freedSlack += this.slackOf(entry)
    }
    assert(this.endOf(0) === this.start && this.endOf(this.last) === this.top, 'the stack is from its start to its top')
    const { spans } = this
    assert(
      spans.every(({ below, last }, index) => last >= (spans[index + 1] ?? spans[index]).below && last >= below),
      'spans follow each other without a hole',
    )
    assert(spans.at(-1) === this.span && this.span.below <= this.last, 'the next entry is of the last span')
    assert(this.limit === this.start || this.top <= this.limit, 'the stack stays below its limit')
    assert(freed === this.freed, 'freed entries add up to the counter')
    assert(freedUnits === this.freedUnits, 'the units of freed entries add up to the counter')
    assert(freedSlack === this.freedSlack, 'the slack of freed entries adds up to the counter')
    assert(this.summed <= this.last && slack === this.slackSum, 'slack adds up to the sum')
  }

  /** Pushes an entry without a user, up to unit `end`. */
  private pushVacant(end: number): void {
    if (this.last === this.lastPlace) this.extend()
    const entry = this.last + 1
    this.ends[entry] = -end * Unit.bytes
    this.freed++
    this.freedUnits += end - this.top
    this.dropped--
    this.last = entry
    this.top = end
  }

  /** Drops the entries above `entry`, all of the span at `index`, and starts a new span. */
  private dropFrom(index: number, entry: number): void {
    const isEmptied = entry === 0
    let freed = isEmptied ? this.freed : 0
    let freedUnits = isEmptied ? this.freedUnits : 0
    let freedSlack = isEmptied ? this.freedSlack : 0
    for (let above = this.last; above > entry && freed < this.freed; above--) {
      if (!this.isFreed(above)) continue
      freed++
      freedUnits += this.unitsOf(above)
      freedSlack += this.slackOf(above)
    }
    let { summed, slackSum, spans } = this
    if (isEmptied) summed = slackSum = 0
    for (; summed > entry; summed--) slackSum -= this.slackOf(summed)
    const top = this.endOf(entry)
    const dropped = this.dropped + this.last - entry
    const span = spans[index]
    const isOver = span.below === entry
    const next = new Span(entry)
    // Nothing is called from here on, so that the call is not cut short.
    span.last = isOver ? 0 : entry
    if (index < spans.length - 1) spans.length-- // an empty span
    if (isOver) spans.length--
    spans[spans.length] = next
    this.span = next
    this.freed -= freed
    this.freedUnits -= freedUnits
    this.freedSlack -= freedSlack
    this.summed = summed
    this.slackSum = slackSum
    this.dropped = dropped
    this.last = entry
    this.top = top
  }

  /** Live units grow by allocations only, so it is enough to note the peak just before they shrink. */
  private notePeak(): void {
    if (this.liveUnits > this.peakUnits) this.peakUnits = this.liveUnits
  }

  private unitsOf(entry: number): number {
    return this.endOf(entry) - this.startOf(entry)
  }

  /** The first unit behind the block. */
  private endOf(entry: number): number {
    return Math.ceil(Math.abs(this.ends[entry]) / Unit.bytes) | 0
  }

  private slackOf(entry: number): number {
    return -Math.abs(this.ends[entry]) & Unit.slackMask
  }

  private extend(): void {
    const capacity = this.ends.length * 2
    assert(capacity <= MOST_ENTRIES, 'a stack has fewer than 2^27 blocks')
    const ends = new Float64Array(capacity)
    ends.set(this.ends)
    this.ends = ends
    this.lastPlace = capacity - 1
  }
}
