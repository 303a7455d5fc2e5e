// Locks of whole files, which Node does not offer. Simulated devices share memory by them.
// A lock belongs to an open file, not to a process: it stays while any process has a descriptor of that open file, a
// copy included. The system drops it with the last one, also when that process is killed.

import { openSystem, refusal } from './system-calls.js'

const LOCK_EX = 2
const LOCK_NB = 4
const LOCK_UN = 8

/** Locks an open file; false if another open file has the lock. Throws DescriptorError. */
export function tryLock(descriptor: number): boolean {
  const system = openSystem()
  if (system.calls.flock(descriptor, LOCK_EX | LOCK_NB) === 0) return true
  if (system.lastError()[0] === 'EAGAIN') return false
  throw refusal(system, 'flock', `descriptor ${descriptor}`)
}

/** Calls `work` while this open file has the lock, for which it waits. Throws DescriptorError. */
export function withLock<T>(descriptor: number, work: () => T): T {
  const system = openSystem()
  while (system.calls.flock(descriptor, LOCK_EX) !== 0) {
    if (system.lastError()[0] !== 'EINTR') throw refusal(system, 'flock', `descriptor ${descriptor}`)
  }
  try {
    return work()
  } finally {
    system.calls.flock(descriptor, LOCK_UN)
  }
}
