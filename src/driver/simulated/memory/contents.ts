// The bytes of one piece of device memory; device.ts makes it. Only written memory takes host memory. Pages of 64 KiB
// are either a repeated 32-bit word, or bytes. All pages begin as the same word, so fresh memory costs nothing. A
// fill of a gigabyte costs a table entry a page, and nothing if it covers the whole piece.
//
// Words repeat from the beginning of the piece: the byte at offset o is byte o % 4 of the word, lowest first.

import { KiB } from '../../../base/bytes.js'

const PAGE_BYTES = 64 * KiB
/** Fills write so many single bytes, and copy what they have written for the others. */
const FEW_BYTES = 64

type Page = number | Uint8Array

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
  private readonly pages = new Map<number, Page>()

  /** All of it holds `word` at first. */
  constructor(
    readonly byteLength: number,
    private word: number,
  ) {}

  fill(offset: number, bytes: number, word: number): void {
    const end = offset + bytes
    if (offset === 0 && end === this.byteLength) {
      this.word = word
      this.pages.clear()
      return
    }
    for (let at = offset; at < end; ) {
      const index = Math.floor(at / PAGE_BYTES)
      const start = index * PAGE_BYTES
      const next = Math.min(end, start + PAGE_BYTES)
      if (at === start && (next === start + PAGE_BYTES || next === this.byteLength)) {
        if (word === this.word) this.pages.delete(index)
        else this.pages.set(index, word)
      } else if (this.page(index) !== word) {
        repeat(word, at - start, this.bytesOf(index).subarray(at - start, next - start))
      }
      at = next
    }
  }

  write(offset: number, source: Uint8Array): void {
    for (let done = 0; done < source.length; ) {
      const index = Math.floor((offset + done) / PAGE_BYTES)
      const from = offset + done - index * PAGE_BYTES
      const count = Math.min(source.length - done, PAGE_BYTES - from)
      const part = source.subarray(done, done + count)
      if (count === PAGE_BYTES) this.writePage(index, part)
      else this.bytesOf(index).set(part, from)
      done += count
    }
  }

  read(offset: number, target: Uint8Array): void {
    for (let done = 0; done < target.length; ) {
      const index = Math.floor((offset + done) / PAGE_BYTES)
      const from = offset + done - index * PAGE_BYTES
      const count = Math.min(target.length - done, PAGE_BYTES - from)
      const page = this.page(index)
      const part = target.subarray(done, done + count)
      if (typeof page === 'number') repeat(page, from, part)
      else part.set(page.subarray(from, from + count))
      done += count
    }
  }

  /** Copies from `source`. Pages of one word stay a word, however many they are. */
  copyFrom(offset: number, source: DeviceContents, sourceOffset: number, bytes: number): void {
    if (!(source instanceof Contents)) {
      const copied = new Uint8Array(bytes)
      source.read(sourceOffset, copied)
      this.write(offset, copied)
      return
    }
    for (let done = 0; done < bytes; ) {
      const at = sourceOffset + done
      const first = Math.floor(at / PAGE_BYTES)
      const page = source.page(first)
      let end = (first + 1) * PAGE_BYTES
      if (typeof page === 'number') {
        while (end < sourceOffset + bytes && source.page(end / PAGE_BYTES) === page) end += PAGE_BYTES
        end = Math.min(end, sourceOffset + bytes)
        this.fill(offset + done, end - at, rotateBytes(page, (offset - sourceOffset) & 3))
      } else {
        end = Math.min(end, sourceOffset + bytes)
        this.write(offset + done, page.subarray(at - first * PAGE_BYTES, end - first * PAGE_BYTES))
      }
      done = end - sourceOffset
    }
  }

  countDifferent(offset: number, bytes: number, word: number): number {
    let different = 0
    for (let at = offset; at < offset + bytes; ) {
      const index = Math.floor(at / PAGE_BYTES)
      const end = Math.min(offset + bytes, (index + 1) * PAGE_BYTES)
      const page = this.page(index)
      if (typeof page === 'number') different += page === word ? 0 : (end - at) / 4
      else {
        const words = new Uint32Array(page.buffer, page.byteOffset, PAGE_BYTES / 4)
        const last = (end - index * PAGE_BYTES) / 4
        for (let i = (at - index * PAGE_BYTES) / 4; i < last; i++) if (words[i] !== word) different++
      }
      at = end
    }
    return different
  }

  /** bytes of host memory that the written pages take */
  get hostBytes(): number {
    let count = 0
    for (const page of this.pages.values()) if (typeof page !== 'number') count++
    return count * PAGE_BYTES
  }

  private page(index: number): Page {
    return this.pages.get(index) ?? this.word
  }

  private bytesOf(index: number): Uint8Array {
    const page = this.page(index)
    if (typeof page !== 'number') return page
    const bytes = new Uint8Array(PAGE_BYTES)
    if (page !== 0) repeat(page, 0, bytes)
    this.pages.set(index, bytes)
    return bytes
  }

  /** Writes a whole page. One that repeats a word stays a word: zeros, or filled memory that a pool copies back. */
  private writePage(index: number, bytes: Uint8Array): void {
    const isWord = Buffer.compare(bytes.subarray(4), bytes.subarray(0, -4)) === 0
    const page = isWord ? new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) : bytes.slice()
    if (page === this.word) this.pages.delete(index)
    else this.pages.set(index, page)
  }
}

/** Fills `target` with the bytes of a page of `word` from `offset` on. */
function repeat(word: number, offset: number, target: Uint8Array): void {
  const few = Math.min(FEW_BYTES, target.length)
  for (let i = 0; i < few; i++) target[i] = word >>> (((offset + i) & 3) * 8)
  for (let done = few; done < target.length; done *= 2) target.copyWithin(done, 0, done)
}

/** The word that gives the same bytes if its repetition begins `shift` bytes later. */
function rotateBytes(word: number, shift: number): number {
  return shift === 0 ? word : ((word << (shift * 8)) | (word >>> (32 - shift * 8))) >>> 0
}
