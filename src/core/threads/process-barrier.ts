// A memory barrier in all threads of the process, made by the operating system for one of them. With it, only the
// rare side of an asymmetric handshake makes barriers; the frequent side needs none.

import { loadKoffi } from '../libraries/koffi.js'

/** Numbers of Linux: the system call by processor, and its commands. */
const MEMBARRIER: Partial<Record<NodeJS.Architecture, number>> = { x64: 324, arm64: 283 }
const PRIVATE_EXPEDITED = 8
const REGISTER_PRIVATE_EXPEDITED = 16

/**
 * Returns a function that makes a full memory barrier on every thread of the process (membarrier, private expedited).
 * Null if the system has none.
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
