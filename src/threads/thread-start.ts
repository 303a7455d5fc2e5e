// The start of a thread that another one waits for without its event loop, in shared memory. The thread may fail before it has
// loaded anything of this package, or never come up; the waiting thread must learn of that as well.

import { PoolError } from '../base/errors.js'
import { type CarriedError, carry, uncarry } from './carried-error.js'
import { isOver, threadNumber } from './os-thread.js'

const enum Word {
  /** the system's number of the thread; 0 before it runs */
  thread,
  progress,
  /** bytes of the text behind the words, which says why it failed */
  length,
  count,
}
const enum Progress {
  starting,
  begun,
  running,
  failed,
  /** the waiting thread gave up before the new one had begun */
  unwanted,
}
const BYTES = 16_384
/** A thread that says nothing for so long is not waited for any more. Many threads on a busy machine take some seconds. */
const MOST_START_MS = 30_000
const PATIENCE_MS = 1

export class ThreadStart {
  /** For a new thread, or in it over what it was sent. */
  constructor(readonly buffer = new SharedArrayBuffer(BYTES)) {}

  private readonly words = new Int32Array(this.buffer, 0, Word.count)

  /** It is a thread that runs already, as the start of it knows. */
  runsIn({ words }: ThreadStart): void {
    this.words[Word.thread] = words[Word.thread]
  }

  /** Whether the thread has run and ended. */
  get hasEnded(): boolean {
    const thread = Atomics.load(this.words, Word.thread)
    return thread !== 0 && isOver(thread, 0)
  }

  /** The new thread runs: to be called before anything that may fail. False where it is not waited for any more. */
  begin(): boolean {
    Atomics.store(this.words, Word.thread, threadNumber())
    return this.move(Progress.starting, Progress.begun)
  }

  /** The new thread has made all it needs. */
  succeed(): void {
    this.move(Progress.begun, Progress.running)
  }

  /** The new thread ends because of `error`, and has left nothing behind. */
  fail(error: unknown): void {
    this.words[Word.length] = this.text().write(JSON.stringify(carry(error)))
    this.move(Progress.begun, Progress.failed)
  }

  /**
   * Returns when the new thread has succeeded; `meanwhile` runs every millisecond. Throws what it failed with, or PoolError in the
   * name of `call` when it ended without a word or did not begin in time.
   */
  await(call: string, meanwhile: () => void, mostMs = MOST_START_MS): void {
    const { words } = this
    const deadline = performance.now() + mostMs
    for (;;) {
      const progress = Atomics.load(words, Word.progress)
      if (progress === Progress.running) return
      if (progress === Progress.failed) throw uncarry(JSON.parse(this.reason()) as CarriedError)
      meanwhile()
      const slept = Atomics.wait(words, Word.progress, progress, PATIENCE_MS) === 'timed-out'
      if (slept && this.hasEnded) {
        if (Atomics.load(words, Word.progress) !== progress) continue // its last words
        throw new PoolError(`${call}: the thread that keeps the pool ended while it started`)
      }
      if (performance.now() > deadline && this.move(Progress.starting, Progress.unwanted)) {
        throw new PoolError(`${call}: the thread that keeps the pool did not begin within ${mostMs} ms`)
      }
    }
  }

  private move(from: Progress, to: Progress): boolean {
    const isMoved = Atomics.compareExchange(this.words, Word.progress, from, to) === from
    Atomics.notify(this.words, Word.progress)
    return isMoved
  }

  private reason(): string {
    return this.text().toString('utf8', 0, this.words[Word.length])
  }

  private text(): Buffer {
    return Buffer.from(this.buffer as unknown as ArrayBuffer, Word.count * 4)
  }
}
