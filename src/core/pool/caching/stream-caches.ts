// The front of the caching pool. Each stream keeps a few freed blocks of each size class whole, in a stack. An
// allocation takes the top block, a free puts one on top; the heap behind is needed only when the stack is empty or
// full. The top is tried first because most programs ask for the size that they freed last.
//
// live-peak.ts tracks the most that was live. The counters stay here, beside the cached path that changes them.
// The file is long because the stacks and their counters share private state.

import { assert } from '../../base/assert.js'
import type { Admission } from '../../heap/free-run.js'
import { keyOfSlot } from '../../heap/key.js'
import { Double, type RecordTable, State, Word } from '../../heap/records.js'
import { CLASSES, ClassSum, classOf, MAX_UNITS, roundUpToClass, UNIT_BYTES } from '../../heap/size-classes.js'
import { MOST_STREAMS } from '../../order/clocks.js'
import { SMALL_CLASSES, SMALL_UNITS } from '../backing/backing.js'
import { policy } from '../policy.js'
import { Block, type BlockOwner, Stack, StreamTotals, stampAfter, Tag } from './block.js'
import type { BlockCache } from './block-cache.js'
import { LivePeak, UNCOUNTED } from './live-peak.js'

// Const enums are written out as numbers, which keeps the hot methods small enough to be inlined where they are
// called.
const enum Shift {
  /** from a stream slot to its first stack */
  stream = 9,
  /** from a stream slot to its row in the known order of streams */
  known = 11,
}
assert(MOST_STREAMS === 1 << Shift.known, 'known order has a row for each stream')

/** Sizes from this many units up are exact, not whole classes. */
const EXACT_UNITS = policy.exactBytes / UNIT_BYTES

/**
 * The size of the block that serves `units`. Below `policy.exactBytes` it is a whole class: that wastes little, and
 * makes all blocks of a class alike.
 */
export function classUnits(units: number): number {
  return units < EXACT_UNITS ? roundUpToClass(units) : units
}

/** More blocks than a stream can have. */
const ALL_PLACES = 2 ** 30
const EXACT_CLASS = classOf(EXACT_UNITS)

/** Streams that a new pool's stacks have room for, a power of two. */
const FEW_STREAMS = 8

const { clz32 } = Math
const NO_RECORDS: readonly number[] = []

/** The size of the block that lies under every stack: more than any block has, and than was ever live. */
const BOTTOM_UNITS = MAX_UNITS

/** For Word.sizeClass: a block that is never cached, but comes to the central heap when it is freed. */
export const FULL_CLASS = CLASSES + 1

export class StreamCaches implements BlockCache {
  readonly isWorthDraining = true
  /** stream slots that have or had blocks are below this */
  slotLimit = 0
  /** units taken from the heaps and not given back: live or cached */
  handedUnits = 0
  handedBlocks = 0
  /** bytes of those units beyond the requests, present or last */
  slackBytes = 0
  /** by record: the block, once it was handed out */
  private readonly blocks: (Block | undefined)[] = []
  /** by stream slot */
  private readonly totals: StreamTotals[] = []
  /** `leastCached` of new totals */
  private readonly leastCached: number
  /** whether only small blocks are cached; see `setTight` */
  private isTight = false
  private readonly peak: LivePeak
  /** by stream slot and class; all stacks not in use are `emptyStack`; grows with the slots in use */
  private stacks: Stack[]
  private readonly emptyStack: Stack
  /** lies under every stack */
  private readonly bottom: Block

  constructor(
    private readonly records: RecordTable,
    /** the most that one stream may cache; `limit` changes it */
    public mostUnits: number,
    protected readonly pool: BlockOwner,
    /** whether live blocks and their peak are counted, and classes are cached only while that pays */
    private readonly countsLive = true,
    /** whether streams cache all that they free, up to `mostUnits` */
    private readonly keepsAll = false,
  ) {
    this.leastCached = countsLive ? 0 : UNCOUNTED
    this.peak = new LivePeak(this.totals)
    this.bottom = this.blockFor(0)
    this.bottom.units = BOTTOM_UNITS
    this.emptyStack = new Stack(this.bottom, 0, 0, new StreamTotals(0, this.leastCached, 0))
    this.stacks = repeated(this.emptyStack, FEW_STREAMS << Shift.stream)
  }

  /** A stream slot has blocks from now on. */
  includeSlot(slot: number): void {
    if (slot < this.slotLimit) return
    while (this.totals.length <= slot) {
      this.totals.push(new StreamTotals(this.totals.length, this.leastCached, this.mostUnits))
    }
    while (this.stacks.length <= slot << Shift.stream) {
      this.stacks = this.stacks.concat(repeated(this.emptyStack, this.stacks.length))
    }
    this.slotLimit = slot + 1
  }

  /** A stream may cache that many units from now on. */
  limit(units: number): void {
    this.mostUnits = units
    for (const totals of this.totals) totals.most = units
  }

  /**
   * In a tight pool only small blocks are cached. A cached block is used again wherever it lies, and large ones keep
   * long free runs apart.
   */
  setTight(isTight: boolean): boolean {
    if (this.isTight === isTight) return false
    this.isTight = isTight
    for (const { stacks } of this.totals) for (const stack of stacks) stack.places = this.placesOf(stack.sizeClass)
    return true
  }

  /** The block of a record that was handed out, and not handed back. */
  blockOf(record: number): Block {
    return this.blocks[record]!
  }

  /** Whether a record describes a live block. */
  isLive(record: number): boolean {
    return (this.state(record) & ~1) === State.live
  }

  /** The state of any block of the pool. */
  state(record: number): State {
    const state = this.records.state(record)
    return state === State.live ? this.blockOf(record).state : state
  }

  /**
   * The key of any block of the pool: the key of its stream for a live or cached block, otherwise the key in its
   * record.
   */
  key(record: number): number {
    if (this.records.state(record) === State.live) return keyOfSlot(this.blockOf(record).slot)
    return this.records.keyOf(record)
  }

  /**
   * The stack of the class for `units`, an empty one for a slot beyond the limit. The class is
   * `classOf(classUnits(units))`, by the sums of core/heap/size-classes.ts.
   */
  stackFor(slot: number, units: number): Stack {
    const ignored = ClassSum.ignoredAndZeros - clz32(units | ClassSum.inOctave)
    const steps = units < EXACT_UNITS ? ((units - 1) >> ignored) + 1 : units >>> ignored
    const index = (slot << Shift.stream) | ((ignored << ClassSum.octaveShift) + steps)
    const { stacks } = this
    return index < stacks.length ? stacks[index] : this.emptyStack
  }

  /** The stack of a class, an empty one for a slot beyond the limit. */
  stackAt(slot: number, sizeClass: number): Stack {
    const index = (slot << Shift.stream) | sizeClass
    const { stacks } = this
    return index < stacks.length ? stacks[index] : this.emptyStack
  }

  /** Whether the top block of the stack for these units has their size. For caches that do not count live blocks. */
  holds(stack: Stack, units: number): boolean {
    const size = stack.top.units
    // Blocks of a small class are all alike, and the block under every stack is larger than any other.
    return (units < EXACT_UNITS || size === units) && size !== BOTTOM_UNITS
  }

  /**
   * Takes the top block of the stack for these units, if it has their size and the peak stays the same. Otherwise
   * returns false, and `takeElsewhere` or `takeAny` may find a block. The method calls nothing, so that the compiler
   * keeps what it knows of the caller. It returns a boolean because the compiler would forget the type of a block that
   * may be null.
   */
  take(stack: Stack, units: number): boolean {
    const block = stack.top
    const { totals } = stack
    const size = block.units
    // Blocks of a small class are all alike. On an empty stack `left` is below any limit, so the next test fails.
    if (units >= EXACT_UNITS && size !== units) return false
    const left = totals.cached - size
    if (left < totals.leastCached) return false
    stack.top = block.below!
    totals.cached = left
    return true
  }

  /**
   * A cached block for a request whose stack has no fitting block on top: of the stream that gave the last one, of
   * this stream, or of any other stream. Null for none. A block of another stream must be on top of its stack. It is
   * safe if its mark is less than the stamp that `known` or `seen`, both as in the clocks, has for that stream.
   */
  takeElsewhere(slot: number, units: number, known: Float64Array, seen: Float64Array): Block | null {
    if (units > this.mostUnits || (this.isTight && units >= SMALL_UNITS)) return null // the class keeps none
    this.includeSlot(slot)
    const index = (slot << Shift.stream) | classOf(units)
    const block =
      this.takeGiven(index, units, known, seen) ?? this.takeOwn(index, units) ?? this.takeTop(index, units, known, seen)
    if (block === null && units >= EXACT_UNITS && this.countsLive) this.noteMiss(this.stacks[index], units)
    return block
  }

  /**
   * Takes the top block of the stack that last gave this stream a block of the class, if this stream has no block of
   * its own. It comes first and is short, because in a pipeline every block comes from the previous stream.
   */
  private takeGiven(index: number, units: number, known: Float64Array, seen: Float64Array): Block | null {
    const { stacks } = this
    const stack = stacks[index]
    const { giver } = stack
    const block = giver.top
    const { totals } = giver
    const left = totals.cached - units
    if (block.units !== units || left < totals.leastCached) return null
    if (stack.top !== this.bottom || stacks[index + 1].top !== this.bottom) return null
    if (!isSafe(block, totals.slot, index >>> Shift.stream, known, seen)) return null
    giver.top = block.below!
    totals.cached = left
    block.stack = stack
    return block
  }

  /**
   * A cached block for a size below `policy.exactBytes`, of its class or of the next one: at most an eighth or one
   * unit too large. For a larger size one of exactly that size. Null for none.
   */
  takeAny(slot: number, units: number): Block | null {
    return slot < this.slotLimit ? this.takeOwn((slot << Shift.stream) | classOf(units), units) : null
  }

  private takeOwn(index: number, units: number): Block | null {
    const block = this.search(index, units)
    if (block === null) return null
    const { totals } = block.stack!
    totals.cached -= block.units
    if (totals.cached < totals.leastCached) this.notePeak(totals)
    return block
  }

  /** Keeps a block for its stream; false when its class or the stream's cache is full. */
  put(block: Block): boolean {
    const stack = block.stack!
    const { totals } = stack
    const cached = totals.cached + block.units
    const below = stack.top
    const height = below.height + 1
    if (height > stack.places || cached > totals.most) return false
    block.below = below
    block.height = height
    stack.top = block
    totals.cached = cached
    return true
  }

  /**
   * Whether `link` may keep the block for its stream: its class has a place left, and the stream's cache is not full.
   */
  hasRoom(block: Block): boolean {
    const stack = block.stack!
    return stack.top.height < stack.places && stack.totals.cached + block.units <= stack.totals.most
  }

  /** Keeps a block for its stream that there is room for. */
  link(block: Block): void {
    const stack = block.stack!
    const { totals } = stack
    const below = stack.top
    block.below = below
    block.height = (below.height + 1) | 0
    totals.cached = (totals.cached + block.units) | 0
    stack.top = block
  }

  /** Sets the stream that will cache a live block after its free. */
  assign(block: Block, slot: number, sizeClass = block.stack!.sizeClass): void {
    block.stack = this.stackOf(slot, sizeClass)
  }

  /** A heap has handed out a block for the stream; the pool notes its slack. */
  handOut(slot: number, record: number): void {
    const { words } = this.records
    this.records.setState(record, State.live)
    const block = this.admit(slot, record, words[(record << 4) | Word.sizeClass])
    block.tag &= ~Tag.stateMask // without a call: a call cut short before it would leave the block live
    block.slack = 0
    block.wrapper = null // a free can end in an error after the block is in its heap
    this.handedUnits += block.units
    this.handedBlocks++
    const { totals } = block.stack!
    totals.leastCached += block.units
    if (totals.cached < totals.leastCached) this.notePeak(totals)
  }

  /**
   * The block that a record describes, live or about to be cached for a stream, with the tag of the record. Counts
   * nothing.
   */
  admit(slot: number, record: number, sizeClass: number): Block {
    const { words } = this.records
    const known = this.blocks[record]
    // A stack may still link the object of a block that another thread took away, so that object is not used again.
    const block = known === undefined || known.state === State.cached ? this.newBlock(record) : known
    const stack = this.stackOf(slot, sizeClass)
    // To store a reference costs more than to compare it.
    if (block.stack !== stack) block.stack = stack
    block.tag = words[(record << 4) | Word.tag]
    block.units = words[(record << 4) | Word.units]
    return block
  }

  protected blockFor(record: number): Block {
    return new Block(this.pool, record)
  }

  private newBlock(record: number): Block {
    const block = this.blockFor(record)
    this.blocks[record] = block
    return block
  }

  /** A block is about to go back to a heap, or to wait for that. */
  handBack(record: number): void {
    const block = this.blockOf(record)
    this.handedUnits -= block.units
    this.handedBlocks--
    this.slackBytes -= block.slack
    block.state = State.unused
    const { words } = this.records
    words[(record << 4) | Word.tag] = block.tag | State.live
    words[(record << 4) | Word.key] = keyOfSlot(block.slot)
    this.records.doubles[(record << 3) | Double.stamp] = stampAfter(block.mark)
  }

  /** Units that are live now. */
  get liveUnits(): number {
    let units = this.handedUnits
    for (let slot = 0; slot < this.slotLimit; slot++) units -= this.cachedUnits(slot)
    return units
  }

  /** The next block of a record gets an object of its own. */
  disown(record: number): void {
    this.blocks[record] = undefined
  }

  /** Forgets the blocks that `isCached` refuses. */
  purge(isCached: (block: Block) => boolean): void {
    for (let slot = 0; slot < this.slotLimit; slot++) {
      for (const block of this.entries(slot)) {
        if (isCached(block)) continue
        this.remove(block.stack!, block)
        block.stack!.totals.cached -= block.units
        if (block.state === State.cached) block.state = State.unused
      }
    }
  }

  /** Forgets all stacks, blocks and counts. */
  clear(): void {
    for (const block of this.blocks) if (block !== undefined) block.tag = 0
    for (const totals of this.totals) {
      totals.cached = 0
      totals.stacks.length = 0
    }
    this.stacks.fill(this.emptyStack)
    this.handedUnits = 0
    this.handedBlocks = 0
    this.slackBytes = 0
  }

  /** Takes every block out of its stack. */
  empty(): void {
    for (const totals of this.totals) {
      totals.cached = 0
      for (const stack of totals.stacks) stack.top = this.bottom
    }
  }

  /**
   * After a call was cut short: takes every block out of its stack, and counts the live ones anew. Returns their
   * records.
   */
  mend(): Set<number> {
    this.empty()
    this.handedUnits = this.handedBlocks = this.slackBytes = 0
    const live = new Set<number>()
    for (const block of this.blocks) {
      if (block === undefined) continue
      if ((block.state & ~1) === State.live) {
        live.add(block.record)
        this.handedUnits += block.units
        this.handedBlocks++
        this.slackBytes += block.slack
        const { slot } = block.stream
        if (slot >= 0 && slot !== block.slot) this.assign(block, slot) // a free on another stream was cut short
        continue
      }
      const tag = (block.record << 4) | Word.tag
      const { words } = this.records
      if (block.tag >> 3 > words[tag] >> 3) words[tag] = block.tag // the generation of its last use
      block.state = State.unused
    }
    this.peak.restart(this.handedUnits)
    return live
  }

  /** The most units that were live at a time. */
  get peakUnits(): number {
    return this.peak.units
  }

  mostUsedUnits(units: number): number {
    return Math.max(this.peakUnits, this.liveUnits + units)
  }

  /** A method of its own, so that the cached path, which V8 inlines as a whole, stays small. */
  private notePeak(totals: StreamTotals): void {
    this.peak.note(totals, this.handedUnits)
  }

  /** Sets the peak to the units that are live now. */
  resetPeak(): void {
    this.peak.reset(this.handedUnits)
  }

  get isEmpty(): boolean {
    for (let slot = 0; slot < this.slotLimit; slot++) if (this.cachedUnits(slot) > 0) return false
    return true
  }

  /** Units cached for one stream. */
  cachedUnits(slot: number): number {
    if (slot >= this.slotLimit) return 0
    return this.totals[slot].cached
  }

  /** Takes out a block of a class above `sizeClass` and below `end`, the smallest there is; 0 for none. */
  takeLarger(slot: number, sizeClass: number, end: number): number {
    if (this.cachedUnits(slot) === 0) return 0
    const row = slot << Shift.stream
    for (let larger = sizeClass + 1; larger < end; larger++) {
      const block = this.pop(this.stacks[row | larger])
      if (block === null) continue
      block.stack!.totals.cached -= block.units
      this.handBack(block.record)
      return block.record
    }
    return 0
  }

  /** Hands the stream a block of exactly `units` from the top of another stream's stack; null for none. */
  private takeTop(index: number, units: number, known: Float64Array, seen: Float64Array): Block | null {
    const slot = index >>> Shift.stream
    for (let other = 0; other < this.slotLimit; other++) {
      if (other === slot) continue
      const giver = this.stacks[index + ((other - slot) << Shift.stream)]
      const block = giver.top
      if (block.units !== units || !isSafe(block, other, slot, known, seen)) continue
      this.pop(giver)
      giver.totals.cached -= units
      if (giver.totals.cached < giver.totals.leastCached) this.notePeak(giver.totals)
      this.assign(block, slot)
      block.stack!.giver = giver
      return block
    }
    return null
  }

  /**
   * Takes out a block for another stream: of at least `units`, in their class, with a stamp up to `stamp`; 0 for
   * none.
   */
  takeOlder(slot: number, units: number, stamp: number): number {
    const stack = this.stacks[(slot << Shift.stream) | classOf(units)]
    for (let block = stack.top; block !== this.bottom; block = block.below!) {
      if (block.units < units || block.mark >= stamp) continue
      this.takeOut(block)
      return block.record
    }
    return 0
  }

  takeAdmitted(slot: number, units: number, admission: Admission): number {
    for (let other = 0; other < this.slotLimit; other++) {
      if (other === slot || this.cachedUnits(other) === 0) continue
      const record = this.takeOlder(other, units, admission[keyOfSlot(other)])
      if (record !== 0) return record
    }
    return 0
  }

  /** Takes a cached block out of its stack, to go back to its heap. */
  takeOut(block: Block): void {
    const stack = block.stack!
    this.remove(stack, block)
    stack.totals.cached -= block.units
    this.handBack(block.record)
  }

  /** Takes out what one stream caches in the classes from `first` to before `end`; returns the blocks. */
  drain(slot: number, first = 0, end = CLASSES): readonly number[] {
    if (this.cachedUnits(slot) === 0) return NO_RECORDS
    const drained: number[] = []
    this.drainTotals(this.totals[slot], first, end, drained)
    return drained
  }

  private drainTotals(totals: StreamTotals, first: number, end: number, drained: number[]): void {
    for (const stack of totals.stacks) {
      if (stack.top === this.bottom || stack.sizeClass < first || stack.sizeClass >= end) continue
      for (let block = this.pop(stack); block !== null; block = this.pop(stack)) {
        totals.cached -= block.units
        this.handBack(block.record)
        drained.push(block.record)
      }
      if (stack.sizeClass >= EXACT_CLASS && this.countsLive && !this.keepsAll) stack.places = 0
    }
  }

  /** A block goes to the heap because its stack has no place. */
  noteFree(block: Block): void {
    block.stack!.lastFreed = block.units
  }

  /**
   * The cache has no block for a request of exact size. Caching the blocks of a class pays, once a request would have
   * found the last one; it does not, once a block was drained unused.
   */
  private noteMiss(stack: Stack, units: number): void {
    if (stack.lastFreed === units) stack.places = this.placesOf(stack.sizeClass)
  }

  drainAll(first: number, end: number): number[] {
    const drained: number[] = []
    for (let slot = 0; slot < this.slotLimit; slot++) {
      for (const record of this.drain(slot, first, end)) drained.push(record)
    }
    return drained
  }

  /** The number of cached blocks, and the bytes of those blocks beyond their last requests. */
  cached(): { blocks: number; slackBytes: number } {
    let blocks = 0
    let slackBytes = 0
    for (let slot = 0; slot < this.slotLimit; slot++) {
      for (const block of this.entries(slot)) {
        blocks++
        slackBytes += block.slack
      }
    }
    return { blocks, slackBytes }
  }

  /** Every block cached for one stream. */
  entries(slot: number): Block[] {
    const blocks: Block[] = []
    for (const { top } of this.totals[slot].stacks) {
      for (let block = top; block !== this.bottom; block = block.below!) blocks.push(block)
    }
    return blocks
  }

  /**
   * Takes out a block of the class, or of the next class; from `policy.exactBytes` on only one of the size. Null for
   * none.
   */
  private search(index: number, units: number): Block | null {
    if (units === 0) return null
    const stack = this.stacks[index]
    if (units === 1) return this.pop(stack) // the next larger block is twice as large
    if (units < EXACT_UNITS) return this.pop(stack) ?? this.pop(this.stacks[index + 1])
    for (let block = stack.top; block !== this.bottom; block = block.below!) {
      if (block.units === units) return this.remove(stack, block)
    }
    return null
  }

  private pop(stack: Stack): Block | null {
    const { top } = stack
    if (top === this.bottom) return null
    stack.top = top.below!
    return top
  }

  private remove(stack: Stack, block: Block): Block {
    if (stack.top === block) stack.top = block.below!
    else {
      let above = stack.top
      for (; above.below !== block; above = above.below!) above.height--
      above.height--
      above.below = block.below
    }
    return block
  }

  private stackOf(slot: number, sizeClass: number): Stack {
    this.includeSlot(slot)
    const stack = this.stacks[(slot << Shift.stream) | sizeClass]
    return stack === this.emptyStack ? this.newStack(slot, sizeClass) : stack
  }

  private newStack(slot: number, sizeClass: number): Stack {
    const totals = this.totals[slot]
    const stack = new Stack(this.bottom, sizeClass, this.placesOf(sizeClass), totals)
    this.stacks[(slot << Shift.stream) | sizeClass] = stack
    const higher = totals.stacks.findIndex(other => other.sizeClass > sizeClass)
    totals.stacks.splice(higher === -1 ? totals.stacks.length : higher, 0, stack)
    return stack
  }

  /** most blocks in a stack of a class */
  private placesOf(sizeClass: number): number {
    if (sizeClass === FULL_CLASS || (this.isTight && sizeClass >= SMALL_CLASSES)) return 0
    return this.keepsAll ? ALL_PLACES : policy.places
  }
}

/** An array without a hole: V8 would check each load from an array that had one. `length` is a power of two. */
function repeated(stack: Stack, length: number): Stack[] {
  let stacks = [stack]
  while (stacks.length < length) stacks = stacks.concat(stacks)
  return stacks
}

/** Whether a block that the stream of `other` caches may go to that of `slot`. */
function isSafe({ mark }: Block, other: number, slot: number, known: Float64Array, seen: Float64Array): boolean {
  return known[(slot << Shift.known) | other] > mark || seen[other] > mark
}
