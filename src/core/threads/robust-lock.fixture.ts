// Locks, and threads that contend for them, for the tests of robust locks.

import { once } from 'node:events'
import { after } from 'node:test'
import { Worker } from 'node:worker_threads'
import { At } from './lock-contender.worker.js'
import { RobustLock } from './robust-lock.js'
import { REGISTRY_WORDS, ThreadRegistry } from './thread-registry.js'

export const newWords = () => new Int32Array(new SharedArrayBuffer((At.registry + REGISTRY_WORDS) * 4))

/** A lock of a new number of a registry. */
export function lockOf(words: Int32Array): { lock: RobustLock; registry: ThreadRegistry; worker: number } {
  const registry = new ThreadRegistry(words, At.registry)
  const worker = registry.enter()
  return { lock: new RobustLock(words, At.lock, registry, worker), registry, worker }
}

const threads: Worker[] = []
after(() => Promise.all(threads.map(thread => thread.terminate())))

/** A thread that takes the lock over and over, or once for good. */
export async function contend(words: Int32Array, holds = false): Promise<{ thread: Worker; worker: number }> {
  const url = new URL('./lock-contender.worker.js', import.meta.url)
  const thread = new Worker(url, { workerData: { contends: true, words, holds } })
  threads.push(thread)
  const [worker] = await once(thread, 'message')
  return { thread, worker }
}
