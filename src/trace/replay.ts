// Replays a trace under several policies, and reports the memory and time of each. A policy takes several passes,
// each on a newly opened device: one for the footprint, five for latencies, and then, when the code is warm, one for
// speed.

import { checkByteCount, describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import type { Pool } from '../pool/pool.js'
import { Footprint } from './footprint.js'
import { LatencyMeter } from './latency.js'
import { type Lag, MOST_REPLAYED_STREAMS } from './modelled-work.js'
import { replayPytorchPolicy } from './pytorch/pytorch-replay.js'
import { countCalls, type ReplayDevice } from './replay-device.js'
import { ReplayPass, type ReplayPassObserver } from './replay-pass.js'
import { DEFAULT_POLICIES, POLICIES, type Policy, type ReplayReport, type ReplayRun } from './replay-result.js'
import { frameText, type Trace } from './trace.js'
import { Verifier } from './verify.js'

const LATENCY_PASSES = 5
const DEFAULT_LAG = 8

/** Options of `replay()`; every one may be left out. */
export interface ReplayOptions {
  /** the policies, in this order; default `DEFAULT_POLICIES` */
  readonly policies?: readonly Policy[]
  /** events of a stream after which its modelled work completes, Infinity for never; default 8, no effect on a GPU */
  readonly lag?: Lag
  /** the most bytes that each policy may reserve; default no limit */
  readonly capacityBytes?: number
  /** whether to fill every block with a stamp, and compare it before the free; default false */
  readonly verify?: boolean
  /** whether to run passes for latency percentiles; default true */
  readonly latency?: boolean
  /** how often each pass goes through the trace; default 1 */
  readonly repeat?: number
  /** called from time to time with the share that is done and the name of the current work */
  readonly onProgress?: (fraction: number, what: string) => void
}

/**
 * Replays `trace`. `open` opens the device, anew for each pass. Rejects with RangeError or TypeError for a bad
 * option, and with RangeError for a trace of more than 2046 streams. Running out of memory is a result, not an error.
 */
export async function replay(
  trace: Trace,
  open: () => ReplayDevice,
  options: ReplayOptions = {},
): Promise<ReplayReport> {
  const settings = complete(options)
  // One more stream stands for the streams that use blocks after their free.
  if (trace.streams.length >= MOST_REPLAYED_STREAMS) {
    throw new RangeError(
      `${trace.file} has ${trace.streams.length} streams; a replay can have ${MOST_REPLAYED_STREAMS - 1} of them`,
    )
  }
  const probe = open()
  const device = { name: probe.name, simulated: probe.simulated }
  probe.close()
  const runs: ReplayRun[] = []
  const total = settings.policies.length
  for (const [index, policy] of settings.policies.entries()) {
    const progress = (share: number) => settings.onProgress((index + share) / total, policy)
    progress(0)
    // Lets Node draw a progress bar and handle an interrupt between passes.
    await new Promise(resolve => setImmediate(resolve))
    runs.push(await runPolicy(policy, trace, open, settings, progress))
  }
  settings.onProgress(1, 'done')
  return {
    trace: {
      file: trace.file,
      events: trace.events,
      streams: trace.eventStreams,
      spanSeconds: trace.spanSeconds,
      peakRequestedBytes: trace.peakRequestedBytes,
      recordedPeakReservedBytes: trace.recordedPeakReservedBytes,
      allocations: trace.allocations,
    },
    device,
    lag: device.simulated ? (settings.lag === Infinity ? 'never' : settings.lag) : null,
    runs,
  }
}

type Settings = Required<Omit<ReplayOptions, 'capacityBytes'>> & { readonly capacityBytes: number }

function complete(options: ReplayOptions): Settings {
  const { policies = DEFAULT_POLICIES, lag = DEFAULT_LAG, capacityBytes = Infinity, repeat = 1 } = options
  for (const policy of policies) {
    if (!POLICIES.includes(policy)) {
      throw new RangeError(`policies: there is no '${policy}'; there are ${POLICIES.join(', ')}`)
    }
  }
  if (lag !== Infinity && (!Number.isInteger(lag) || lag < 0 || lag > 1e6)) {
    throw new RangeError(`lag must be a whole number of events to 1,000,000, or Infinity, not ${describe(lag)}`)
  }
  if (capacityBytes !== Infinity) checkByteCount(capacityBytes, 'capacityBytes')
  if (!Number.isInteger(repeat) || repeat < 1) {
    throw new RangeError(`repeat must be a whole number of at least 1, not ${describe(repeat)}`)
  }
  const { verify = false, latency = true, onProgress = () => {} } = options
  return { policies, lag, capacityBytes, repeat, verify, latency, onProgress }
}

async function runPolicy(
  policy: Policy,
  trace: Trace,
  open: () => ReplayDevice,
  settings: Settings,
  progress: (share: number) => void,
): Promise<ReplayRun> {
  if (policy === 'recorded') return { ...emptyRun(policy, trace), ...recordedRun(trace) }
  if (policy === 'pytorch') return { ...emptyRun(policy, trace), ...pytorchRun(trace, settings) }
  const passes = 2 + (settings.latency ? LATENCY_PASSES : 0) + (settings.verify ? 1 : 0)
  let done = 0
  const pass = async <T>(work: (device: ReplayDevice, pool: Pool) => T): Promise<T> => {
    const device = open()
    try {
      if (policy === 'driver-pool') return withDriverPool(device, pool => work(device, pool))
      return work(device, openPool(policy, device, settings.capacityBytes))
    } finally {
      device.close()
      progress(++done / passes)
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  const through = (device: ReplayDevice, pool: Pool) => new ReplayPass(trace, device, pool, settings.lag)

  const footprint = await pass((device, pool) => {
    const follower = new Footprint(trace, pool)
    const result = through(device, pool).run(settings.repeat, follower)
    const stats = pool.stats()
    return {
      ...result,
      fragmentationAtPeak: follower.fragmentationAtPeak,
      fragmentationMean: follower.fragmentationMean,
      contiguity: follower.contiguity,
      insertedWaits: policy.startsWith('driver-') ? null : stats.insertedWaits,
      peakReservedBytes: Math.max(follower.peakReservedBytes, stats.peakReservedBytes),
      peakGrantedBytes: Math.max(follower.peakGrantedBytes, stats.peakLiveBytes),
    }
  })
  const meter = new LatencyMeter()
  let nativeCalls: Record<string, number> | null = null
  for (let run = 0; settings.latency && run < LATENCY_PASSES; run++) {
    await pass((device, pool) => void through(device, pool).run(settings.repeat, {}, meter.calls(pool)))
  }
  const speed = await pass((device, pool) => {
    const runner = through(device, pool)
    const calls = device.simulated ? countCalls(device.driver) : null
    const before = device.driver.modelledSeconds ?? 0
    const { seconds } = runner.run(settings.repeat)
    const after = device.driver.modelledSeconds
    return { seconds, calls: calls?.() ?? null, modelledSeconds: after === null ? null : after - before }
  })
  const verified = settings.verify ? await pass((device, pool) => verifiedRun(trace, device, pool, settings)) : null
  if (speed.calls === null) {
    nativeCalls = await pass((device, pool) => {
      const runner = through(device, pool)
      const calls = countCalls(device.driver)
      runner.run(settings.repeat)
      return calls()
    })
  }
  const { failures, firstFailure, peakReservedBytes, peakGrantedBytes } = footprint
  return {
    ...emptyRun(policy, trace),
    ...ratios(trace, peakReservedBytes, peakGrantedBytes),
    fragmentationAtPeak: footprint.fragmentationAtPeak,
    fragmentationMean: footprint.fragmentationMean,
    contiguity: footprint.contiguity,
    failures,
    firstFailure,
    insertedWaits: footprint.insertedWaits,
    deviceCalls: speed.calls ?? nativeCalls,
    modelledDeviceSeconds: speed.modelledSeconds,
    eventsPerSecond: (trace.events * settings.repeat) / speed.seconds,
    verified,
    allocateNs: meter.allocateNs(),
    freeNs: meter.freeNs(),
  }
}

function openPool(policy: Policy, device: ReplayDevice, capacityBytes: number): Pool {
  const limit = { maxPoolBytes: capacityBytes }
  switch (policy) {
    case 'cuda-mempool':
      return device.createPool(limit)
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

function emptyRun(policy: Policy, trace: Trace): ReplayRun {
  return {
    policy,
    peakRequestedBytes: trace.peakRequestedBytes,
    peakReservedBytes: null,
    peakGrantedBytes: null,
    overhead: null,
    externalFragmentation: null,
    fragmentationAtPeak: null,
    fragmentationMean: null,
    contiguity: null,
    failures: 0,
    firstFailure: null,
    insertedWaits: null,
    deviceCalls: null,
    modelledDeviceSeconds: null,
    eventsPerSecond: null,
    placement: null,
    verified: null,
    allocateNs: null,
    freeNs: null,
  }
}

function ratios(trace: Trace, peakReservedBytes: number, peakGrantedBytes: number | null): Partial<ReplayRun> {
  return {
    peakReservedBytes,
    peakGrantedBytes,
    overhead: trace.peakRequestedBytes === 0 ? null : peakReservedBytes / trace.peakRequestedBytes,
    externalFragmentation:
      peakGrantedBytes === null || peakReservedBytes === 0 ? null : 1 - peakGrantedBytes / peakReservedBytes,
  }
}

function recordedRun(trace: Trace): Partial<ReplayRun> {
  return trace.recordedPeakReservedBytes === null ? {} : ratios(trace, trace.recordedPeakReservedBytes, null)
}

function pytorchRun(trace: Trace, { capacityBytes }: Settings): Partial<ReplayRun> {
  const start = performance.now()
  const result = replayPytorchPolicy(trace, Number.isFinite(capacityBytes) ? { capacityBytes } : {})
  const seconds = (performance.now() - start) / 1000
  const { firstFailure } = result
  return {
    ...ratios(trace, result.peakReservedBytes, result.peakGrantedBytes),
    placement: result.placement,
    deviceCalls: result.deviceCalls,
    failures: result.failures,
    firstFailure:
      firstFailure === null
        ? null
        : {
            ...firstFailure,
            message: 'no segment that fits within the capacity',
            frames: firstFailure.frames.map(frameText),
          },
    eventsPerSecond: trace.events / seconds,
  }
}
