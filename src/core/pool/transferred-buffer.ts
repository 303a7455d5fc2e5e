// The messages that stand for buffers on their way between threads.

import { randomInt } from 'node:crypto'
import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'

/** A buffer on its way to another thread: three int32, which can be sent or stored anywhere. */
export interface TransferredBuffer {
  /** number of the pool, the same for all of its buffers */
  readonly pool: number
  /** index of the block's record */
  readonly record: number
  /** the block's generation, which makes this valid once */
  readonly tag: number
}

/** A random number for a pool, very likely unique in the process. */
export function newPoolNumber(): number {
  return randomInt(1, 2 ** 31)
}

/** The error for a buffer that no other thread can adopt. */
export function ofThisThread(): PoolError {
  return new PoolError('transfer: the pool is one of this thread; make it with createSharedPool')
}

/**
 * Refuses, in the name of `call`, any value that is no transferred buffer, and a buffer of another pool than
 * `number`.
 */
export function checkTransferred(call: string, transferred: TransferredBuffer, number: number): void {
  const { pool, record, tag } = transferred ?? {}
  if (!Number.isInteger(pool) || !Number.isInteger(record) || !Number.isInteger(tag)) {
    throw new WrongTypeError(`${call}: transferred must come from buffer.transfer(), not be ${describe(transferred)}`)
  }
  if (pool !== number) {
    throw new PoolError(`${call}: the buffer belongs to another pool; adopt it in that one, which attachPool() gives`)
  }
}

/** Refuses a value that is no list of transferred buffers. */
export function checkTransferredList(call: string, transferred: readonly TransferredBuffer[]): void {
  if (Array.isArray(transferred)) return
  throw new WrongTypeError(
    `${call}: transferred must be a list of what buffer.transfer() gave, not ${describe(transferred)}`,
  )
}
