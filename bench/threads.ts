// One pool in many threads: host time of a free and an allocation in 1 to N worker threads at once, each on a stream of its
// own, 512 B to 1 MiB log-uniform with 64 live each; and of buffers that one thread allocates and another one frees. Beside
// the driver's own pool from the same threads, and a loop of private arithmetic, which shows what the cores themselves lose.
// Run: node dist/bench/threads.js [--device D] [--workers N] [--young MiB] [--smoke] [--save DIR]; `young` is the size of each
// thread's young generation

import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { GiB, KiB } from '../src/base/bytes.js'
import { Random } from '../src/base/random.js'
import { attachDevice, attachPool, type Device, type SharedPoolDescriptor } from '../src/device.js'
import type { DeviceBuffer } from '../src/pool/buffer.js'
import type { SharedPool } from '../src/pool/shared-pool.js'
import { machineOf, median, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const LIVE = 64
const LEAST_BYTES = 512
const MOST_BYTES = 1024 * KiB
const STEPS = 8192
/** Handles on their way from a thread to another one: a ring, read and written some at a time; in front of it the counters. */
const RING = 1024
const BATCH = 64
const [SENT, ENDED, RECEIVED, FIRST] = [0, 1, 32, 64]
/** Handles that are not measured: until the ring was filled and everything is compiled. */
const WARM = 64 * RING
const RING_WORDS = FIRST + RING * 2

const phases = ['control', 'pair', 'mix', 'driver', 'control again'] as const
type Phase = (typeof phases)[number]

interface Task {
  readonly pool: SharedPoolDescriptor
  readonly index: number
  readonly workers: number
  /** how long each phase lasts */
  readonly milliseconds: number
  /** threads that have come to each barrier */
  readonly barriers: Int32Array
  /** handles on their way from even threads to odd ones: for each pair how many were sent and received, then records and tags */
  readonly rings: Int32Array
}

/** What one thread measured. */
interface Times {
  /** by phase: median nanoseconds of a step */
  readonly ns: Readonly<Record<Phase, number>>
  readonly misses: number
  /** buffers handed from one thread to the other, a second */
  readonly handed: number
}

class Runner {
  private readonly device: Device
  private readonly pool: SharedPool
  private readonly stream
  private readonly random: Random
  private readonly sizes: Float64Array
  private readonly victims: Int32Array
  private barrier = 0
  private sink = 1

  constructor(private readonly task: Task) {
    this.device = attachDevice(task.pool.device)
    this.pool = attachPool(task.pool)
    this.stream = this.device.createStream()
    this.random = new Random(task.index + 1)
    this.sizes = Float64Array.from({ length: STEPS }, () => this.random.logUniform(LEAST_BYTES, MOST_BYTES))
    this.victims = Int32Array.from({ length: STEPS }, () => this.random.below(LIVE))
  }

  run(): Times {
    const ns = {} as Record<Phase, number>
    let misses = 0
    for (const phase of phases) {
      const before = this.pool.stats()
      ns[phase] = this.measure(phase)
      const after = this.pool.stats()
      if (phase === 'mix') misses = (after.cacheMisses - before.cacheMisses) / (after.allocations - before.allocations)
    }
    const handed = this.task.workers > 1 ? this.hand() : 0
    this.arrive()
    this.pool.close()
    this.device.close()
    return { ns, misses, handed }
  }

  /** Waits until all threads are here, so that a phase is everybody's. */
  private arrive(): void {
    const { barriers, workers } = this.task
    const index = this.barrier++
    Atomics.add(barriers, index, 1)
    while (Atomics.load(barriers, index) < workers);
  }

  private measure(phase: Phase): number {
    const step = this.steps(phase)
    for (let warm = 0; warm < 4; warm++) step.run(STEPS)
    this.arrive()
    const batches: number[] = []
    for (const end = performance.now() + this.task.milliseconds; performance.now() < end; ) {
      const start = performance.now()
      step.run(step.count)
      batches.push(((performance.now() - start) * 1e6) / step.count)
    }
    this.arrive()
    step.end()
    return median(batches)
  }

  private steps(phase: Phase): { count: number; run: (steps: number) => void; end: () => void } {
    const done = () => {}
    switch (phase) {
      case 'pair': {
        const kept = new Array<DeviceBuffer>(LIVE)
        return { count: STEPS, run: steps => this.pairs(steps, kept), end: done }
      }
      case 'mix': {
        const live: DeviceBuffer[] = Array.from({ length: LIVE }, () => this.pool.allocate(4 * KiB, this.stream))
        const end = () => {
          for (const buffer of live) buffer.free()
        }
        return { count: STEPS, run: steps => this.mix(steps, live), end }
      }
      case 'driver': {
        const { driver } = this.device
        const live = Array.from({ length: LIVE }, () => driver.cuMemAllocAsync(4 * KiB, this.stream.handle))
        const end = () => {
          for (const ptr of live) driver.cuMemFreeAsync(ptr, this.stream.handle)
          this.stream.synchronize()
        }
        return { count: 64, run: steps => this.driverMix(Math.min(steps, 256), live), end }
      }
      default:
        return { count: STEPS, run: steps => this.control(steps), end: done }
    }
  }

  private pairs(steps: number, kept: DeviceBuffer[]): void {
    const { pool, stream } = this
    for (let step = 0; step < steps; step++) {
      const buffer = pool.allocate(4 * KiB, stream)
      kept[step & (LIVE - 1)] = buffer
      buffer.free()
    }
  }

  private mix(steps: number, live: DeviceBuffer[]): void {
    const { pool, stream, sizes, victims } = this
    for (let step = 0; step < steps; step++) {
      const victim = victims[step]
      live[victim].free()
      live[victim] = pool.allocate(sizes[step], stream)
    }
  }

  private driverMix(steps: number, live: number[]): void {
    const { sizes, victims } = this
    const { driver } = this.device
    const { handle } = this.stream
    const first = this.random.below(STEPS - steps)
    for (let step = first; step < first + steps; step++) {
      driver.cuMemFreeAsync(live[victims[step]], handle)
      live[victims[step]] = driver.cuMemAllocAsync(sizes[step], handle)
    }
  }

  /** Four chains beside each other, so that it takes as much of a core as other code does, and loses as much where two threads share one. */
  private control(steps: number): void {
    let [a, b, c, d] = [this.sink, 2, 3, 4]
    for (let step = 0; step < steps * 4; step++) {
      a = (Math.imul(a, 1664525) + 1013904223) | 0
      b = (Math.imul(b, 22695477) + (a >>> 16)) | 0
      c = (Math.imul(c, 1103515245) + 12345) | 0
      d = (Math.imul(d, 214013) + (c >>> 16)) | 0
    }
    this.sink = a ^ b ^ c ^ d
  }

  /** Even threads allocate, odd ones free; returns how many buffers a second a pair hands over. */
  private hand(): number {
    const { index, rings, milliseconds } = this.task
    const pair = rings.subarray((index >> 1) * RING_WORDS, ((index >> 1) + 1) * RING_WORDS)
    this.arrive()
    const rate = index % 2 === 0 ? this.produce(pair, milliseconds) : this.consume(pair)
    this.arrive()
    return rate
  }

  private produce(pair: Int32Array, milliseconds: number): number {
    let sent = 0
    let start = 0
    let end = Infinity
    do {
      while (sent + BATCH - Atomics.load(pair, RECEIVED) > RING);
      for (let left = BATCH; left > 0; left--) {
        const { record, tag } = this.pool.allocate(4 * KiB, this.stream).transfer()
        const place = FIRST + (sent++ % RING) * 2
        pair[place] = record
        pair[place + 1] = tag
      }
      Atomics.store(pair, SENT, sent)
      if (sent === WARM) {
        start = performance.now()
        end = start + milliseconds
      }
    } while ((sent & 1023) !== 0 || sent < WARM || performance.now() < end)
    Atomics.store(pair, ENDED, 1)
    return ((sent - WARM) / (performance.now() - start)) * 1000
  }

  private consume(pair: Int32Array): number {
    const { number } = this.task.pool
    let received = 0
    for (;;) {
      const ended = Atomics.load(pair, ENDED) === 1
      const sent = Atomics.load(pair, SENT)
      if (received === sent && ended) return 0
      while (received < sent) {
        for (let left = BATCH; left > 0; left--) {
          const place = FIRST + (received++ % RING) * 2
          this.pool.adopt({ pool: number, record: pair[place], tag: pair[place + 1] }).free()
        }
        Atomics.store(pair, RECEIVED, received)
      }
    }
  }
}

async function main(): Promise<void> {
  const program = deviceBenchmark("one pool that worker threads share, beside the driver's pool")
    .option('--workers <n>', 'up to so many, 1, 2, 4 and so on', '2')
    .option('--young <MiB>', "the size of each thread's young generation")
  const values = optionsOf<BenchOptions & { workers: string; young?: string }>(program)
  const device = deviceOf(program)
  const machine = machineOf(device)
  console.log(
    `${machine.device}, ${machine.cores} cores, Node ${machine.node}: medians; ns of a free + allocate in each thread, in all millions a second`,
  )
  const table: Record<string, string | number>[] = []
  const most = values.smoke ? 2 : Number(values.workers)
  for (let workers = 1; workers <= most; workers *= 2)
    table.push(await measure(device, workers, values.smoke ? 5 : 400, values.young))
  console.table(table)
  if (device.simulated) console.log('The device is simulated: the driver’s figures are not a GPU’s.')
  device.close()
  save(values.save, device.simulated ? 'simulated-threads' : 'h200-threads', {
    machine,
    live: LIVE,
    sizes: [LEAST_BYTES, MOST_BYTES],
    table,
  })
}

async function measure(
  device: Device,
  workers: number,
  milliseconds: number,
  young: string | undefined,
): Promise<Record<string, string | number>> {
  const pool = device.createPool({ shared: true, maxPoolBytes: device.simulated ? 1 * GiB : 8 * GiB })
  const words = (length: number) => new Int32Array(new SharedArrayBuffer(length * 4))
  const shared = {
    pool: pool.share(),
    workers,
    milliseconds,
    barriers: words(32),
    rings: words(workers * RING_WORDS),
  }
  const times = await Promise.all(
    Array.from({ length: workers }, async (_, index) => {
      const task: Task = { ...shared, index }
      const resourceLimits = young === undefined ? {} : { maxYoungGenerationSizeMb: Number(young) }
      const worker = new Worker(new URL(import.meta.url), { workerData: task, resourceLimits })
      const [result] = await once(worker, 'message')
      await once(worker, 'exit')
      return result as Times
    }),
  )
  pool.check()
  pool.close()
  const mean = (of: (each: Times) => number) => times.reduce((sum, each) => sum + of(each), 0) / workers
  const total = (of: (each: Times) => number) => times.reduce((sum, each) => sum + 1000 / of(each), 0)
  const round = (value: number) => Number(value.toPrecision(3))
  return {
    workers,
    'pair ns': round(mean(({ ns }) => ns.pair)),
    'mix ns': round(mean(({ ns }) => ns.mix)),
    'mix M/s': round(total(({ ns }) => ns.mix)),
    'driver ns': round(mean(({ ns }) => ns.driver)),
    'driver M/s': round(total(({ ns }) => ns.driver)),
    'control ns': round(mean(({ ns }) => Math.min(ns.control, ns['control again']))),
    'misses %': round(100 * mean(({ misses }) => misses)),
    'handed M/s a pair': round((2 * mean(({ handed }) => handed)) / 1e6),
  }
}

if (isMainThread) await main()
else parentPort!.postMessage(new Runner(workerData as Task).run())
