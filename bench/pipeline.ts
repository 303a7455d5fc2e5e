// Memory that goes from stream to stream: a ring of stages, each on its own stream. A stage waits for its
// predecessor, allocates buffers, and frees the predecessor's. So every reused block was freed on a different stream,
// with work that is known to come before. The driver's own pool runs in the same ring for comparison. Run: node
// dist/bench/pipeline.js [--device D] [--smoke] [--save DIR]

import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import { CU_EVENT_DISABLE_TIMING } from '../src/core/driver/constants.js'
import type { Driver } from '../src/core/driver/driver.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import type { DeviceBuffer, Event, Pool, PoolOptions, Stream } from '../src/index.js'
import { type Batch, Core, type Figures, quietText } from './core-noise.js'
import { headline, machineOf, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'
import { loopsFor } from './pool-loops.js'

const program = deviceBenchmark("memory that goes from stream to stream, beside the driver's pool")
const values = optionsOf(program)
const device = deviceOf(program)
const BATCHES = values.smoke ? 3 : 25
const WARM_UPS = values.smoke ? 1 : 10
const STEPS = values.smoke ? 20 : 200
const SIZES = Array.from({ length: 32 }, (_, index) => 4 * KiB * Math.ceil(2 ** (index / 3)))
/** buffers that a stage takes */
const BUFFERS = 64
const core = new Core()

/** The allocation and the free of a stage, for any type of buffer. */
interface Subject<B> {
  readonly name: string
  /** fills `buffers` */
  takeAll(buffers: B[], stream: Stream): void
  freeAll(buffers: readonly B[], stream: Stream): void
}

interface Times {
  readonly allocateNs: number
  readonly freeNs: number
}

class Ring {
  private readonly stages: readonly { stream: Stream; done: Event }[]
  private step = 0

  constructor(
    private readonly opened: Device,
    count: number,
  ) {
    this.stages = Array.from({ length: count }, () => ({ stream: opened.createStream(), done: opened.createEvent() }))
    for (const { stream, done } of this.stages) done.record(stream)
  }

  /** Nanoseconds of an allocation and of a free, the ring's own work left out. */
  run<B>(subject: Subject<B> | null, steps: number): Times {
    this.opened.synchronize()
    let held = new Array<B>(BUFFERS)
    let taken = new Array<B>(BUFFERS)
    const first = this.stages[(this.step + this.stages.length - 1) % this.stages.length]
    subject?.takeAll(held, first.stream)
    first.done.record(first.stream)
    let allocateMs = 0
    let freeMs = 0
    for (const end = this.step + steps; this.step < end; this.step++) {
      const before = this.stages[(this.step + this.stages.length - 1) % this.stages.length]
      const { stream, done } = this.stages[this.step % this.stages.length]
      stream.wait(before.done)
      if (subject !== null) {
        const start = performance.now()
        subject.takeAll(taken, stream)
        const middle = performance.now()
        subject.freeAll(held, stream)
        allocateMs += middle - start
        freeMs += performance.now() - middle
      }
      ;[held, taken] = [taken, held]
      done.record(stream)
    }
    const last = this.stages[(this.step - 1 + this.stages.length) % this.stages.length].stream
    subject?.freeAll(held, last)
    const count = steps * BUFFERS
    return { allocateNs: (allocateMs * 1e6) / count, freeNs: (freeMs * 1e6) / count }
  }

  close(): void {
    for (const { stream, done } of this.stages) {
      done.close()
      stream.close()
    }
  }
}

/** With loops compiled for it alone, as in bench/allocate.ts. */
async function poolSubject(name: string, pool: Pool): Promise<Subject<DeviceBuffer>> {
  const loops = await loopsFor(name)
  return {
    name,
    takeAll: (buffers, stream) => loops.takeAll(pool, stream, SIZES, buffers),
    freeAll: (buffers, stream) => loops.freeAll(stream, buffers),
  }
}

function driverSubject(driver: Driver): Subject<number> {
  return {
    name: 'cuMemAllocAsync/cuMemFreeAsync, threshold max',
    takeAll: (ptrs, { handle }) => {
      for (let index = 0; index < ptrs.length; index++) {
        ptrs[index] = driver.cuMemAllocAsync(SIZES[index % SIZES.length], handle)
      }
    },
    freeAll: (ptrs, { handle }) => {
      for (const ptr of ptrs) driver.cuMemFreeAsync(ptr, handle)
    },
  }
}

/**
 * Calls of the driver that the pool makes for 64 frees, the ring's own taken off: counted on the simulated device.
 */
async function callsPer64Frees(options: PoolOptions, width: number): Promise<number> {
  const driver = new SimulatedDriver()
  using simulated = openDevice(driver)
  const pool = simulated.createPool(options)
  const ring = new Ring(simulated, width)
  const total = () => [...driver.calls.values()].reduce((sum, count) => sum + count, 0)
  const callsOf = (counted: Subject<DeviceBuffer> | null) => {
    const before = total()
    ring.run(counted, STEPS)
    return total() - before
  }
  const subject = await poolSubject('counted', pool)
  callsOf(subject)
  const calls = callsOf(subject) - callsOf(null)
  return (calls * 64) / (STEPS * BUFFERS)
}

/**
 * Nanoseconds of one of `rounds` calls of `work`, the clock's own included; `rest` is run after each, and not timed.
 */
function timed(rounds: number, work: (round: number) => void, rest?: () => void): number {
  let ms = 0
  for (let round = 1; round <= rounds; round++) {
    const start = performance.now()
    work(round)
    ms += performance.now() - start
    rest?.()
  }
  return (ms * 1e6) / rounds
}

/**
 * An allocation that makes its stream wait for a different stream's block. For comparison the driver's calls for it,
 * alone and timed in the same way: a query for a capture, a record and a wait. The pool does not ask for the streams'
 * progress, so it does not learn that the block has long been idle.
 */
function insertedWait(opened: Device) {
  const { driver } = opened
  const rounds = values.smoke ? 100 : 20_000
  const pool = opened.createPool({ maxPoolBytes: 64 * MiB, deterministic: true, crossStreamReuse: 'wait-before-grow' })
  const streams = [opened.createStream(), opened.createStream()]
  pool.allocate(WAIT_BYTES, streams[0]).free()
  const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
  let buffer: DeviceBuffer
  const ask = (round: number) => driver.cuStreamIsCapturing(streams[round & 1].handle)
  const order = (round: number) => {
    driver.cuEventRecord(event, streams[~round & 1].handle)
    driver.cuStreamWaitEvent(streams[round & 1].handle, event)
  }
  const [ours, bare, ordering]: Batch<number>[][] = [[], [], []]
  for (let batch = 0; batch <= BATCHES; batch++) {
    const allocateBatch = core.batch(() =>
      timed(
        rounds,
        round => {
          buffer = pool.allocate(WAIT_BYTES, streams[round & 1])
        },
        () => buffer.free(),
      ),
    )
    opened.synchronize()
    pool.processDeferred()
    pool.allocate(WAIT_BYTES, streams[0]).free()
    const bareBatch = core.batch(() =>
      timed(rounds, round => {
        ask(round)
        order(round)
      }),
    )
    opened.synchronize()
    const orderingBatch = core.batch(() => timed(rounds, order))
    opened.synchronize()
    if (batch === 0) continue
    ours.push(allocateBatch)
    bare.push(bareBatch)
    ordering.push(orderingBatch)
  }
  driver.cuEventDestroy(event)
  const waits = pool.stats().insertedWaits / ((BATCHES + 1) * rounds)
  pool.close()
  const figuresOf = (batches: readonly Batch<number>[]) => core.figures(batches, 0, ns => ns)
  const figures = { allocate: figuresOf(ours), driver: figuresOf(bare), ordering: figuresOf(ordering) }
  const { allocate, driver: calls } = figures
  return {
    allocateNs: allocate.medianNs,
    driverNs: calls.medianNs,
    orderingNs: figures.ordering.medianNs,
    beyondNs: allocate.medianNs - calls.medianNs,
    quietBeyondNs: allocate.quietNs === null || calls.quietNs === null ? null : allocate.quietNs - calls.quietNs,
    figures,
    waitsPerAllocation: Number(waits.toFixed(3)),
  }
}

const WAIT_BYTES = 16 * MiB
const OPTIONS = { maxPoolBytes: '90%' } as const
const driverPool = device.defaultDriverPool()
const { releaseThresholdBytes } = driverPool
driverPool.releaseThresholdBytes = Infinity
const rowOf = async (width: number) => {
  const pool = device.createPool(OPTIONS)
  const ours = await poolSubject('cuda-mempool', pool)
  const subjects: readonly Subject<DeviceBuffer | number>[] = [
    ours as Subject<DeviceBuffer | number>,
    driverSubject(device.driver) as Subject<DeviceBuffer | number>,
  ]
  const ring = new Ring(device, width)
  const batches = subjects.map((): Batch<Times>[] => [])
  let warmUpWaits = 0
  for (let batch = -WARM_UPS; batch < BATCHES; batch++) {
    if (batch === 0) warmUpWaits = pool.stats().insertedWaits
    for (const [index, subject] of subjects.entries()) {
      const times = core.batch(() => ring.run(subject, STEPS))
      if (batch >= 0) batches[index].push(times)
    }
  }
  const { insertedWaits, reservedBytes } = pool.stats()
  ring.close()
  pool.close()
  const driverCallsPer64Frees = Number((await callsPer64Frees(OPTIONS, width)).toFixed(3))
  return {
    streams: width,
    driverCallsPer64Frees,
    insertedWaits: insertedWaits - warmUpWaits,
    reservedBytes,
    subjects: subjects.map(({ name }, index) => ({ name, batches: batches[index] })),
  }
}
const measured = [await rowOf(2), await rowOf(4)]
const wait = insertedWait(device)
const rows = measured.map(row => ({
  ...row,
  subjects: row.subjects.map(({ name, batches }) => {
    const allocate = core.figures(batches, 1, times => times.allocateNs)
    const free = core.figures(batches, 1, times => times.freeNs)
    return {
      name,
      allocateNs: allocate.medianNs,
      leastAllocateNs: allocate.leastNs,
      quietAllocateNs: allocate.quietNs,
      freeNs: free.medianNs,
      leastFreeNs: free.leastNs,
      quietFreeNs: free.quietNs,
      quietBatches: allocate.quietBatches,
    }
  }),
}))

const machine = machineOf(device)
console.log(headline(machine, 'the driver rows are not a GPU’s'))
console.log(`${BATCHES} batches after ${WARM_UPS} of ${STEPS} steps, ${BUFFERS} buffers a step, ns`)
console.log(core.legend())
const line = (name: string, ...columns: (number | string)[]) =>
  console.log(`  ${name.padEnd(46)}${columns.map(column => String(column).padStart(14)).join('')}`)
for (const { streams, driverCallsPer64Frees, insertedWaits, subjects } of rows) {
  console.log(`\n${streams} streams in a ring`)
  line('', 'allocate', 'least', 'quiet', 'free', 'least', 'quiet')
  for (const {
    name,
    allocateNs,
    leastAllocateNs,
    quietAllocateNs,
    freeNs,
    leastFreeNs,
    quietFreeNs,
    quietBatches,
  } of subjects) {
    const [quietAllocate, quietFree] = [quietAllocateNs, quietFreeNs].map(quietNs =>
      quietText({ quietNs, quietBatches }, 1),
    )
    line(name, allocateNs, leastAllocateNs, quietAllocate, freeNs, leastFreeNs, quietFree)
  }
  console.log(
    `  calls of the driver for 64 frees: ${driverCallsPer64Frees}; waits inserted after the warm-ups: ${insertedWaits}`,
  )
}
console.log(`\nan allocation that makes its stream wait, ${BATCHES} batches after 1`)
line('', 'median', 'least', 'quiet')
const waitLine = (name: string, { medianNs, leastNs, ...quiet }: Figures) =>
  line(name, medianNs, leastNs, quietText(quiet, 0))
waitLine('allocate', wait.figures.allocate)
waitLine("the driver's three calls for it", wait.figures.driver)
waitLine('two of those, to record and wait', wait.figures.ordering)
line("allocate beyond the driver's calls", wait.beyondNs, '', wait.quietBeyondNs ?? '–')
console.log(`  waits inserted per allocation: ${wait.waitsPerAllocation}`)
const parameters = { batches: BATCHES, warmUps: WARM_UPS, steps: STEPS, buffers: BUFFERS }
save(values.save, 'pipeline', { machine, parameters, control: core.control(), rows, insertedWait: wait })
driverPool.releaseThresholdBytes = releaseThresholdBytes
device.close()
