// Host time of an allocation and its free, through the public API with everything on, beside the driver's own calls
// in the same process. Run: node dist/bench/allocate.js [--device D] [--smoke] [--save DIR]

import { KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { Device } from '../src/core/device/device.js'
import type { Pool } from '../src/core/pool/pool.js'
import { limited, type Stream } from '../src/index.js'
import { type Batch, Core, quietText } from './core-noise.js'
import { headline, machineOf, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'
import { loopsFor, objectNs, PER_LIST } from './pool-loops.js'

const program = deviceBenchmark("host time of an allocation and its free, beside the driver's own calls")
const values = optionsOf(program)
const device = deviceOf(program)
const scale = values.smoke ? 0.002 : 1
const BATCHES = values.smoke ? 3 : 25
/** Batches before those: a pool still takes memory in the first of a mix, and finds ever better what it has. */
const WARM_UPS = values.smoke ? 1 : 5
/** The driver's slow calls get fewer of both. */
const SLOW_BATCHES = Math.min(5, BATCHES)
const SLOW_WARM_UPS = 1
const LIVE = 1000
/** Steps of a mix; the driver's calls run only the first ones. */
const MIX_STEPS = Math.ceil(400_000 * scale)
const MIX_SHARE = { cuMemAllocAsync: 0.25, cuMemAlloc: 0.005 }
const SEED = 1

/** Something that gives out and takes back memory: a pool, or the driver itself. */
interface Subject {
  readonly name: string
  readonly pairs: number
  pairNs(bytes: number, pairs: number): number
  /** null for subjects without such a loop */
  mixNs(sizes: Float64Array, victims: Int32Array): number | null
  /**
   * of the addresses given out in the last mix, to see that a faster run places alike; null where they are the
   * driver's
   */
  checksum: number | null
}

class PoolSubject implements Subject {
  checksum: number | null = 0

  private constructor(
    readonly name: string,
    private readonly pool: Pool,
    private readonly stream: Stream,
    private readonly loops: typeof import('./pool-loops.js'),
    readonly pairs = 1000 * PER_LIST,
  ) {}

  static async of(name: string, pool: Pool, stream: Stream): Promise<PoolSubject> {
    const loops = await loopsFor(name)
    // Short runs, so that the compiler has seen the loop end before it optimises it: else each run would end in a
    // bailout.
    for (let run = 0; run < 300; run++) loops.pairNs(pool, stream, 4 * KiB, PER_LIST)
    return new PoolSubject(name, pool, stream, loops)
  }

  pairNs(bytes: number, pairs: number): number {
    return this.loops.pairNs(this.pool, this.stream, bytes, pairs)
  }

  mixNs(sizes: Float64Array, victims: Int32Array): number {
    const { ns, live } = this.loops.mixNs(this.pool, this.stream, sizes, victims, LIVE)
    const base = Math.min(...live.map(buffer => buffer.ptr))
    this.checksum = live.reduce((sum, buffer) => (sum * 31 + (buffer.ptr - base) / 256) % 4294967291, 0)
    for (const buffer of live) buffer.free()
    return ns
  }
}

/** Not an allocator: the cost to create and keep an object as large as a buffer, which the rows above include. */
class ObjectSubject implements Subject {
  checksum = null

  readonly pairs = 1000 * PER_LIST

  constructor(readonly name: string) {}

  pairNs(_bytes: number, pairs: number): number {
    return objectNs(this, pairs)
  }

  mixNs(): null {
    return null
  }
}

class DriverSubject implements Subject {
  checksum = null

  constructor(
    readonly name: string,
    readonly pairs: number,
    private readonly mixShare: number,
    private readonly allocate: (bytes: number) => number,
    private readonly free: (ptr: number) => void,
  ) {}

  pairNs(bytes: number, pairs: number): number {
    const start = performance.now()
    for (let pair = 0; pair < pairs; pair++) this.free(this.allocate(bytes))
    return ((performance.now() - start) * 1e6) / pairs
  }

  mixNs(sizes: Float64Array, victims: Int32Array): number {
    const steps = LIVE + Math.ceil((sizes.length - LIVE) * this.mixShare)
    const live = new Float64Array(LIVE)
    for (let index = 0; index < LIVE; index++) live[index] = this.allocate(sizes[index])
    const start = performance.now()
    for (let step = LIVE; step < steps; step++) {
      const victim = victims[step]
      this.free(live[victim])
      live[victim] = this.allocate(sizes[step])
    }
    const ns = ((performance.now() - start) * 1e6) / (steps - LIVE)
    for (const ptr of live) this.free(ptr)
    return ns
  }
}

async function subjects(opened: Device): Promise<Subject[]> {
  const { driver } = opened
  const stream = opened.createStream()
  const handle = opened.createStream().handle
  const options = { maxPoolBytes: '90%' } as const
  const pool = opened.createPool(options)
  const wrapped = limited(opened.createPool(options), Infinity)
  const plain = opened.createPlainPool()
  // Three kinds of pool are alive and in use, so that no call site of the library knows only one.
  for (const kind of [pool, wrapped, plain]) for (let count = 0; count < 200; count++) kind.allocate(4096).free()
  return [
    await PoolSubject.of('cuda-mempool', pool, stream),
    await PoolSubject.of('cuda-mempool, limited()', wrapped, stream),
    new ObjectSubject('an object as large as a buffer'),
    new DriverSubject(
      'cuMemAllocAsync/cuMemFreeAsync, threshold max',
      25_000,
      MIX_SHARE.cuMemAllocAsync,
      bytes => driver.cuMemAllocAsync(bytes, handle),
      ptr => driver.cuMemFreeAsync(ptr, handle),
    ),
    new DriverSubject(
      'cuMemAlloc/cuMemFree',
      500,
      MIX_SHARE.cuMemAlloc,
      bytes => driver.cuMemAlloc(bytes),
      ptr => driver.cuMemFree(ptr),
    ),
  ]
}

function mix(least: number, most: number): { sizes: Float64Array; victims: Int32Array } {
  const random = new Random(SEED)
  const steps = LIVE + MIX_STEPS
  return {
    sizes: Float64Array.from({ length: steps }, () => random.logUniform(least, most)),
    victims: Int32Array.from({ length: steps }, () => random.below(LIVE)),
  }
}

const workloads = [
  { name: 'pair 4 KiB', run: (subject: Subject) => subject.pairNs(4 * KiB, Math.ceil(subject.pairs * scale)) },
  { name: 'pair 1 MiB', run: (subject: Subject) => subject.pairNs(1 * MiB, Math.ceil(subject.pairs * scale)) },
  ...[
    { name: `mix 256 B–1 MiB, ${LIVE} live`, ...mix(256, MiB) },
    { name: `mix 256 B–64 MiB, ${LIVE} live`, ...mix(256, 64 * MiB) },
  ].map(({ name, sizes, victims }) => ({ name, run: (subject: Subject) => subject.mixNs(sizes, victims) })),
]

const driverPool = device.defaultDriverPool()
const { releaseThresholdBytes } = driverPool
driverPool.releaseThresholdBytes = Infinity
const all = await subjects(device)
const core = new Core()
const measured = workloads.map(({ name, run }) => {
  const batches = all.map((): Batch<number>[] => [])
  for (let batch = -WARM_UPS; batch < BATCHES; batch++) {
    for (const [index, subject] of all.entries()) {
      if (subject.pairs < 1000 && (batch < -SLOW_WARM_UPS || batch >= SLOW_BATCHES)) continue
      const { measured: ns, ...conditions } = core.batch(() => run(subject))
      if (batch >= 0 && ns !== null) batches[index].push({ measured: ns, ...conditions })
    }
  }
  return { name, batches, checksums: all.map(({ checksum }) => (name.startsWith('mix') ? checksum : null)) }
})
const rows = measured.map(({ name, batches, checksums }) => {
  const ours = core.figures(batches[0], 2, ns => ns)
  return {
    workload: name,
    subjects: all.flatMap((subject, index) => {
      if (batches[index].length === 0) return []
      const figures = core.figures(batches[index], 2, ns => ns)
      const { medianNs, quietNs } = figures
      return {
        name: subject.name,
        ...figures,
        timesOurs: Number((medianNs / ours.medianNs).toFixed(2)),
        quietTimesOurs: quietNs && ours.quietNs && Number((quietNs / ours.quietNs).toFixed(2)),
        checksum: checksums[index],
      }
    }),
  }
})

const machine = machineOf(device)
console.log(headline(machine, 'the driver rows are not a GPU’s'))
console.log(
  `${BATCHES} batches after ${WARM_UPS} (cuMemAlloc: ${SLOW_BATCHES} after ${SLOW_WARM_UPS}), ns per allocate + free, seed ${SEED}`,
)
console.log(
  `mixes of ${MIX_STEPS} steps, of which cuMemAllocAsync does ${100 * MIX_SHARE.cuMemAllocAsync}% and cuMemAlloc ${100 * MIX_SHARE.cuMemAlloc}%`,
)
console.log(core.legend())
const line = (name: string, columns: string[], mark = '') =>
  console.log(`  ${name.padEnd(46)}${columns.map(column => column.padStart(14)).join('')}${mark}`)
for (const { workload, subjects: results } of rows) {
  console.log(`\n${workload}`)
  line('', ['median', '× ours', 'least', 'quiet', '× ours'])
  for (const { name, medianNs, leastNs, timesOurs, quietTimesOurs, checksum, ...quiet } of results) {
    const mark = checksum === null ? '' : `   placements ${checksum.toString(16)}`
    const ratios = [timesOurs, quietTimesOurs].map(times => (times === null ? '–' : `${times.toFixed(1)}×`))
    line(name, [medianNs.toFixed(1), ratios[0], leastNs.toFixed(1), quietText(quiet, 1), ratios[1]], mark)
  }
}
save(values.save, 'allocate', {
  machine,
  parameters: {
    batches: BATCHES,
    warmUps: WARM_UPS,
    slowBatches: SLOW_BATCHES,
    slowWarmUps: SLOW_WARM_UPS,
    live: LIVE,
    mixSteps: MIX_STEPS,
    mixShare: MIX_SHARE,
    seed: SEED,
    scale,
  },
  control: core.control(),
  rows,
})
driverPool.releaseThresholdBytes = releaseThresholdBytes
device.close()
