// Freed blocks that wait because another stream still uses them. How long they wait depends on the speed of the GPU.
// The memory that a run reserves depends on it, too: two runs of one program may differ by a quarter.

import { recordedPytorchSettings } from '../pytorch/named-settings.js'
import { modelWithin } from '../pytorch/program-releases.js'
import { replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import { Action, BEFORE, type Trace } from '../trace.js'

/** The most bytes that were freed and still in use by a stream. A free that completes at once does not wait. */
export function peakWaitingBytes({ action, block, blocks, events, saysCompleted }: Trace): number {
  if (!saysCompleted) return 0
  let [waiting, most] = [0, 0]
  for (let event = 0; event < events; event++) {
    const number = block[event]
    if (action[event] !== Action.freeRequested && action[event] !== Action.freeCompleted) continue
    const { freeRequestedAt, freeCompletedAt, bytes } = blocks
    const isAtOnce = freeCompletedAt[number] === freeRequestedAt[number] + 1
    if (isAtOnce || freeRequestedAt[number] === BEFORE) continue
    waiting += action[event] === Action.freeRequested ? bytes[number] : -bytes[number]
    most = Math.max(most, waiting)
  }
  return most
}

/**
 * The most that PyTorch would have reserved if no freed block had waited. A model of its allocator is replayed with and
 * without waiting, and the difference is subtracted. Where the model is exact, two runs of a program have equal
 * results.
 */
export function reservedWithoutWaiting(trace: Trace, peakReservedBytes: number): number {
  const options = modelWithin(trace, recordedPytorchSettings(trace), Infinity)
  const action = trace.action.map(code => (code === Action.freeRequested ? Action.freeCompleted : code))
  // Without recorded addresses the model does not depend on those of the segments either, which waiting changes.
  const prompt = { ...trace, action, recordedPeakReservedBytes: null }
  const [asRecorded, without] = [trace, prompt].map(each => replayPytorchPolicy(each, options).peakReservedBytes)
  return peakReservedBytes - (asRecorded - without)
}
