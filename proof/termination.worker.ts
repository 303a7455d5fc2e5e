// A thread of terminations.test.ts: it attaches a pool, holds and caches some memory, and is terminated during one
// call.

import { parentPort, workerData } from 'node:worker_threads'
import { attachDevice, attachPool } from '../src/core/device/attach.js'
import type { SharedPoolDescriptor } from '../src/core/device/shared-pools.js'
import type { SharedStream } from '../src/core/order/stream.js'

export interface TerminationWork {
  /** a pool of any kind; only descriptors differ */
  readonly shared: SharedPoolDescriptor
  readonly gate: SharedStream
  /** a shared word for signals between the threads */
  readonly word: Int32Array
  readonly call: 'allocate' | 'free and allocate' | 'reset' | 'allocate when told'
  readonly bytes: number
  /** how many of them */
  readonly count: number
}

/** The values of the signal word. */
export const enum Told {
  nothing,
  /** the call may be made */
  go,
  /** the thread makes it now */
  going,
}

if (workerData?.terminationWork) {
  const { shared, gate, word, call, bytes, count } = workerData.terminationWork as TerminationWork
  const device = attachDevice(shared.device)
  const pool = attachPool(shared)
  const [stream, lent] = [device.createStream(), device.adoptStream(gate)]
  const allocate = () => Array.from({ length: count }, () => pool.allocate(bytes, stream))
  for (const buffer of Array.from({ length: 4 }, () => pool.allocate(1000, stream))) buffer.free()
  const held = [pool.allocate(1000, stream), pool.allocate(1000, lent)]
  const early = call === 'free and allocate' ? Array.from({ length: count }, () => pool.allocate(bytes, lent)) : []
  parentPort!.on('message', () => {
    for (const buffer of early) buffer.free()
    if (call === 'allocate when told') {
      Atomics.wait(word, 0, Told.nothing)
      Atomics.store(word, 0, Told.going)
      Atomics.notify(word, 0)
    }
    if (call === 'reset') (pool as unknown as { reset(): void }).reset()
    else allocate()
    throw new Error(`the call has ended, with ${held.length} buffers`)
  })
  parentPort!.postMessage(pool.thread)
}
