// What a replay says, as plain JSON. Definitions of the metrics are in docs/metrics.md.

/** What is replayed where nothing is chosen. */
export const DEFAULT_POLICIES = [
  'recorded',
  'pytorch',
  'cuda-mempool',
  'driver-malloc',
  'driver-pool',
  'power-of-two',
] as const
/** All that can be chosen. */
export const POLICIES = [...DEFAULT_POLICIES, 'waiting'] as const
export type Policy = (typeof POLICIES)[number]

/** Nanoseconds at percentiles. */
export interface Percentiles {
  readonly p50: number
  readonly p90: number
  readonly p99: number
  readonly p999: number
  readonly max: number
}

/** Host nanoseconds per call, from runs of their own; the clock's own cost is in it, and named. */
export interface Latency extends Percentiles {
  readonly clockNs: number
  readonly runs: number
  /** calls that the pool's stream caches served, and the others; null where the policy has no cache */
  readonly hits: Percentiles | null
  readonly misses: Percentiles | null
}

/** The first event that a policy could not serve. */
export interface ReplayFailure {
  readonly event: number
  readonly bytes: number
  readonly stream: number
  readonly message: string
  readonly frames: readonly string[]
}

/** One policy's replay; what a policy does not have is null. */
export interface ReplayRun {
  readonly policy: Policy
  readonly peakRequestedBytes: number
  readonly peakReservedBytes: number | null
  readonly peakGrantedBytes: number | null
  /** peakReserved / peakRequested */
  readonly overhead: number | null
  /** 1 − peakGranted / peakReserved, the peaks taken independently */
  readonly externalFragmentation: number | null
  /** 1 − granted / reserved at the moment of the reserved peak, and its mean over time */
  readonly fragmentationAtPeak: number | null
  readonly fragmentationMean: number | null
  /** largest free block / all free memory, at the end of the peak event */
  readonly contiguity: number | null
  readonly failures: number
  readonly firstFailure: ReplayFailure | null
  /** how often the pool made one stream wait for another one's memory */
  readonly insertedWaits: number | null
  readonly deviceCalls: Readonly<Record<string, number>> | null
  readonly modelledDeviceSeconds: number | null
  readonly eventsPerSecond: number | null
  /** allocations, and how many of them landed on the recorded address */
  readonly placement: { readonly allocations: number; readonly exact: number } | null
  /** blocks whose stamp was compared before they were freed, and the damaged ones among them; null without --verify */
  readonly verified: { readonly blocks: number; readonly damaged: number } | null
  readonly allocateNs: Latency | null
  readonly freeNs: Latency | null
}

export interface ReplayReport {
  readonly trace: {
    readonly file: string
    readonly events: number
    readonly streams: number
    readonly spanSeconds: number
    readonly peakRequestedBytes: number
    readonly recordedPeakReservedBytes: number | null
    readonly allocations: number
  }
  readonly device: { readonly name: string; readonly simulated: boolean }
  /** events after which modelled work completes, 'never', or null on a GPU, where work is real */
  readonly lag: number | 'never' | null
  readonly runs: readonly ReplayRun[]
}
