// Shared memory as threads of an x64 processor see it: the stores of a thread are seen in their order, but perhaps
// late, since each has a buffer in which plain ones wait (total store order). An atomic store or operation empties
// that first.

import type { Chooser } from './choices.js'

export type Words = Int32Array | Float64Array | Uint8Array

export interface Memory {
  load(thread: number, words: Words, index: number): number
  store(thread: number, words: Words, index: number, value: number): void
  atomicLoad(thread: number, words: Words, index: number): number
  /** Stores what `next` makes of the value, which is returned; nothing when that is null. */
  exchange(thread: number, words: Words, index: number, next: (old: number) => number | null): number
  /** All that a thread has stored is seen by all, and it sees all: it ends, or native code touches the memory. */
  settle(thread: number): void
  /** In all threads at once. */
  barrier(): void
  /** Threads of which a store waits. */
  late(): readonly number[]
  /** The oldest such store of a thread is seen. */
  advance(thread: number): void
}

/** Stores of one thread that wait at most; processors have more. */
const MOST_LATE = 8

interface Late {
  readonly words: Words
  readonly index: number
  readonly value: number
}

export class StoreBuffers implements Memory {
  private readonly buffers: Late[][]
  private count = 0

  constructor(
    threads: number,
    private readonly chooser: Chooser,
  ) {
    this.buffers = Array.from({ length: threads }, () => [])
  }

  load(thread: number, words: Words, index: number): number {
    if (this.count === 0) return words[index]
    const own = this.buffers[thread].findLast(late => isSame(late, words, index))
    return own === undefined ? words[index] : own.value
  }

  store(thread: number, words: Words, index: number, value: number): void {
    const buffer = this.buffers[thread]
    if (buffer.length === 0 && (thread === 0 || this.chooser.choose(2, false) === 0)) words[index] = value
    else {
      buffer.push({ words, index, value: words instanceof Int32Array ? value | 0 : value })
      this.count++
      if (buffer.length > MOST_LATE) this.advance(thread)
    }
  }

  atomicLoad(thread: number, words: Words, index: number): number {
    return this.load(thread, words, index)
  }

  exchange(thread: number, words: Words, index: number, next: (old: number) => number | null): number {
    this.settle(thread)
    const old = words[index]
    const value = next(old)
    if (value !== null) words[index] = value
    return old
  }

  settle(thread: number): void {
    while (this.buffers[thread].length > 0) this.advance(thread)
  }

  barrier(): void {
    for (let thread = 0; thread < this.buffers.length; thread++) this.settle(thread)
  }

  late(): readonly number[] {
    if (this.count === 0) return []
    return this.buffers.flatMap((buffer, thread) => (buffer.length > 0 ? [thread] : []))
  }

  advance(thread: number): void {
    const { words, index, value } = this.buffers[thread].shift()!
    words[index] = value
    this.count--
  }
}

function isSame(late: Late, words: Words, index: number): boolean {
  if (late.words === words) return late.index === index
  if (late.words.buffer !== words.buffer) return false
  return addressOf(late.words, late.index) === addressOf(words, index)
}

/** Where in its buffer an element lies. */
export function addressOf(words: Words, index: number): number {
  return words.byteOffset + index * words.BYTES_PER_ELEMENT
}
