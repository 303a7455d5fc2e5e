// One pool in several threads on a GPU: each thread's data stays intact while other threads are terminated.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { GiB, MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import type { TransferredBuffer } from '../src/core/pool/transferred-buffer.js'
import type { FillTask } from './fill.worker.js'

const THREADS = 4
const ROUNDS = 6000

test('threads write to buffers of one pool on a GPU, hand them over, and are terminated', async () => {
  const device = openDevice(0)
  const pool = device.createSharedPool({ maxPoolBytes: 2 * GiB })
  const progress = new Int32Array(new SharedArrayBuffer(8))
  let threads = 0
  // Returns when the thread is attached: before that Node could not terminate it (docs/threads.md).
  const start = async () => {
    const fillTask: FillTask = { pool: pool.share(), index: ++threads, progress }
    const worker = new Worker(new URL('./fill.worker.js', import.meta.url), { workerData: { fillTask } })
    await once(worker, 'message')
    return worker
  }
  const running = await Promise.all(Array.from({ length: THREADS }, start))
  const ended: number[] = []
  for (let victims = 0; victims < 4; victims++) {
    const until = Atomics.load(progress, 1) + ROUNDS / 4
    while (Atomics.load(progress, 1) < until) await setImmediate()
    const victim = running.shift()!
    ended.push(victim.threadId)
    await victim.terminate()
    running.push(await start())
  }
  Atomics.store(progress, 0, 1)
  const left = await Promise.all(running.map(worker => once(worker, 'message')))
  await Promise.all(running.map(async worker => worker.threadId === -1 || (await once(worker, 'exit'))))
  for (const { value, transferred } of left.flat(2) as { value: number; transferred: TransferredBuffer }[]) {
    const buffer = pool.adopt(transferred)
    assert.ok(
      buffer.readSync().every(byte => byte === value),
      'what another thread wrote',
    )
    buffer.free()
  }
  const dead = pool.threads().filter(({ alive }) => !alive)
  assert.ok(dead.every(({ threadId }) => ended.includes(threadId)))
  for (const { thread } of dead) pool.reclaim(thread)
  pool.reclaim(0)
  device.synchronize()
  pool.processDeferred()
  pool.check()
  assert.equal(pool.stats().liveBuffers, 0)
  pool.trimTo(0)
  device.synchronize()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  pool.allocate(2 * GiB - 2 * MiB).free()
  pool.close()
  device.close()
})
