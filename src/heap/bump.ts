// Where a block goes in a stack: behind the one before. It knows numbers only, never memory. Each block that was taken
// has an entry, counted from 1, which says how far it reaches, so that the state of the stack is the number of its last
// entry, and dropping entries is one assignment however many they are. Counts and sums follow from the entries instead of
// being kept at each allocation. What an alignment skips has an entry of its own, which is vacant, never anybody's.
//
// Entries are used again. A span identifies one use of an entry. A new span starts at each drop; it knows its highest entry that is
// still on the stack. A handle is an entry and a span.
//
// The engine can cut a call short wherever a function or the next round of a loop begins. Each change is therefore worked out first, and
// then stored without a call or a loop between the stores, so that a cut call leaves the stack whole.

import { assert } from '../base/assert.js'
import { UNIT_BYTES } from './size-classes.js'

/** Const enums for the reason given in records.ts. */
const enum Unit {
  bytes = 256,
  /** the bytes of a block's last unit beyond what was asked for */
  slackMask = 255,
}
assert(UNIT_BYTES === Unit.bytes, 'a unit has 256 bytes')

const FIRST_CAPACITY = 1024
const MOST_ENTRIES = 2 ** 27

/** The entries that were taken between two times that some were dropped. */
export class Span {
  /** its entries up to this one were not dropped */
  last = MOST_ENTRIES

  /** Of the entries above `below`. */
  constructor(readonly below: number) {}
}

export class Bump {
  /** the entry of the last block, 0 for none, and the first unit behind it */
  last = 0
  top: number
  /** of the next entry */
  span: Span
  /** those that have entries, and the present one, from below; the first is of entry 0, which is never dropped */
  private readonly spans: Span[]
  /** by entry: where its block ends, in bytes from unit 0, to the byte asked for; negative when freed by itself, or vacant */
  private ends = new Float64Array(FIRST_CAPACITY)
  /** the entry behind which there is no room for another */
  private lastPlace = FIRST_CAPACITY - 1
  /** entries up to the last that are freed or vacant, and what they cover and waste */
  private freed = 0
  private freedUnits = 0
  private freedSlack = 0
  /** blocks that were taken and dropped since, less the vacant entries there are */
  private dropped = 0
  private peakUnits = 0
  /** the slack of the entries up to `summed`; each is added when a sum is first asked for */
  private summed = 0
  private slackSum = 0

  /** A stack of the units from `start` to `limit`, which may rise later; at `start` nothing fits, whatever is on the stack. */
  constructor(
    private readonly start: number,
    public limit: number,
  ) {
    this.top = start
    this.span = new Span(0)
    this.spans = [new Span(-1), this.span]
    this.ends[0] = start * Unit.bytes
  }

  /** Whether `units` can be pushed; false also where `pushAligned` has to make room for an entry. */
  fits(units: number): boolean {
    // Read before the first condition, so that `push` needs not read it again.
    const { last, top } = this
    return units <= ((this.limit - top) | 0) && last !== this.lastPlace
  }

  /** Takes `units`, which fit, of which the user has asked for `bytes`: all but a part of the last. Returns the entry. */
  push(units: number, bytes: number): number {
    const { top } = this
    const entry = (this.last + 1) | 0
    this.ends[entry] = top * Unit.bytes + bytes
    this.last = entry
    this.top = (top + units) | 0
    return entry
  }

  /** `push` at a multiple of `alignUnits`, with room made for an entry; 0, with nothing changed, when the units do not fit. */
  pushAligned(units: number, bytes: number, alignUnits: number): number {
    const start = this.nextStart(alignUnits)
    if (units > this.limit - start) return 0
    if (start > this.top) this.pushVacant(start)
    if (this.last === this.lastPlace) this.extend()
    return this.push(units, bytes)
  }

  /** Where a block aligned to `alignUnits` would begin. */
  nextStart(alignUnits: number): number {
    return Math.ceil(this.top / alignUnits) * alignUnits
  }

  /** The block of a live entry is no longer used; its units stay taken until the stack is dropped below it. */
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
   * Drops every entry above `entry`. Constant time, but for entries that were freed by themselves or summed up, and for spans. A
   * call that is cut short has dropped the entries of some spans, the newest ones.
   */
  dropTo(entry: number): void {
    this.notePeak()
    for (let index = this.spans.length - 1; this.last > entry; index--) {
      const { below } = this.spans[index]
      if (below < this.last) this.dropFrom(index, Math.max(entry, below))
    }
  }

  /** Whether an entry of a span is on the stack and was not freed by itself. */
  isLive(entry: number, span: Span): boolean {
    return entry <= span.last && !this.isFreed(entry)
  }

  /** Of an entry that is on the stack, freed or not: neither it nor anything below was dropped as long as the span reaches to it. */
  spanOf(entry: number): Span {
    let index = this.spans.length - 1
    while (this.spans[index].below >= entry) index--
    return this.spans[index]
  }

  /** Of any entry: whether its last use was freed by itself. */
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

  /** Bytes asked for by live blocks. */
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

  /** Blocks ever taken. */
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

  /** An entry that nobody has, up to unit `end`. */
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

  /** Drops the entries above `entry`, which are of the span at `index`. What follows is of a new span. */
  private dropFrom(index: number, entry: number): void {
    let freed = 0
    let freedUnits = 0
    let freedSlack = 0
    for (let above = this.last; above > entry && freed < this.freed; above--) {
      if (!this.isFreed(above)) continue
      freed++
      freedUnits += this.unitsOf(above)
      freedSlack += this.slackOf(above)
    }
    let { summed, slackSum, spans } = this
    if (entry === 0) summed = slackSum = 0
    for (; summed > entry; summed--) slackSum -= this.slackOf(summed)
    const top = this.endOf(entry)
    const dropped = this.dropped + this.last - entry
    const span = spans[index]
    const isEmptied = span.below === entry
    const next = new Span(entry)
    // From here on nothing is called, so that the call is not cut short.
    span.last = isEmptied ? 0 : entry
    if (index < spans.length - 1) spans.length-- // an empty one
    if (isEmptied) spans.length--
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

  /** What is live grows by allocations only, so that a peak can be noted just before it ends. */
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
