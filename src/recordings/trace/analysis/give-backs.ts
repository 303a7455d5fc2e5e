// Memory that went back to the device while the program ran. PyTorch gives back what is idle when it runs full, and
// then asks again, which waits for the GPU. A program gives it back by torch.cuda.empty_cache().
//
// Who did it: a call stack with empty_cache, or with the allocator's function, says so. Else the program did if no
// request follows, or one that obtains no memory: the allocator gives back only what it needs to. Otherwise a replay
// infers it, as `programReleases` describes, but not under garbage_collection_threshold, since that gives memory back
// below the limit.

import { SlowReplayError } from '../../../core/base/errors.js'
import { CallSites } from '../frames/call-sites.js'
import { recordedPytorchSettings } from '../pytorch/named-settings.js'
import {
  isGivenBack,
  isTaken,
  knownReleases,
  NO_REQUEST,
  releaserOf,
  requestsAfter,
} from '../pytorch/program-releases.js'
import type { GiveBackSite, GiveBacks } from '../replay-result.js'
import { Action, type Trace } from '../trace.js'

/** Events that give memory back one after another, for one request or one call of the program. */
interface Run {
  readonly event: number
  /** the request that they serve, or NO_REQUEST */
  readonly request: number
  readonly by: GiveBacks['by']
  readonly inferred: boolean
  readonly bytes: number
}

/** The memory of a recording that went back to the device, most bytes first. */
export function giveBacksOf(trace: Trace): GiveBacks[] {
  const callSites = CallSites.of(trace.stacks)
  const found = new Map<
    GiveBacks['by'],
    Omit<GiveBacks, 'by' | 'sites'> & { sites: Map<string | null, GiveBackSite> }
  >()
  let last: Run | null = null
  for (const run of runsOf(trace)) {
    // With max_split_size_mb PyTorch gives some memory back, asks again, and then gives back the rest.
    const isSame = last !== null && last.request !== NO_REQUEST && last.request === run.request && last.by === run.by
    last = run
    const times = isSame ? 0 : 1
    const who = found.get(run.by) ?? { inferred: false, times: 0, bytes: 0, sites: new Map() }
    const stack = trace.stack[run.event] || (run.by === 'allocator' ? trace.stack[run.request] : 0)
    const { site } = callSites.siteOf(stack)
    const at = who.sites.get(site) ?? { site, times: 0, bytes: 0 }
    who.sites.set(site, { site, times: at.times + times, bytes: at.bytes + run.bytes })
    const inferred = who.inferred || run.inferred
    found.set(run.by, { inferred, times: who.times + times, bytes: who.bytes + run.bytes, sites: who.sites })
  }
  const byBytes = (a: { bytes: number }, b: { bytes: number }) => b.bytes - a.bytes
  return Array.from(found, ([by, { sites, ...sums }]) => ({
    by,
    ...sums,
    sites: [...sites.values()].sort(byBytes),
  })).sort(byBytes)
}

/** Whether the allocator gave memory back because it had run full. */
export function hasRetries(trace: Trace): boolean {
  return runsOf(trace).some(({ by }) => by === 'allocator')
}

function runsOf(trace: Trace): Run[] {
  const { action, bytes, events, stack } = trace
  const byStack = releaserOf(trace)
  const infer = inference(trace)
  const requests = requestsAfter(trace)
  const runs: Run[] = []
  for (let event = 0; event < events; event++) {
    if (!isGivenBack(action[event])) continue
    const first = event
    let sum = 0
    for (; event < events && isGivenBack(action[event]); event++) sum += bytes[event]
    const request = requests[first]
    // A request fails only after the allocator has given back what it can.
    const inferred = stack[first] === 0 && action[request] !== Action.outOfMemory
    runs.push({ event: first, request, by: byStack(first) ?? infer(first, request), inferred, bytes: sum })
  }
  return runs
}

/**
 * By the first event of a run and the request that follows, where the call stack does not tell. Null for another
 * allocator, and where a replay would take too long.
 */
function inference(trace: Trace): (event: number, request: number) => GiveBacks['by'] {
  if (trace.recorder !== 'PyTorch') return () => null
  const { action } = trace
  const collects = recordedPytorchSettings(trace).garbageCollectionThreshold !== undefined
  let releases: ReadonlySet<number> | null | undefined
  return (event, request) => {
    if (request === NO_REQUEST) return 'program'
    if (action[request] === Action.alloc && !isTaken(action[request - 1])) return 'program'
    if (collects) return 'allocator'
    if (releases === undefined) releases = releasesUnlessSlow(trace)
    if (releases === null) return null
    return releases.has(event) ? 'program' : 'allocator'
  }
}

function releasesUnlessSlow(trace: Trace): ReadonlySet<number> | null {
  try {
    return knownReleases(trace)
  } catch (error) {
    if (error instanceof SlowReplayError) return null
    throw error
  }
}
