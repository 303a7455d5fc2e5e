// The start of a thread, in shared memory, so that the starting thread can wait for it without an event loop. The new
// thread may fail before it has loaded this package, or never run. The waiting thread notices that too.

import { PoolError } from '../base/errors.js'
import { LEAVE_OUT } from '../base/package-files.js'
import { type CarriedError, carry, uncarry } from './carried-error.js'
import { isOver, threadNumber } from './os-thread.js'

const enum Word {
  /** the system's number of the thread; 0 before it runs */
  thread,
  progress,
  /** bytes of the error's text, which lies behind the words */
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
/** How long to wait for a new thread. Many threads on a busy machine take some seconds to start. */
const MOST_START_MS = 30_000
const PATIENCE_MS = 1

export class ThreadStart {
  /** Without a buffer: for a new thread. The new thread itself passes the buffer that it was sent. */
  constructor(readonly buffer = new SharedArrayBuffer(BYTES)) {}

  private readonly words = new Int32Array(this.buffer, 0, Word.count)

  /** The work runs in a thread that runs already, which was started by another ThreadStart. */
  runsIn({ words }: ThreadStart): void {
    this.words[Word.thread] = words[Word.thread]
  }

  /** Whether the thread has run and ended. */
  get hasEnded(): boolean {
    const thread = Atomics.load(this.words, Word.thread)
    return thread !== 0 && isOver(thread, 0)
  }

  /** For the new thread, before any step that may fail. False if the starting thread no longer waits. */
  begin(): boolean {
    Atomics.store(this.words, Word.thread, threadNumber())
    return this.move(Progress.starting, Progress.begun)
  }

  /** For the new thread, once it is ready. */
  succeed(): void {
    this.move(Progress.begun, Progress.running)
  }

  /** For the new thread, when it ends because of `error` and has cleaned up. */
  fail(error: unknown): void {
    this.words[Word.length] = this.text().write(JSON.stringify(carry(error)))
    this.move(Progress.begun, Progress.failed)
  }

  /**
   * Returns when the new thread has succeeded; `meanwhile` runs every millisecond. Throws the error of `fail`, or
   * PoolError in the name of `call` if the thread ended without a report or did not begin in time.
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
        if (Atomics.load(words, Word.progress) !== progress) continue // it reported just before its end
        throw new PoolError(`${call}: the thread that keeps the pool ended while it started`)
      }
      if (performance.now() > deadline && this.move(Progress.starting, Progress.unwanted)) {
        const late = `the thread that keeps the pool did not begin within ${mostMs} ms`
        throw new PoolError(`${call}: ${late}; if this program is a bundle, ${LEAVE_OUT}`)
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
