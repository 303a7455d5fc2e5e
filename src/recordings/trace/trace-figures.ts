import { giveBacksOf } from './analysis/give-backs.js'
import { failedEvents, recordedOutOfMemories } from './failures/out-of-memory.js'
import { platformOf } from './pytorch/platform.js'
import type { InitialBlocks, ReplayReport } from './replay-result.js'
import type { Trace } from './trace.js'

/** The figures of a trace that need no replay; the packing is left out. */
export function traceFigures(trace: Trace): ReplayReport['trace'] {
  return {
    file: trace.file,
    device: trace.device,
    otherDevices: trace.otherDevices,
    recorder: trace.recorder,
    settings: trace.settings,
    platform: platformOf(trace),
    events: trace.events,
    streams: trace.eventStreams,
    spanSeconds: trace.spanSeconds,
    peakRequestedBytes: trace.peakRequestedBytes,
    peakWithFailedBytes: trace.peakWithFailedBytes,
    packedBytes: null,
    recordedPeakReservedBytes: trace.recordedPeakReservedBytes,
    allocations: trace.allocations,
    initial: initialOf(trace),
    contradictions: trace.contradictions,
    failedRequests: failedEvents(trace).length,
    outOfMemories: recordedOutOfMemories(trace),
    giveBacks: giveBacksOf(trace),
  }
}

/** The blocks from before the first event. */
export function initialOf({ blocks }: Trace): InitialBlocks {
  return {
    blocks: blocks.initial,
    bytes: blocks.bytes.subarray(0, blocks.initial).reduce((sum, each) => sum + each, 0),
  }
}
