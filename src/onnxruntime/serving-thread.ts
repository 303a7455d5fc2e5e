// Keeps a memory to one thread. ONNX Runtime has one environment for the whole process, and it would replace the
// allocator of another thread without a word: sessions made there would ask this thread from then on. So a thread that
// serves holds a file in memory with the name of the memory, which the other threads see among the open files.
//
// A worker that ends takes its allocators out of the environment, and closes its files. A terminated one cannot. ONNX
// Runtime would end the process by a call of them, so the file stays open, and no thread serves that memory any more.

import { readdirSync, readlinkSync } from 'node:fs'
import { isMainThread } from 'node:worker_threads'
import { memoryFile } from '../core/libraries/sealed-memory.js'
import { closeDescriptor } from '../core/libraries/system-calls.js'

const DESCRIPTORS = '/proc/self/fd'

/** Something that the end of a worker closes. */
export interface Closing {
  close(): void
}

const open = new Set<Closing>()

/** Holds a memory, such as `cuda:0`, for the calling thread until it is closed; null if another thread holds it. */
export function holdMemory(memory: string): Closing | null {
  const name = `cuda-mempool for ONNX Runtime: ${memory}`
  const descriptor = memoryFile(name)
  if (openFiles(`/memfd:${name} (deleted)`) > 1) {
    closeDescriptor(descriptor)
    return null
  }
  const hold: Closing = {
    close: () => {
      noLongerOpen(hold)
      closeDescriptor(descriptor)
    },
  }
  closeAtEnd(hold)
  return hold
}

/** How many open files of this process are `target`. */
function openFiles(target: string): number {
  return readdirSync(DESCRIPTORS).filter(descriptor => {
    try {
      return readlinkSync(`${DESCRIPTORS}/${descriptor}`) === target
    } catch {
      return false // closed meanwhile
    }
  }).length
}

/** Closes `closing` at the end of this thread, if it is a worker, and `noLongerOpen` is not called before. */
export function closeAtEnd(closing: Closing): void {
  if (isMainThread) return
  if (open.size === 0) process.once('exit', closeAll)
  open.add(closing)
}

export function noLongerOpen(closing: Closing): void {
  open.delete(closing)
  if (open.size === 0) process.off('exit', closeAll)
}

function closeAll(): void {
  for (const closing of [...open].reverse()) closing.close()
}
