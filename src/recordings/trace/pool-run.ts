// The replay of a policy with a pool. It takes several passes, each on a newly opened device: one for the footprint,
// five that time each call, and then, when the code is warm, one for speed.

import { PoolError } from '../../core/base/errors.js'
import type { DeviceBuffer } from '../../core/pool/buffer.js'
import type { Pool } from '../../core/pool/pool.js'
import { Footprint, reservedBytesOf } from './footprint.js'
import { LATENCY_PASSES, LatencyMeter } from './latency.js'
import type { Placements } from './placements/placements.js'
import { PoolPlacements } from './placements/pool-placements.js'
import { PoolPass } from './pool-pass.js'
import { countCalls, type ReplayDevice, totalBytesOf } from './replay-device.js'
import type { Settings } from './replay-options.js'
import type { ReplayPassObserver } from './replay-pass.js'
import type { NamedPolicy, ReplayRun } from './replay-result.js'
import { figuresOf, type RoundCalls } from './run-figures.js'
import type { Trace } from './trace.js'
import { Verifier } from './verify.js'

/** A policy with a pool. `open` opens the device, anew for each pass. */
export class PoolRun {
  constructor(
    private readonly policy: NamedPolicy,
    private readonly trace: Trace,
    private readonly open: (capacityBytes?: number) => ReplayDevice,
    private readonly settings: Settings,
  ) {}

  /** The figures of all passes. `progress` is told the share that is done. */
  async figures(simulated: boolean, progress: (share: number) => void): Promise<Partial<ReplayRun>> {
    const { trace, settings } = this
    const { repeat, latency, placements, verify } = settings
    const passes = 2 + (latency ? LATENCY_PASSES : 0) + (verify ? 1 : 0) + (simulated ? 0 : 1)
    let done = 0
    const pass = async <T>(work: PassWork<T>, prepare?: (device: ReplayDevice) => void): Promise<T> => {
      try {
        return this.pass(work, prepare)
      } finally {
        progress(++done / passes)
        await new Promise(resolve => setImmediate(resolve))
      }
    }

    const placed = placements ? new PoolPlacements(trace) : null
    const { follower, failures, firstFailure, insertedWaits } = await pass(
      (replay, pool) => this.footprint(replay, pool, placed),
      device => placed?.watch(device.driver),
    )
    const meter = new LatencyMeter()
    for (let run = 0; latency && run < LATENCY_PASSES; run++) {
      await pass((replay, pool) => {
        meter.startPass(pool)
        replay.run({ repeat, meter })
      })
    }
    const counted: PassWork<{ seconds: number; calls: RoundCalls[] }> = (replay, _, device) => {
      const counter = new RoundCounter(device)
      return { seconds: replay.run({ repeat, observer: counter }).seconds, calls: counter.rounds }
    }
    const { seconds, calls } = await pass((replay, pool, device) =>
      simulated ? counted(replay, pool, device) : { seconds: replay.run({ repeat }).seconds, calls: null },
    )
    const verified = verify ? await pass((replay, _, device) => this.verified(replay, device)) : null
    // On a GPU counting takes time, and so a pass of its own.
    const callsOfRounds = calls ?? (await pass(counted)).calls
    const rounds = callsOfRounds.map((round, i) => ({ peakReservedBytes: follower.peaksOfRounds[i], ...round }))
    const { peakReservedBytes, peakGrantedBytes } = follower
    return {
      ...figuresOf(trace, repeat, { peakReservedBytes, peakGrantedBytes, rounds, seconds, meter }),
      fragmentationAtPeak: follower.fragmentationAtPeak,
      fragmentationMean: follower.fragmentationMean,
      contiguity: follower.contiguity,
      failures,
      firstFailure,
      insertedWaits,
      placements: placed === null ? null : this.shownOf(placed.placements()),
      verified,
    }
  }

  /**
   * Whether the policy serves everything within a capacity, once through the trace, with the requests that failed from
   * event `failedFrom` on. Null if the device does not keep a policy of the driver's own within it.
   */
  serves(capacityBytes: number, failedFrom: number): boolean | null {
    const device = this.open(capacityBytes)
    try {
      const isBound = !this.policy.startsWith('driver-') || totalBytesOf(device) === capacityBytes
      return isBound
        ? this.onDevice(
            device,
            capacityBytes,
            replay => replay.run({ failedFrom, stopsAtFailure: true }).failures === 0,
          )
        : null
    } finally {
      device.close()
    }
  }

  /** Does `work` on a newly opened device. `prepare` gets the device before its pool is made. */
  private pass<T>(work: PassWork<T>, prepare: (device: ReplayDevice) => void = () => {}): T {
    const device = this.open()
    try {
      prepare(device)
      return this.onDevice(device, this.settings.capacityBytes, work)
    } finally {
      device.close()
    }
  }

  private onDevice<T>(device: ReplayDevice, capacityBytes: number, work: PassWork<T>): T {
    const { policy, trace, settings } = this
    const through = (pool: Pool) => work(new PoolPass(trace, device, pool, settings.lag, policy), pool, device)
    return policy === 'driver-pool'
      ? withDriverPool(device, through)
      : through(openPool(policy, device, settings, capacityBytes))
  }

  private footprint(replay: PoolPass, pool: Pool, placed: PoolPlacements | null) {
    const follower = new Footprint(this.trace, pool)
    const placing = placed?.observer<DeviceBuffer>(
      buffer => buffer.ptr,
      () => reservedBytesOf(pool),
    )
    const event = (event: number) => {
      follower.event(event)
      placing?.event(event)
    }
    const observer = { ...placing, event, round: () => follower.round() }
    const { failures, firstFailure } = replay.run({ repeat: this.settings.repeat, observer })
    const insertedWaits = this.policy.startsWith('driver-') ? null : pool.stats().insertedWaits
    return { follower, failures, firstFailure, insertedWaits }
  }

  /** The driver's own policies have a curve only: their addresses are those of single buffers. */
  private shownOf(placements: Placements): Placements {
    return this.policy.startsWith('driver-') ? { ...placements, address: null, ranges: null } : placements
  }

  private verified(replay: PoolPass, device: ReplayDevice) {
    const verifier = new Verifier(device, device.createPlainPool(), this.trace.blocks.count)
    replay.run({ repeat: this.settings.repeat, observer: verifier })
    return verifier.finish()
  }
}

/** The work of one pass through the policy's pool. */
type PassWork<T> = (replay: PoolPass, pool: Pool, device: ReplayDevice) => T

/** Counts the driver calls of each round, and adds up what they cost. */
class RoundCounter implements ReplayPassObserver<DeviceBuffer> {
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
