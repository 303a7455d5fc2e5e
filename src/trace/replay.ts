// Replays a trace under several policies, and reports the memory and time of each.

import { MOST_REPLAYED_STREAMS } from './modelled-work.js'
import { poolRun } from './pool-run.js'
import { pytorchRun } from './pytorch/pytorch-run.js'
import type { ReplayDevice } from './replay-device.js'
import { type ReplayOptions, type Settings, settingsOf } from './replay-options.js'
import type { Policy, ReplayReport, ReplayRun } from './replay-result.js'
import { emptyRun, ratios } from './run-figures.js'
import type { Trace } from './trace.js'

/**
 * Replays `trace`. `open` opens the device, anew for each pass. Rejects with RangeError or TypeError for a bad
 * option, and with RangeError for a trace of more than 2046 streams. Running out of memory is a result, not an error.
 */
export async function replay(
  trace: Trace,
  open: () => ReplayDevice,
  options: ReplayOptions = {},
): Promise<ReplayReport> {
  const settings = settingsOf(options)
  // One more stream stands for the streams that use blocks after their free.
  if (trace.streams.length >= MOST_REPLAYED_STREAMS) {
    throw new RangeError(
      `${trace.file} has ${trace.streams.length} streams; a replay can have ${MOST_REPLAYED_STREAMS - 1} of them`,
    )
  }
  const probe = open()
  const device = { name: probe.name, simulated: probe.simulated }
  probe.close()
  const runs: ReplayRun[] = []
  const total = settings.policies.length
  for (const [index, policy] of settings.policies.entries()) {
    const progress = (share: number) => settings.onProgress((index + share) / total, policy)
    progress(0)
    // Lets Node draw a progress bar and handle an interrupt between passes.
    await new Promise(resolve => setImmediate(resolve))
    runs.push(await runOf(policy, trace, open, device.simulated, settings, progress))
  }
  settings.onProgress(1, 'done')
  return {
    trace: {
      file: trace.file,
      events: trace.events,
      streams: trace.eventStreams,
      spanSeconds: trace.spanSeconds,
      peakRequestedBytes: trace.peakRequestedBytes,
      recordedPeakReservedBytes: trace.recordedPeakReservedBytes,
      allocations: trace.allocations,
    },
    device,
    lag: device.simulated ? (settings.lag === Infinity ? 'never' : settings.lag) : null,
    repeat: settings.repeat,
    runs,
  }
}

async function runOf(
  policy: Policy,
  trace: Trace,
  open: () => ReplayDevice,
  simulated: boolean,
  settings: Settings,
  progress: (share: number) => void,
): Promise<ReplayRun> {
  const none = emptyRun(policy, trace)
  switch (policy) {
    case 'recorded':
      return { ...none, ...recordedRun(trace) }
    case 'pytorch':
    case 'pytorch-expandable':
      return { ...none, ...pytorchRun(policy, trace, simulated, settings, progress) }
    default:
      return { ...none, ...(await poolRun(policy, trace, open, settings, progress)) }
  }
}

function recordedRun(trace: Trace): Partial<ReplayRun> {
  return trace.recordedPeakReservedBytes === null ? {} : ratios(trace, trace.recordedPeakReservedBytes, null)
}
