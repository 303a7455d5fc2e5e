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
/** The name of an allocator to replay under; docs/metrics.md describes each. */
export type Policy = (typeof POLICIES)[number]

/** Nanoseconds at percentiles. */
export interface Percentiles {
  /** the median, nanoseconds */
  readonly p50: number
  /** nanoseconds */
  readonly p90: number
  /** nanoseconds */
  readonly p99: number
  /** nanoseconds */
  readonly p999: number
  /** the slowest call, nanoseconds */
  readonly max: number
}

/** Host nanoseconds per call, from runs of their own; the clock's own cost is in it, and named. */
export interface Latency extends Percentiles {
  /** median of two readings of the clock in a row; not subtracted */
  readonly clockNs: number
  /** passes that the samples are from */
  readonly runs: number
  /** calls that the pool's stream caches served, and the others; null where the policy has no cache */
  readonly hits: Percentiles | null
  /** calls that the caches did not serve; null without a cache */
  readonly misses: Percentiles | null
}

/** The first event that a policy could not serve. */
export interface ReplayFailure {
  /** index of the event; -1 before the first event */
  readonly event: number
  /** size of the request */
  readonly bytes: number
  /** stream of the recording */
  readonly stream: number
  /** the pool's message */
  readonly message: string
  /** the recorded call stack */
  readonly frames: readonly string[]
}

/** One policy's replay; what a policy does not have is null. */
export interface ReplayRun {
  /** the allocator */
  readonly policy: Policy
  /** most requested bytes live at once */
  readonly peakRequestedBytes: number
  /** most bytes obtained from the device at once */
  readonly peakReservedBytes: number | null
  /** most bytes of blocks handed out at once */
  readonly peakGrantedBytes: number | null
  /** peakReserved / peakRequested */
  readonly overhead: number | null
  /** 1 − peakGranted / peakReserved, the peaks taken independently */
  readonly externalFragmentation: number | null
  /** 1 − granted / reserved at the moment of the reserved peak, and its mean over time */
  readonly fragmentationAtPeak: number | null
  /** mean of 1 - granted / reserved over recorded time; null without times */
  readonly fragmentationMean: number | null
  /** largest free block / all free memory, at the end of the peak event */
  readonly contiguity: number | null
  /** allocations that failed */
  readonly failures: number
  /** the first of them */
  readonly firstFailure: ReplayFailure | null
  /** how often the pool made one stream wait for another one's memory */
  readonly insertedWaits: number | null
  /** how often each function of the driver was called */
  readonly deviceCalls: Readonly<Record<string, number>> | null
  /** modelled cost of these calls in the calling thread; null on a GPU */
  readonly modelledDeviceSeconds: number | null
  /** events of a pass for each second of host time */
  readonly eventsPerSecond: number | null
  /** allocations, and how many of them landed on the recorded address */
  readonly placement: { readonly allocations: number; readonly exact: number } | null
  /** blocks whose stamp was compared before they were freed, and the damaged ones among them; null without --verify */
  readonly verified: { readonly blocks: number; readonly damaged: number } | null
  /** host time of allocations */
  readonly allocateNs: Latency | null
  /** host time of frees */
  readonly freeNs: Latency | null
}

/** The result of a replay; docs/metrics.md defines each figure. */
export interface ReplayReport {
  /** the recording */
  readonly trace: {
    /** its file name */
    readonly file: string
    /** events that concern memory */
    readonly events: number
    /** streams that events name */
    readonly streams: number
    /** from the first event to the last */
    readonly spanSeconds: number
    /** most requested bytes live at once */
    readonly peakRequestedBytes: number
    /** most bytes that PyTorch had from the device at once; null if not recorded */
    readonly recordedPeakReservedBytes: number | null
    /** alloc events */
    readonly allocations: number
  }
  /** where it was replayed */
  readonly device: { readonly name: string; readonly simulated: boolean }
  /** events after which modelled work completes, 'never', or null on a GPU, where work is real */
  readonly lag: number | 'never' | null
  /** one for each policy */
  readonly runs: readonly ReplayRun[]
}
