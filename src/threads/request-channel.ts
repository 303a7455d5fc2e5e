// Requests of many threads to one, which answers them one after another: a place in shared memory for each thread that
// asks, and a doorbell for the thread that answers. No event loop is needed. Messages are JSON, since requests are rare.
//
// A call that asks can be cut short while its request is under way: by the timeout of a vm script, or for want of stack. The
// next call of that thread takes the late answer first, and so never gets it for its own.

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
/** How long a thread sleeps before it looks whether it has something else to do, and whether the answering thread lives. */
const PATIENCE_MS = 1

/** Instead of an answer: the request is kept, and `reply` answers it later. */
export const LATER = Symbol('later')

type Answer = { readonly value: unknown } | { readonly error: CarriedError }

/** int32 words of the channel for threads with numbers up to `most`. */
export function channelWords(most: number): number {
  return (most + 1) * PLACE_WORDS
}

export class RequestChannel {
  /** threads whose requests were kept, in the thread that answers */
  private readonly kept = new Set<number>()

  /** `words` are the channel's alone. Place 0 has the reason why no request is answered any more. The doorbell wakes the thread that answers. */
  constructor(
    private readonly words: Int32Array,
    readonly doorbell: Doorbell,
  ) {}

  /**
   * Asks as thread `me` and sleeps until the answer is there. `meanwhile` runs at once and then every millisecond, told whether
   * it slept; an error that it returns ends the wait if there is no answer then. Throws what answering threw, and the reason
   * given to `fail`.
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

  /** Whether the answer to a request of thread `me` was never taken, since the call that asked was cut short. */
  isLate(me: number): boolean {
    return Atomics.load(this.words, me * PLACE_WORDS) !== Status.idle
  }

  /** Waits for that answer as `ask` does; null where answering threw. */
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

  /** Nothing is answered from now on; every thread that asks is told this reason. */
  fail(reason: unknown): void {
    this.write(0, carry(reason))
  }

  /** The reason given to `fail`; null while requests are answered. */
  get failure(): Error | null {
    return Atomics.load(this.words, LENGTH) === 0 ? null : uncarry(this.read(0) as CarriedError)
  }

  /** Answers every thread that asks, but for those whose requests are kept; returns how many asked. */
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

  /** Answers the request of a thread, or keeps it where `work` gives LATER. */
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

  /** A thread has ended: what it asked is not answered any more. */
  forget(asker: number): void {
    this.kept.delete(asker)
    Atomics.store(this.words, asker * PLACE_WORDS, Status.idle)
  }

  /** Whether a thread asks whose request is not kept. */
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
    if (length > TEXT_BYTES) throw new RangeError(`a message of ${length} bytes is longer than ${TEXT_BYTES}`)
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
