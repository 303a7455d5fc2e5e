// Host time of an allocation and its free from a heap that several threads share, in one thread and in several, each on a
// stream of its own, beside private arithmetic in the same threads. Numbers only: no device. Run: node dist/bench/threads.js
// [--smoke] [--workers N]

import { once } from 'node:events'
import { parseArgs } from 'node:util'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { Random } from '../src/base/random.js'
import { newSharedState, SharedHeap, type SharedState } from '../src/heap/shared-heap.js'

const LIVE = 64
const BATCHES = 15
const STREAMS = 64
/** 512 B to 1 MiB in units of 256 bytes. */
const [LEAST, MOST] = [2, 4096]
const RANGE_UNITS = 2 ** 24

interface Task {
  readonly state: SharedState
  readonly stream: number
  readonly workers: number
  readonly steps: number
  /** threads that are ready */
  readonly ready: Int32Array
}
interface Times {
  readonly pairNs: number
  readonly mixNs: number
  readonly controlNs: number
  readonly misses: number
}

/** The least time of one step of `steps` in some batches. */
function leastNs(steps: number, run: () => void): number {
  let least = Infinity
  for (let batch = 0; batch < BATCHES; batch++) {
    const start = performance.now()
    run()
    least = Math.min(least, ((performance.now() - start) * 1e6) / steps)
  }
  return least
}

function measure({ state, stream, workers, steps, ready }: Task): Times {
  const heap = new SharedHeap(state)
  const random = new Random(stream)
  const sizes = Int32Array.from({ length: steps }, () => random.logUniform(LEAST, MOST))
  const victims = Int32Array.from({ length: steps }, () => random.below(LIVE))
  const records = new Int32Array(LIVE)
  const tags = new Int32Array(LIVE)
  // Blocks that stay live, so that the records of two threads do not lie side by side, where processors fetch them together.
  for (let block = 0; block < 16; block++) heap.allocate(16, stream)
  Atomics.add(ready, 0, 1)
  while (Atomics.load(ready, 0) < workers);
  const pairNs = leastNs(steps, () => {
    for (let step = 0; step < steps; step++) heap.free(heap.allocate(16, stream), heap.lastTag, stream, 1)
  })
  const before = heap.misses
  const mixNs = leastNs(steps, () => {
    for (let step = 0; step < steps; step++) {
      const victim = victims[step]
      if (records[victim] !== 0) heap.free(records[victim], tags[victim], stream, 1)
      if ((step & 1023) === 0) heap.settle(stream, 1)
      records[victim] = heap.allocate(sizes[step], stream)
      if (records[victim] === 0) {
        // What is free was freed on streams of others.
        for (let other = 0; other < workers; other++) heap.settle(other, 1)
        records[victim] = heap.allocate(sizes[step], stream)
      }
      tags[victim] = heap.lastTag
    }
  })
  let state32 = 1
  const controlNs = leastNs(steps, () => {
    for (let step = 0; step < steps; step++) state32 = (Math.imul(state32, 1664525) + 1013904223) | 0
  })
  return { pairNs, mixNs, controlNs, misses: (heap.misses - before) / (steps * BATCHES) + 0 * state32 }
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { smoke: { type: 'boolean', default: false }, workers: { type: 'string', default: '2' } },
  })
  console.log(`least of ${BATCHES} batches, ns per allocate + free, mix ${LIVE} live, Node ${process.version}`)
  for (let workers = 1; workers <= Number(values.workers); workers *= 2) {
    const state = newSharedState({ streams: STREAMS, records: 2 ** 16, ranges: 1 })
    new SharedHeap(state).addRange(0, 0, RANGE_UNITS)
    const ready = new Int32Array(new SharedArrayBuffer(4))
    const times = await Promise.all(
      Array.from({ length: workers }, async (_, stream) => {
        const task: Task = { state, stream, workers, steps: values.smoke ? 2000 : 200_000, ready }
        const [result] = await once(new Worker(new URL(import.meta.url), { workerData: task }), 'message')
        return result as Times
      }),
    )
    const mean = (of: (each: Times) => number) => times.reduce((sum, each) => sum + of(each), 0) / workers
    console.log(
      `${String(workers).padStart(3)} workers: pair ${mean(each => each.pairNs).toFixed(1)}, mix ${mean(each => each.mixNs).toFixed(1)}, ` +
        `control ${mean(each => each.controlNs).toFixed(2)}, misses in the mix ${(100 * mean(each => each.misses)).toFixed(1)} %`,
    )
  }
}

if (isMainThread) await main()
else parentPort!.postMessage(measure(workerData as Task))
