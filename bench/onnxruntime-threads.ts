// ONNX Runtime off the thread: its own arena beside a pool, by sessions that `createSession` makes. Two ways: `run`
// leaves the thread, so that each request of the pool crosses to this thread and back; or the sessions live in a worker
// and use `runSync` there, so that none does. The two sessions of a way run on the same inputs by turns, in random
// order. It needs onnxruntime-node, with the CUDA provider unless --cpu is given; CUDA_MEMPOOL_ONNXRUNTIME names it.
// Run: node dist/bench/onnxruntime-threads.js [--runs N] [--rows N] [--results] [--cpu] [--smoke] [--save DIR]

import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { GiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { openDevice } from '../src/core/device/open.js'
import { type Installed, installedOnnxRuntime } from '../src/onnxruntime/installed.fixture.js'
import { OnnxRuntimeLibrary } from '../src/onnxruntime/library.js'
import { smallModel } from '../src/onnxruntime/model.fixture.js'
import { OffThreadSession, type Rows } from '../src/onnxruntime/off-thread.fixture.js'
import { serveOnnxRuntime } from '../src/onnxruntime/serve.js'
import { headline, machineOf, median, save } from './machine.js'
import { medianInterval } from './median-interval.js'
import { type BenchOptions, benchmark, count, optionsOf } from './options.js'

interface Options extends BenchOptions {
  readonly runs: number
  readonly rows: number
  readonly results?: boolean
  readonly cpu?: boolean
}

/** Where a session runs: `thread` of libuv by `run`, or `worker` of Node by `runSync`. */
type Place = 'thread' | 'worker'

interface Measured {
  readonly place: Place
  readonly arenaUs: number
  readonly poolUs: number
  /** of the medians of each turn, pool to arena */
  readonly ratios: readonly number[]
  /** requests of the pool in a run, without frees */
  readonly requests: number
  readonly failures: number
}

const RUNS_OF_TURN = 50
const WARM_UPS = 300
const SEED = 1

async function measure(place: Place, options: Options, { library }: Installed): Promise<Measured> {
  const { cpu = false, results = false } = options
  const width = cpu ? 64 : 1024
  using device = openDevice(cpu ? 'simulated' : 0)
  using pool = device.createPool({ maxPoolBytes: 8 * GiB })
  using host = device.createHostPool({ maxPoolBytes: 1 * GiB, segmentBytes: 64 * MiB })
  using served = serveOnnxRuntime(cpu ? host : pool, { library, ...(results && !cpu ? { results: host } : {}) })
  const opened = OnnxRuntimeLibrary.open(library)
  const model = smallModel(width)
  const provider = cpu ? 'cpu' : 'cuda'
  const arena = new OffThreadSession(opened, model, width, 'arena', provider)
  const own = await served.createSession(
    'pool',
    () => new OffThreadSession(opened, model, width, 'registered', provider),
  )
  const random = new Random(SEED)
  const x = new Float32Array(options.rows * width).fill(0.5)
  const usOf = async (session: OffThreadSession, input: Rows) => {
    const start = performance.now()
    if (place === 'thread') await session.run(input)
    else session.runSync(input)
    return (performance.now() - start) * 1000
  }
  const all: { arena: number[]; pool: number[] } = { arena: [], pool: [] }
  const ratios: number[] = []
  let before = served.stats().allocations
  for (let run = -WARM_UPS; run < options.runs; run++) {
    if (run === 0) before = served.stats().allocations
    const rows = Math.floor(random.logUniform(1, options.rows))
    const input = { x: x.subarray(0, rows * width), rows }
    const isPoolFirst = random.below(2) === 0
    const first = await usOf(isPoolFirst ? own : arena, input)
    const second = await usOf(isPoolFirst ? arena : own, input)
    if (run < 0) continue
    all.pool.push(isPoolFirst ? first : second)
    all.arena.push(isPoolFirst ? second : first)
    if ((run + 1) % RUNS_OF_TURN !== 0) continue
    ratios.push(median(all.pool.slice(-RUNS_OF_TURN)) / median(all.arena.slice(-RUNS_OF_TURN)))
  }
  const { allocations, failures } = served.stats()
  await own.release()
  await arena.release()
  const [arenaUs, poolUs] = [median(all.arena), median(all.pool)]
  return { place, arenaUs, poolUs, ratios, requests: (allocations - before) / options.runs, failures }
}

async function measureInWorker(options: Options): Promise<Measured> {
  const worker = new Worker(new URL(import.meta.url), { workerData: options, argv: process.argv.slice(2) })
  const [measured] = (await once(worker, 'message')) as [Measured]
  await once(worker, 'exit')
  return measured
}

async function compare(options: Options, installed: Installed): Promise<void> {
  const { cpu = false, rows, runs } = options
  const table = [await measure('thread', options, installed), await measureInWorker(options)]
  using device = openDevice(cpu ? 'simulated' : 0)
  const machine = machineOf(device)
  console.log(headline(machine, cpu ? 'ONNX Runtime runs on the CPU' : ''))
  console.log(`${runs} runs of each, 1 to ${rows} rows: medians in µs, and the ratio in turns of ${RUNS_OF_TURN} runs`)
  for (const { place, arenaUs, poolUs, ratios, requests, failures } of table) {
    const where = place === 'thread' ? 'run in a thread of libuv' : 'runSync in a worker'
    const [ratio, from, to] = medianInterval(ratios)
    console.log(
      `  ${where.padEnd(26)}arena ${arenaUs.toFixed(0)}, pool ${poolUs.toFixed(0)}   ` +
        `${ratio.toFixed(3)}  (95 %: ${from.toFixed(3)} to ${to.toFixed(3)})   ` +
        `${requests.toFixed(1)} requests a run, ${failures} failures`,
    )
  }
  save(options.save, 'onnxruntime-threads', {
    machine,
    parameters: { ...options, warmUps: WARM_UPS, seed: SEED },
    table,
  })
}

const installed = installedOnnxRuntime()
if (!isMainThread) parentPort!.postMessage(await measure('worker', workerData as Options, installed as Installed))
else {
  const program = benchmark("ONNX Runtime's own arena beside a pool, where runs leave the thread")
    .option('--runs <number>', `runs of each after the first ${WARM_UPS}`, count, 4000)
    .option('--rows <number>', 'most rows of a batch', count, 8192)
    .option('--results', 'results of the pool in pinned memory')
    .option('--cpu', 'the CPU, with its own arena and with a host pool')
  const given = optionsOf<Options>(program)
  const options = given.smoke ? { ...given, runs: RUNS_OF_TURN * 2, rows: 64 } : given
  if (typeof installed === 'string') console.log(`skipped: ${installed}`)
  else await compare(options, installed)
}
