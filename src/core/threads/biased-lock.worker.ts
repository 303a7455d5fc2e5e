// A thread that enters and leaves its biased lock again and again; see biased-lock.test.ts.

import { parentPort, workerData } from 'node:worker_threads'
import { BiasedLock } from './biased-lock.js'
import { Region } from './region.js'
import { REGISTRY_WORDS, ThreadRegistry } from './thread-registry.js'

/** Plain words that the two threads share. */
export const enum At {
  /** 1 while the thread is inside */
  inside,
  /** 1 while the other thread has shut the biased lock */
  server,
  entered,
  broken,
  count,
}

/** A biased lock in `buffer`, with one more thread in its registry. */
export function newBiasedLock(buffer: SharedArrayBuffer | null, isFenced: boolean) {
  const region = new Region(buffer)
  const registry = new ThreadRegistry(region.int32(REGISTRY_WORDS), 0)
  const words = region.int32(At.count)
  const biasedLock = new BiasedLock(region, registry, isFenced)
  const thread = buffer === null ? 0 : registry.enter()
  if (buffer !== null) biasedLock.assign(thread)
  return { biasedLock, words, registry, thread, bytes: region.bytes }
}
export const LOCK_BYTES = newBiasedLock(null, true).bytes

function goInAndOut(biasedLock: BiasedLock, words: Int32Array): void {
  for (let turn = 0; turn < 1000; turn++) {
    if (!biasedLock.enter()) continue
    words[At.inside] = 1
    for (let look = 0; look < 20; look++) if (words[At.server] !== 0) words[At.broken]++
    words[At.inside] = 0
    biasedLock.leave()
    words[At.entered]++
  }
}

if (workerData?.buffer !== undefined) {
  const { buffer, isFenced } = workerData as { buffer: SharedArrayBuffer; isFenced: boolean }
  const { biasedLock, words, thread } = newBiasedLock(buffer, isFenced)
  parentPort!.postMessage(thread)
  for (;;) goInAndOut(biasedLock, words)
}
