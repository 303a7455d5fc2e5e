// Sleep and wake of a pool with many small blocks: with the driver's batches of copies and without, by turns, beside
// plain copies of as many bytes; and with memory that is pinned for each sleep. It uses nothing that older versions
// lack, so that their build can be timed by it, too.
// Run: node dist/bench/sleep-small-blocks.js [--device D] [--count N] [--smoke] [--save DIR]

import { formatBytes, KiB, MiB } from '../src/core/base/bytes.js'
import { type CachingPool, type DeviceBuffer, type HostPool, OutOfMemoryError } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { type BenchOptions, count, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('sleep and wake of a pool with many small blocks')
  .option('--count <n>', 'live blocks', count, 10_000)
  .option('--rounds <n>', 'rounds, after one that is not counted', count, 9)
const values = optionsOf<BenchOptions & { readonly count: number; readonly rounds: number }>(program)
const device = deviceOf(program)
const COUNT = values.smoke ? 200 : values.count
const ROUNDS = values.smoke ? 2 : values.rounds
/** Sleeps without a host pool; each pins memory, which takes long. */
const PINNING_ROUNDS = values.smoke ? 1 : 3
const WAYS = ['batches', 'one by one', 'pinning'] as const
const CALLS = ['sleep', 'wake'] as const
const PLAIN_BYTES = 64 * MiB

interface Row {
  readonly block: string
  /** 'neighbours', or 'gaps' with a free block before each */
  readonly layout: string
  readonly way: string
  readonly call: Call
  readonly medianMs: number
  readonly leastMs: number
  /** the median in plain copies of as many bytes */
  readonly plainCopies: number
}

type Way = (typeof WAYS)[number]
type Call = (typeof CALLS)[number]

const machine = machineOf(device)
const version = device.driver.cuDriverGetVersion.bind(device.driver)

/** A driver of an older version has no batches. */
function choose(way: Way): void {
  device.driver.cuDriverGetVersion = () => (way === 'one by one' ? 12_000 : version())
}

async function timed(work: () => Promise<void>): Promise<number> {
  const start = performance.now()
  await work()
  return performance.now() - start
}

/** The milliseconds of plain copies of `bytes` bytes in parts of 64 MiB. */
async function plainCopies(pool: CachingPool, host: HostPool, bytes: number, call: Call): Promise<number> {
  const sizes = Array.from({ length: Math.ceil(bytes / PLAIN_BYTES) }, (_, part) =>
    Math.min(PLAIN_BYTES, bytes - part * PLAIN_BYTES),
  )
  const [here, there] = [sizes.map(size => host.allocate(size)), sizes.map(size => pool.allocate(size))]
  const times: number[] = []
  for (let round = 0; round <= ROUNDS; round++) {
    const ms = await timed(async () => {
      for (const [part, buffer] of here.entries()) {
        if (call === 'sleep') buffer.copyFrom(there[part])
        else buffer.copyTo(there[part])
      }
      await device.defaultStream.finished()
    })
    if (round > 0) times.push(ms)
  }
  for (const buffer of [...here, ...there]) buffer.free()
  return median(times)
}

function allocate(pool: CachingPool, blockBytes: number, layout: string): DeviceBuffer[] {
  if (layout === 'neighbours') return Array.from({ length: COUNT }, () => pool.allocate(blockBytes))
  const all = Array.from({ length: 2 * COUNT }, () => pool.allocate(blockBytes))
  for (const [index, buffer] of all.entries()) if (index % 2 === 0) buffer.free()
  return all.filter((_, index) => index % 2 === 1)
}

function check(buffers: readonly DeviceBuffer[]): void {
  const step = Math.max(1, Math.floor(buffers.length / 50))
  for (let index = 0; index < buffers.length; index += step) {
    const [byte] = buffers[index].readSync(0, 1)
    if (byte !== index % 256) throw new Error(`block ${index} has lost its contents`)
  }
}

/** The ways by turns; the first round of each is not counted. */
function* turns(): Generator<Way> {
  for (let round = 0; round <= ROUNDS; round++) {
    yield 'batches'
    yield 'one by one'
  }
  for (let round = 0; round <= PINNING_ROUNDS; round++) yield 'pinning'
}

async function measure(blockBytes: number, layout: string): Promise<Row[]> {
  const limit = 3 * COUNT * blockBytes + 256 * MiB
  const pool = device.createPool({ backing: 'virtual', maxPoolBytes: limit })
  const host = device.createHostPool({ maxPoolBytes: limit, segmentBytes: PLAIN_BYTES })
  const buffers = allocate(pool, blockBytes, layout)
  for (const [index, buffer] of buffers.entries()) buffer.fill(index % 256)
  const times = new Map<string, number[]>()
  let bytes = 0
  for (const way of turns()) {
    choose(way)
    const asleep = await timed(() => pool.sleep(way === 'pinning' ? {} : { into: host }))
    bytes = pool.stats().hostCopyBytes
    const awake = await timed(() => pool.wake())
    times.set(`${way} sleep`, [...(times.get(`${way} sleep`) ?? []), asleep])
    times.set(`${way} wake`, [...(times.get(`${way} wake`) ?? []), awake])
  }
  check(buffers)
  for (const buffer of buffers) buffer.free()
  pool.trimTo(0)
  const plain = {
    sleep: await plainCopies(pool, host, bytes, 'sleep'),
    wake: await plainCopies(pool, host, bytes, 'wake'),
  }
  pool.close()
  host.close()
  return WAYS.flatMap(way =>
    CALLS.map(call => {
      const counted = times.get(`${way} ${call}`)!.slice(1)
      const medianMs = median(counted)
      return {
        block: formatBytes(blockBytes),
        layout,
        way,
        call,
        medianMs: Number(medianMs.toFixed(2)),
        leastMs: Number(Math.min(...counted).toFixed(2)),
        plainCopies: Number((medianMs / plain[call]).toFixed(2)),
      }
    }),
  )
}

const rows: Row[] = []
for (const blockBytes of [64 * KiB, 128 * KiB]) {
  for (const layout of ['neighbours', 'gaps']) {
    try {
      rows.push(...(await measure(blockBytes, layout)))
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
      console.log(`${formatBytes(blockBytes)}, ${layout}: ${error.message}`)
    }
  }
}
console.log(headline(machine, "its times are no GPU's"))
console.log(`${COUNT} live blocks, ${ROUNDS} rounds`)
console.table(rows)
save(values.save, 'sleep-small-blocks', { machine, parameters: { count: COUNT, rounds: ROUNDS }, rows })
device.close()
