// ONNX Runtime's own arena and a pool in one process: a session of each runs on the same input, in random order, so
// that what slows the process down slows both. The differences by size tell more than the totals of onnxruntime.ts,
// whose medians lie among batches of one size. It needs what that benchmark needs.
// Run: node dist/bench/onnxruntime-by-rows.js [--runs N] [--results] [--cpu] [--smoke] [--save DIR]

import { GiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { openDevice } from '../src/core/device/open.js'
import { installedOnnxRuntime, type OnnxSession } from '../src/onnxruntime/installed.fixture.js'
import { smallModel } from '../src/onnxruntime/model.fixture.js'
import { serveOnnxRuntime } from '../src/onnxruntime/serve.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, benchmark, optionsOf } from './options.js'

interface Options extends BenchOptions {
  readonly runs?: string
  readonly results?: boolean
  readonly cpu?: boolean
}

interface Run {
  readonly rows: number
  readonly arenaUs: number
  readonly poolUs: number
  /** requests that the pool's caches could not serve */
  readonly misses: number
}

const MOST_ROWS = 8192
/** A row of the result is for batches of 1 to 3 rows, of 4 to 15, and so on. */
const STEP = 4
const SESSIONS = 2
const WARM_UPS = 300

const program = benchmark("ONNX Runtime's own arena and a pool by turns in one process, by the rows of a batch")
  .option('--runs <number>', `runs of each after the first ${WARM_UPS}; default 2000`)
  .option('--results', 'results of the pool in pinned memory')
  .option('--cpu', 'the CPU, with its own arena and with a host pool')
const values = optionsOf<Options>(program)
const cpu = values.cpu === true
const width = cpu ? 64 : 1024
const runs = values.smoke ? 40 : Number(values.runs ?? 2000)
const installed = installedOnnxRuntime()

async function measure(): Promise<void> {
  if (typeof installed === 'string') {
    console.log(`skipped: ${installed}`)
    return
  }
  const { ort, library } = installed
  using device = openDevice(cpu ? 'simulated' : 0)
  using pool = device.createPool({ maxPoolBytes: 8 * GiB })
  using host = device.createHostPool({ maxPoolBytes: 1 * GiB, segmentBytes: 64 * MiB })
  const serving = cpu ? host : pool
  using served = serveOnnxRuntime(serving, { library, ...(values.results === true ? { results: host } : {}) })
  const provider = { executionProviders: [cpu ? 'cpu' : 'cuda'] }
  const model = smallModel(width)
  const sessionsWith = async (options: object) => {
    const sessions: OnnxSession[] = []
    while (sessions.length < SESSIONS) sessions.push(await ort.InferenceSession.create(model, options))
    return sessions
  }
  const arena = await sessionsWith(provider)
  const pooled = await sessionsWith(served.sessionOptions(provider))
  const x = new Float32Array(MOST_ROWS * width).fill(0.5)
  const random = new Random(1)
  const measured: Run[] = []
  for (let run = -WARM_UPS; run < runs; run++) {
    const rows = Math.floor(random.logUniform(1, MOST_ROWS))
    const usOf = async (sessions: readonly OnnxSession[]) => {
      const feeds = { x: new ort.Tensor('float32', x.subarray(0, rows * width), [rows, width]) }
      const start = performance.now()
      await sessions[(run + WARM_UPS) % SESSIONS].run(feeds)
      return (performance.now() - start) * 1000
    }
    const isPoolFirst = random.below(2) === 0
    const before = serving.stats().cacheMisses
    const first = await usOf(isPoolFirst ? pooled : arena)
    const second = await usOf(isPoolFirst ? arena : pooled)
    const [poolUs, arenaUs] = isPoolFirst ? [first, second] : [second, first]
    if (run >= 0) measured.push({ rows, arenaUs, poolUs, misses: serving.stats().cacheMisses - before })
  }
  for (const session of [...arena, ...pooled]) await session.release()
  const machine = machineOf(device)
  console.log(headline(machine, cpu ? 'ONNX Runtime runs on the CPU' : ''))
  console.log(`${runs} runs of each, ${SESSIONS} sessions, ${width} columns: medians in µs`)
  console.log(`  ${'rows'.padEnd(12)}   runs     arena      pool   pool - arena   misses a run`)
  const table = byRows(measured)
  for (const row of table) {
    const { name, arenaUs, poolUs, differenceUs, misses } = row
    const columns = [String(row.runs).padStart(7), arenaUs.toFixed(0).padStart(10), poolUs.toFixed(0).padStart(10)]
    console.log(
      `  ${name.padEnd(12)}${columns.join('')}${differenceUs.toFixed(1).padStart(15)}${misses.toFixed(2).padStart(15)}`,
    )
  }
  const parameters = { sessions: SESSIONS, width, mostRows: MOST_ROWS, warmUps: WARM_UPS, runs, cpu }
  save(values.save, 'onnxruntime-by-rows', {
    machine,
    parameters: { ...parameters, results: values.results === true },
    table,
  })
}

function byRows(measured: readonly Run[]) {
  const table = []
  for (let least = 1; least < MOST_ROWS; least *= STEP) {
    const some = measured.filter(({ rows }) => rows >= least && rows < least * STEP)
    if (some.length === 0) continue
    table.push({
      name: `${least} to ${Math.min(least * STEP, MOST_ROWS) - 1}`,
      runs: some.length,
      arenaUs: median(some.map(({ arenaUs }) => arenaUs)),
      poolUs: median(some.map(({ poolUs }) => poolUs)),
      differenceUs: median(some.map(({ arenaUs, poolUs }) => poolUs - arenaUs)),
      misses: some.reduce((sum, { misses }) => sum + misses, 0) / some.length,
    })
  }
  return table
}

await measure()
