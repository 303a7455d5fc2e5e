// The public API of cuda-mempool/trace: recordings of allocations, and their replay under several policies.

export { type StackDifference, type TraceDifference, traceDifference } from './analysis/stack-diff.js'
export { leftBlocks, type Step, type Steps, stepsOf } from './analysis/steps.js'
export type { Holder } from './failures/holders.js'
export { type RecordedOutOfMemory, recordedOutOfMemories, type Verdict } from './failures/out-of-memory.js'
export {
  type RecordingOptions,
  type RecordingsOptions,
  readRecording,
  readRecordings,
} from './formats/read-recording.js'
export type { ExistenceRanges, Placements } from './placements/placements.js'
export { pickleSnapshot } from './pytorch/pytorch-snapshot-writer.js'
export { RecordedPool, type RecorderOptions, recorded } from './recording/recorder.js'
export { replay } from './replay.js'
export type { ReplayDevice } from './replay-device.js'
export { replayDevices } from './replay-devices.js'
export type { ReplayOptions } from './replay-options.js'
export {
  DEFAULT_POLICIES,
  type InitialBlocks,
  type Latency,
  type NamedPolicy,
  type Percentiles,
  POLICIES,
  type Policy,
  type ReplayFailure,
  type ReplayReport,
  type ReplayRound,
  type ReplayRun,
} from './replay-result.js'
export {
  Action,
  type ActionCode,
  type Annotation,
  BEFORE,
  type Blocks,
  type CallStacks,
  type Frame,
  framesOf,
  frameText,
  NEVER,
  type OtherDevice,
  type Segment,
  stackFrames,
  type Trace,
} from './trace.js'
export { type TuneOptions, tune } from './tune/tune.js'
export type { TuneAtCapacity, TuneRecording, TuneReport, TuneRun } from './tune/tune-report.js'
