// A thread that goes in and out of its door; see door.test.ts.

import { parentPort, workerData } from 'node:worker_threads'
import { Region } from '../base/region.js'
import { Door } from './door.js'
import { REGISTRY_WORDS, ThreadRegistry } from './thread-registry.js'

/** What the two threads tell each other by plain stores. */
export const enum At {
  /** 1 while the thread is inside */
  inside,
  /** 1 while the other one has shut the door */
  keeper,
  entered,
  broken,
  count,
}

/** A door with one thread more, in `buffer`. */
export function newDoor(buffer: SharedArrayBuffer | null, isFenced: boolean) {
  const region = new Region(buffer)
  const registry = new ThreadRegistry(region.int32(REGISTRY_WORDS), 0)
  const words = region.int32(At.count)
  const door = new Door(region, registry, isFenced)
  const thread = buffer === null ? 0 : registry.enter()
  if (buffer !== null) door.assign(thread)
  return { door, words, registry, thread, bytes: region.bytes }
}
export const DOOR_BYTES = newDoor(null, true).bytes

function goInAndOut(door: Door, words: Int32Array): void {
  for (let turn = 0; turn < 1000; turn++) {
    if (!door.enter()) continue
    words[At.inside] = 1
    for (let look = 0; look < 20; look++) if (words[At.keeper] !== 0) words[At.broken]++
    words[At.inside] = 0
    door.leave()
    words[At.entered]++
  }
}

if (workerData?.buffer !== undefined) {
  const { buffer, isFenced } = workerData as { buffer: SharedArrayBuffer; isFenced: boolean }
  const { door, words, thread } = newDoor(buffer, isFenced)
  parentPort!.postMessage(thread)
  for (;;) goInAndOut(door, words)
}
