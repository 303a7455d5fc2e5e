// Questions of many threads to one, which answers them one after another: a place in shared memory for each thread that
// asks, and a bell for the one that answers. Nobody needs an event loop. What is sent is JSON, since questions are rare.

import { type CarriedError, carry, uncarry } from './carried-error.js'

const enum Status {
  idle,
  asked,
  answered,
}

/** int32 words of a place: its status, the length of the text in bytes, and the text. */
const PLACE_WORDS = 4096
const TEXT = 16
const TEXT_BYTES = (PLACE_WORDS - TEXT) * 4
/** How long a thread sleeps before it looks around: whether it has something else to do, and who answers still lives. */
const PATIENCE_MS = 1

type Answer = { readonly value: unknown } | { readonly error: CarriedError }

/** int32 words of the mailbox for threads with numbers up to `most`. */
export function mailboxWords(most: number): number {
  return (most + 1) * PLACE_WORDS
}

export class Mailbox {
  /** `words` are the mailbox's alone; those of place 0 are the bell. */
  constructor(private readonly words: Int32Array) {}

  /**
   * Asks as thread `me` and sleeps until the answer is there. `meanwhile` runs at once and then every millisecond, told whether
   * it slept; an error that it returns ends the wait if there is no answer then. Throws what answering threw.
   */
  ask(me: number, question: unknown, meanwhile: (slept: boolean) => Error | null): unknown {
    const { words } = this
    const place = me * PLACE_WORDS
    this.write(place, question)
    Atomics.store(words, place, Status.asked)
    Atomics.add(words, 0, 1)
    Atomics.notify(words, 0)
    for (let slept = false; Atomics.load(words, place) === Status.asked; ) {
      const obstacle = meanwhile(slept)
      if (obstacle !== null && Atomics.load(words, place) === Status.asked) throw obstacle
      slept = Atomics.wait(words, place, Status.asked, PATIENCE_MS) === 'timed-out'
    }
    const answer = this.read(place) as Answer
    Atomics.store(words, place, Status.idle)
    if ('error' in answer) throw uncarry(answer.error)
    return answer.value
  }

  /** Wakes the thread that answers, without a question. */
  ring(): void {
    Atomics.add(this.words, 0, 1)
    Atomics.notify(this.words, 0)
  }

  /** Answers whoever waits; returns how many that were. */
  answer(work: (question: unknown, asker: number) => unknown): number {
    const { words } = this
    let answers = 0
    for (let place = PLACE_WORDS, asker = 1; place < words.length; place += PLACE_WORDS, asker++) {
      if (Atomics.load(words, place) !== Status.asked) continue
      this.write(place, this.tried(work, this.read(place), asker))
      Atomics.store(words, place, Status.answered)
      Atomics.notify(words, place)
      answers++
    }
    return answers
  }

  /** A thread has ended: what it asked is not answered any more. */
  forget(asker: number): void {
    Atomics.store(this.words, asker * PLACE_WORDS, Status.idle)
  }

  /** How often the bell rang. */
  get rings(): number {
    return Atomics.load(this.words, 0)
  }

  /** Sleeps until the bell has rung more often than `rings`, or for so many milliseconds. */
  sleep(rings: number, milliseconds: number): void {
    Atomics.wait(this.words, 0, rings, milliseconds)
  }

  private tried(work: (question: unknown, asker: number) => unknown, question: unknown, asker: number): Answer {
    try {
      return { value: work(question, asker) }
    } catch (error) {
      return { error: carry(error) }
    }
  }

  private write(place: number, message: unknown): void {
    const bytes = this.text(place)
    const length = Buffer.byteLength(JSON.stringify(message))
    if (length > TEXT_BYTES) throw new RangeError(`a message of ${length} bytes is longer than ${TEXT_BYTES}`)
    bytes.write(JSON.stringify(message))
    this.words[place + 1] = length
  }

  private read(place: number): unknown {
    return JSON.parse(this.text(place).toString('utf8', 0, this.words[place + 1]))
  }

  private text(place: number): Buffer {
    const { buffer, byteOffset } = this.words
    return Buffer.from(buffer as ArrayBuffer, byteOffset + (place + TEXT) * 4, TEXT_BYTES)
  }
}
