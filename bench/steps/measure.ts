// The figures of the policy as it is in this process: recordings and random mixes on the simulated device.

import { MiB } from '../../src/core/base/bytes.js'
import { Random } from '../../src/core/base/random.js'
import { openDevice } from '../../src/core/device/open.js'
import { SimulatedDriver } from '../../src/entries/simulated.js'
import type { DeviceBuffer } from '../../src/index.js'
import { readRecording } from '../../src/recordings/trace/formats/read-recording.js'
import { PoolPass } from '../../src/recordings/trace/pool-pass.js'
import type { Trace } from '../../src/recordings/trace/trace.js'
import { leastCapacity } from '../../src/recordings/trace/tune/least-capacity.js'
import { MIXES } from '../rivals/workloads.js'

export interface Task {
  readonly files: readonly string[]
  /** each recording is replayed at each of these lags */
  readonly lags: readonly number[]
  /** of each mix */
  readonly seeds: number
  readonly mixSteps: number
}

/** Sums over the recordings and lags. Times are modelled milliseconds of driver calls. */
export interface Figures {
  readonly firstMs: number
  readonly laterMs: number
  readonly limitedMs: number
  /** reserved over live bytes after each of `PEAKS_AFTER` passes */
  readonly peaks: readonly number[]
  /** mean of the least capacities over the live bytes; null if one recording fits in none */
  readonly least: number | null
  readonly streamWaits: number
  readonly hostWaits: number
  /** requests without a limit, and at each of `CAPACITIES` */
  readonly failed: readonly number[]
  readonly mixes: readonly MixFigures[]
}

/** Means over the seeds. */
interface MixFigures {
  readonly name: string
  /** of 1,000 allocations in the second half */
  readonly misses: number
  readonly peak: number
  readonly ms: number
  readonly failed: number
}

export const PEAKS_AFTER = [1, 4, 10]
/** Limits, as multiples of the live bytes. */
export const CAPACITIES = [1.05, 1.03]
const PASSES = PEAKS_AFTER.at(-1)!
const LIMITED_PASSES = 2

const [SMALL, LARGE] = MIXES
/** `capacity` is a limit, as a multiple of the mean live bytes. */
const STEP_MIXES = [
  { ...SMALL, name: '1 MiB', streams: 1, capacity: Infinity },
  { ...LARGE, name: '64 MiB', streams: 1, capacity: Infinity },
  { ...LARGE, name: '4 streams', streams: 4, capacity: Infinity },
  { ...LARGE, name: 'limited', most: 8 * MiB, streams: 4, capacity: 1.12 },
]

export async function measure({ files, lags, seeds, mixSteps }: Task): Promise<Figures> {
  const replays: Awaited<ReturnType<typeof replayOf>>[] = []
  for (const file of files) {
    const trace = readRecording(file)
    for (const lag of lags) replays.push(await replayOf(trace, lag))
  }
  const sum = (of: (replay: (typeof replays)[number]) => number) =>
    replays.reduce((total, replay) => total + of(replay), 0)
  const live = sum(({ liveBytes }) => liveBytes)
  const waits = (kind: 'streamWaits' | 'hostWaits') =>
    sum(({ free, limited }) => [free, ...limited].reduce((total, passes) => total + passes[kind], 0))
  return {
    firstMs: sum(({ free }) => free.ms[0]),
    laterMs: sum(({ free }) => free.ms[PASSES - 1] - free.ms[0]),
    limitedMs: sum(({ limited }) => limited.reduce((total, { ms }) => total + ms[LIMITED_PASSES - 1], 0)),
    peaks: PEAKS_AFTER.map(passes => sum(({ free }) => free.peakBytes[passes - 1]) / live),
    least: replays.some(({ least }) => least === null) ? null : sum(({ least }) => least!) / replays.length,
    streamWaits: waits('streamWaits'),
    hostWaits: waits('hostWaits'),
    failed: [sum(({ free }) => free.failed), ...CAPACITIES.map((_, index) => sum(each => each.limited[index].failed))],
    mixes: STEP_MIXES.map(mix => meanOfSeeds(mix, seeds, mixSteps)),
  }
}

async function replayOf(trace: Trace, lag: number) {
  const liveBytes = trace.peakWithFailedBytes
  const free = passesOf(trace, lag, Infinity, PASSES)
  const limited = CAPACITIES.map(share => passesOf(trace, lag, Math.floor(liveBytes * share), LIMITED_PASSES))
  const least = await leastCapacity(liveBytes, free.peakBytes[0], async capacityBytes => {
    const { device, pool } = open(capacityBytes)
    const serves = new PoolPass(trace, device, pool, lag).run({ stopsAtFailure: true }).failures === 0
    device.close()
    return serves
  })
  return { liveBytes, free, limited, least: least === null ? null : least / liveBytes }
}

/** Times and peaks are those at the end of each pass, from the start on. */
function passesOf(trace: Trace, lag: number, limitBytes: number, passes: number) {
  const { driver, device, pool } = open(limitBytes)
  const pass = new PoolPass(trace, device, pool, lag)
  const start = driver.modelledSeconds
  const [ms, peakBytes]: [number[], number[]] = [[], []]
  const round = () => {
    ms.push((driver.modelledSeconds - start) * 1e3)
    peakBytes.push(pool.stats().peakReservedBytes)
  }
  const { failures: failed } = pass.run({ repeat: passes, observer: { round } })
  const { insertedWaits: streamWaits } = pool.stats()
  const hostWaits = driver.calls.get('cuEventSynchronize') ?? 0
  device.close()
  return { ms, peakBytes, failed, streamWaits, hostWaits }
}

function meanOfSeeds(mix: (typeof STEP_MIXES)[number], seeds: number, steps: number): MixFigures {
  const runs = Array.from({ length: seeds }, (_, index) => mixOf(mix, index + 1, steps))
  const mean = (key: keyof (typeof runs)[number]) => runs.reduce((sum, run) => sum + run[key], 0) / seeds
  return { name: mix.name, misses: mean('misses'), peak: mean('peak'), ms: mean('ms'), failed: mean('failed') }
}

/** Fills the pool; each step then frees a random buffer, and allocates a new one on a random stream. */
function mixOf(mix: (typeof STEP_MIXES)[number], seed: number, steps: number) {
  const { least, most, live, streams, capacity } = mix
  const random = new Random(seed)
  const meanBytes = (most - least) / Math.log(most / least)
  const { driver, device, pool } = open(Math.ceil(live * meanBytes * capacity))
  const made = Array.from({ length: streams }, () => device.createStream())
  const buffers: (DeviceBuffer | null)[] = []
  let failed = 0
  const allocate = (index: number) => {
    buffers[index] = pool.tryAllocate(random.logUniform(least, most), made[random.below(streams)])
    if (buffers[index] === null) failed++
  }
  const run = (count: number) => {
    for (let step = 0; step < count; step++) {
      const victim = random.below(live)
      buffers[victim]?.free()
      allocate(victim)
    }
  }
  for (let index = 0; index < live; index++) allocate(index)
  run(steps / 2)
  const missesBefore = pool.stats().cacheMisses
  run(steps / 2)
  const { cacheMisses, peakReservedBytes, peakLiveBytes } = pool.stats()
  const misses = ((cacheMisses - missesBefore) / (steps / 2)) * 1000
  const ms = driver.modelledSeconds * 1e3
  device.close()
  return { misses, peak: peakReservedBytes / peakLiveBytes, ms, failed }
}

function open(maxPoolBytes: number) {
  const driver = new SimulatedDriver({ progress: 'eager' })
  const device = openDevice(driver)
  return { driver, device, pool: device.createPool({ maxPoolBytes }) }
}
