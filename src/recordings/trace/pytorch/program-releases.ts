// The memory that a program gave back itself, by torch.cuda.empty_cache(). A recording shows these releases like those
// of the allocator at its limit. So they are inferred from a replay of the recording with its own settings.

import { Action, type Trace } from '../trace.js'
import type { PlacementPolicy } from './model/policy-blocks.js'
import type { PytorchSettings } from './model/pytorch-settings.js'
import { recordedPytorchSettings } from './named-settings.js'
import { type ModelOptions, replayPytorchPolicy } from './pytorch-replay.js'

/**
 * The first event of each run of segment_free or segment_unmap events that the program caused. They give back all idle
 * memory, and no request follows that would take the allocator above its limit. `limitBytes` is the limit of the
 * recording; by default the most that was ever reserved, because it is not less.
 */
export function programReleases(trace: Trace, limitBytes = trace.recordedPeakReservedBytes ?? 0): Set<number> {
  const found = new Set<number>()
  const onGiveBack = (event: number, policy: PlacementPolicy) => {
    const request = nextRequest(trace, event)
    if (request === null) found.add(event)
    else if (policy.idleBytes() === bytesGivenBack(trace, event, request)) {
      const { bytes, stream, pool } = trace
      if (!policy.needsMore(bytes[request], stream[request], pool[request], limitBytes)) found.add(event)
    }
  }
  replayPytorchPolicy(trace, { settings: recordedPytorchSettings(trace), onGiveBack })
  return found
}

/** The request during which memory was given back; null if the program did something else next. */
function nextRequest({ action, events }: Trace, from: number): number | null {
  for (let event = from; event < events; event++) {
    const code = action[event]
    if (code === Action.alloc || code === Action.outOfMemory) return event
    const isWithinRequest = isGivenBack(code) || isTaken(code) || code === Action.freeCompleted
    if (!isWithinRequest) return null
  }
  return null
}

function bytesGivenBack({ action, bytes }: Trace, from: number, to: number): number {
  let sum = 0
  for (let event = from; event < to; event++) if (isGivenBack(action[event])) sum += bytes[event]
  return sum
}

function isGivenBack(code: number): boolean {
  return code === Action.segmentFree || code === Action.segmentUnmap
}

function isTaken(code: number): boolean {
  return code === Action.segmentAlloc || code === Action.segmentMap
}

/** Many capacities are tried over one trace. */
const releases = new WeakMap<Trace, ReadonlySet<number>>()

/**
 * The options of a model that may reserve so much. Within a limit it gives memory back where it decides to, and where
 * the program did. Garbage is collected only under a limit of the program's own.
 */
export function modelWithin(trace: Trace, settings: PytorchSettings, capacityBytes: number): ModelOptions {
  const found = releases.get(trace) ?? programReleases(trace)
  releases.set(trace, found)
  const limitBytes = settings.garbageCollectionThreshold === undefined ? Infinity : capacityBytes
  return { settings, capacityBytes, limitBytes, programReleases: found }
}
