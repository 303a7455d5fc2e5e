// ONNX Runtime on CUDA with its own arena and with a pool: time of a run and device memory, over batches whose sizes
// vary. Each measurement is a process of its own, by turns. The first runs are listed apart: V8 has not compiled the
// pool by then, and the pool grows. It needs onnxruntime-node with the CUDA provider; CUDA_MEMPOOL_ONNXRUNTIME names
// its folder. Run: node dist/bench/onnxruntime.js [--pairs N] [--warm-ups N] [--smoke] [--save DIR]

import { spawnSync } from 'node:child_process'
import { GiB } from '../src/base/bytes.js'
import { Random } from '../src/base/random.js'
import { openDevice } from '../src/device/open.js'
import { installedOnnxRuntime } from '../src/onnxruntime/installed.fixture.js'
import { smallModel } from '../src/onnxruntime/model.fixture.js'
import { serveOnnxRuntime } from '../src/onnxruntime/serve.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, benchmark, optionsOf } from './options.js'

interface Options extends BenchOptions {
  readonly pairs?: string
  readonly warmUps?: string
  readonly child?: Way
}

/** `pinned` is `stream`, and a host pool that serves the CPU: results arrive in pinned memory. */
type Way = 'arena' | 'stream' | 'external' | 'pinned'

interface Measured {
  /** of the runs `FIRST` to `FIRST + RUNS` of the process */
  readonly firstMedianUs: number
  readonly firstP99Us: number
  /** of the runs after the warm-ups */
  readonly medianUs: number
  readonly p99Us: number
  /** requests that reached the pools in a run, on average */
  readonly requests: number
  /** bytes of the device that the sessions took, their libraries' memory included */
  readonly deviceBytes: number
}

const WIDTH = 1024
const MOST_ROWS = 8192
const SESSIONS = 2
const FIRST = 20
const RUNS = 300
const WARM_UPS = 1000

const program = benchmark("ONNX Runtime's own arena beside a pool")
  .option('--pairs <number>', 'how often each way is measured, by turns; default 10')
  .option(
    '--warm-ups <number>',
    `runs of a process before its last ${RUNS}, at least ${FIRST + RUNS}; default ${WARM_UPS}`,
  )
  .option('--child <way>', 'one measurement in this process, printed as JSON')
const values = optionsOf<Options>(program)
const warmUps = values.smoke ? FIRST + RUNS : Math.max(FIRST + RUNS, Number(values.warmUps ?? WARM_UPS))
const installed = installedOnnxRuntime()

if (typeof installed === 'string') console.log(`skipped: ${installed}`)
else if (values.child !== undefined) console.log(JSON.stringify(await measure(values.child, installed)))
else compare()

async function measure(way: Way, { ort, library }: Exclude<typeof installed, string>): Promise<Measured> {
  using device = openDevice(0)
  using pool = device.createPool({ maxPoolBytes: 8 * GiB })
  using host = way === 'pinned' ? device.createHostPool({ maxPoolBytes: 1 * GiB }) : null
  using served =
    way === 'arena' ? null : serveOnnxRuntime(pool, { library, way: way === 'external' ? 'external' : 'stream' })
  using servedHost = host === null ? null : serveOnnxRuntime(host, { library })
  const cuda = { executionProviders: ['cuda'] }
  const model = smallModel(WIDTH)
  const freeBytes = () => device.driver.cuMemGetInfo().freeBytes
  const requests = () => (served?.stats().allocations ?? 0) + (servedHost?.stats().allocations ?? 0)
  const before = freeBytes()
  const sessions = []
  for (let i = 0; i < SESSIONS; i++) {
    sessions.push(await ort.InferenceSession.create(model, served?.sessionOptions(cuda) ?? cuda))
  }
  const random = new Random(1)
  const x = new Float32Array(MOST_ROWS * WIDTH).fill(0.5)
  const us: number[] = []
  const requestsBefore = requests()
  for (let run = 0; run < warmUps + RUNS; run++) {
    const rows = Math.floor(random.logUniform(1, MOST_ROWS))
    const feeds = { x: new ort.Tensor('float32', x.subarray(0, rows * WIDTH), [rows, WIDTH]) }
    const start = performance.now()
    await sessions[run % SESSIONS].run(feeds)
    us.push((performance.now() - start) * 1000)
  }
  const deviceBytes = before - freeBytes()
  const requestsOfRun = (requests() - requestsBefore) / us.length
  for (const session of sessions) await session.release()
  const first = us.slice(FIRST, FIRST + RUNS).sort((a, b) => a - b)
  const last = us.slice(warmUps).sort((a, b) => a - b)
  return {
    firstMedianUs: median(first),
    firstP99Us: p99(first),
    medianUs: median(last),
    p99Us: p99(last),
    requests: requestsOfRun,
    deviceBytes,
  }
}

function p99(sorted: readonly number[]): number {
  return sorted[Math.floor(sorted.length * 0.99)]
}

function compare(): void {
  const ways: readonly Way[] = ['arena', 'stream', 'external', 'pinned']
  const pairs = values.smoke ? 1 : Number(values.pairs ?? 10)
  const found = new Map(ways.map(way => [way, [] as Measured[]]))
  for (let pair = 0; pair < pairs; pair++) {
    for (const way of pair % 2 === 0 ? ways : ways.toReversed()) found.get(way)!.push(inProcess(way))
  }
  const middle = (all: readonly Measured[], of: (each: Measured) => number) => median(all.map(of))
  const rows = [...found].map(([way, all]) => ({
    way,
    firstMedianUs: middle(all, each => each.firstMedianUs),
    firstP99Us: middle(all, each => each.firstP99Us),
    medianUs: middle(all, each => each.medianUs),
    p99Us: middle(all, each => each.p99Us),
    requests: middle(all, each => each.requests),
    deviceMiB: middle(all, each => each.deviceBytes) / 2 ** 20,
    all,
  }))
  using device = openDevice(0)
  const machine = machineOf(device)
  console.log(
    headline(machine, `${SESSIONS} sessions, ${WIDTH} columns, up to ${MOST_ROWS} rows, ${pairs} processes a way`),
  )
  for (const row of rows) {
    const times = [row.firstMedianUs, row.firstP99Us, row.medianUs, row.p99Us].map(us => us.toFixed(0).padStart(6))
    console.log(
      `  ${row.way.padEnd(10)} first runs: median ${times[0]} µs  p99 ${times[1]} µs  then: median ${times[2]} µs  ` +
        `p99 ${times[3]} µs  ${row.requests.toFixed(1)} requests a run  ${row.deviceMiB.toFixed(0)} MiB`,
    )
  }
  save(values.save, 'onnxruntime', {
    machine,
    parameters: { sessions: SESSIONS, width: WIDTH, mostRows: MOST_ROWS, runs: RUNS, warmUps, pairs },
    rows,
  })
}

function inProcess(way: Way): Measured {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [process.argv[1], '--child', way, '--warm-ups', String(warmUps)],
    {
      encoding: 'utf8',
    },
  )
  if (status !== 0) throw new Error(`${way} ended with ${status}: ${stderr}`)
  return JSON.parse(stdout) as Measured
}
