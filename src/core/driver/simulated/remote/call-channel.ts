// Messages between a remote driver and its served driver. They use a broadcast channel for each caller, because its
// name can be sent to any thread. The caller sleeps on a word of shared memory until its answer has arrived.

import type { CarriedError } from '../../../threads/carried-error.js'

/** The first message of a caller, on the common channel of the driver. */
export interface Hello {
  /** name of the channel for its calls */
  readonly channel: string
  /** the calling thread, as by `markOfThread` */
  readonly mark: string
  /** one word, 0 while the caller waits */
  readonly answered: Int32Array
}

/** One call of a driver function, or a read of a property. */
export interface Call {
  /** counts the calls of a caller; the answer repeats it, because an answer to an interrupted call may come first */
  readonly number: number
  /** name of the method or property */
  readonly member: string
  readonly args: readonly unknown[]
  /** size of the first argument if the call writes to host memory of the caller; the bytes return with the answer */
  readonly targetBytes?: number
}

/** The result of a call, or its error. */
export interface Answer {
  readonly number: number
  readonly result?: unknown
  readonly error?: CarriedError
  /** bytes for the host memory of the caller */
  readonly target?: Uint8Array
}

/** Wakes a caller that sleeps on its word. */
export function wake(answered: Int32Array): void {
  Atomics.store(answered, 0, 1)
  Atomics.notify(answered, 0)
}
