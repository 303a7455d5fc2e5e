// The answers of the commands as JSON. `docs/command-line.schema.json` is made from these types by
// `npm run docs:schema`; a test compares it with them, and every command's output with it.

import { statSync } from 'node:fs'
import type { RegionInfo } from '../core/keeper/region.js'
import type { ProcessStats } from '../live/process-stats.js'
import type { TuneAnswer } from '../recordings/report/advice-text.js'
import type { DeviceReport } from '../recordings/report/device-text.js'
import { answerJson } from '../recordings/report/export/report-json.js'
import type { WhyAnswer, WhyStateAnswer, WhyTextAnswer } from '../recordings/report/why/why-answer.js'
import type { Growth } from '../recordings/trace/analysis/run-growth.js'
import type { TraceDifference } from '../recordings/trace/analysis/stack-diff.js'
import type { PredictReport } from '../recordings/trace/predict/predict-report.js'
import type { ReplayReport, TraceFigures } from '../recordings/trace/replay-result.js'
import type { Trace } from '../recordings/trace/trace.js'

/** The memory that grew and shrank between two recordings. */
interface DiffAnswer extends TraceDifference {
  readonly before: TraceFigures
  readonly after: TraceFigures
}

/** A run compared with its base. */
interface CheckAnswer extends Growth {
  readonly trace: { readonly base: TraceFigures; readonly run: TraceFigures }
}

/** A GPU that was opened, and what is free on it. */
export interface UsableGpu {
  readonly driver: {
    /** path of the library that was opened */
    readonly origin: string
    /** the CUDA version that the driver supports */
    readonly version: string
  }
  readonly device: {
    readonly ordinal: number
    readonly name: string
    readonly freeBytes: number
    readonly totalBytes: number
  }
}

/** A file that was written, by `convert`, `report` and `viewer`. */
interface WrittenAnswer {
  /** the path of the file */
  readonly output: string
  readonly format: string
  readonly bytes: number
  /** the recordings in it, with the numbers of their devices */
  readonly recordings: readonly { readonly file: string; readonly device: number }[]
}

/** Regions of device memory: those that are kept, by `keep list`, or those that were freed, by `keep prune`. */
interface KeepAnswer {
  readonly regions: readonly RegionInfo[]
}

/**
 * The facts of each kind of answer. Most kinds are named as their command. `gpu` is that of `info --check`, `whyText`
 * is about an error message, `whyState` about a snapshot without events, and `written` about a file of `convert`,
 * `report` or `viewer`.
 */
export interface Answers {
  readonly info: DeviceReport
  readonly gpu: UsableGpu
  readonly top: ProcessStats
  readonly why: WhyAnswer
  readonly whyText: WhyTextAnswer
  readonly whyState: WhyStateAnswer
  readonly tune: TuneAnswer
  readonly predict: PredictReport
  readonly diff: DiffAnswer
  readonly check: CheckAnswer
  readonly replay: Omit<ReplayReport, 'runs'> & {
    readonly runs: readonly Omit<ReplayReport['runs'][number], 'placements'>[]
  }
  readonly written: WrittenAnswer
  readonly keep: KeepAnswer
}

/** An answer on one line. */
export function answer<Kind extends keyof Answers>(kind: Kind, facts: Answers[Kind]): string {
  return answerJson(kind, facts)
}

/** The answer about a file that was written, with the recordings in it. */
export function written(output: string, format: string, traces: readonly Trace[]): string {
  const recordings = traces.map(({ file, device }) => ({ file, device }))
  return answer('written', { output, format, bytes: statSync(output).size, recordings })
}
