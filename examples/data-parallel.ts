// Data-parallel training, one process a GPU: each computes gradients of its own rows, and NCCL averages them in
// registered memory. Halfway one process is killed. The others notice, find their memory whole, and go on as a smaller
// world. With fewer than two GPUs it runs on simulated ones. --help says how to run it on several hosts.
// docs/nccl.md explains it. In a clone: npm run build && node dist/examples/data-parallel.js

import { type ChildProcess, fork } from 'node:child_process'
import { on, once } from 'node:events'
import { connect, createServer } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Device, openDevice } from 'cuda-mempool'
import { Communicator, CommunicatorError, uniqueId } from 'cuda-mempool/nccl'

const HELP = `usage: data-parallel                                      one process for each GPU of this host
       data-parallel --hosts HOST:PORT --rank R --ranks N     rank R of N, on any host
Start the second form once for each rank. Rank 0 runs on HOST and listens at PORT, where the others fetch its id; rank R
takes GPU R modulo the GPUs of its host. The id is a secret, and is sent in the clear: use a private network.`

const CHOICE = process.env['CUDA_MEMPOOL_DEVICE'] === 'simulated' ? 'simulated' : 'auto'
const [ROWS, COLUMNS, STEPS, RATE] = [64, 7, 40, 0.5]
const [SIMULATED_DEVICES, TIMEOUT_MS] = [3, 20_000]
const GRID = { grid: 1, block: COLUMNS + 1 }

/** Linear regression. The last thread of gradient() computes the loss, so that one all-reduce averages both. */
const SOURCE = `
extern "C" __global__ void gradient(const float *x, const float *y, const float *w, float *out, int rows, int columns) {
  float sum = 0;
  for (int row = 0; row < rows; row++) {
    float error = -y[row];
    for (int i = 0; i < columns; i++) error += x[row * columns + i] * w[i];
    sum += error * (threadIdx.x < columns ? x[row * columns + threadIdx.x] : error);
  }
  out[threadIdx.x] = sum / rows;
}
extern "C" __global__ void descend(float *w, const float *gradient, float rate, int columns) {
  if (threadIdx.x < columns) w[threadIdx.x] -= rate * gradient[threadIdx.x];
}
`

/** The kernels, the rows of this process, and the weights. */
function createModel(device: Device, part: number) {
  const pool = device.createPool({ backing: 'registrable' })
  const module = device.compileKernels(SOURCE, {
    simulated: {
      gradient: ({ args, memory }) => {
        const floats = (index: number, count: number) => memory.load(Float32Array, args.pointer(index), count)
        const [x, y, w] = [floats(0, ROWS * COLUMNS), floats(1, ROWS), floats(2, COLUMNS)]
        const rowOf = (row: number) => x.subarray(row * COLUMNS, (row + 1) * COLUMNS)
        const errors = y.map((value, row) => rowOf(row).reduce((sum, each, i) => sum + each * w[i]!, -value))
        const factor = (row: number, i: number) => (i < COLUMNS ? rowOf(row)[i]! : errors[row]!)
        const sumOf = (i: number) => errors.reduce((sum, error, row) => sum + error * factor(row, i), 0)
        const means = Float32Array.from({ length: COLUMNS + 1 }, (_, i) => sumOf(i) / ROWS)
        memory.store(args.pointer(3), means)
      },
      descend: ({ args, memory }) => {
        const gradient = memory.load(Float32Array, args.pointer(1), COLUMNS)
        const w = memory.load(Float32Array, args.pointer(0), COLUMNS)
        for (const [i, slope] of gradient.entries()) w[i]! -= args.float32(2) * slope
        memory.store(args.pointer(0), w)
      },
    },
  })
  const rows = Float32Array.from({ length: ROWS * COLUMNS }, (_, i) => Math.sin((part + 1) * (i + 1) ** 2))
  const targets = Float32Array.from({ length: ROWS }, (_, row) =>
    rows.subarray(row * COLUMNS, (row + 1) * COLUMNS).reduce((sum, value, i) => sum + value * (i - 2), 0),
  )
  const [x, y] = [pool.upload(rows), pool.upload(targets)]
  const [weights, gradients] = [pool.zeros(Float32Array, COLUMNS), pool.zeros(Float32Array, COLUMNS + 1)]
  const saved = new Float32Array(COLUMNS) // the weights after the latest step: stands for a checkpoint
  return { device, pool, module, x, y, weights, gradients, saved }
}
type Model = ReturnType<typeof createModel>

/** Trains in the world of `comm`; the result is the loss before the first step and before the last one. */
async function train(comm: Communicator, model: Model, killedAt: number): Promise<[first: number, last: number]> {
  const { module, x, y, weights, gradients, saved } = model
  const [gradient, descend] = [module.kernel('gradient'), module.kernel('descend')]
  const losses: number[] = []
  comm.broadcast(weights, { root: 0 }) // when a rank is killed, the others may be one step apart
  for (let step = 0; step < STEPS; step++) {
    if (step === killedAt) process.kill(process.pid, 'SIGKILL')
    gradient.launch(GRID, x, y, weights, gradients, ROWS, COLUMNS)
    comm.allReduce(gradients, gradients, { op: 'avg' })
    await comm.finished() // a rank that is gone leaves gradients undefined, which must not reach the weights
    descend.launch(GRID, weights, gradients, RATE, COLUMNS)
    saved.set(await weights.read())
    losses.push((await gradients.subarray(-1).read())[0]!)
  }
  return [losses[0]!, losses.at(-1)!]
}

/** Whether all ranks have the same weights. */
async function areEqual(comm: Communicator, { pool, weights }: Model): Promise<boolean> {
  using all = pool.allocateArray(Float32Array, COLUMNS * comm.ranks)
  comm.allGather(weights, all)
  await comm.finished()
  const found = await all.read()
  return found.every((weight, i) => weight === found[i % COLUMNS])
}

/** The place of a process in a world of ranks, and the step at which it is killed (-1 for none). */
type Place = { rank: number; ranks: number; id: Uint8Array; killedAt: number }

/** Joins a world and trains. The text says how it ended. */
async function takePart(model: Model, place: Place): Promise<string> {
  const { id, rank, ranks, killedAt } = place
  const { liveBytes } = model.pool.stats()
  await using comm = await Communicator.join(model.device, { id, rank, ranks, timeoutMs: TIMEOUT_MS })
  comm.register(model.pool)
  try {
    const [first, last] = await train(comm, model, killedAt)
    if (!(await areEqual(comm, model)) || !(last < first / 100)) throw new Error(`training failed: ${first} ${last}`)
    await comm.close()
    return `world of ${ranks}: equal weights, and the loss has fallen`
  } catch (error) {
    if (!(error instanceof CommunicatorError)) throw error
    comm.abort()
    const found = await model.weights.read()
    const isWhole = found.every((weight, i) => weight === model.saved[i]) && model.pool.stats().liveBytes === liveBytes
    return `world of ${ranks}: a rank is gone, and memory is ${isWhole ? 'whole' : 'damaged'}`
  }
}

/** GPU `rank` modulo the GPUs of this host; a simulated device without a GPU, or if the environment asks for it. */
function openDeviceOf(rank: number): Device {
  const device = openDevice(CHOICE)
  const ordinal = device.simulated ? 0 : rank % device.driver.cuDeviceGetCount()
  if (ordinal === 0) return device
  device.close()
  return openDevice(ordinal)
}

/** A process that launch() has started: takes part in one world after another. */
async function work(part: number): Promise<void> {
  using device = openDeviceOf(part)
  const model = createModel(device, part)
  for await (const [place] of on(process, 'message', { close: ['disconnect'] })) {
    const id = place.id ?? uniqueId(device)
    if (place.rank === 0) process.send!(id)
    process.send!(await takePart(model, { ...place, id }))
  }
}

/** Makes a world of processes, and kills the last one at a step. Returns what each says at the end, or its signal. */
async function runWorld(workers: readonly ChildProcess[], killedAt: number): Promise<string[]> {
  const ranks = workers.length
  const answerOf = async (worker: ChildProcess) => {
    if (worker.exitCode !== null || worker.signalCode !== null) throw new Error('a process has ended')
    const [answer, signal] = await Promise.race([once(worker, 'message'), once(worker, 'exit')])
    return answer ?? `one process was ended by ${signal}`
  }
  workers[0]!.send({ rank: 0, ranks, killedAt: -1 })
  const id = await answerOf(workers[0]!)
  for (const [rank, worker] of workers.entries()) {
    if (rank > 0) worker.send({ rank, ranks, id, killedAt: rank === ranks - 1 ? killedAt : -1 })
  }
  return await Promise.all(workers.map(answerOf))
}

/** Starts a process for each GPU, kills the last one, and lets the others go on. */
async function launch(): Promise<void> {
  const first = openDevice(CHOICE)
  const gpus = first.simulated ? 0 : first.driver.cuDeviceGetCount()
  first.close()
  const ranks = gpus < 2 ? SIMULATED_DEVICES : gpus
  console.log(gpus < 2 ? `${ranks} simulated devices, since there are not two GPUs` : `${ranks} GPUs`)
  const simulated = gpus < 2 ? { CUDA_MEMPOOL_DEVICE: 'simulated' } : {}
  const workers = Array.from({ length: ranks }, (_, part) => {
    const env = { ...process.env, ...simulated, DATA_PARALLEL: `${part}` }
    return fork(fileURLToPath(import.meta.url), { serialization: 'advanced', env })
  })
  try {
    const survivors = workers.slice(0, -1)
    const said = [...(await runWorld(workers, STEPS / 2)), ...(await runWorld(survivors, -1))]
    for (const text of new Set(said)) console.log(text)
    if (said.some(text => !/SIGKILL|whole|equal/.test(text))) process.exitCode = 1
    for (const worker of survivors) worker.disconnect()
    await Promise.all(survivors.map(worker => once(worker, 'exit')))
  } finally {
    for (const worker of workers) worker.kill('SIGKILL')
  }
}

/** Takes part as one of the ranks on several hosts. */
async function workOnHosts(host: string, port: number, rank: number, ranks: number): Promise<void> {
  using device = openDeviceOf(rank)
  const id = rank === 0 ? uniqueId(device) : await fetchId(host, port)
  if (rank === 0) {
    const server = createServer(socket => socket.on('error', () => {}).end(id))
    await once(server.listen(port, host).unref(), 'listening')
  }
  const text = await takePart(createModel(device, rank), { rank, ranks, id, killedAt: -1 })
  console.log(text)
  if (!text.includes('equal')) process.exitCode = 1
}

/** Asks until rank 0 listens. */
async function fetchId(host: string, port: number): Promise<Uint8Array> {
  const end = performance.now() + TIMEOUT_MS
  for (;;) {
    try {
      return await buffer(connect(port, host))
    } catch (error) {
      const { code, message } = error as Error & { code?: string }
      if (code !== 'ECONNREFUSED' || performance.now() > end) throw new Error(`rank 0 does not answer: ${message}`)
      await setTimeout(100)
    }
  }
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      hosts: { type: 'string' },
      rank: { type: 'string' },
      ranks: { type: 'string' },
      help: { type: 'boolean' },
    },
  })
  const { hosts, rank, ranks, help } = values
  if (help) return console.log(HELP)
  if (hosts === undefined && rank === undefined && ranks === undefined) return await launch()
  const [, host, port] = /^(.+):(\d{1,5})$/.exec(hosts ?? '') ?? []
  const arePlaces = [rank, ranks].every(each => /^\d{1,6}$/.test(each ?? '')) && Number(rank) < Number(ranks)
  if (host !== undefined && arePlaces) return await workOnHosts(host, Number(port), Number(rank), Number(ranks))
  throw new Error('pass --hosts HOST:PORT --rank R --ranks N, with R from 0 to N - 1; or see --help')
}

const given = process.env['DATA_PARALLEL']
if (given !== undefined) await work(Number(given))
else {
  await main().catch((error: Error & { code?: string }) => {
    console.error(`data-parallel: ${error.message || error.code}`)
    process.exitCode = 2
  })
}
