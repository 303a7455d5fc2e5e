// The owner of a taken block in one int32, which changes hands by one atomic operation: the thread's number, the
// phase, and the low bits of the generation, so that a stale handle cannot change it.

import { assert } from '../base/assert.js'
import { MOST_WORKERS } from '../threads/thread-registry.js'

export const enum Phase {
  /** in use */
  live = 1,
  /** freed, and cached by that thread */
  cached = 2,
  /** freed by the owner, and on its way to the thread whose page the record is on */
  sent = 3,
}

/** Thread number of a block that is being handed from one thread to another. */
export const NO_THREAD = 0

const PHASE_MASK = 3
const WORKER_SHIFT = 2
const GENERATION_SHIFT = 12
const WORKER_MASK = (1 << (GENERATION_SHIFT - WORKER_SHIFT)) - 1
assert(MOST_WORKERS <= WORKER_MASK, 'every thread has a number that fits')

/** `tag` is the record's: its generation stands above three bits of state. */
export function ownerWordOf(tag: number, worker: number, phase: Phase): number {
  return ((tag >> 3) << GENERATION_SHIFT) | (worker << WORKER_SHIFT) | phase
}

export function workerOf(ownerWord: number): number {
  return (ownerWord >> WORKER_SHIFT) & WORKER_MASK
}

export function phaseOf(ownerWord: number): Phase {
  return ownerWord & PHASE_MASK
}
