// The report of a replay, as plain JSON. docs/metrics.md defines the metrics.

import { WrongTypeError } from '../../core/base/argument-errors.js'
import { describe } from '../../core/base/bytes.js'
import type { RecordedOutOfMemory } from './failures/out-of-memory.js'
import type { Placements } from './placements/placements.js'
import type { Contradictions, OtherDevice, Trace } from './trace.js'

/** The policies of a replay by default. */
export const DEFAULT_POLICIES = [
  'recorded',
  'pytorch',
  'pytorch-expandable',
  'cuda-mempool',
  'driver-malloc',
  'driver-pool',
  'power-of-two',
] as const
/**
 * All policies:
 * - recorded: PyTorch's allocator, as recorded
 * - pytorch: a model of PyTorch's allocator with the settings of the recording, without `expandable_segments`
 * - pytorch-expandable: the same with `expandable_segments`
 * - cuda-mempool: our caching pool
 * - driver-malloc: one driver allocation for each buffer
 * - driver-pool: the driver's stream-ordered pool
 * - power-of-two: our caching pool, with sizes of powers of two
 * - waiting: our caching pool, which makes streams wait before it grows
 */
export const POLICIES = [...DEFAULT_POLICIES, 'waiting'] as const
/** One of `POLICIES`. */
export type NamedPolicy = (typeof POLICIES)[number]
/**
 * One of `POLICIES`, or `pytorch:` with settings as PYTORCH_CUDA_ALLOC_CONF has them, such as
 * 'pytorch:max_split_size_mb:128': a model of PyTorch's allocator with these settings. With the setting
 * `backend:cudaMallocAsync` the driver's pool is replayed, as an estimate.
 */
export type Policy = NamedPolicy | `pytorch:${string}`

/** Nanoseconds at percentiles. */
export interface Percentiles {
  /** median */
  readonly p50: number
  /** 90th percentile */
  readonly p90: number
  /** 99th percentile */
  readonly p99: number
  /** 99.9th percentile */
  readonly p999: number
  /** the longest */
  readonly max: number
}

/** Host nanoseconds of each call, from passes of their own. They include the time of reading the clock, `clockNs`. */
export interface Latency extends Percentiles {
  /** all calls of one pass together: the median of the passes */
  readonly totalNs: number
  /** median nanoseconds of reading the clock */
  readonly clockNs: number
  /** how many passes were timed */
  readonly runs: number
  /** calls that the pool's stream caches served; null for a policy without a cache */
  readonly hits: Percentiles | null
  /** all other calls; null for a policy without a cache */
  readonly misses: Percentiles | null
}

/** The first allocation that a policy could not serve. */
export interface ReplayFailure {
  /** number of the event; -1 for a block from before the first event */
  readonly event: number
  /** the requested bytes */
  readonly bytes: number
  /** the stream's handle in the recording */
  readonly stream: number
  /** the message of the pool */
  readonly message: string
  /** the recorded call stack as text, innermost frame first, without machinery such as PyTorch's dispatch */
  readonly frames: readonly string[]
}

/** One time through the recording; the option `repeat` asks for several. */
export interface ReplayRound {
  /** most bytes taken from the device at once */
  readonly peakReservedBytes: number
  /** driver calls by function */
  readonly deviceCalls: Readonly<Record<string, number>>
  /** modelled seconds of the driver calls, on the simulated device */
  readonly modelledDeviceSeconds: number | null
}

/** The replay of one policy; a figure that a policy does not have is null. */
export interface ReplayRun {
  /** the policy that was replayed */
  readonly policy: Policy
  /** most requested bytes live at once, with the requests that failed: no policy can do with less memory */
  readonly peakRequestedBytes: number
  /**
   * the least capacity at which a replay served everything, the requests that failed in the recording too; null unless
   * the option `leastCapacity` is set
   */
  readonly leastCapacityBytes: number | null
  /**
   * whether a replay served the request that failed last in the recording within what the program could have then,
   * and all that was served before; null unless the option `leastCapacity` is set, and if the recording does not tell
   */
  readonly servesAtFailure: boolean | null
  /** most bytes taken from the device at once */
  readonly peakReservedBytes: number | null
  /** most bytes of live blocks at once, as the pool rounds them */
  readonly peakGrantedBytes: number | null
  /** peakReservedBytes / peakRequestedBytes */
  readonly overhead: number | null
  /** 1 − peakGrantedBytes / peakReservedBytes, each peak at its own time */
  readonly externalFragmentation: number | null
  /** 1 − granted / reserved bytes at the reserved peak */
  readonly fragmentationAtPeak: number | null
  /** the mean of 1 − granted / reserved bytes over time */
  readonly fragmentationMean: number | null
  /** largest free block / all free memory, after the event with the reserved peak */
  readonly contiguity: number | null
  /** requests that the policy could not serve, those that failed in the recording among them */
  readonly failures: number
  /** the first of the failures; null without failures */
  readonly firstFailure: ReplayFailure | null
  /** how often the pool made one stream wait for another stream's memory */
  readonly insertedWaits: number | null
  /** driver calls by function */
  readonly deviceCalls: Readonly<Record<string, number>> | null
  /** modelled seconds of the driver calls, on the simulated device */
  readonly modelledDeviceSeconds: number | null
  /** each time through the recording */
  readonly rounds: readonly ReplayRound[] | null
  /** events of the trace in a second of host time */
  readonly eventsPerSecond: number | null
  /** allocations, and how many of them got the recorded address */
  readonly placement: { readonly allocations: number; readonly exact: number } | null
  /** where the blocks were placed, and which memory existed when; null unless the option `placements` is set */
  readonly placements: Placements | null
  /** blocks whose stamp was compared before the free, and how many were damaged; null unless `verify` is set */
  readonly verified: { readonly blocks: number; readonly damaged: number } | null
  /** host time of allocations */
  readonly allocateNs: Latency | null
  /** host time of frees */
  readonly freeNs: Latency | null
}

/** Blocks from before the first event of a recording. */
export interface InitialBlocks {
  /** how many there are */
  readonly blocks: number
  /** their bytes, as requested */
  readonly bytes: number
}

/** Memory that was given back at one call site. */
export interface GiveBackSite {
  /** the line of the program, as `file:line function`; null without a call stack */
  readonly site: string | null
  /** how often */
  readonly times: number
  /** bytes of all times together */
  readonly bytes: number
}

/** Memory that went back to the device, by who gave it back. */
export interface GiveBacks {
  /** the allocator, before it made a request again; the program; null if it is not known */
  readonly by: 'allocator' | 'program' | null
  /** whether some of it has no call stack, so that `by` is inferred from the requests that follow */
  readonly inferred: boolean
  /** how often */
  readonly times: number
  /** bytes of all times together */
  readonly bytes: number
  /** by call site, most bytes first */
  readonly sites: readonly GiveBackSite[]
}

/** The result of a replay. */
export interface ReplayReport {
  /** the replayed trace; see `Trace` for its figures */
  readonly trace: {
    /** its file name */
    readonly file: string
    /** the device's number in the recording */
    readonly device: number
    /** other devices of the recording: how many events they have, and how many requests failed on them */
    readonly otherDevices: readonly OtherDevice[]
    /** the allocator whose calls were recorded */
    readonly recorder: Trace['recorder']
    /** PyTorch's allocator settings, '' for its defaults; null if unknown */
    readonly settings: string | null
    /** 'Windows' if the paths of the call stacks show it; else null */
    readonly platform: 'Windows' | null
    /** events that concern memory */
    readonly events: number
    /** streams that events name */
    readonly streams: number
    /** from the first event to the latest */
    readonly spanSeconds: number
    /** most bytes live at once, as requested and served */
    readonly peakRequestedBytes: number
    /** most requested bytes live at once, with each request that failed: no allocator can serve all with less */
    readonly peakWithFailedBytes: number
    /**
     * bytes of a packing of all blocks, and of each request that failed, by heuristics that know the whole future: an
     * allocator that moves nothing could need as little; null unless the option `leastCapacity` is set
     */
    readonly packedBytes: number | null
    /** most bytes that PyTorch had from the device at once; null if it is unknown */
    readonly recordedPeakReservedBytes: number | null
    /** alloc events */
    readonly allocations: number
    /** blocks from before the first event, and their bytes; earlier events are not recorded */
    readonly initial: InitialBlocks
    /** contradictions of the recording, by kind; if any, figures may be wrong */
    readonly contradictions: Contradictions
    /** how many requests failed */
    readonly failedRequests: number
    /** the failed requests in their order: all, or the last 100 of many */
    readonly outOfMemories: readonly RecordedOutOfMemory[]
    /** memory that went back to the device, most bytes first */
    readonly giveBacks: readonly GiveBacks[]
  }
  /** the device that the trace was replayed on */
  readonly device: { readonly name: string; readonly simulated: boolean }
  /** events of a stream after which its modelled work completes, 'never', or null on a GPU, where work is real */
  readonly lag: number | 'never' | null
  /** the most bytes that each policy could reserve; null for no limit */
  readonly capacityBytes: number | null
  /** how often each pass went through the trace */
  readonly repeat: number
  /** one entry for each policy, in the order of the option `policies` */
  readonly runs: readonly ReplayRun[]
}

/** The figures of a recording. */
export type TraceFigures = ReplayReport['trace']

/** Throws TypeError, which begins with `argument`, unless `report` is the report of a replay. */
export function checkReport(argument: string, report: unknown): asserts report is ReplayReport {
  const isReport = typeof report === 'object' && report !== null && 'runs' in report && Array.isArray(report.runs)
  if (!isReport)
    throw new WrongTypeError(`${argument} must be what replay(trace, open) resolves to, not ${describe(report)}`)
}
