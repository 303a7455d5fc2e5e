// ONNX Runtime on CUDA with its own arena and with a pool: time of a run and device memory, over batches whose sizes
// vary. Each measurement is a process of its own, by turns. It needs onnxruntime-node with the CUDA provider;
// CUDA_MEMPOOL_ONNXRUNTIME names its folder. Run: node dist/bench/onnxruntime.js [--pairs N] [--smoke] [--save DIR]

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
  readonly child?: Way
}

type Way = 'arena' | 'stream' | 'external'

interface Measured {
  readonly medianUs: number
  readonly p99Us: number
  /** bytes of the device that the sessions took, their libraries' memory included */
  readonly deviceBytes: number
}

const WIDTH = 1024
const MOST_ROWS = 8192
const SESSIONS = 2
const WARM_UPS = 20
const RUNS = 300

const program = benchmark("ONNX Runtime's own arena beside a pool")
  .option('--pairs <number>', 'how often each way is measured, by turns; default 10')
  .option('--child <way>', 'one measurement in this process, printed as JSON')
const values = optionsOf<Options>(program)
const installed = installedOnnxRuntime()

if (typeof installed === 'string') console.log(`skipped: ${installed}`)
else if (values.child !== undefined) console.log(JSON.stringify(await measure(values.child, installed)))
else compare()

async function measure(way: Way, { ort, library }: Exclude<typeof installed, string>): Promise<Measured> {
  using device = openDevice(0)
  using pool = device.createPool({ maxPoolBytes: 8 * GiB })
  using served = way === 'arena' ? null : serveOnnxRuntime(pool, { library, way })
  const cuda = { executionProviders: ['cuda'] }
  const model = smallModel(WIDTH)
  const freeBytes = () => device.driver.cuMemGetInfo().freeBytes
  const before = freeBytes()
  const sessions = []
  for (let i = 0; i < SESSIONS; i++) {
    sessions.push(await ort.InferenceSession.create(model, served?.sessionOptions(cuda) ?? cuda))
  }
  const random = new Random(1)
  const x = new Float32Array(MOST_ROWS * WIDTH).fill(0.5)
  const us: number[] = []
  for (let run = 0; run < WARM_UPS + RUNS; run++) {
    const rows = Math.floor(random.logUniform(1, MOST_ROWS))
    const feeds = { x: new ort.Tensor('float32', x.subarray(0, rows * WIDTH), [rows, WIDTH]) }
    const start = performance.now()
    await sessions[run % SESSIONS].run(feeds)
    if (run >= WARM_UPS) us.push((performance.now() - start) * 1000)
  }
  const deviceBytes = before - freeBytes()
  for (const session of sessions) await session.release()
  us.sort((a, b) => a - b)
  return { medianUs: median(us), p99Us: us[Math.floor(us.length * 0.99)], deviceBytes }
}

function compare(): void {
  const ways: readonly Way[] = ['arena', 'stream', 'external']
  const pairs = values.smoke ? 1 : Number(values.pairs ?? 10)
  const found = new Map(ways.map(way => [way, [] as Measured[]]))
  for (let pair = 0; pair < pairs; pair++) {
    for (const way of pair % 2 === 0 ? ways : ways.toReversed()) found.get(way)!.push(inProcess(way))
  }
  const rows = [...found].map(([way, all]) => ({
    way,
    medianUs: median(all.map(each => each.medianUs)),
    p99Us: median(all.map(each => each.p99Us)),
    deviceMiB: median(all.map(each => each.deviceBytes)) / 2 ** 20,
    all,
  }))
  using device = openDevice(0)
  const machine = machineOf(device)
  console.log(
    headline(machine, `${SESSIONS} sessions, ${WIDTH} columns, up to ${MOST_ROWS} rows, ${pairs} processes a way`),
  )
  for (const { way, medianUs, p99Us, deviceMiB } of rows) {
    console.log(
      `  ${way.padEnd(10)} median ${medianUs.toFixed(0)} µs  p99 ${p99Us.toFixed(0)} µs  ${deviceMiB.toFixed(0)} MiB`,
    )
  }
  save(values.save, 'onnxruntime', {
    machine,
    parameters: { sessions: SESSIONS, width: WIDTH, mostRows: MOST_ROWS, runs: RUNS, pairs },
    rows,
  })
}

function inProcess(way: Way): Measured {
  const { status, stdout, stderr } = spawnSync(process.execPath, [process.argv[1], '--child', way], {
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`${way} ended with ${status}: ${stderr}`)
  return JSON.parse(stdout) as Measured
}
