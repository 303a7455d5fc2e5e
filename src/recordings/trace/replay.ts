// Replays a trace under several policies, and reports the memory and time of each.

import { OutOfRangeError, WrongTypeError } from '../../core/base/argument-errors.js'
import { describe } from '../../core/base/bytes.js'
import { isUnwantedPromise } from '../../core/base/thrown.js'
import type { RecordedOutOfMemory } from './failures/out-of-memory.js'
import { MOST_REPLAYED_STREAMS } from './modelled-work.js'
import { recordedPlacements } from './placements/recorded-placements.js'
import { PoolRun } from './pool-run.js'
import { isModelOfPytorch, poolPolicyOf } from './pytorch/named-settings.js'
import { PytorchRun } from './pytorch/pytorch-run.js'
import type { ReplayDevice } from './replay-device.js'
import { type ReplayOptions, type Settings, settingsOf } from './replay-options.js'
import type { Policy, ReplayReport, ReplayRun } from './replay-result.js'
import { emptyRun, recordedRun } from './run-figures.js'
import { checkTrace, type Trace } from './trace.js'
import { traceFigures } from './trace-figures.js'
import { leastCapacity } from './tune/least-capacity.js'
import { packedBytesOf } from './tune/packing.js'

const OPEN_HINT = 'such as replayDevices(trace)'

/**
 * Replays `trace`. `open` opens the device, anew for each pass; `replayDevices(trace)` makes one. A pass that
 * searches a least capacity gives it to `open`, for a simulated device of that size. Rejects with TypeError or
 * RangeError for a bad argument or option, with RangeError for a trace of more than 2046 streams, and with
 * SlowReplayError for a replay that takes out of all proportion to its trace. Running out of memory is a result, not an
 * error.
 */
export async function replay(
  trace: Trace,
  open: (capacityBytes?: number) => ReplayDevice,
  options: ReplayOptions = {},
): Promise<ReplayReport> {
  checkTrace('replay', trace)
  const settings = settingsOf(options)
  // One more stream stands for the streams that use blocks after their free.
  if (trace.streams.length >= MOST_REPLAYED_STREAMS) {
    throw new OutOfRangeError(
      `${trace.file} has ${trace.streams.length} streams; a replay can have ${MOST_REPLAYED_STREAMS - 1} of them`,
    )
  }
  const probe = opened(open)
  const device = { name: probe.name, simulated: probe.simulated }
  probe.close()
  const ofTrace = traceFigures(trace)
  const last = ofTrace.outOfMemories.at(-1)
  const runs: ReplayRun[] = []
  const total = settings.policies.length
  const parts = settings.leastCapacity ? 2 : 1
  for (const [index, policy] of settings.policies.entries()) {
    const progress = (share: number) => settings.onProgress((index + share) / total, policy)
    progress(0)
    // Lets Node draw a progress bar and handle an interrupt between passes.
    await new Promise(resolve => setImmediate(resolve))
    const replayed = policyRunOf(policy, trace, open, settings)
    const figures = await replayed?.figures(device.simulated, share => progress(share / parts))
    const run = replayed === null ? asRecorded(trace, settings) : { ...emptyRun(policy, trace), ...figures }
    const least = settings.leastCapacity && replayed !== null ? await leastOf(run, trace, replayed, last) : {}
    runs.push({ ...run, ...least })
  }
  settings.onProgress(1, 'done')
  return {
    trace: settings.leastCapacity ? { ...ofTrace, packedBytes: packedBytesOf(trace) } : ofTrace,
    device,
    lag: device.simulated ? (settings.lag === Infinity ? 'never' : settings.lag) : null,
    capacityBytes: Number.isFinite(settings.capacityBytes) ? settings.capacityBytes : null,
    repeat: settings.repeat,
    runs,
  }
}

/** A policy that a trace is replayed under. */
interface PolicyRun {
  /** The figures of all passes, on a simulated device or on a GPU. `progress` is told the share that is done. */
  figures(simulated: boolean, progress: (share: number) => void): Promise<Partial<ReplayRun>>
  /** Whether it serves everything within a capacity, with failed requests from event `failedFrom`; null if unknown. */
  serves(capacityBytes: number, failedFrom: number): boolean | null
}

/** Null for the policy 'recorded', which needs no replay. */
function policyRunOf(
  policy: Policy,
  trace: Trace,
  open: (capacityBytes?: number) => ReplayDevice,
  settings: Settings,
): PolicyRun | null {
  if (policy === 'recorded') return null
  if (isModelOfPytorch(policy)) return new PytorchRun(policy, trace, settings)
  return new PoolRun(poolPolicyOf(policy), trace, open, settings)
}

/** The least capacity of a policy, and whether it could have served the request that failed last. */
async function leastOf(
  { peakReservedBytes, failures }: ReplayRun,
  trace: Trace,
  replayed: PolicyRun,
  last: RecordedOutOfMemory | undefined,
): Promise<Partial<ReplayRun>> {
  if (peakReservedBytes === null) return {}
  let isBound = true
  const serves = async (capacityBytes: number, failedFrom: number): Promise<boolean> => {
    await new Promise(resolve => setImmediate(resolve))
    const served = replayed.serves(capacityBytes, failedFrom)
    isBound &&= served !== null
    return served ?? true
  }
  const servesAtFailure = last === undefined ? null : await servesLast(last, bytes => serves(bytes, last.event))
  const needed = trace.peakWithFailedBytes
  const search = () => leastCapacity(needed, peakReservedBytes, bytes => serves(bytes, 0))
  const leastCapacityBytes = failures > 0 ? null : await search()
  return isBound ? { leastCapacityBytes, servesAtFailure } : {}
}

/** Null if it depends on how much more than `capacityBytes` the program could have. */
async function servesLast(
  { capacityBytes, capacityBelowBytes, neededBytes }: RecordedOutOfMemory,
  serves: (capacityBytes: number) => Promise<boolean>,
): Promise<boolean | null> {
  if (capacityBytes === null) return null
  if (capacityBytes >= neededBytes && (await serves(capacityBytes))) return true
  if (capacityBelowBytes === null) return null
  return capacityBelowBytes - 1 >= neededBytes && (await serves(capacityBelowBytes - 1)) ? null : false
}

function opened(open: unknown): ReplayDevice {
  if (typeof open !== 'function') {
    throw new WrongTypeError(`replay: open must be a function that opens a device, not ${describe(open)}; ${OPEN_HINT}`)
  }
  const device: unknown = open()
  isUnwantedPromise(device)
  if (typeof device === 'object' && device !== null && 'driver' in device) return device as ReplayDevice
  throw new WrongTypeError(`replay: open must return a device, not ${describe(device)}; ${OPEN_HINT}`)
}

function asRecorded(trace: Trace, { placements }: Settings): ReplayRun {
  return { ...recordedRun(trace), placements: placements ? recordedPlacements(trace) : null }
}
