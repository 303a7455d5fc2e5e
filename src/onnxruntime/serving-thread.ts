// The thread that an allocator's callbacks run in. ONNX Runtime has one environment for the whole process, and it would
// replace the allocator of another thread without a word. So an allocator has the number of its thread, in the bytes
// that C leaves empty behind the version. A worker that ends takes its allocators out of the environment: ONNX Runtime
// would end the process by a call of them.

import { isMainThread } from 'node:worker_threads'
import type { Koffi } from '../core/libraries/koffi.js'
import { isOver, threadNumber } from '../core/threads/os-thread.js'
import type { Pointer } from './library.js'

const AT = 4

/** What an ending thread closes. */
interface Open {
  close(): void
}

const open = new Set<Open>()

/** Notes the calling thread in an OrtAllocator. */
export function noteThread(allocator: DataView): void {
  allocator.setUint32(AT, threadNumber(), true)
}

/** The thread that an OrtAllocator calls; null if none is noted there, or if that one has ended. */
export function servingThread(koffi: Koffi, allocator: Pointer): number | null {
  const thread = koffi.decode(BigInt(allocator), AT, 'uint32_t') as number
  return thread === 0 || isOver(thread, 0) ? null : thread
}

/** Closes `registration` at the end of this thread, if it is a worker, and `noLongerOpen` is not called before. */
export function closeAtEnd(registration: Open): void {
  if (isMainThread) return
  if (open.size === 0) process.once('exit', closeAll)
  open.add(registration)
}

export function noLongerOpen(registration: Open): void {
  open.delete(registration)
  if (open.size === 0) process.off('exit', closeAll)
}

function closeAll(): void {
  for (const registration of open) registration.close()
}
