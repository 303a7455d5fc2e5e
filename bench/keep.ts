// Kept memory: attaching a region, switches of a shelf of models with kept weights, a server that is killed and answers
// again, a keeper that is replaced under requests, and what the idle keeper takes.
// Run: node dist/bench/keep.js [--device D] [--gib N] [--smoke] [--save DIR]

import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { GiB, MiB } from '../src/core/base/bytes.js'
import { type Keep, openKeep, type Region } from '../src/entries/processes.js'
import type { Device, DeviceArray } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const COMMAND = fileURLToPath(new URL('../lib/cli/main.js', import.meta.url))
const SERVER = fileURLToPath(new URL('keep/server.js', import.meta.url))

const MODELS = 8
const ROOM = 3
const WORK_BYTES = 256 * MiB

/** A server with kept weights, as its parent sees it. */
class Server {
  private constructor(
    private readonly process: ChildProcess,
    private readonly size: number,
  ) {}

  static async start(path: string, device: Device, env: NodeJS.ProcessEnv): Promise<Server> {
    const process = fork(SERVER, [path, device.simulated ? 'simulated' : `${device.ordinal}`], { env })
    const [size] = await once(process, 'message')
    return new Server(process, size)
  }

  /** Throws if the server answers wrongly. */
  async ask(): Promise<void> {
    this.process.send(0.5)
    const [answer] = await once(this.process, 'message')
    if (answer !== this.size) throw new Error(`the server answered ${answer} instead of ${this.size}`)
  }

  kill(): Promise<void> {
    return end(this.process, 'SIGKILL')
  }
}

async function startKeeper(path: string, ...words: readonly string[]): Promise<ChildProcess> {
  const stdio = ['ignore', 'pipe', 'inherit'] as const
  const keeper = spawn(process.execPath, [COMMAND, 'keep', '--socket', path, ...words], { stdio: [...stdio] })
  await once(keeper.stdout!, 'data')
  return keeper
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const ended = once(child, 'exit')
  child.kill(signal)
  await ended
}

/** Milliseconds of work, each time. */
async function timesOf(count: number, work: () => Promise<void>): Promise<number[]> {
  const times: number[] = []
  for (let n = 0; n < count; n++) {
    const start = performance.now()
    await work()
    times.push(performance.now() - start)
  }
  return times
}

/**
 * Milliseconds of switches between models of `bytes` with kept weights: each has work memory of its own, and the shelf
 * has room for that of three. Throws if a model has lost its weights.
 */
async function switchesOfModels(device: Device, keep: Keep, bytes: number, count: number): Promise<number[]> {
  await using shelf = device.createShelf<DeviceArray<Float32Array>>({ budgetBytes: ROOM * WORK_BYTES })
  const regions: Region[] = []
  for (let model = 0; model < MODELS; model++) {
    const region = await keep.region(`${model}`, { bytes, version: 'v1' }, filling => {
      filling.place('weights', Float32Array, bytes / Float32Array.BYTES_PER_ELEMENT).fill(model)
    })
    regions.push(region)
    const load = (pool: { allocate(size: number): { free(): void } }) => {
      pool.allocate(WORK_BYTES).free() // stays in the pool as long as the model is awake
      return region.array('weights', Float32Array)
    }
    shelf.add(region.name, { bytes: WORK_BYTES, load })
  }
  const times: number[] = []
  for (let turn = 0; turn < MODELS + count; turn++) {
    const model = turn % MODELS
    const [last] = await shelf.use(`${model}`, weights => weights.subarray(-1).read())
    if (last !== model) throw new Error(`model ${model} has lost its weights`)
    if (turn >= MODELS) times.push(shelf.stats().lastSwitchMs) // the first use of each loads it
  }
  for (const region of regions) region.close()
  return times
}

/** Resident bytes of a process, and its CPU time in milliseconds. */
function usageOf(pid: number): { readonly residentBytes: number; readonly cpuMs: number } {
  const [, resident] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))!
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return { residentBytes: Number(resident) * 1024, cpuMs: (Number(fields[11]) + Number(fields[12])) * 10 }
}

async function main(): Promise<void> {
  const program = deviceBenchmark('memory that outlives its process').option('--gib <n>', 'GiB of the region', '32')
  const values = optionsOf<BenchOptions & { readonly gib: string }>(program)
  const device = deviceOf(program)
  const folder = mkdtempSync(join(tmpdir(), 'keep-bench-'))
  const path = join(folder, 'sockets', 'keep.sock')
  mkdirSync(join(folder, 'machine'))
  const env = {
    ...process.env,
    ...(device.simulated && { CUDA_MEMPOOL_DEVICE: 'simulated', CUDA_MEMPOOL_SIMULATED: join(folder, 'machine') }),
  }
  const bytes = values.smoke ? 4 * MiB : Number(values.gib) * GiB
  const [rounds, idleMs] = values.smoke ? [2, 100] : [20, 10_000]
  let keeper = await startKeeper(path)

  const keep = await openKeep(device, { path })
  const [makingMs] = await timesOf(1, async () => (await keep.region('large', { bytes }, () => {})).close())
  const attaching = await timesOf(rounds, async () => (await keep.attach('large')).close())
  await keep.drop('large')
  const switches = await switchesOfModels(device, keep, bytes / MODELS, rounds * MODELS)
  await keep.prune({ all: true })

  let server = await Server.start(path, device, env)
  await server.ask()
  const restarts = await timesOf(rounds, async () => {
    await server.kill()
    server = await Server.start(path, device, env)
    await server.ask()
  })

  let isOver = false
  const requests: number[] = []
  const asking = (async () => {
    while (!isOver)
      requests.push(
        ...(await timesOf(1, async () => {
          await keep.list()
          await server.ask()
        })),
      )
  })()
  const handovers = await timesOf(rounds, async () => {
    const gone = once(keeper, 'exit')
    const successor = await startKeeper(path, '--replace')
    await gone
    keeper = successor
  })
  isOver = true
  await asking

  await pause(idleMs) // some seconds after its last work V8 makes its heap smaller
  const before = usageOf(keeper.pid!)
  await pause(idleMs)
  const idle = usageOf(keeper.pid!)
  const result = {
    attachMs: attaching,
    makingMs,
    switchMs: switches,
    restartMs: restarts,
    handoverMs: handovers,
    requestMs: requests,
    keeper: { residentBytes: idle.residentBytes, cpuMs: idle.cpuMs - before.cpuMs, idleMs },
  }
  await server.kill()
  await keep.prune({ all: true })
  keep.close()
  await end(keeper, 'SIGTERM')
  rmSync(folder, { recursive: true })

  const machine = machineOf(device)
  console.log(headline(machine, "its times are no GPU's"))
  const row = (name: string, times: readonly number[]) => ({
    name,
    count: times.length,
    medianMs: median(times),
    longestMs: Math.max(...times),
  })
  console.table([
    row(`attach ${bytes / GiB} GiB`, attaching),
    row(`switch to a model with ${bytes / MODELS / GiB} GiB of kept weights`, switches),
    row('SIGKILL of a server to its right answer', restarts),
    row('replace the keeper', handovers),
    row('request meanwhile, to the keeper and to the server', requests),
  ])
  console.log(
    `the idle keeper: ${(idle.residentBytes / 1e6).toFixed(1)} MB resident, ${result.keeper.cpuMs} ms of CPU time in ${idleMs} ms`,
  )
  save(values.save, 'keep', {
    machine,
    parameters: { bytes, rounds, idleMs, models: MODELS, room: ROOM, workBytes: WORK_BYTES },
    ...result,
  })
  device.close()
}

await main()
