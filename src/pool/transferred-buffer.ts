// Buffers on their way from one thread to another: what is sent of them.

import { randomInt } from 'node:crypto'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'

/** A buffer on its way to another thread: three int32, to be sent as they are or put anywhere. */
export interface TransferredBuffer {
  /** number of the pool, the same for all of its buffers */
  readonly pool: number
  /** index of the block's record */
  readonly record: number
  /** the block's generation, which makes this valid once */
  readonly tag: number
}

/** A number that hardly any other pool of the process has. */
export function newPoolNumber(): number {
  return randomInt(1, 2 ** 31)
}

/** Refuses, in the name of `call`, what is no buffer on its way, or one of another pool than that with `number`. */
export function checkTransferred(call: string, transferred: TransferredBuffer, number: number): void {
  const { pool, record, tag } = transferred ?? {}
  if (!Number.isInteger(pool) || !Number.isInteger(record) || !Number.isInteger(tag)) {
    throw new TypeError(`${call}: transferred must come from buffer.transfer(), not be ${describe(transferred)}`)
  }
  if (pool !== number) {
    throw new PoolError(`${call}: the buffer belongs to another pool; adopt it in that one, which attachPool() gives`)
  }
}

/** Refuses what is no list of them. */
export function checkTransferredList(call: string, transferred: readonly TransferredBuffer[]): void {
  if (Array.isArray(transferred)) return
  throw new TypeError(
    `${call}: transferred must be a list of what buffer.transfer() gave, not ${describe(transferred)}`,
  )
}
