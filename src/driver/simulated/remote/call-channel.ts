// How a thread calls the simulated driver of another one: over two ends of a broadcast channel, since a name can be given
// to any thread. The caller sleeps on a word of shared memory until the answer lies on its end.

import type { CarriedError } from '../../../threads/carried-error.js'

/** The first message of a caller, on the channel that its driver has for all. */
export interface Hello {
  /** the channel for its calls */
  readonly channel: string
  /** of `markOfThread` */
  readonly mark: string
  /** its one word is 0 while the caller waits */
  readonly answered: Int32Array
}

export interface Call {
  /** of this caller's; the answer has the same, since it may come after a call that was cut short */
  readonly number: number
  /** a method, or a property to be read */
  readonly member: string
  readonly args: readonly unknown[]
  /** size of the first argument where that is memory of the caller's to be written; it comes back with the answer */
  readonly targetBytes?: number
}

export interface Answer {
  readonly number: number
  readonly result?: unknown
  readonly error?: CarriedError
  readonly target?: Uint8Array
}

export function wake(answered: Int32Array): void {
  Atomics.store(answered, 0, 1)
  Atomics.notify(answered, 0)
}
