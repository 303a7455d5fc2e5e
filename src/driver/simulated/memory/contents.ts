// What a piece of device memory holds, without paying for what nobody wrote. Memory is cut into pages of 64 KiB; a page
// is either one 32-bit word repeated, or bytes. All pages begin as the same word, so that fresh memory costs nothing,
// and a fill of a gigabyte costs a table entry a page, or nothing when it covers the whole piece.
//
// The word is repeated from the beginning of the piece: the byte at offset o is byte o % 4 of the word, lowest first.

import { KiB } from '../../../base/bytes.js'

const PAGE_BYTES = 64 * KiB
/** Up to which bytes are written one by one, instead of out of a whole page. */
const FEW_BYTES = 256

type Page = number | Uint8Array

/** What stands behind an address, byte by byte: memory of the simulation's own, or an array of the program's. */
export interface DeviceContents {
  readonly byteLength: number
  /** repeats the 32-bit `word` */
  fill(offset: number, bytes: number, word: number): void
  write(offset: number, source: Uint8Array): void
  read(offset: number, target: Uint8Array): void
  copyFrom(offset: number, source: DeviceContents, sourceOffset: number, bytes: number): void
  /** How many of the 32-bit words in a range are not `word`; `offset` and `bytes` are multiples of 4. */
  countDifferent(offset: number, bytes: number, word: number): number
}

export class Contents implements DeviceContents {
  private readonly pages = new Map<number, Page>()

  /** `word` is what all of it holds to begin with. */
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
      if (count === PAGE_BYTES) this.pages.set(index, part.slice())
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

  /** Copies from `source`; runs of one word stay a word, however long they are. */
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

  /** how many bytes of host memory the written pages take */
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
    const bytes = pageOf(page).slice()
    this.pages.set(index, bytes)
    return bytes
  }
}

/** The page of one word that was asked for last; most reads and fills go over many pages of the same. */
let lastPage = { word: 0, bytes: new Uint8Array(PAGE_BYTES) }

/** A page of one word, which is read only. */
function pageOf(word: number): Uint8Array {
  if (lastPage.word !== word) {
    lastPage = { word, bytes: new Uint8Array(new Uint32Array(PAGE_BYTES / 4).fill(word).buffer) }
  }
  return lastPage.bytes
}

/** Fills `target` with what stands in a page of one word from `offset` on. */
function repeat(word: number, offset: number, target: Uint8Array): void {
  if (target.length > FEW_BYTES) target.set(pageOf(word).subarray(offset, offset + target.length))
  else for (let i = 0; i < target.length; i++) target[i] = word >>> (((offset + i) & 3) * 8)
}

/** The word whose repetition, begun `shift` bytes later, gives the same bytes. */
function rotateBytes(word: number, shift: number): number {
  return shift === 0 ? word : ((word << (shift * 8)) | (word >>> (32 - shift * 8))) >>> 0
}
