// One pool in many threads: host time of a free and an allocation in 1 to N worker threads at once, each on its own
// stream, 512 B to 1 MiB log-uniform with 64 live each; and of buffers that one thread allocates and a second thread
// frees. The driver's own pool runs from the same threads. Two loops that share nothing show the loss of the cores
// themselves: the arithmetic of such a step over private tables, and the same steps on a private pool. Run: node
// dist/bench/threads.js [--device D] [--workers N] [--young MiB] [--smoke] [--save DIR]; `young` is the size of each
// thread's young generation. The file is long because all loops run in the same workers and share their tasks.

import { once } from 'node:events'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { GiB, KiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { attachDevice, attachPool } from '../src/core/device/attach.js'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import type { SharedPoolDescriptor } from '../src/core/device/shared-pools.js'
import { classOf } from '../src/core/heap/size-classes.js'
import type { Stream } from '../src/core/order/stream.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import { machineOf, median, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const LIVE = 64
const LEAST_BYTES = 512
const MOST_BYTES = 1024 * KiB
const STEPS = 8192
/**
 * A ring of handles on their way between two threads, read and written in batches; the counters lie in front of it.
 */
const RING = 1024
const BATCH = 64
const [SENT, RECEIVED, FIRST] = [0, 32, 64]
/** The value of the counter of sent handles that says: no more come. */
const ENDED = -1
/** The word beside each counter: whether the other thread sleeps until the counter grows. */
const ASLEEP = 16
/** Polls before a thread sleeps, some tens of microseconds. */
const SPINS = 3000
const PATIENCE_MS = 1
/** Warm-up handles, not measured. */
const WARM = 64 * RING
const RING_WORDS = FIRST + RING * 2
/**
 * Runs of the row of one worker, which is their median: cores differ, and the other rows are compared with this one.
 */
const SINGLE_RUNS = 5
/**
 * The limit of each thread's young generation in MiB: three times one of its halves, so that a half stays in a near
 * cache.
 */
const DEFAULT_YOUNG = '12'
/** Records in the tables of the arithmetic, about as many as the mix has blocks. */
const RECORDS = 4096
const PLACES = 16

/** The phases in order. The controls are next to the mix, since a core's speed changes within a second. */
const phases = ['pair', 'arithmetic', 'mix', 'arithmetic again', 'own pool', 'driver'] as const
type Phase = (typeof phases)[number]

/** The meaning of the columns, for readers of the result. */
const COLUMNS = {
  workers: 'threads at once; every column of one thread is the median of `singleRuns` runs',
  'pair ns': 'of an allocation of 4 KiB and its free, mean of all threads',
  'mix ns': 'of a free and an allocation of 512 B to 1 MiB, log-uniform, with 64 live, mean of all threads',
  'mix M/s': 'million free + allocate a second, in all threads',
  'driver ns': 'the same by cuMemFreeAsync and cuMemAllocAsync',
  'driver M/s': 'the same in all threads',
  'arithmetic ns':
    'control: sizes, classes, records and stacks as in the mix, in tables of the thread, without buffers; before or after the mix, whichever was less',
  'own pool ns': 'control: the mix on a pool of the same kind that no other thread uses, on a simulated device',
  'mix ÷ 1 worker': 'mix ns over that of one worker',
  'mix ÷ arithmetic':
    'mix ns over the mean of the arithmetic before and after it in the same thread, mean of all threads',
  'mix ÷ own pool': 'mix ns over own pool ns of the same thread, mean of all threads',
  'by arithmetic': 'mix ÷ arithmetic over that of one worker: what the mix became slower by and the core did not',
  'by own pool': 'the same of mix ÷ own pool',
  'misses %': 'allocations of the mix that found no block at hand',
  'handed M/s a pair':
    'million buffers a second that each pair of threads allocates in one and frees in the other, which adopts 64 at a time; mean of all pairs',
  'slowest pair': 'the same of the slowest pair',
} as const

interface Task {
  readonly pool: SharedPoolDescriptor
  readonly index: number
  readonly workers: number
  /** how long each phase lasts */
  readonly milliseconds: number
  /** threads that have reached each barrier */
  readonly barriers: Int32Array
  /** for each pair: the numbers of handles sent and received, then their records and tags */
  readonly rings: Int32Array
}

/** The figures of one thread. */
interface Times {
  /** by phase: median nanoseconds of a step */
  readonly ns: Readonly<Record<Phase, number>>
  readonly misses: number
  /** buffers handed over between two threads each second */
  readonly handed: number
}

class Runner {
  private readonly device: Device
  private readonly pool: SharedPool
  private readonly stream
  private readonly random: Random
  private readonly sizes: Float64Array
  private readonly victims: Int32Array
  private readonly tables = newTables()
  private barrier = 0

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
    this.pool.close()
    this.device.close()
    return { ns, misses, handed }
  }

  /** Waits for all threads, so that they run each phase together. */
  private arrive(): void {
    const { barriers, workers } = this.task
    const index = this.barrier++
    Atomics.add(barriers, index, 1)
    Atomics.notify(barriers, index)
    for (let here = 0; here < workers; here = Atomics.load(barriers, index)) Atomics.wait(barriers, index, here)
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
        const live = this.someBuffers(this.pool, this.stream)
        return { count: STEPS, run: steps => this.mix(steps, live, this.pool, this.stream), end: () => freeAll(live) }
      }
      case 'own pool': {
        const device = openDevice('simulated')
        const pool = device.createSharedPool({ maxPoolBytes: 1 * GiB })
        const stream = device.createStream()
        const live = this.someBuffers(pool, stream)
        const end = () => {
          freeAll(live)
          pool.close()
          device.close()
        }
        return { count: STEPS, run: steps => this.mix(steps, live, pool, stream), end }
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
        return { count: STEPS, run: steps => this.arithmetic(steps), end: done }
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

  private someBuffers(pool: SharedPool, stream: Stream): DeviceBuffer[] {
    return Array.from({ length: LIVE }, () => pool.allocate(4 * KiB, stream))
  }

  private mix(steps: number, live: DeviceBuffer[], pool: SharedPool, stream: Stream): void {
    const { sizes, victims } = this
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

  /**
   * The mix's loads, stores and unpredictable branches on records and stacks of cached blocks, over private tables.
   */
  private arithmetic(steps: number): void {
    const { sizes, victims, tables } = this
    const { words, stacks, tops, spare, live } = tables
    let { spares } = tables
    for (let step = 0; step < steps; step++) {
      const victim = victims[step]
      const freed = live[victim]
      words[(freed << 4) | 14] ^= 3
      words[(freed << 4) | 8] = step
      const kept = classOf(words[(freed << 4) | 2])
      if (tops[kept] < PLACES) stacks[(kept << 4) | tops[kept]++] = freed
      else spare[spares++] = freed
      const units = (sizes[step] + 255) >>> 8
      const wanted = classOf(units)
      let record = tops[wanted] === 0 ? 0 : stacks[(wanted << 4) | (tops[wanted] - 1)]
      if (record !== 0 && words[(record << 4) | 2] >= units) tops[wanted]--
      else {
        record = spare[--spares]
        words[(record << 4) | 2] = units
      }
      words[record << 4] += 8
      words[(record << 4) | 14] ^= 3
      live[victim] = record
    }
    tables.spares = spares
  }

  /** Even threads allocate, odd threads free. Returns the buffers that a pair hands over each second. */
  private hand(): number {
    const { index, rings, milliseconds } = this.task
    const pair = rings.subarray((index >> 1) * RING_WORDS, ((index >> 1) + 1) * RING_WORDS)
    this.arrive()
    const rate = index % 2 === 0 ? this.produce(pair, milliseconds) : this.consume(pair)
    this.arrive()
    return rate
  }

  private produce(pair: Int32Array, milliseconds: number): number {
    const hasRoom = (sent: number, received: number) => sent + BATCH - received <= RING
    let sent = 0
    let measured = 0
    let start = 0
    const begin = performance.now()
    for (let now = begin; start === 0 || now < start + milliseconds; now = performance.now()) {
      // Until then the ring fills, and all code is compiled, which takes long when waiting threads occupy all cores.
      if (start === 0 && sent >= WARM && now >= begin + milliseconds / 2) {
        start = now
        measured = sent
      }
      for (let batch = 0; batch < RING / BATCH; batch++) {
        awaitThat(pair, RECEIVED, received => hasRoom(sent, received))
        for (let left = BATCH; left > 0; left--) {
          const { record, tag } = this.pool.allocate(4 * KiB, this.stream).transfer()
          const place = FIRST + (sent++ % RING) * 2
          pair[place] = record
          pair[place + 1] = tag
        }
        tell(pair, SENT, sent)
      }
    }
    const rate = ((sent - measured) / (performance.now() - start)) * 1000
    awaitThat(pair, RECEIVED, received => received === sent)
    tell(pair, SENT, ENDED)
    return rate
  }

  private consume(pair: Int32Array): number {
    const { number } = this.task.pool
    const batch = Array.from({ length: BATCH }, () => ({ pool: number, record: 0, tag: 0 }))
    for (let received = 0; ; ) {
      const sent = awaitThat(pair, SENT, sent => sent !== received)
      if (sent === ENDED) return 0
      while (received < sent) {
        for (let index = 0; index < BATCH; index++) {
          const place = FIRST + (received++ % RING) * 2
          batch[index].record = pair[place]
          batch[index].tag = pair[place + 1]
        }
        tell(pair, RECEIVED, received)
        for (const buffer of this.pool.adoptAll(batch)) buffer.free()
      }
    }
  }
}

/**
 * Returns the other thread's counter once it is as expected. Polls first, then sleeps, since that thread may need
 * this core.
 */
function awaitThat(pair: Int32Array, counter: number, isSo: (value: number) => boolean): number {
  for (let looks = 0; ; looks++) {
    const value = Atomics.load(pair, counter)
    if (isSo(value)) return value
    if (looks < SPINS) continue
    Atomics.store(pair, counter + ASLEEP, 1)
    Atomics.wait(pair, counter, value, PATIENCE_MS)
    Atomics.store(pair, counter + ASLEEP, 0)
  }
}

/** Sets this thread's counter. */
function tell(pair: Int32Array, counter: number, value: number): void {
  Atomics.store(pair, counter, value)
  if (Atomics.load(pair, counter + ASLEEP) === 1) Atomics.notify(pair, counter)
}

function freeAll(live: readonly DeviceBuffer[]): void {
  for (const buffer of live) buffer.free()
}

/** Records of 64 bytes: cached records of each class, and free records; the first records are live. */
function newTables() {
  return {
    words: new Int32Array(RECORDS << 4).fill(1),
    stacks: new Int32Array(classOf(MOST_BYTES) << 4),
    tops: new Int32Array(classOf(MOST_BYTES)),
    spare: Int32Array.from({ length: RECORDS }, (_, index) => LIVE + 1 + index),
    spares: RECORDS - LIVE - 1,
    live: Int32Array.from({ length: LIVE }, (_, index) => index + 1),
  }
}

async function main(): Promise<void> {
  const program = deviceBenchmark("one pool that worker threads share, beside the driver's pool")
    .option('--workers <n>', 'up to so many, 1, 2, 4 and so on', '2')
    .option('--young <MiB>', "the size of each thread's young generation, 0 for what Node chooses", DEFAULT_YOUNG)
  const values = optionsOf<BenchOptions & { workers: string; young: string }>(program)
  const device = deviceOf(program)
  const machine = machineOf(device)
  const young = Number(values.young)
  console.log(
    `${machine.device}, ${machine.cores} cores, Node ${machine.node}: medians; ns of a free + allocate in each thread, in all millions a second`,
  )
  console.log(young === 0 ? 'young generations as Node chooses them' : `young generations of ${young} MiB (--young)`)
  const rows: Row[] = []
  const most = values.smoke ? 2 : Number(values.workers)
  const milliseconds = values.smoke ? 5 : 400
  const singleRuns = values.smoke ? 1 : SINGLE_RUNS
  for (let workers = 1; workers <= most; workers *= 2) {
    const runs: Row[] = []
    const count = workers === 1 ? singleRuns : 1
    while (runs.length < count) runs.push(await measure(device, workers, milliseconds, young))
    rows.push(compared(medianOf(runs), rows[0]))
  }
  console.table(rows.map(rounded))
  if (device.simulated) console.log('The device is simulated: the driver’s figures are not a GPU’s.')
  device.close()
  save(values.save, device.simulated ? 'simulated-threads' : 'h200-threads', {
    machine,
    live: LIVE,
    sizes: [LEAST_BYTES, MOST_BYTES],
    mostYoungMiB: young === 0 ? 'as Node chooses' : young,
    singleRuns,
    columns: COLUMNS,
    table: rows.map(rounded),
  })
}

/** The figures of some number of workers at once, by column. */
type Row = Partial<Record<keyof typeof COLUMNS, number>>

async function measure(device: Device, workers: number, milliseconds: number, young: number): Promise<Row> {
  const pool = device.createSharedPool({ maxPoolBytes: device.simulated ? 1 * GiB : 8 * GiB })
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
      const resourceLimits = young === 0 ? {} : { maxYoungGenerationSizeMb: young }
      const worker = new Worker(new URL(import.meta.url), { workerData: task, resourceLimits })
      const [[result]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')])
      return result as Times
    }),
  )
  pool.check()
  pool.close()
  const mean = (of: (each: Times) => number) => times.reduce((sum, each) => sum + of(each), 0) / workers
  const total = (of: (each: Times) => number) => times.reduce((sum, each) => sum + 1000 / of(each), 0)
  const handed = times.filter((_, index) => index % 2 === 0).map(each => each.handed / 1e6)
  return {
    workers,
    'pair ns': mean(({ ns }) => ns.pair),
    'mix ns': mean(({ ns }) => ns.mix),
    'mix M/s': total(({ ns }) => ns.mix),
    'driver ns': mean(({ ns }) => ns.driver),
    'driver M/s': total(({ ns }) => ns.driver),
    'arithmetic ns': mean(({ ns }) => Math.min(ns.arithmetic, ns['arithmetic again'])),
    'own pool ns': mean(({ ns }) => ns['own pool']),
    'mix ÷ arithmetic': mean(({ ns }) => (2 * ns.mix) / (ns.arithmetic + ns['arithmetic again'])),
    'mix ÷ own pool': mean(({ ns }) => ns.mix / ns['own pool']),
    'misses %': 100 * mean(({ misses }) => misses),
    ...(workers > 1 && {
      'handed M/s a pair': handed.reduce((sum, rate) => sum + rate, 0) / handed.length,
      'slowest pair': Math.min(...handed),
    }),
  }
}

/** By column, the median over runs with the same number of workers. */
function medianOf(rows: readonly Row[]): Row {
  const columns = Object.keys(rows[0]) as (keyof Row)[]
  return Object.fromEntries(columns.map(column => [column, median(rows.map(row => row[column]!))]))
}

/** A row with the slowdown of the mix against one worker, and the part of it that the controls do not show. */
function compared(row: Row, one: Row = row): Row {
  const slower = (column: keyof Row) => row[column]! / one[column]!
  const compared: Row = {
    ...row,
    'mix ÷ 1 worker': slower('mix ns'),
    'by arithmetic': slower('mix ÷ arithmetic'),
    'by own pool': slower('mix ÷ own pool'),
  }
  const columns = Object.keys(COLUMNS) as (keyof Row)[]
  return Object.fromEntries(columns.flatMap(column => (column in compared ? [[column, compared[column]!]] : [])))
}

function rounded(row: Row): Row {
  return Object.fromEntries(Object.entries(row).map(([column, value]) => [column, Number(value.toPrecision(3))]))
}

if (isMainThread) await main()
else parentPort!.postMessage(new Runner(workerData as Task).run())
