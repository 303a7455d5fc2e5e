import { assert } from '../base/assert.js'
import type { Region } from '../threads/region.js'

// One record of 64 bytes describes one block of a range: sixteen int32 words. Two pairs of words are read as float64.
// Records are recycled; the generation in the tag grows with each use, so that a handle of an earlier use never
// matches.

// Positions and states are const enums, which the compiler writes out as numbers. An imported constant would cost a
// load at each use, and the hot path uses these everywhere.

/** Words and float64s of a record. */
export const enum Stride {
  words = 16,
  doubles = 8,
}

/** Index of an int32 in a record. */
export const enum Word {
  /** generation × 8 + state */
  tag = 0,
  offset = 1,
  units = 2,
  /** neighbours in address order, 0 at the ends of a range */
  previous = 3,
  next = 4,
  /**
   * neighbours in the bin (free blocks) or in the list of holes (absent ones), 0 at the ends. For a block on its way
   * between threads `binPrevious` is the generation of its stream. For a block in a view and for its parts see
   * lent-parts.ts
   */
  binPrevious = 5,
  binNext = 6,
  /**
   * see key.ts. Free block: the key of the stream that must finish first, 0 for none; work on blocks of equal keys is
   * ordered. Live block of a shared pool: the key of its stream. Live block of a single-thread pool: unused, see
   * core/pool/caching/block.ts
   */
  key = 7,
  /** index of the range that the block lies in */
  range = 12,
  /** class of a live or cached block's size */
  sizeClass = 13,
  /** in a pool that threads share: the block's owner and phase, see owner-word.ts */
  owner = 14,
  /** written by a thread that is about to change the record, to fetch its line from another core early; never read */
  touched = 15,
}

/** Index of a float64 in a record: words 8 and 9, words 10 and 11. */
export const enum Double {
  /** the stamp that goes with the key */
  stamp = 4,
  /** requested bytes */
  requested = 5,
}

export const enum State {
  /** describes no block */
  unused = 0,
  /** address space without memory behind it */
  absent = 1,
  free = 2,
  /** freed, and kept whole for its stream; a `Block` has this state, and its record the state `live` */
  cached = 3,
  /** of a record: its memory is part of a block in a view, or a slab of the heap for small blocks; see lent-parts.ts */
  lent = cached,
  live = 4,
  /** live, with announced uses on other streams */
  shared = live | 1,
  /** freed, and waits for work on other streams */
  deferred = 6,
  /** belongs to a captured graph: freed and kept for it, or divided into blocks of its own */
  captured = 7,
}

const STATE_MASK = 7
const GENERATION = 8
/** A record of this generation cannot describe another block. */
export const LAST_GENERATION = 2 ** 28 - 1
const FIRST_CAPACITY = 127 // with record 0, two pages
const MOST_RECORDS = 2 ** 27
/** Records of 2^6 indices share a page of memory. */
const PAGE_SHIFT = 6
const PAGE_RECORDS = 1 << PAGE_SHIFT

/** The counts of a table. */
const enum Count {
  /** indices ever used */
  used,
  /** unused records at hand */
  recycled,
  /** by owner: the first unused record; Word.next links them */
  firstUnused,
}

/**
 * The table of records. `words` and `doubles` are two views of one buffer and change when the table grows.
 *
 * In a table that threads share, each page of records belongs to one thread, and a thread's blocks move to its pages.
 * So each thread writes to few pages, all its own. That matters because processors also fetch the neighbours of a
 * line of memory.
 */
export class RecordTable {
  words!: Int32Array
  doubles!: Float64Array
  /** the first index that describes a block; 0 stands for no block */
  readonly first = 1
  /** the thread whose records are acquired; 0 for a table of one thread */
  owner = 0
  private readonly counts: Int32Array
  /** by page: the thread that it belongs to; empty for a table of one thread */
  private readonly owners: Int32Array

  /**
   * In `region`, which must be cleared, the table has `capacity` records for threads up to `mostOwner`; without a
   * region it grows.
   */
  constructor(
    region: Region | null = null,
    private readonly capacity = MOST_RECORDS,
    private readonly mostOwner = 0,
  ) {
    const pages = region === null ? 0 : Math.ceil((this.first + capacity) / PAGE_RECORDS)
    const lists = Count.firstUnused + mostOwner + 1
    this.counts = region?.int32(lists) ?? new Int32Array(lists)
    this.owners = region?.int32(pages) ?? new Int32Array(0)
    if (this.counts[Count.used] === 0) this.counts[Count.used] = this.first
    if (region === null) this.view(new ArrayBuffer((this.first + FIRST_CAPACITY) * Stride.words * 4))
    else ({ words: this.words, doubles: this.doubles } = region.both((this.first + capacity) * Stride.doubles))
  }

  /** All indices that were ever used are below this. */
  get used(): number {
    return this.counts[Count.used]
  }

  /** How many records can still be acquired. */
  get available(): number {
    return this.capacity - (this.used - this.first) + this.counts[Count.recycled]
  }

  /**
   * A record in state `unused`; its other words are left from its last use. Grows the table if no record is unused.
   */
  acquire(): number {
    const { counts } = this
    const list = Count.firstUnused + this.owner
    const record = counts[list]
    if (record === 0) return this.mostOwner === 0 ? this.extend() : this.takePage()
    counts[list] = this.words[(record << 4) | Word.next]
    counts[Count.recycled]--
    return record
  }

  /**
   * Takes a record back; every handle to it is stale from now on. A record with no generation left is never used
   * again.
   */
  release(record: number): void {
    const base = record << 4
    const generation = this.words[base | Word.tag] >> 3
    this.words[base | Word.tag] = generation * GENERATION + State.unused
    if (generation === LAST_GENERATION) return
    const list = Count.firstUnused + this.ownerOf(record)
    this.words[base | Word.next] = this.counts[list]
    this.counts[list] = record
    this.counts[Count.recycled]++
  }

  /** The thread that owns a record's page. */
  ownerOf(record: number): number {
    return this.mostOwner === 0 ? 0 : this.owners[record >> PAGE_SHIFT]
  }

  /** Makes every record unused that `describes` does not accept. */
  retain(describes: (record: number) => boolean): void {
    this.counts.fill(0, Count.recycled)
    for (let record = this.used - 1; record >= this.first; record--) {
      if (!describes(record)) this.release(record)
    }
  }

  state(record: number): State {
    return (this.words[(record << 4) | Word.tag] & STATE_MASK) as State
  }

  // Everything that is not hot reads records by these methods; hot files index `words` and `doubles` themselves.

  /** The block's first unit within its range. */
  offsetOf(record: number): number {
    return this.words[(record << 4) | Word.offset]
  }

  /** The block's size. */
  unitsOf(record: number): number {
    return this.words[(record << 4) | Word.units]
  }

  /** The block before this one in address order; 0 at the start of a range. */
  previousOf(record: number): number {
    return this.words[(record << 4) | Word.previous]
  }

  /** The block after this one in address order; 0 at the end of a range. */
  nextOf(record: number): number {
    return this.words[(record << 4) | Word.next]
  }

  /** The block before this one in its bin, or in the list of holes; 0 for the first. */
  binPreviousOf(record: number): number {
    return this.words[(record << 4) | Word.binPrevious]
  }

  /** The block after this one in its bin, or in the list of holes; 0 for the last. */
  binNextOf(record: number): number {
    return this.words[(record << 4) | Word.binNext]
  }

  /** The index of the range that the block lies in. */
  rangeOf(record: number): number {
    return this.words[(record << 4) | Word.range]
  }

  /** See `Word.key`. */
  keyOf(record: number): number {
    return this.words[(record << 4) | Word.key]
  }

  setKey(record: number, key: number): void {
    this.words[(record << 4) | Word.key] = key
  }

  /** The stamp that goes with the key. */
  stampOf(record: number): number {
    return this.doubles[(record << 3) | Double.stamp]
  }

  /** Sets the key and the stamp that must pass before a block may be used again. */
  setDependency(record: number, key: number, stamp: number): void {
    this.words[(record << 4) | Word.key] = key
    this.doubles[(record << 3) | Double.stamp] = stamp
  }

  /** See `Word.sizeClass`. */
  sizeClassOf(record: number): number {
    return this.words[(record << 4) | Word.sizeClass]
  }

  setSizeClass(record: number, sizeClass: number): void {
    this.words[(record << 4) | Word.sizeClass] = sizeClass
  }

  /** See owner-word.ts. */
  ownerWord(record: number): number {
    return this.words[(record << 4) | Word.owner]
  }

  /** Bytes that the user asked for. */
  requestedBytesOf(record: number): number {
    return this.doubles[(record << 3) | Double.requested]
  }

  /** Whether a record describes a block that is handed out, shared or not. */
  isLive(record: number): boolean {
    return (this.state(record) & ~1) === State.live
  }

  /** The records of all blocks that the heaps have handed out: live and cached ones. */
  *taken(): Generator<number> {
    for (let record = this.first; record < this.used; record++) if (this.isLive(record)) yield record
  }

  /** Whether a record has no generation left for another handle. */
  isSpent(record: number): boolean {
    return this.words[(record << 4) | Word.tag] >> 3 === LAST_GENERATION
  }

  /** Makes a block live that a heap has just handed out. No thread owns it yet. */
  claim(record: number): void {
    this.words[(record << 4) | Word.owner] = 0
    this.setState(record, State.live)
  }

  /** Sets the state within the same generation. */
  setState(record: number, state: State): void {
    const tag = (record << 4) | Word.tag
    this.words[tag] = (this.words[tag] & ~STATE_MASK) | state
  }

  /**
   * Sets the state `live` in a new generation and returns the tag, which a handle keeps and compares. Returns 0 if
   * the record has no generation left; the block must then move to another record.
   */
  revive(record: number): number {
    const index = (record << 4) | Word.tag
    const tag = (this.words[index] | STATE_MASK) + 1 + State.live
    if (tag > LAST_GENERATION * GENERATION + STATE_MASK || tag < 0) return 0
    this.words[index] = tag
    return tag
  }

  /** Copies whatever tells how a block is used, from one record to another: all but its place and its generation. */
  copyUse(from: number, to: number): void {
    this.words.copyWithin((to << 4) | Word.key, (from << 4) | Word.key, (from << 4) | Word.touched)
    this.setState(to, this.state(from))
  }

  /** The number of records that describe a block. */
  get inUse(): number {
    let retired = 0
    for (let record = this.first; record < this.used; record++) {
      const tag = this.words[(record << 4) | Word.tag]
      if (tag >> 3 === LAST_GENERATION && (tag & STATE_MASK) === State.unused) retired++
    }
    return this.used - this.first - this.counts[Count.recycled] - retired
  }

  private extend(): number {
    const record = this.used
    assert(this.available > 0, 'a table has room for one record more')
    if ((record + 1) * Stride.words > this.words.length) {
      const larger = new ArrayBuffer(this.words.byteLength * 2)
      new Int32Array(larger).set(this.words)
      this.view(larger)
    }
    this.counts[Count.used]++
    return record
  }

  /** A record of a page without an owner, or of another thread's page if all pages have one. */
  private takePage(): number {
    const { counts } = this
    const start = this.used
    const end = Math.min((start | (PAGE_RECORDS - 1)) + 1, this.first + this.capacity)
    if (start === end) {
      const other = counts.findIndex((record, index) => index >= Count.firstUnused && record !== 0)
      assert(other !== -1, 'a table has room for one record more')
      const record = counts[other]
      counts[other] = this.words[(record << 4) | Word.next]
      counts[Count.recycled]--
      return record
    }
    this.owners[start >> PAGE_SHIFT] = this.owner
    counts[Count.used] = end
    for (let record = end - 1; record > start; record--) this.release(record)
    return start
  }

  private view(buffer: ArrayBuffer): void {
    const [words, doubles] = [new Int32Array(buffer), new Float64Array(buffer)]
    this.words = words // no call comes between these, where a timeout could cut them short
    this.doubles = doubles
  }
}
