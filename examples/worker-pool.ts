// Worker threads compute batches on one device with one pool. Each takes the next batch, computes it on its own
// stream and reads it back, in parallel with the others. In the end a worker passes its buffer on the device to the
// main thread, without a copy.
// In a clone: npm run build && node dist/examples/worker-pool.js [workers] [batches]

import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { formatBytes, openDevice } from 'cuda-mempool'
import { registerSimulatedKernel } from 'cuda-mempool/simulated'
import { attachDevice, attachPool, type SharedPoolDescriptor, type TransferredBuffer } from 'cuda-mempool/threads'

const LENGTH = 2 ** 16
const BATCH_BYTES = LENGTH * Float32Array.BYTES_PER_ELEMENT
const MOST_WORKERS = 32

/** Doubles `count` floats, with one thread for each. */
const PTX = `
.version 6.4
.target sm_52
.address_size 64
.visible .entry twice(.param .u64 data, .param .u32 count)
{
  .reg .pred %outside;
  .reg .f32 %value;
  .reg .b32 %block, %threads, %thread, %index, %count;
  .reg .b64 %data, %offset;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %index, %block, %threads, %thread;
  ld.param.u32 %count, [count];
  setp.ge.u32 %outside, %index, %count;
  @%outside ret;
  ld.param.u64 %data, [data];
  cvta.to.global.u64 %data, %data;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %data, %data, %offset;
  ld.global.f32 %value, [%data];
  add.f32 %value, %value, %value;
  st.global.f32 [%data], %value;
  ret;
}
`

/** A worker's input: the pool, the number of batches, and in shared memory how many were begun. */
interface Task {
  readonly pool: SharedPoolDescriptor
  readonly batches: number
  readonly begun: Int32Array
}

/** A worker's output: how many batches it computed, and a buffer with the first number of each. */
interface Result {
  readonly computed: number
  readonly firsts: TransferredBuffer
}

if (isMainThread) await main(process.argv.slice(2))
else await work(workerData as Task)

async function work({ pool: shared, batches, begun }: Task): Promise<void> {
  using device = attachDevice(shared.device)
  using pool = attachPool(shared)
  using stream = device.createStream()
  using module = device.loadModule(PTX)
  const twice = module.kernel('twice')
  using firsts = pool.allocateArray(Float32Array, batches, stream)
  let computed = 0
  parentPort!.postMessage('ready')
  await once(parentPort!, 'message')
  const next = () => Atomics.add(begun, 0, 1)
  for (let batch = next(); batch < batches; batch = next(), computed++) {
    using values = pool.allocateArray(Float32Array, LENGTH, stream)
    values.write(new Float32Array(LENGTH).fill(batch))
    twice.launch({ grid: LENGTH / 256, block: 256, stream }, values, LENGTH)
    firsts.copyFrom(values.subarray(0, 1), computed)
    const results = await values.read()
    if (results.some(value => value !== 2 * batch)) throw new Error(`batch ${batch} is damaged`)
  }
  const result: Result = { computed, firsts: firsts.buffer.transfer() } // this thread must not use it any more
  parentPort!.postMessage(result)
}

async function main(args: readonly string[]): Promise<void> {
  const [count = Math.min(4, availableParallelism()), batches = 100] = args.map(Number)
  if (args.length > 2 || !isCount(count, MOST_WORKERS) || !isCount(batches, 2 ** 23)) {
    console.error(
      `usage: worker-pool.js [workers] [batches], from 1 to ${MOST_WORKERS} workers, not: ${args.join(' ')}`,
    )
    process.exitCode = 2
    return
  }
  // The simulated device does not run PTX; its kernels are functions of the thread that opened it.
  registerSimulatedKernel('twice', ({ args, memory }) => {
    const [data, length] = [args.pointer(0), args.uint32(1)]
    memory.store(
      data,
      memory.load(Float32Array, data, length).map(value => value + value),
    )
  })
  using device = openDevice('auto')
  using pool = device.createSharedPool()
  const task: Task = { pool: pool.share(), batches, begun: new Int32Array(new SharedArrayBuffer(4)) }
  const workers = Array.from({ length: count }, () => new Worker(new URL(import.meta.url), { workerData: task }))
  try {
    await Promise.all(workers.map(worker => once(worker, 'message'))) // ready; an error in a worker is thrown here
    const start = performance.now()
    for (const worker of workers) worker.postMessage('begin')
    const results = await Promise.all(workers.map(resultOf))
    const seconds = (performance.now() - start) / 1000

    let sum = 0
    for (const { computed, firsts } of results) {
      using buffer = pool.adopt(firsts)
      const numbers = new Float32Array((await buffer.read()).buffer, 0, computed)
      sum = numbers.reduce((all, number) => all + number, sum)
    }
    const expected = batches * (batches - 1)
    const each = results.map(({ computed }) => computed).join(' + ')
    console.log(`${device.name}: ${count} workers computed ${each} batches of ${formatBytes(BATCH_BYTES)}`)
    const rate = `${formatBytes(Math.round((batches * BATCH_BYTES) / seconds))} a second`
    console.log(
      `${Math.round(batches / seconds)} batches, ${rate}${device.simulated ? ', which is no GPU’s speed' : ''}`,
    )
    console.log(`the sum of their first numbers is ${sum}${sum === expected ? '' : `, and should be ${expected}`}`)
    if (sum !== expected) process.exitCode = 1
  } finally {
    await Promise.all(workers.map(worker => worker.terminate())) // after an error; otherwise they have ended
  }
}

/** Resolves when the worker has closed everything and ended. */
async function resultOf(worker: Worker): Promise<Result> {
  const [[result]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')])
  return result
}

function isCount(value: number, most: number): boolean {
  return Number.isInteger(value) && value >= 1 && value <= most
}
