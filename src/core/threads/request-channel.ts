// Requests of many threads to one thread, which answers them. Each asking thread has a place in shared memory; the
// answering thread has a doorbell. No event loop is needed. Messages are JSON, since requests are rare.
//
// A call that asks can be cut short while it waits: by the timeout of a vm script, or a full stack. The next call of
// that thread takes the late answer first, so that it cannot mistake the answer for its own.

import { OutOfRangeError } from '../base/argument-errors.js'
import { type CarriedError, carry, uncarry } from './carried-error.js'
import type { Doorbell } from './doorbell.js'

const enum Status {
  idle,
  asked,
  answered,
}

/** int32 words of a place: its status, the length of the text in bytes, and the text. */
const PLACE_WORDS = 4096
const LENGTH = 1
const TEXT = 16
const TEXT_BYTES = (PLACE_WORDS - TEXT) * 4
/** How long a thread sleeps before it does other work, and checks that the answering thread lives. */
const PATIENCE_MS = 1

/** Returned in place of an answer: the request is kept, and `reply` answers it later. */
export const LATER = Symbol('later')

type Answer = { readonly value: unknown } | { readonly error: CarriedError }

/** int32 words of the channel for threads with numbers up to `most`. */
export function channelWords(most: number): number {
  return (most + 1) * PLACE_WORDS
}

export class RequestChannel {
  /** threads whose requests were kept, in the thread that answers */
  private readonly kept = new Set<number>()

  /**
   * `words` belong to the channel alone. Place 0 holds the error given to `fail`. The doorbell wakes the answering
   * thread.
   */
  constructor(
    private readonly words: Int32Array,
    readonly doorbell: Doorbell,
  ) {}

  /**
   * Asks as thread `me` and sleeps until the answer is there. `meanwhile` runs at once, and after each millisecond
   * with `slept` set. An error that it returns ends the wait if there is no answer yet. Throws the error of
   * answering, or the error given to `fail`.
   */
  ask(me: number, question: unknown, meanwhile: (slept: boolean) => Error | null): unknown {
    const { words } = this
    const place = me * PLACE_WORDS
    this.write(place, question)
    Atomics.store(words, place, Status.asked)
    this.doorbell.ring()
    const answer = this.await(place, meanwhile)
    if ('error' in answer) throw uncarry(answer.error)
    return answer.value
  }

  /** Whether a call of thread `me` was cut short before it took its answer. */
  isLate(me: number): boolean {
    return Atomics.load(this.words, me * PLACE_WORDS) !== Status.idle
  }

  /** Waits for that answer as `ask` does; null if answering threw. */
  takeLate(me: number, meanwhile: (slept: boolean) => Error | null): unknown {
    this.doorbell.ring() // the call may have been cut short before it rang
    const answer = this.await(me * PLACE_WORDS, meanwhile)
    return 'error' in answer ? null : answer.value
  }

  private await(place: number, meanwhile: (slept: boolean) => Error | null): Answer {
    const { words } = this
    for (let slept = false; Atomics.load(words, place) === Status.asked; ) {
      const obstacle = this.failure ?? meanwhile(slept)
      if (obstacle !== null && Atomics.load(words, place) === Status.asked) throw obstacle
      slept = Atomics.wait(words, place, Status.asked, PATIENCE_MS) === 'timed-out'
    }
    const answer = this.read(place) as Answer
    Atomics.store(words, place, Status.idle)
    return answer
  }

  /** No request is answered from now on: every asking thread throws `reason`. */
  fail(reason: unknown): void {
    this.write(0, carry(reason))
  }

  /** The reason given to `fail`; null while requests are answered. */
  get failure(): Error | null {
    return Atomics.load(this.words, LENGTH) === 0 ? null : uncarry(this.read(0) as CarriedError)
  }

  /** Answers all new requests; returns how many they were. Kept requests are left alone. */
  answer(work: (question: unknown, asker: number) => unknown): number {
    const { words } = this
    let requests = 0
    for (let place = PLACE_WORDS, asker = 1; place < words.length; place += PLACE_WORDS, asker++) {
      if (Atomics.load(words, place) !== Status.asked || this.kept.has(asker)) continue
      this.reply(asker, () => work(this.read(place), asker))
      requests++
    }
    return requests
  }

  /** Answers the request of a thread, or keeps it if `work` returns LATER. */
  reply(asker: number, work: () => unknown): void {
    const { words } = this
    const place = asker * PLACE_WORDS
    const answer = this.tried(work)
    if ('value' in answer && answer.value === LATER) {
      this.kept.add(asker)
      return
    }
    this.kept.delete(asker)
    this.write(place, answer)
    Atomics.store(words, place, Status.answered)
    Atomics.notify(words, place)
  }

  /** Drops the request of a thread that has ended. */
  forget(asker: number): void {
    this.kept.delete(asker)
    Atomics.store(this.words, asker * PLACE_WORDS, Status.idle)
  }

  /** Whether there are new requests. */
  get isAsked(): boolean {
    const { words, kept } = this
    for (let place = PLACE_WORDS, asker = 1; place < words.length; place += PLACE_WORDS, asker++) {
      if (Atomics.load(words, place) === Status.asked && !kept.has(asker)) return true
    }
    return false
  }

  private tried(work: () => unknown): Answer {
    try {
      return { value: work() }
    } catch (error) {
      return { error: carry(error) }
    }
  }

  private write(place: number, message: unknown): void {
    const text = JSON.stringify(message)
    const length = Buffer.byteLength(text)
    if (length > TEXT_BYTES) throw new OutOfRangeError(`a message of ${length} bytes is longer than ${TEXT_BYTES}`)
    this.text(place).write(text)
    Atomics.store(this.words, place + LENGTH, length)
  }

  private read(place: number): unknown {
    return JSON.parse(this.text(place).toString('utf8', 0, this.words[place + LENGTH]))
  }

  private text(place: number): Buffer {
    const { buffer, byteOffset } = this.words
    return Buffer.from(buffer as ArrayBuffer, byteOffset + (place + TEXT) * 4, TEXT_BYTES)
  }
}
