// The memory that a program gave back itself, by torch.cuda.empty_cache(). A recording shows these releases like those
// of the allocator at its limit. Some call stacks tell; others are inferred from a replay of the recording with its own
// settings.

import { stackValues } from '../frames/stack-values.js'
import { Action, type Trace } from '../trace.js'
import type { PlacementPolicy } from './model/policy-blocks.js'
import type { PytorchSettings } from './model/pytorch-settings.js'
import { recordedPytorchSettings } from './named-settings.js'
import { type ModelOptions, replayPytorchPolicy } from './pytorch-replay.js'

/** Functions of Python and C++ that give memory back for a program. */
const EMPTY_CACHE = /(^|[:.])(empty_?cache|THCPModule_emptyCache)($|\W)/i
/** The allocator's own function, which gives memory back for a request. */
const ALLOCATION = /CachingAllocator::malloc\b/

/**
 * The first event of each run of segment_free or segment_unmap events that the program caused: by its call stack, or
 * else because they give back all idle memory, and no request follows that would take the allocator above its limit.
 * `limitBytes` is the limit of the recording; by default the most that was ever reserved, because it is not less.
 */
export function programReleases(trace: Trace, limitBytes = trace.recordedPeakReservedBytes ?? 0): Set<number> {
  const found = new Set<number>()
  if (![Action.segmentFree, Action.segmentUnmap].some(code => trace.action.includes(code))) return found
  const requests = requestsAfter(trace)
  const givenBack = givenBackBefore(trace)
  const byStack = releaserOf(trace)
  const onGiveBack = (event: number, policy: PlacementPolicy) => {
    const request = requests[event]
    const by = byStack(event)
    if (by === 'allocator') return
    if (by === 'program' || request === NO_REQUEST) found.add(event)
    else if (policy.idleBytes() === givenBack[request] - givenBack[event]) {
      const { bytes, stream, pool } = trace
      if (!policy.needsMore(bytes[request], stream[request], pool[request], limitBytes)) found.add(event)
    }
  }
  replayPytorchPolicy(trace, { settings: recordedPytorchSettings(trace), onGiveBack })
  return found
}

const RELEASERS = [null, 'program', 'allocator'] as const

/**
 * Who gave memory back, by the call stack of an event; null if that does not tell. Frames of Python alone tell only of
 * the program: cuDNN's benchmark empties the cache below other lines, too.
 */
export function releaserOf({ stack, stacks }: Trace): (event: number) => (typeof RELEASERS)[number] {
  const releasers = stackValues(stacks, ({ name }) => (EMPTY_CACHE.test(name) ? 1 : ALLOCATION.test(name) ? 2 : 0))
  return event => RELEASERS[releasers[stack[event]]]
}

/** The program made no request next. */
export const NO_REQUEST = -1

/** By event: the request that may have caused it, which follows it; NO_REQUEST for none. */
export function requestsAfter({ action, events }: Trace): Int32Array {
  const requests = new Int32Array(events)
  let request = NO_REQUEST
  for (let event = events - 1; event >= 0; event--) {
    const code = action[event]
    if (code === Action.alloc || code === Action.outOfMemory) request = event
    else if (!isGivenBack(code) && !isTaken(code) && code !== Action.freeCompleted) request = NO_REQUEST
    requests[event] = request
  }
  return requests
}

/** By event: the bytes given back before it. */
function givenBackBefore({ action, bytes, events }: Trace): Float64Array {
  const before = new Float64Array(events)
  for (let event = 1; event < events; event++) {
    before[event] = before[event - 1] + (isGivenBack(action[event - 1]) ? bytes[event - 1] : 0)
  }
  return before
}

export function isGivenBack(code: number): boolean {
  return code === Action.segmentFree || code === Action.segmentUnmap
}

export function isTaken(code: number): boolean {
  return code === Action.segmentAlloc || code === Action.segmentMap
}

/** Many capacities are tried over one trace. */
const releases = new WeakMap<Trace, ReadonlySet<number>>()

/** `programReleases(trace)`, computed once. */
export function knownReleases(trace: Trace): ReadonlySet<number> {
  const found = releases.get(trace) ?? programReleases(trace)
  releases.set(trace, found)
  return found
}

/**
 * The options of a model within a capacity, `Infinity` for none. It gives memory back where it decides to,
 * and where the program did: all figures of `replay`, `tune` and `why` are of such models. Garbage is collected only
 * under a limit of the program's own.
 */
export function modelWithin(trace: Trace, settings: PytorchSettings, capacityBytes: number): ModelOptions {
  const limitBytes = settings.garbageCollectionThreshold === undefined ? Infinity : capacityBytes
  return { settings, capacityBytes, limitBytes, programReleases: knownReleases(trace) }
}
