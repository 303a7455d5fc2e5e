// A program of worker threads with one group of graphs, on any device. They capture, launch, use outputs, free and
// close side by side, and end in different ways, also in a capture. Each thread checks its results. At the end nothing
// is left.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { Device } from '../src/core/device/device.js'
import { ENDINGS, GraphProgram, type GraphThreadData } from './graph-threads.worker.js'
import { threadProgram } from './thread-program.fixture.js'

const PROGRAM = threadProgram(new URL('./graph-threads.worker.js', import.meta.url))

export type Taken = GraphProgram['taken']
const NOTHING: Taken = { capture: 0, launch: 0, check: 0, close: 0, refused: 0 }

/** Returns once the thread has ended, after `steps` steps if it is terminated. */
async function runThread(data: GraphThreadData): Promise<Taken> {
  const worker = new Worker(PROGRAM, { workerData: { does: 'graphs', ...data } })
  const exit = once(worker, 'exit')
  if (data.ending === 'terminated') {
    while (Atomics.load(data.progress, 0) < data.steps) await setImmediate()
    await worker.terminate()
    return NOTHING
  }
  const [taken] = (await once(worker, 'message')) as [Taken]
  await exit
  return taken
}

/** Runs one program, and closes the device; returns the steps of its threads. */
export async function runGraphThreads(
  device: Device,
  seed: number,
  steps: number,
  scale: number,
  endings: readonly GraphThreadData['ending'][] = ENDINGS,
): Promise<Taken[]> {
  const random = new Random(seed)
  const pool = device.createSharedPool({ maxPoolBytes: 56 * scale * MiB })
  const group = pool.createGraphGroup({ poison: random.below(3) === 0 })
  const shared = { pool: pool.share(), group: group.share(), steps: 1 + random.below(2 * steps), scale }
  const threads = Promise.all(
    Array.from({ length: 2 + random.below(2) }, (_, index) => {
      const ending = endings[random.below(endings.length)]
      const progress = new Int32Array(new SharedArrayBuffer(4))
      return runThread({ ...shared, seed: seed + 1000 * index, ending, progress })
    }),
  )
  const own = new GraphProgram(pool, group, [device.createStream()], seed, scale)
  let isOver = false
  const results = threads.finally(() => {
    isOver = true
  })
  while (!isOver) {
    own.step()
    await setImmediate() // the thread of a simulated device answers the others
  }
  const taken = await results
  own.finish()
  for (const { thread, alive } of pool.threads()) if (!alive) pool.reclaim(thread)
  pool.check()
  assert.equal(pool.stats().liveBuffers, 0)
  assert.equal(group.stats().graphs, 0)
  group.close()
  device.synchronize()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  device.close()
  return [...taken, own.taken]
}
