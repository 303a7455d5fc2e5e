// Worker threads share a device and a pool. The main thread hands out jobs; a worker computes each on its own stream,
// and passes the result on the device back without a copy.
// In a clone: npm run build && node dist/examples/worker-pool.js

import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { openDevice } from 'cuda-mempool'
import { attachDevice, attachPool, type TransferredBuffer } from 'cuda-mempool/threads'

const WORKERS = 3
const JOBS = 24

interface Result {
  readonly job: number
  readonly buffer: TransferredBuffer
}

if (isMainThread) await main()
else work()

async function main(): Promise<void> {
  using device = openDevice('auto')
  using pool = device.createSharedPool({ maxPoolBytes: '256MiB' })
  const jobs = Array.from({ length: JOBS }, (_, job) => job)
  const results: number[] = []

  async function serve(worker: Worker): Promise<void> {
    worker.on('message', async (result: Result | null) => {
      if (result !== null) {
        using buffer = pool.adopt(result.buffer) // this thread's now
        results[result.job] = new Float32Array((await buffer.read(0, 4)).buffer)[0]!
      }
      worker.postMessage(jobs.shift() ?? null)
    })
    await once(worker, 'exit') // an error in the worker is thrown here
  }

  const workers = Array.from(
    { length: WORKERS },
    () => new Worker(new URL(import.meta.url), { workerData: pool.share() }),
  )
  await Promise.all(workers.map(serve))
  const wrong = results.filter((result, job) => result !== job)
  console.log(`${device.name}: ${WORKERS} workers did ${results.length} jobs, ${wrong.length} of them wrong`)
  console.log(`${pool}`)
  if (results.length !== JOBS || wrong.length > 0) process.exitCode = 1
}

function work(): void {
  const device = attachDevice(workerData.device)
  const pool = attachPool(workerData)
  const stream = device.createStream()
  parentPort!.on('message', (job: number | null) => {
    if (job === null) {
      device.close() // and its pools and streams
      parentPort!.close()
      return
    }
    const array = pool.upload(new Float32Array(2 ** 18).fill(job), stream)
    parentPort!.postMessage({ job, buffer: array.buffer.transfer() } satisfies Result) // not this thread's any more
  })
  parentPort!.postMessage(null) // ready
}
