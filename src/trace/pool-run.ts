// The replay of a policy with a pool. It takes several passes, each on a newly opened device: one for the footprint,
// five that time each call, and then, when the code is warm, one for speed.

import { PoolError } from '../base/errors.js'
import type { Pool } from '../pool/pool.js'
import { Footprint } from './footprint.js'
import { LATENCY_PASSES, LatencyMeter } from './latency.js'
import { PoolPlacements } from './placements/pool-placements.js'
import { countCalls, type ReplayDevice, totalBytesOf } from './replay-device.js'
import type { Settings } from './replay-options.js'
import { ReplayPass, type ReplayPassObserver } from './replay-pass.js'
import type { NamedPolicy, ReplayRun } from './replay-result.js'
import { type RoundCalls, ratios, sumOf } from './run-figures.js'
import type { Trace } from './trace.js'
import { Verifier } from './verify.js'

export async function poolRun(
  policy: NamedPolicy,
  trace: Trace,
  open: (capacityBytes?: number) => ReplayDevice,
  settings: Settings,
  progress: (share: number) => void,
): Promise<Partial<ReplayRun>> {
  const passes = 2 + (settings.latency ? LATENCY_PASSES : 0) + (settings.verify ? 1 : 0)
  let done = 0
  const pass = async <T>(
    work: (device: ReplayDevice, pool: Pool) => T,
    prepare: (device: ReplayDevice) => void = () => {},
  ): Promise<T> => {
    const device = open()
    try {
      prepare(device)
      if (policy === 'driver-pool') return withDriverPool(device, pool => work(device, pool))
      return work(device, openPool(policy, device, settings, settings.capacityBytes))
    } finally {
      device.close()
      progress(++done / passes)
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  const through = (device: ReplayDevice, pool: Pool) => new ReplayPass(trace, device, pool, settings.lag)

  const placed = settings.placements ? new PoolPlacements(trace, policy) : null
  const footprint = await pass(
    (device, pool) => {
      const follower = new Footprint(trace, pool)
      const observer = placed?.observer(follower, pool) ?? follower
      const { failures, firstFailure } = through(device, pool).run(settings.repeat, observer)
      const insertedWaits = policy.startsWith('driver-') ? null : pool.stats().insertedWaits
      return { follower, failures, firstFailure, insertedWaits }
    },
    device => placed?.watch(device.driver),
  )
  const meter = new LatencyMeter()
  for (let run = 0; settings.latency && run < LATENCY_PASSES; run++) {
    await pass((device, pool) => void through(device, pool).run(settings.repeat, {}, meter.callsOf(pool)))
  }
  const { seconds, calls } = await pass((device, pool) => {
    const runner = through(device, pool)
    if (!device.simulated) return { ...runner.run(settings.repeat), calls: null }
    const counter = new RoundCounter(device)
    return { ...runner.run(settings.repeat, counter), calls: counter.rounds }
  })
  const verified = settings.verify ? await pass((device, pool) => verifiedRun(trace, device, pool, settings)) : null
  const callsOfRounds =
    calls ??
    (await pass((device, pool) => {
      const runner = through(device, pool)
      const counter = new RoundCounter(device)
      runner.run(settings.repeat, counter)
      return counter.rounds
    }))
  const { follower } = footprint
  return {
    ...ratios(trace.peakWithFailedBytes, follower.peakReservedBytes, follower.peakGrantedBytes),
    fragmentationAtPeak: follower.fragmentationAtPeak,
    fragmentationMean: follower.fragmentationMean,
    contiguity: follower.contiguity,
    failures: footprint.failures,
    firstFailure: footprint.firstFailure,
    insertedWaits: footprint.insertedWaits,
    ...sumOf(callsOfRounds),
    rounds: callsOfRounds.map((round, i) => ({ peakReservedBytes: follower.peaksOfRounds[i], ...round })),
    eventsPerSecond: (trace.events * settings.repeat) / seconds,
    placements: placed?.placements() ?? null,
    verified,
    allocateNs: meter.allocateNs(),
    freeNs: meter.freeNs(),
  }
}

/**
 * Whether a policy serves everything within a capacity, once through the trace, with the requests that failed from
 * event `failedFrom` on. Null if the device does not keep a policy of the driver's own within it.
 */
export function poolServes(
  policy: NamedPolicy,
  trace: Trace,
  open: (capacityBytes?: number) => ReplayDevice,
  settings: Settings,
  capacityBytes: number,
  failedFrom: number,
): boolean | null {
  const device = open(capacityBytes)
  try {
    const isBound = !policy.startsWith('driver-') || totalBytesOf(device) === capacityBytes
    if (!isBound) return null
    const serves = (pool: Pool) => new ReplayPass(trace, device, pool, settings.lag).serves(failedFrom)
    return policy === 'driver-pool'
      ? withDriverPool(device, serves)
      : serves(openPool(policy, device, settings, capacityBytes))
  } finally {
    device.close()
  }
}

/** Counts the driver calls of each round, and adds up what they cost. */
class RoundCounter implements ReplayPassObserver {
  readonly rounds: RoundCalls[] = []
  private count: () => Record<string, number>
  private seconds: number | null

  constructor(private readonly device: ReplayDevice) {
    this.count = countCalls(device.driver)
    this.seconds = device.driver.modelledSeconds
  }

  round(): void {
    const { driver } = this.device
    const before = this.seconds
    this.seconds = driver.modelledSeconds
    const modelledDeviceSeconds = before === null || this.seconds === null ? null : this.seconds - before
    this.rounds.push({ deviceCalls: this.count(), modelledDeviceSeconds })
    this.count = countCalls(driver)
  }
}

function openPool(policy: NamedPolicy, device: ReplayDevice, { pool }: Settings, capacityBytes: number): Pool {
  const limit = { maxPoolBytes: capacityBytes }
  switch (policy) {
    case 'cuda-mempool':
      return device.createPool(capacityBytes === Infinity ? { ...limit, ...pool } : { ...pool, ...limit })
    case 'waiting':
      return device.createPool({ ...limit, crossStreamReuse: 'wait-before-grow' })
    case 'power-of-two':
      return device.createPool({ ...limit, sizeClasses: 'powerOfTwo' })
    case 'driver-malloc':
      return device.createPlainPool()
    default:
      throw new PoolError(`${policy} has no pool to replay through`)
  }
}

/**
 * Runs `work` with the driver's default pool, empty and with a release threshold of Infinity. The pool belongs to the
 * process and outlives the device, so its threshold is restored.
 */
function withDriverPool<T>(device: ReplayDevice, work: (pool: Pool) => T): T {
  const pool = device.defaultDriverPool()
  const { releaseThresholdBytes } = pool
  try {
    device.synchronize()
    pool.trimTo(0)
    pool.resetPeaks()
    pool.releaseThresholdBytes = Infinity
    return work(pool)
  } finally {
    pool.context.giveBack(() => {
      pool.releaseThresholdBytes = releaseThresholdBytes
    })
  }
}

function verifiedRun(trace: Trace, device: ReplayDevice, pool: Pool, settings: Settings) {
  const verifier = new Verifier(device, device.createPlainPool(), trace.blocks.count)
  const observer: ReplayPassObserver = {
    allocated: (block, buffer) => verifier.allocated(block, buffer),
    freeing: (block, buffer) => verifier.freeing(block, buffer),
  }
  new ReplayPass(trace, device, pool, settings.lag).run(settings.repeat, observer)
  return verifier.finish()
}
