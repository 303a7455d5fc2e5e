// The result of `tune`, as plain JSON.

import type { Holder } from '../failures/holders.js'
import type { RecordedOutOfMemory } from '../failures/out-of-memory.js'
import type { Contradictions, OtherDevice } from '../trace.js'

/** One setting, replayed over one recording or over several: sizes are then the largest, counts and times sums. */
export interface TuneRun {
  /** the settings, as PYTORCH_CUDA_ALLOC_CONF has them; '' for PyTorch's defaults */
  readonly settings: string
  /** most bytes reserved at once without a limit */
  readonly peakReservedBytes: number
  /** driver calls without a limit */
  readonly deviceCalls: number
  /** modelled seconds of these calls */
  readonly modelledDeviceSeconds: number
  /** of these, the seconds in the second half of the events */
  readonly laterDeviceSeconds: number
  /**
   * the least capacity at which a replay served everything, the requests that failed in the recording too; null if it
   * is more than that of the settings that the recording was made with
   */
  readonly leastCapacityBytes: number | null
  /** how often all free memory was given back for a request at that capacity; null as `leastCapacityBytes` */
  readonly leastCapacityRetries: number | null
  /** the replay within the capacity that was asked about; null without one */
  readonly atCapacity: TuneAtCapacity | null
  /**
   * the replay within `TuneRecording.withinBytes`, of each recording its own, or without a limit where it is unknown;
   * null if it is unknown for all
   */
  readonly within: TuneAtCapacity | null
}

/** A replay within a capacity. */
export interface TuneAtCapacity {
  /** requests that got no memory */
  readonly failures: number
  /** how often all free memory was given back for a request: PyTorch's num_alloc_retries */
  readonly retries: number
  /** most bytes reserved at once */
  readonly peakReservedBytes: number
  /** driver calls */
  readonly deviceCalls: number
  /** modelled seconds of these calls */
  readonly modelledDeviceSeconds: number
  /** of these, the seconds in the second half of the events */
  readonly laterDeviceSeconds: number
}

/** One recording, with every setting that was tried. */
export interface TuneRecording {
  /** its file name */
  readonly file: string
  /** the device's number in the recording */
  readonly device: number
  /** the devices of the file that were left out */
  readonly otherDevices: readonly OtherDevice[]
  /** the settings that it was made with; null if unknown */
  readonly recordedSettings: string | null
  /** 'Windows' if the paths of the call stacks show it; else null */
  readonly platform: 'Windows' | null
  /** seconds from its first to its latest event; 0 without times */
  readonly spanSeconds: number
  /** most bytes that PyTorch had from the device at once; null if not recorded */
  readonly recordedPeakReservedBytes: number | null
  /** how many requests failed in it */
  readonly failedRequests: number
  /** the last of them; null without any */
  readonly lastFailure: RecordedOutOfMemory | null
  /** the capacity within which retries and failures are counted; null if unknown */
  readonly withinBytes: number | null
  /**
   * the origin of that capacity: the option, the memory that the program could have when its last request failed, or
   * else, if PyTorch ran full, the recorded peak and one segment of 20 MiB; null if unknown
   */
  readonly withinIs: 'asked' | 'failure' | 'recorded' | null
  /** how many blocks are from before its first event: their sizes and places are inferred */
  readonly blocksBefore: number
  /** how many events the recorder lost; null if unknown */
  readonly dropped: number | null
  /** where it contradicts itself: figures may then be wrong */
  readonly contradictions: Contradictions
  /** most bytes in use at once, with each request that failed: no allocator can do with less */
  readonly lowerBoundBytes: number
  /** most bytes in use, or freed and still used by another stream, at once; null if the recording does not tell */
  readonly withWaitingBytes: number | null
  /** the failed request which `lowerBoundBytes` contains; null if more was in use at another time */
  readonly lowerBoundRequest: {
    /** number of the event */
    readonly event: number
    /** the request in bytes */
    readonly bytes: number
  } | null
  /**
   * bytes of a packing of all blocks that knows the future, keeps one address for each, and gives nothing back; null if
   * it was left out for lack of time
   */
  readonly packedBytes: number | null
  /** the lines of the program that hold most at the peak: at most three */
  readonly holders: readonly Holder[]
  /** the bytes that forward keeps for backward, at the last failed request or else at the peak; null if unknown */
  readonly activations: {
    /** the most that torch.utils.checkpoint could save */
    readonly bytes: number
    /** whether a call stack shows torch.utils.checkpoint */
    readonly isCheckpointed: boolean
  } | null
  /** one entry for each setting */
  readonly runs: readonly TuneRun[]
}

/** The result of `tune`. */
export interface TuneReport {
  /** the capacity that was asked about; null for none */
  readonly capacityBytes: number | null
  /** whether runs are compared within a capacity, because of the option or of a failed request */
  readonly isLimited: boolean
  /** the recordings: first those that need most */
  readonly recordings: readonly TuneRecording[]
  /** the settings that the recordings were made with, '' unless they agree; the others are compared with it */
  readonly baseline: string
  /** each setting over all recordings, the best first; `isLimited` decides the order */
  readonly runs: readonly TuneRun[]
  /**
   * settings to recommend, the best first. Each reserves less than `baseline`, or as much with fewer retries or a
   * lower least capacity, or serves requests that fail with `baseline`
   */
  readonly advice: readonly TuneRun[]
  /** settings that were not tried for lack of time */
  readonly leftOut: readonly string[]
  /** settings that a line to copy keeps beside the advice, because no replay takes them; '' for none */
  readonly kept: string
  /** settings of the line given as `merge` for which the advice stands; '' for none */
  readonly replaced: string
  /** settings of the recordings, of `merge` and of `settings` that are not known */
  readonly unknown: readonly string[]
  /** those that are known, but left out of replays */
  readonly notReplayed: readonly string[]
  /** those that have no effect on the memory of a GPU */
  readonly withoutEffect: readonly string[]
}
