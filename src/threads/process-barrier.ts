// A memory barrier in all threads of the process at once, which the system makes for one of them. Where one thread does
// something often and another one rarely looks whether it is about to, the first then needs no barrier of its own.

import { loadKoffi } from '../libraries/koffi.js'

/** Numbers of Linux: the call, by processor, and what it is asked. */
const MEMBARRIER: Partial<Record<NodeJS.Architecture, number>> = { x64: 324, arm64: 283 }
const PRIVATE_EXPEDITED = 8
const REGISTER_PRIVATE_EXPEDITED = 16

/**
 * A function that is a full memory barrier on every thread of the process when it is called (membarrier, private expedited). Null where
 * the system has none.
 */
export function openProcessBarrier(): (() => void) | null {
  const call = process.platform === 'linux' ? MEMBARRIER[process.arch] : undefined
  if (call === undefined) return null
  try {
    const membarrier = loadKoffi().load(null).func('long syscall(long, long, long, long)')
    if (membarrier(call, REGISTER_PRIVATE_EXPEDITED, 0, 0) !== 0) return null
    return () => {
      if (membarrier(call, PRIVATE_EXPEDITED, 0, 0) !== 0) throw new Error('the system has stopped to serve membarrier')
    }
  } catch {
    return null // there is no koffi for this system
  }
}
