// ONNX Runtime off the thread: its own arena beside a pool, by sessions that `createSession` makes. Two ways: `run`
// leaves the thread, so that requests for memory cross to this thread and back; or sessions of onnxruntime-node live in
// a worker, where `run` stays, so that none does. The three sessions of a model, two with an arena, take turns on the
// same inputs, and a random one begins: the second arena shows what chance does. A model has three nodes, or is a stack
// of layers whose run takes some time. It needs onnxruntime-node, with the CUDA provider unless --cpu is given;
// CUDA_MEMPOOL_ONNXRUNTIME names it.
// Run: node dist/bench/onnxruntime-threads.js [--runs N] [--rows N] [--ms LIST] [--given] [--results]
//   [--cpu] [--smoke] [--save DIR]

import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { GiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { openDevice } from '../src/core/device/open.js'
import { type Installed, installedOnnxRuntime } from '../src/onnxruntime/installed.fixture.js'
import { OnnxRuntimeLibrary } from '../src/onnxruntime/library.js'
import { smallModel, stackedModel } from '../src/onnxruntime/model.fixture.js'
import { OffThreadSession } from '../src/onnxruntime/off-thread.fixture.js'
import { type ServedOnnxRuntime, serveOnnxRuntime } from '../src/onnxruntime/serve.js'
import { headline, machineOf, median, save } from './machine.js'
import { medianInterval } from './median-interval.js'
import { type BenchOptions, benchmark, count, optionsOf } from './options.js'

interface Options extends BenchOptions {
  readonly runs: number
  readonly rows: number
  readonly ms: string
  readonly given?: boolean
  readonly results?: boolean
  readonly cpu?: boolean
}

/** Where a session runs: in a `thread` of libuv, or in a `worker` of Node. */
type Place = 'thread' | 'worker'
type Way = 'arena' | 'again' | 'pool'

interface Session {
  run(input: Input): Promise<unknown>
  release(): Promise<void>
}

interface Input {
  readonly x: Float32Array
  readonly y: Float32Array
  readonly rows: number
}

interface Measured {
  readonly place: Place
  /** 0 for the model of three nodes */
  readonly layers: number
  readonly medianUs: Readonly<Record<Way, number>>
  readonly longestUs: Readonly<Record<Way, number>>
  readonly sumMs: Readonly<Record<Way, number>>
  /** of the medians of each turn, to the arena */
  readonly ratios: { readonly again: readonly number[]; readonly pool: readonly number[] }
  /** requests of the pool in a run, without frees */
  readonly requests: number
  readonly failures: number
}

const WAYS: readonly Way[] = ['arena', 'again', 'pool']
const RUNS_OF_TURN = 50
const WARM_UPS = 300
const SEED = 1
const TRIAL = { layers: 20, runs: 60 }

/** Makes the sessions of one place. */
class Sessions {
  readonly width: number
  private readonly provider: 'cpu' | 'cuda'
  private readonly opened: OnnxRuntimeLibrary

  constructor(
    private readonly place: Place,
    private readonly options: Options,
    private readonly installed: Installed,
    private readonly served: ServedOnnxRuntime,
  ) {
    this.provider = options.cpu ? 'cpu' : 'cuda'
    this.width = options.cpu ? 256 : 1024
    this.opened = OnnxRuntimeLibrary.open(installed.library)
  }

  async make(model: Uint8Array, way: Way): Promise<Session> {
    if (way === 'pool') return await this.served.createSession('pool', () => this.create(model, 'registered'))
    return await this.create(model, 'arena')
  }

  private async create(model: Uint8Array, memory: 'registered' | 'arena'): Promise<Session> {
    const { given = false } = this.options
    if (this.place === 'thread') {
      const session = new OffThreadSession(this.opened, model, this.width, memory, this.provider)
      const run = ({ x, y, rows }: Input) => session.run(given ? { x, y, rows } : { x, rows })
      return { run, release: () => session.release() }
    }
    const { InferenceSession, Tensor } = this.installed.ort
    const plain = { executionProviders: [this.provider], intraOpNumThreads: 1 }
    const session = await InferenceSession.create(model, memory === 'arena' ? plain : this.served.sessionOptions(plain))
    const run = ({ x, y, rows }: Input) => {
      const tensor = (data: Float32Array) => new Tensor('float32', data, [rows, this.width])
      return given ? session.run({ x: tensor(x) }, { y: tensor(y) }) : session.run({ x: tensor(x) })
    }
    return { run, release: () => session.release() }
  }

  /** How many layers run for `ms`, with memory of an arena. */
  async layersFor(ms: number, input: Input): Promise<number> {
    const session = await this.make(stackedModel(this.width, TRIAL.layers), 'arena')
    const all: number[] = []
    for (let run = 0; run < TRIAL.runs; run++) all.push(await usOf(session, input))
    await session.release()
    return Math.max(1, Math.round((ms * 1000 * TRIAL.layers) / median(all.slice(TRIAL.runs / 2))))
  }
}

async function usOf(session: Session, input: Input): Promise<number> {
  const start = performance.now()
  await session.run(input)
  return (performance.now() - start) * 1000
}

/** The model of three nodes for 0 ms, or a stack whose run takes some `ms`. */
async function measureModel(
  place: Place,
  ms: number,
  options: Options,
  sessions: Sessions,
  served: ServedOnnxRuntime,
): Promise<Measured> {
  const { width } = sessions
  const [x, y] = [0.5, 0].map(value => new Float32Array(options.rows * width).fill(value))
  const inputOf = (rows: number) => ({ x: x.subarray(0, rows * width), y: y.subarray(0, rows * width), rows })
  const layers = ms === 0 ? 0 : await sessions.layersFor(ms, inputOf(Math.ceil(Math.sqrt(options.rows))))
  const model = ms === 0 ? smallModel(width) : stackedModel(width, layers)
  const made = new Map<Way, Session>()
  for (const way of WAYS) made.set(way, await sessions.make(model, way))
  const random = new Random(SEED)
  const all: Record<Way, number[]> = { arena: [], again: [], pool: [] }
  // Slower models run less often, so that none takes much longer than the others.
  const turns = Math.max(3, Math.round(options.runs / RUNS_OF_TURN / Math.max(1, ms * 4)))
  let before = served.stats().allocations
  for (let run = -WARM_UPS; run < turns * RUNS_OF_TURN; run++) {
    if (run === 0) before = served.stats().allocations
    const input = inputOf(Math.floor(random.logUniform(1, options.rows)))
    const first = random.below(WAYS.length)
    for (let next = 0; next < WAYS.length; next++) {
      const way = WAYS[(first + next) % WAYS.length]
      const us = await usOf(made.get(way)!, input)
      if (run >= 0) all[way].push(us)
    }
  }
  const { allocations, failures } = served.stats()
  for (const session of made.values()) await session.release()
  const requests = (allocations - before) / all.pool.length
  return { place, layers, ...figuresOf(all), requests, failures }
}

function figuresOf(all: Readonly<Record<Way, readonly number[]>>) {
  const each = (figure: (us: readonly number[]) => number) => {
    const { arena, again, pool } = all
    return { arena: rounded(figure(arena)), again: rounded(figure(again)), pool: rounded(figure(pool)) }
  }
  const ratios = { again: [] as number[], pool: [] as number[] }
  for (let at = 0; at < all.arena.length; at += RUNS_OF_TURN) {
    const of = (way: Way) => median(all[way].slice(at, at + RUNS_OF_TURN))
    ratios.again.push(rounded(of('again') / of('arena')))
    ratios.pool.push(rounded(of('pool') / of('arena')))
  }
  return {
    medianUs: each(median),
    longestUs: each(us => Math.max(...us)),
    sumMs: each(us => us.reduce((sum, value) => sum + value, 0) / 1000),
    ratios,
  }
}

function rounded(value: number): number {
  return Number(value.toPrecision(4))
}

async function measure(place: Place, options: Options, installed: Installed): Promise<Measured[]> {
  const { cpu = false, results = false } = options
  using device = openDevice(cpu ? 'simulated' : 0)
  using pool = device.createPool({ maxPoolBytes: 8 * GiB })
  using host = device.createHostPool({ maxPoolBytes: 1 * GiB, segmentBytes: 64 * MiB })
  const { library } = installed
  using served = serveOnnxRuntime(cpu ? host : pool, { library, ...(results && !cpu ? { results: host } : {}) })
  const sessions = new Sessions(place, options, installed, served)
  const table: Measured[] = []
  for (const ms of options.ms.split(',')) {
    table.push(await measureModel(place, Number(ms), options, sessions, served))
  }
  return table
}

async function measureInWorker(options: Options): Promise<Measured[]> {
  const worker = new Worker(new URL(import.meta.url), { workerData: options, argv: process.argv.slice(2) })
  const [measured] = (await once(worker, 'message')) as [Measured[]]
  await once(worker, 'exit')
  return measured
}

function lineOf({ place, layers, medianUs, longestUs, sumMs, ratios, requests, failures }: Measured): string {
  const model = layers === 0 ? 'three nodes' : `${layers} layers`
  const interval = (values: readonly number[]) => {
    const [ratio, from, to] = medianInterval(values)
    return `${ratio.toFixed(3)} (${from.toFixed(3)} to ${to.toFixed(3)})`
  }
  const both = ({ arena, pool }: Readonly<Record<Way, number>>, digits: number) =>
    `${arena.toFixed(digits)}, ${pool.toFixed(digits)}`
  return (
    `  ${place.padEnd(8)}${model.padEnd(14)}median ${both(medianUs, 1)}   ${interval(ratios.pool)}   ` +
    `arena again ${interval(ratios.again)}   longest ${both(longestUs, 0)}   sum in ms ${both(sumMs, 0)}   ` +
    `${requests.toFixed(1)} requests a run, ${failures} failures`
  )
}

async function compare(options: Options, installed: Installed): Promise<void> {
  const { cpu = false, rows } = options
  const table = [...(await measure('thread', options, installed)), ...(await measureInWorker(options))]
  using device = openDevice(cpu ? 'simulated' : 0)
  const machine = machineOf(device)
  console.log(headline(machine, cpu ? 'ONNX Runtime runs on the CPU' : ''))
  console.log(`1 to ${rows} rows: arena and pool in µs, and the pool's ratio in turns of ${RUNS_OF_TURN} runs (95 %)`)
  for (const measured of table) console.log(lineOf(measured))
  const { runs, ms, given = false, results = false } = options
  const parameters = { runs, rows, ms, given, results, cpu, warmUps: WARM_UPS, seed: SEED }
  save(options.save, 'onnxruntime-threads', { machine, parameters, table })
}

const installed = installedOnnxRuntime()
if (!isMainThread) parentPort!.postMessage(await measure('worker', workerData as Options, installed as Installed))
else {
  const program = benchmark("ONNX Runtime's own arena beside a pool, where runs leave the thread")
    .option('--runs <number>', `most runs of a session after the first ${WARM_UPS}`, count, 4000)
    .option('--rows <number>', 'most rows of a batch', count, 64)
    .option('--ms <list>', 'how long runs of the models take; 0 is a model of three nodes', '0,0.2,1,5')
    .option('--given', 'results go to tensors that the program gives')
    .option('--results', 'results of the pool in pinned memory')
    .option('--cpu', 'the CPU, with its own arena and with a host pool')
  const given = optionsOf<Options>(program)
  const options = given.smoke ? { ...given, runs: RUNS_OF_TURN * 2, rows: 64, ms: '0,0.2' } : given
  if (typeof installed === 'string') console.log(`skipped: ${installed}`)
  else await compare(options, installed)
}
