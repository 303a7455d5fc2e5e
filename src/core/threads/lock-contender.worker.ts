// A thread that takes a lock again and again, and may be terminated at any moment; see robust-lock.fixture.ts.

import { parentPort, workerData } from 'node:worker_threads'
import { RobustLock } from './robust-lock.js'
import { ThreadRegistry } from './thread-registry.js'

/** The layout of the shared words; the registry comes last. */
export const enum At {
  lock,
  /** two numbers that are equal whenever the lock is free and its last owner lived */
  left,
  right,
  /** sections that were taken over from a dead thread, and promises that were seen broken */
  takeovers,
  broken,
  /** sections completed by all */
  sections,
  /** stays 0 */
  forever,
  registry,
}

/** One section under the lock, with a repair after a takeover. */
export function section(words: Int32Array, lock: RobustLock): void {
  if (lock.acquire() !== 0) {
    words[At.right] = words[At.left]
    words[At.takeovers]++
  }
  if (words[At.left] !== words[At.right]) words[At.broken]++
  words[At.left]++
  for (let step = 0; step < 20; step++) if (Atomics.load(words, At.left) !== words[At.right] + 1) words[At.broken]++
  words[At.right]++
  words[At.sections]++
  lock.release()
}

if (workerData?.contends) {
  const { words, holds } = workerData as { words: Int32Array; holds: boolean }
  const registry = new ThreadRegistry(words, At.registry)
  const worker = registry.enter()
  const lock = new RobustLock(words, At.lock, registry, worker)
  if (holds) lock.acquire()
  parentPort!.postMessage(worker)
  while (!holds) section(words, lock)
  Atomics.wait(words, At.forever, 0)
}
