// ONNX Runtime with its own arena and with a pool: time of a run and device memory, over batches whose sizes vary.
// Each way has a process of its own. The processes of a group live at the same time and take turns of some runs on the
// same inputs, so that whatever slows the machine down slows all of them. They start and take turns in random order:
// which process runs before counts for more than the way. `arena-again` shows what is left of chance. The first runs
// are listed apart: V8 has not compiled the pool by then, and the pool grows. It needs onnxruntime-node with the CUDA
// provider; CUDA_MEMPOOL_ONNXRUNTIME names its folder.
// Run: node dist/bench/onnxruntime.js [--pairs N] [--runs N] [--ways LIST] [--cpu] [--smoke] [--save DIR]

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { GiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { openDevice } from '../src/core/device/open.js'
import { type Installed, installedOnnxRuntime } from '../src/onnxruntime/installed.fixture.js'
import { smallModel } from '../src/onnxruntime/model.fixture.js'
import { serveOnnxRuntime } from '../src/onnxruntime/serve.js'
import { headline, machineOf, median, save } from './machine.js'
import { medianInterval } from './median-interval.js'
import { type BenchOptions, benchmark, optionsOf } from './options.js'

interface Options extends BenchOptions {
  readonly pairs?: string
  readonly runs?: string
  readonly ways?: string
  readonly cpu?: boolean
  readonly child?: Way
}

/**
 * `arena-again` is `arena`, and `arena-pinned` has inputs in pinned memory. `named` is `stream` with each run in
 * `served.as`. `pinned` is `stream` with results in pinned memory, and `pinned-both` with inputs, too. `host` is for
 * the CPU.
 */
type Way =
  | 'arena'
  | 'arena-again'
  | 'arena-pinned'
  | 'stream'
  | 'named'
  | 'external'
  | 'pinned'
  | 'pinned-both'
  | 'host'

/** What a child says of a turn. */
interface Turn {
  readonly us: readonly number[]
  /** requests that have reached the pools since the sessions were made */
  readonly requests: number
  /** by how many bytes the device's free memory has fallen in this turn, or while the sessions were made */
  readonly deviceBytes: number
}

interface Measured {
  /** of the runs from `FIRST` to `WARM_UPS` of a process */
  readonly firstMedianUs: number
  readonly firstP99Us: number
  /** of the runs after these */
  readonly medianUs: number
  readonly p99Us: number
  readonly meanUs: number
  /** requests that reached the pools in a run */
  readonly requests: number
  /** bytes of the device that the sessions took, their libraries' memory included */
  readonly deviceBytes: number
}

const PINNED_RESULTS: readonly Way[] = ['pinned', 'pinned-both']
const PINNED_INPUTS: readonly Way[] = ['arena-pinned', 'pinned-both']
const MOST_ROWS = 8192
const SESSIONS = 2
const FIRST = 20
const WARM_UPS = 320
const RUNS_OF_TURN = 40
const TIMES = ['firstMedianUs', 'firstP99Us', 'medianUs', 'p99Us', 'meanUs'] as const

const program = benchmark("ONNX Runtime's own arena beside a pool")
  .option('--pairs <number>', 'how often all ways are measured; default 10')
  .option('--runs <number>', `runs of a process after its first ${WARM_UPS}; default 800`)
  .option(
    '--ways <list>',
    'which of arena, arena-again, arena-pinned, stream, named, external, pinned, pinned-both and host; default all but ' +
      'external and host',
  )
  .option('--cpu', 'the CPU, with its own arena and with a host pool')
  .option('--child <way>', 'for the program itself: one process, which takes turns')
const values = optionsOf<Options>(program)
const cpu = values.cpu === true
const WIDTH = cpu ? 64 : 1024
const runs = values.smoke ? RUNS_OF_TURN : Number(values.runs ?? 800)
const pairs = values.smoke ? 1 : Number(values.pairs ?? 10)
const ways = (
  values.ways ?? (cpu ? 'arena,host' : 'arena,arena-again,arena-pinned,stream,named,pinned,pinned-both')
).split(',') as Way[]
const installed = installedOnnxRuntime()

async function takeTurns(way: Way, { ort, library }: Installed): Promise<void> {
  using device = openDevice(cpu ? 'simulated' : 0)
  using pool = device.createPool({ maxPoolBytes: 8 * GiB })
  // One segment for all results: smaller ones would be freed and created anew as sizes vary, at 15 ms each.
  using host = device.createHostPool({ maxPoolBytes: 1 * GiB, segmentBytes: 64 * MiB })
  const results = PINNED_RESULTS.includes(way) ? { results: host } : {}
  using served = way.startsWith('arena')
    ? null
    : serveOnnxRuntime(way === 'host' ? host : pool, {
        library,
        way: way === 'external' ? way : 'stream',
        ...results,
      })
  const provider = { executionProviders: [cpu ? 'cpu' : 'cuda'] }
  const model = smallModel(WIDTH)
  const freeBytes = () => device.driver.cuMemGetInfo().freeBytes
  const requests = () => (way === 'host' ? 0 : pool.stats().allocations) + host.stats().allocations
  let before = freeBytes()
  const sessions = []
  for (let i = 0; i < SESSIONS; i++) {
    sessions.push(await ort.InferenceSession.create(model, served?.sessionOptions(provider) ?? provider))
  }
  const requestsBefore = requests()
  const tell = (us: readonly number[]) => {
    process.send!({ us, requests: requests() - requestsBefore, deviceBytes: before - freeBytes() } satisfies Turn)
  }
  tell([])
  const random = new Random(1)
  const length = MOST_ROWS * WIDTH
  const bytes = length * Float32Array.BYTES_PER_ELEMENT
  using pinned = PINNED_INPUTS.includes(way) ? host.allocate(bytes) : null
  const x = pinned?.view(Float32Array) ?? new Float32Array(length)
  x.fill(0.5)
  for (let run = 0; ; ) {
    const [count] = (await once(process, 'message')) as [number]
    if (count === 0) break
    before = freeBytes()
    const us = []
    for (const end = run + count; run < end; run++) {
      const rows = Math.floor(random.logUniform(1, MOST_ROWS))
      const feeds = { x: new ort.Tensor('float32', x.subarray(0, rows * WIDTH), [rows, WIDTH]) }
      const session = sessions[run % SESSIONS]
      const start = performance.now()
      if (way === 'named') await served!.as(`session ${run % SESSIONS}`, () => session.run(feeds))
      else await session.run(feeds)
      us.push((performance.now() - start) * 1000)
    }
    tell(us)
  }
  for (const session of sessions) await session.release()
  process.disconnect()
}

class Child {
  private readonly us: number[] = []
  private requests = 0
  private deviceBytes = 0

  private readonly ended: Promise<number>

  private constructor(
    private readonly way: Way,
    private readonly child: ChildProcess,
  ) {
    this.ended = once(child, 'exit').then(([code]) => code as number)
  }

  /** Returns when the sessions are made. */
  static async start(way: Way): Promise<Child> {
    const child = new Child(way, fork(process.argv[1], ['--child', way, ...(cpu ? ['--cpu'] : [])]))
    await child.answer()
    return child
  }

  async turn(count: number): Promise<void> {
    this.child.send(count)
    await this.answer()
  }

  async end(): Promise<Measured> {
    this.child.send(0)
    await this.ended
    const sorted = (from: number, to?: number) => this.us.slice(from, to).sort((a, b) => a - b)
    const first = sorted(FIRST, WARM_UPS)
    const last = sorted(WARM_UPS)
    return {
      firstMedianUs: median(first),
      firstP99Us: p99(first),
      medianUs: median(last),
      p99Us: p99(last),
      meanUs: last.reduce((sum, us) => sum + us) / last.length,
      requests: this.requests / this.us.length,
      deviceBytes: this.deviceBytes,
    }
  }

  private async answer(): Promise<void> {
    const answer = await Promise.race([once(this.child, 'message'), this.ended])
    if (typeof answer === 'number') throw new Error(`the process of '${this.way}' has ended with ${answer}`)
    const [{ us, requests, deviceBytes }] = answer as [Turn]
    this.us.push(...us)
    this.requests = requests
    this.deviceBytes += deviceBytes
  }
}

function p99(sorted: readonly number[]): number {
  return sorted[Math.floor(sorted.length * 0.99)]
}

async function measurePair(pair: number): Promise<Measured[]> {
  const random = new Random(pair)
  const children = new Map<Way, Child>()
  for (const way of shuffled(ways, random)) children.set(way, await Child.start(way))
  for (let done = 0; done < WARM_UPS + runs; done += RUNS_OF_TURN) {
    for (const way of shuffled(ways, random)) await children.get(way)!.turn(RUNS_OF_TURN)
  }
  const measured: Measured[] = []
  for (const way of ways) measured.push(await children.get(way)!.end())
  return measured
}

function shuffled<T>(list: readonly T[], random: Random): T[] {
  const rest = [...list]
  return list.map(() => rest.splice(random.below(rest.length), 1)[0])
}

async function compare(): Promise<void> {
  const all: Measured[][] = []
  for (let pair = 0; pair < pairs; pair++) {
    all.push(await measurePair(pair))
    const figures = ways.map((way, index) => {
      const { medianUs, p99Us } = all[pair][index]
      return `${way} ${medianUs.toFixed(0)} and ${p99Us.toFixed(0)} µs`
    })
    console.log(`  pair ${pair + 1}: median and 99th percentile: ${figures.join(', ')}`)
  }
  const base = ways.indexOf('arena')
  const rows = ways.map((way, index) => {
    const own = all.map(pair => pair[index])
    const times = TIMES.map(name => {
      const us = median(own.map(each => each[name]))
      const ratios = base === -1 ? [] : all.map(pair => pair[index][name] / pair[base][name])
      const [ratio, from, to] = ratios.length === 0 ? [null, null, null] : medianInterval(ratios)
      return { name, us, ratio, from, to, ratios }
    })
    const deviceMiB = median(own.map(each => each.deviceBytes)) / 2 ** 20
    return { way, times, requests: median(own.map(each => each.requests)), deviceMiB, all: own }
  })
  using device = openDevice(cpu ? 'simulated' : 0)
  const machine = machineOf(device)
  console.log(headline(machine, cpu ? 'ONNX Runtime runs on the CPU' : ''))
  console.log(
    `${SESSIONS} sessions, ${WIDTH} columns, up to ${MOST_ROWS} rows, ${pairs} pairs of ${WARM_UPS} + ${runs} runs: ` +
      'µs, and the ratio to the arena in each pair',
  )
  for (const { way, times, requests, deviceMiB } of rows) {
    console.log(`  ${way}: ${requests.toFixed(1)} requests a run, ${deviceMiB.toFixed(0)} MiB`)
    for (const { name, us, ratio, from, to } of times) {
      const compared = ratio === null ? '' : `   ${ratio.toFixed(3)}  (95 %: ${from!.toFixed(3)} to ${to!.toFixed(3)})`
      console.log(`    ${name.padEnd(14)}${us.toFixed(0).padStart(7)}${compared}`)
    }
  }
  save(values.save, 'onnxruntime', {
    machine,
    parameters: { sessions: SESSIONS, width: WIDTH, mostRows: MOST_ROWS, warmUps: WARM_UPS, runs, pairs, cpu },
    rows,
  })
}

if (typeof installed === 'string') console.log(`skipped: ${installed}`)
else if (values.child !== undefined) await takeTurns(values.child, installed)
else await compare()
