// Worker threads share a device and a pool. The main thread hands out jobs; a worker does each on its own stream, and
// passes the result on the device back without a copy.
// docs/recipes/worker-pool.md explains it. In a clone: npm run build && node dist/examples/worker-pool.js

import { on, once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { openDevice } from 'cuda-mempool'
import { attachDevice, attachPool, type TransferredBuffer } from 'cuda-mempool/threads'

const WORKERS = 3
const JOBS = 24

if (isMainThread) {
  using device = openDevice('auto')
  using pool = device.createSharedPool({ maxPoolBytes: '256MiB' })
  const jobs = Array.from({ length: JOBS }, (_, job) => job)
  const results: number[] = []

  const serve = (worker: Worker) => {
    worker.on('message', async (result: { job: number; buffer: TransferredBuffer } | null) => {
      if (result !== null) {
        using buffer = pool.adopt(result.buffer) // this thread's now
        results[result.job] = new Float32Array((await buffer.read(0, 4)).buffer)[0]!
      }
      worker.postMessage(jobs.shift() ?? null)
    })
    return once(worker, 'exit') // an error in the worker is thrown here
  }

  const start = () => new Worker(new URL(import.meta.url), { workerData: pool.share() })
  await Promise.all(Array.from({ length: WORKERS }, start).map(serve))
  const right = results.filter((result, job) => result === job)
  console.log(`${right.length} of ${JOBS} jobs done by ${WORKERS} workers`)
  console.log(`${pool.stats().liveBuffers} buffers held`)
} else {
  using device = attachDevice(workerData.device)
  using pool = attachPool(workerData)
  using stream = device.createStream()
  parentPort!.postMessage(null) // ready
  for await (const [job] of on(parentPort!, 'message')) {
    if (job === null) break
    const array = pool.upload(new Float32Array(2 ** 18).fill(job), stream)
    parentPort!.postMessage({ job, buffer: array.buffer.transfer() }) // not this thread's any more
  }
}
