// cuda-mempool/trace: recordings of allocations, and their replay under several policies.

export { FormatError, SlowReplayError } from '../core/base/errors.js'
export {
  type SiteDifference,
  type StackDifference,
  type TraceDifference,
  traceDifference,
} from '../recordings/trace/analysis/stack-diff.js'
export { leftBlocks, type Step, type Steps, stepsOf } from '../recordings/trace/analysis/steps.js'
export type { Holder } from '../recordings/trace/failures/holders.js'
export {
  type RecordedOutOfMemory,
  recordedOutOfMemories,
  type Verdict,
} from '../recordings/trace/failures/out-of-memory.js'
export {
  type RecordingOptions,
  type RecordingsOptions,
  readRecording,
  readRecordings,
} from '../recordings/trace/formats/read-recording.js'
export type { ExistenceRanges, Placements } from '../recordings/trace/placements/placements.js'
export { pickleSnapshot } from '../recordings/trace/pytorch/pytorch-snapshot-writer.js'
export { type RecordedPool, type RecorderOptions, recorded } from '../recordings/trace/recording/recorder.js'
export { replay } from '../recordings/trace/replay.js'
export type { ReplayDevice } from '../recordings/trace/replay-device.js'
export { replayDevices } from '../recordings/trace/replay-devices.js'
export type { ReplayOptions } from '../recordings/trace/replay-options.js'
export {
  DEFAULT_POLICIES,
  type GiveBackSite,
  type GiveBacks,
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
} from '../recordings/trace/replay-result.js'
export {
  Action,
  type ActionCode,
  type Annotation,
  BEFORE,
  type Blocks,
  type CallStacks,
  type Contradictions,
  type Frame,
  framesOf,
  frameText,
  NEVER,
  type OtherDevice,
  type Segment,
  stackFrames,
  type Trace,
} from '../recordings/trace/trace.js'
export { type TuneOptions, tune } from '../recordings/trace/tune/tune.js'
export type { TuneAtCapacity, TuneRecording, TuneReport, TuneRun } from '../recordings/trace/tune/tune-report.js'
