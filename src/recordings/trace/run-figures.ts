// Figures that the runs of all policies share.

import type { LatencyMeter } from './latency.js'
import type { Policy, ReplayRound, ReplayRun } from './replay-result.js'
import type { Trace } from './trace.js'

/** The driver calls of a round, or of several. */
export type RoundCalls = Omit<ReplayRound, 'peakReservedBytes'>

/** A run without any figure of its policy. */
export function emptyRun(policy: Policy, trace: Pick<Trace, 'peakRequestedBytes' | 'peakWithFailedBytes'>): ReplayRun {
  return {
    policy,
    peakRequestedBytes: policy === 'recorded' ? trace.peakRequestedBytes : trace.peakWithFailedBytes,
    leastCapacityBytes: null,
    servesAtFailure: null,
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
    rounds: null,
    eventsPerSecond: null,
    placement: null,
    placements: null,
    verified: null,
    allocateNs: null,
    freeNs: null,
  }
}

/** The recorded allocator's own figures. */
export function recordedRun(trace: Trace): ReplayRun {
  const { peakRequestedBytes, recordedPeakReservedBytes: peak } = trace
  return { ...emptyRun('recorded', trace), ...(peak === null ? {} : ratios(peakRequestedBytes, peak, null)) }
}

/** Peaks, and the figures that follow from them. `peakRequestedBytes` is what the run had to serve. */
function ratios(
  peakRequestedBytes: number,
  peakReservedBytes: number,
  peakGrantedBytes: number | null,
): Partial<ReplayRun> {
  return {
    peakReservedBytes,
    peakGrantedBytes,
    overhead: peakRequestedBytes === 0 ? null : peakReservedBytes / peakRequestedBytes,
    externalFragmentation:
      peakGrantedBytes === null || peakReservedBytes === 0 ? null : 1 - peakGrantedBytes / peakReservedBytes,
  }
}

/** The measurements of a policy's passes. */
interface Measured {
  readonly peakReservedBytes: number
  readonly peakGrantedBytes: number
  readonly rounds: readonly ReplayRound[]
  /** of the pass for speed */
  readonly seconds: number
  readonly meter: LatencyMeter
}

/** The figures that all replayed policies have. */
export function figuresOf(trace: Trace, repeat: number, measured: Measured): Partial<ReplayRun> {
  const { peakReservedBytes, peakGrantedBytes, rounds, seconds, meter } = measured
  return {
    ...ratios(trace.peakWithFailedBytes, peakReservedBytes, peakGrantedBytes),
    ...sumOf(rounds),
    rounds,
    eventsPerSecond: (trace.events * repeat) / seconds,
    allocateNs: meter.allocateNs(),
    freeNs: meter.freeNs(),
  }
}

/** The driver calls of all rounds. */
export function sumOf(rounds: readonly RoundCalls[]): RoundCalls {
  const deviceCalls: Record<string, number> = {}
  for (const { deviceCalls: calls } of rounds) {
    for (const [name, count] of Object.entries(calls)) deviceCalls[name] = (deviceCalls[name] ?? 0) + count
  }
  const seconds = rounds.map(round => round.modelledDeviceSeconds)
  const isModelled = (each: number | null): each is number => each !== null
  return {
    deviceCalls,
    modelledDeviceSeconds: seconds.every(isModelled) ? seconds.reduce((sum, each) => sum + each, 0) : null,
  }
}
