// Labels of a shared pool's buffers, in memory that all threads see. Each record has a place for one text. The thread
// that owns the buffer writes it; other threads only read, and do not wait. A page costs nothing until it is written.

import { OutOfRangeError } from '../../base/argument-errors.js'
import { formatBytes } from '../../base/bytes.js'
import type { LabelStore } from '../labels.js'

/** int32 words of a place: the tag of the labelled buffer, the length of the text in bytes, and the text. */
const PLACE_WORDS = 16
const LENGTH = 1
const TEXT = 2
/** The longest label of a shared pool, in bytes of UTF-8. */
export const MOST_LABEL_BYTES = (PLACE_WORDS - TEXT) * 4

/** int32 words for the labels of so many records. Record 0 stands for none, so its place has the flag `any`. */
export function labelWords(records: number): number {
  return (records + 1) * PLACE_WORDS
}

export class SharedLabels implements LabelStore {
  constructor(private readonly words: Int32Array) {}

  /** Whether a buffer of the pool was ever given a label. */
  get any(): boolean {
    return this.words[0] !== 0
  }

  check(argument: string, text: string): void {
    const bytes = Buffer.byteLength(text)
    if (bytes <= MOST_LABEL_BYTES) return
    const most = `at most ${MOST_LABEL_BYTES} bytes of UTF-8 in a shared pool`
    throw new OutOfRangeError(`${argument} must have ${most}, not ${formatBytes(bytes)}; shorten it`)
  }

  set(record: number, tag: number, text: string): void {
    this.check('label', text)
    const bytes = Buffer.from(text)
    if (text === '' && !this.any) return
    const { words } = this
    const place = record * PLACE_WORDS
    Atomics.store(words, place, 0) // no reader takes a half-written text for the label
    words[place + LENGTH] = bytes.length
    this.textAt(place, bytes.length).set(bytes)
    Atomics.store(words, place, tag)
    words[0] = 1
  }

  /** The label of a buffer; '' for none, and for one that another thread is just changing. */
  get(record: number, tag: number): string {
    const { words } = this
    const place = record * PLACE_WORDS
    if (!this.any || Atomics.load(words, place) !== tag) return ''
    const length = Math.min(words[place + LENGTH], MOST_LABEL_BYTES)
    const text = Buffer.from(this.textAt(place, length)).toString()
    return Atomics.load(words, place) === tag ? text : ''
  }

  /** A buffer has a new tag, because another thread has adopted it. */
  retag(record: number, from: number, to: number): void {
    const place = record * PLACE_WORDS
    if (this.words[place] === from) Atomics.store(this.words, place, to)
  }

  private textAt(place: number, length: number): Uint8Array {
    const { buffer, byteOffset } = this.words
    return new Uint8Array(buffer, byteOffset + (place + TEXT) * 4, length)
  }
}
