// The result of `predict`, as plain JSON.

import type { Holder } from '../failures/holders.js'
import type { Contradictions } from '../trace.js'

/** A figure with its range: blocks that do not lie on a line grow least, or most. */
export interface Predicted {
  readonly low: number
  readonly estimate: number
  readonly high: number
}

/** One of the recordings. */
export interface PredictRecording {
  readonly file: string
  /** the size that the program ran with */
  readonly size: number
  readonly inUseBytes: number
  /** null if the recording does not contain it */
  readonly reservedBytes: number | null
  /** whether a request failed, or PyTorch gave memory back to stay within a limit */
  readonly ranFull: boolean
  /** where it contradicts itself: figures may then be wrong */
  readonly contradictions: Contradictions
}

/** The memory of a call site at the peaks: of the recordings in their order, and as predicted. */
export interface PredictSite extends Pick<Holder, 'site' | 'through' | 'throughAll'> {
  readonly recordedBytes: readonly number[]
  readonly predictedBytes: number
}

/**
 * Whether a predicted run fits a capacity: in the whole range of sizes, in a part of it with the estimate, in a part
 * without the estimate, or nowhere.
 */
export type Fit = 'yes' | 'likely' | 'unlikely' | 'no'

/** A replay under one setting of PyTorch's allocator. */
export interface PredictRun {
  /** as PYTORCH_CUDA_ALLOC_CONF has it; '' for the defaults */
  readonly settings: string
  readonly reservedBytes: Predicted
  /** null without a capacity */
  readonly fits: Fit | null
  /** how often the estimate gave back all free memory within the capacity; null without one */
  readonly retries: number | null
}

/** The memory of a program with a size that was not recorded. */
export interface PredictReport {
  readonly size: number
  /** null if the call stacks do not tell Windows */
  readonly platform: 'Windows' | null
  readonly capacityBytes: number | null
  /** those that the prediction is from, by rising size */
  readonly recordings: readonly [PredictRecording, PredictRecording]
  /** requested bytes at their peak */
  readonly inUseBytes: Predicted
  /** under the settings of the recordings */
  readonly asRecorded: PredictRun
  /** under the setting that reserves least, if it reserves at least 1 % less; else null */
  readonly better: PredictRun | null
  /** shares of the bytes at the predicted peak: blocks on a line, blocks that grow otherwise, and unmatched ones */
  readonly shares: { readonly line: number; readonly otherwise: number; readonly unmatched: number }
  /** whether the size lies outside of the two recorded ones */
  readonly isBeyond: boolean
  /** most bytes at the predicted peak first */
  readonly sites: readonly PredictSite[]
  /** a recording of the predicted size, with which the prediction is compared; null without one */
  readonly check: PredictRecording | null
}
