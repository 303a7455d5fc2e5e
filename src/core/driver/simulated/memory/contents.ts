// The bytes of one piece of device memory; device.ts makes it. Only written memory takes host memory. Memory is runs of
// a repeated 32-bit word, however long, and pages of 64 KiB of written bytes. Between them it holds the word that all
// of it began with, so fresh memory costs nothing, and a fill costs one entry.
//
// Words repeat from the beginning of the piece: the byte at offset o is byte o % 4 of the word, lowest first. Runs
// begin and end at multiples of 4.

import { KiB, MiB } from '../../../base/bytes.js'
import { SortedList } from '../../../base/sorted-list.js'

const PAGE_BYTES = 64 * KiB
const PART_BYTES = 1 * MiB // copies between kinds of contents go in parts of this
/** Fills write so many single bytes, and copy what they have written for the others. */
const FEW_BYTES = 64

/** A repeated word, or the bytes of one page. */
interface Run {
  readonly start: number
  readonly end: number
  readonly value: number | Uint8Array
}

/** The bytes behind an address: simulated device memory, or a registered array of the program. */
export interface DeviceContents {
  readonly byteLength: number
  /** Repeats the 32-bit `word`. */
  fill(offset: number, bytes: number, word: number): void
  write(offset: number, source: Uint8Array): void
  read(offset: number, target: Uint8Array): void
  copyFrom(offset: number, source: DeviceContents, sourceOffset: number, bytes: number): void
  /** The number of 32-bit words in a range that are not `word`; `offset` and `bytes` are multiples of 4. */
  countDifferent(offset: number, bytes: number, word: number): number
}

/** Contents of simulated device memory. */
export class Contents implements DeviceContents {
  /** by `start`, without gaps only where all was filled or written */
  private readonly runs = new SortedList<Run>()
  private pages = 0

  /** All of it holds `word` at first. */
  constructor(
    readonly byteLength: number,
    private readonly word: number,
  ) {}

  fill(offset: number, bytes: number, word: number): void {
    const end = offset + bytes
    const first = Math.min(end, Math.ceil(offset / 4) * 4)
    const last = Math.max(first, Math.floor(end / 4) * 4)
    this.fillBytes(offset, first, word)
    this.fillWords(first, last, word)
    this.fillBytes(last, end, word)
  }

  write(offset: number, source: Uint8Array): void {
    for (let done = 0; done < source.length; ) {
      const start = pageStart(offset + done)
      const from = offset + done - start
      const count = Math.min(source.length - done, PAGE_BYTES - from)
      const part = source.subarray(done, done + count)
      if (count === PAGE_BYTES) this.writePage(start, part)
      else this.pageAt(start).set(part, from)
      done += count
    }
  }

  read(offset: number, target: Uint8Array): void {
    this.eachPart(offset, offset + target.length, (start, end, value, skipped) => {
      const part = target.subarray(start - offset, end - offset)
      if (typeof value === 'number') repeatWord(value, start, part)
      else part.set(value.subarray(skipped, skipped + end - start))
    })
  }

  /** Copies from `source`. Runs of one word stay runs, however long they are. */
  copyFrom(offset: number, source: DeviceContents, sourceOffset: number, bytes: number): void {
    if (!(source instanceof Contents)) {
      copyInParts(source, sourceOffset, this, offset, bytes)
      return
    }
    const shift = offset - sourceOffset
    source.eachPart(sourceOffset, sourceOffset + bytes, (start, end, value, skipped) => {
      if (typeof value === 'number') this.fill(start + shift, end - start, rotateBytes(value, shift & 3))
      else this.write(start + shift, value.subarray(skipped, skipped + end - start))
    })
  }

  countDifferent(offset: number, bytes: number, word: number): number {
    let different = 0
    this.eachPart(offset, offset + bytes, (start, end, value, skipped) => {
      if (typeof value === 'number') different += value === word ? 0 : (end - start) / 4
      else {
        const words = new Uint32Array(value.buffer, value.byteOffset + skipped, (end - start) / 4)
        for (const each of words) if (each !== word) different++
      }
    })
    return different
  }

  /** bytes of host memory that the written pages take */
  get hostBytes(): number {
    return this.pages * PAGE_BYTES
  }

  /** Visits a range in parts of one word or page; `skipped` bytes of the page lie before the part. */
  private eachPart(
    from: number,
    to: number,
    visit: (start: number, end: number, value: number | Uint8Array, skipped: number) => void,
  ): void {
    for (let at = from; at < to; ) {
      const run = this.runAfter(at)
      const start = run === undefined ? to : Math.min(run.start, to)
      if (at < start) visit(at, start, this.word, 0)
      at = Math.max(at, start)
      if (run === undefined || at === to) return
      const end = Math.min(run.end, to)
      visit(at, end, run.value, at - run.start)
      at = end
    }
  }

  /** The first run that ends after `at`. */
  private runAfter(at: number): Run | undefined {
    const run = this.runs.before(at, 1)
    return run !== undefined && run.end > at ? run : this.runs.from(at, 1)
  }

  /** Repeats a word within a page of bytes. */
  private fillBytes(offset: number, end: number, word: number): void {
    if (offset === end) return
    const start = pageStart(offset)
    repeatWord(word, offset, this.pageAt(start).subarray(offset - start, end - start))
  }

  /** Makes a run, of multiples of 4. A page that lies in it in part stays, and is written. */
  private fillWords(offset: number, end: number, word: number): void {
    for (let at = offset; at < end; ) {
      const run = this.runAfter(at)
      if (run === undefined || run.start >= end) {
        this.addWords(at, end, word)
        return
      }
      const { start, value } = run
      if (typeof value === 'number' || (start >= at && run.end <= end)) {
        this.remove(run)
        if (typeof value === 'number' && start < at) this.add({ start, end: at, value })
        if (typeof value === 'number' && run.end > end) this.add({ start: end, end: run.end, value })
      } else {
        const [from, to] = [Math.max(at, start), Math.min(end, run.end)]
        this.addWords(at, from, word)
        repeatWord(word, from, value.subarray(from - start, to - start))
        at = to
      }
    }
  }

  /** Adds a run where none is, as one with those beside it of the same word. */
  private addWords(start: number, end: number, value: number): void {
    if (start === end || value === this.word) return
    const [below, above] = [this.runs.before(start), this.runs.from(end)]
    const joinsBelow = below?.end === start && below.value === value
    const joinsAbove = above?.start === end && above.value === value
    if (joinsBelow) this.remove(below)
    if (joinsAbove) this.remove(above)
    this.add({ start: joinsBelow ? below.start : start, end: joinsAbove ? above.end : end, value })
  }

  /** The bytes of the page that begins there. */
  private pageAt(start: number): Uint8Array {
    const page = this.runs.from(start)
    if (page?.start === start && typeof page.value !== 'number') return page.value
    const bytes = new Uint8Array(PAGE_BYTES)
    const end = Math.min(start + PAGE_BYTES, this.byteLength)
    this.read(start, bytes.subarray(0, end - start))
    this.fillWords(start, end, this.word)
    this.add({ start, end, value: bytes })
    return bytes
  }

  /** Writes a whole page. One that repeats a word becomes a run: zeros, or filled memory that a pool copies back. */
  private writePage(start: number, bytes: Uint8Array): void {
    const isWord = Buffer.compare(bytes.subarray(4), bytes.subarray(0, -4)) === 0
    const word = isWord ? new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) : this.word
    this.fillWords(start, start + PAGE_BYTES, word)
    if (!isWord) this.add({ start, end: start + PAGE_BYTES, value: bytes.slice() })
  }

  private add(run: Run): void {
    if (typeof run.value !== 'number') this.pages++
    this.runs.insert(run, run.start)
  }

  private remove(run: Run): void {
    if (typeof run.value !== 'number') this.pages--
    this.runs.remove(run, run.start)
  }
}

/** Copies by the bytes. */
export function copyInParts(
  from: DeviceContents,
  fromOffset: number,
  to: DeviceContents,
  offset: number,
  bytes: number,
) {
  eachPart(offset, bytes, (at, part) => {
    from.read(fromOffset + at - offset, part)
    to.write(at, part)
  })
}

/** Visits a range in parts of at most 1 MiB, with memory for the bytes of each, so that long ranges need little. */
export function eachPart(offset: number, bytes: number, visit: (at: number, part: Uint8Array) => void): void {
  const whole = new Uint8Array(Math.min(bytes, PART_BYTES))
  for (let done = 0; done < bytes; done += whole.length) {
    visit(offset + done, whole.subarray(0, Math.min(whole.length, bytes - done)))
  }
}

function pageStart(offset: number): number {
  return Math.floor(offset / PAGE_BYTES) * PAGE_BYTES
}

/** Fills `target` with the bytes that repeat `word`, from `offset` on. */
export function repeatWord(word: number, offset: number, target: Uint8Array): void {
  const few = Math.min(FEW_BYTES, target.length)
  for (let i = 0; i < few; i++) target[i] = word >>> (((offset + i) % 4) * 8)
  for (let done = few; done < target.length; done *= 2) target.copyWithin(done, 0, done)
}

/** The word that gives the same bytes if its repetition begins `shift` bytes later. */
function rotateBytes(word: number, shift: number): number {
  return shift === 0 ? word : ((word << (shift * 8)) | (word >>> (32 - shift * 8))) >>> 0
}
