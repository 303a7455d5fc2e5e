// The call sites whose memory grows through the whole recording, without the help of steps: inference has none.
//
// A site may keep blocks. Those that are not freed before the last allocation of all count. Time is the number of
// freed blocks: the load of a model, however long, is one moment. Frees in private pools are left out, since captures
// of graphs come before the work, and so are those at the end of the program. The site grows if
// - its first block is in the first half of the recording. Later ones may belong to the work under way at the end;
// - it has at least LEAST_BLOCKS, and some in each of four equal parts of that time;
// - the last part has at least half the average of the others. In caches that fill up blocks become fewer;
// - the time after the last block is at most twice the longest pause between two. A full cache adds no more;
// - the program frees at least the same number of blocks in that time. A program that only loads weights does not;
// - no frame of PyTorch's modules or of a package loads or makes the weights of a model;
// - the blocks are not in a private pool. A graph keeps the blocks of its capture.
//
// Or a call stack replaces its blocks by larger ones again and again, as torch.cat() to a result does, for one block or
// for one of each layer. It grows if as many blocks never have fewer bytes than before, the larger ones are spread as
// above, and it does not hold ever more blocks. Sizes that vary with the data get smaller, too.

import { CallSites } from '../frames/call-sites.js'
import { stackValues } from '../frames/stack-values.js'
import { Action, type Trace } from '../trace.js'
import { type SiteBlocks, SiteSums } from './site-sums.js'
import { isLoading } from './training-phases.js'

const PARTS = 4
/** One for each part, and one more: four single blocks may be chance. */
const LEAST_BLOCKS = PARTS + 1
/** A recording whose last cycle is not complete ends up to a cycle later than its last block, or a bit more. */
const LONGEST_SILENCE = 2
const OF_MODULES = /torch[\\/]nn[\\/](modules[\\/]|parameter\.py)/

/** A call site whose memory grows through the recording. */
export interface GrowingSite extends SiteBlocks {
  /** where blocks are replaced by larger ones: the bytes of the first; else null */
  readonly firstBytes: number | null
}

/** Most bytes first. */
export function growingSitesOf(trace: Trace): GrowingSite[] {
  const time = timeOf(trace)
  const loads = loadingStacks(trace)
  return [...keepingSites(trace, time, loads), ...enlargingSites(trace, time, loads)].sort((a, b) => b.bytes - a.bytes)
}

function keepingSites(trace: Trace, time: Time, loads: Uint8Array): GrowingSite[] {
  const { blocks } = trace
  const sums = new SiteSums(trace)
  // What is freed later is freed by the end of the program.
  const ending = blocks.allocatedAt[blocks.count - 1]
  for (let number = blocks.initial; number < blocks.count; number++) {
    if (blocks.freeRequestedAt[number] > ending && blocks.pool[number] === 0) sums.add(number)
  }
  return sums.list().flatMap(({ of, numbers }) => {
    const at = numbers.map(number => blocks.allocatedAt[number])
    return isSteady(at, time) && loads[blocks.stack[numbers[0]]] === 0 ? [{ ...of, firstBytes: null }] : []
  })
}

/** A call stack whose blocks never got smaller. */
interface Enlarging {
  readonly firstBytes: number
  blocks: number
  bytes: number
  /** by the number of blocks held after an allocation: their bytes then, the last time */
  readonly sums: number[]
  /** the allocations after which as many blocks as before have more bytes */
  readonly at: number[]
  /** how many of these there were when the number of blocks rose last */
  widened: number
}

function enlargingSites(trace: Trace, time: Time, loads: Uint8Array): GrowingSite[] {
  const { blocks, block, action } = trace
  // By stack: a loop has the same one each time, and a recording may have very many.
  const found = new Map<number, Enlarging | null>()
  for (let event = 0; event < trace.events; event++) {
    const number = block[event]
    if (number < blocks.initial || blocks.stack[number] === 0 || blocks.pool[number] > 0) continue
    const stack = blocks.stack[number]
    const bytes = blocks.bytes[number]
    let known = found.get(stack)
    if (known === null) continue
    known ??= { firstBytes: bytes, blocks: 0, bytes: 0, sums: [], at: [], widened: 0 }
    if (action[event] === Action.alloc) found.set(stack, allocated(known, bytes, event))
    else if (action[event] === Action.freeRequested) {
      known.blocks--
      known.bytes -= bytes
    }
  }
  return Array.from(found, ([stack, each]) => {
    return each === null || loads[stack] === 1 ? [] : enlargedSite(trace, time, stack, each)
  }).flat()
}

/** Null if as many blocks as before have fewer bytes. */
function allocated(known: Enlarging, bytes: number, event: number): Enlarging | null {
  known.blocks++
  known.bytes += bytes
  const before = known.sums[known.blocks]
  if (before === undefined) known.widened = known.at.length
  else if (before > known.bytes) return null
  else if (before < known.bytes) known.at.push(event)
  known.sums[known.blocks] = known.bytes
  return known
}

function enlargedSite(trace: Trace, time: Time, stack: number, each: Enlarging): GrowingSite[] {
  const { firstBytes, blocks, bytes, sums, at, widened } = each
  // A site that holds ever more blocks keeps them. One that holds far fewer now has let the rest go.
  if (2 * widened > at.length || 2 * blocks < sums.length - 1) return []
  if (!isSteady(at, time)) return []
  const { site } = CallSites.of(trace.stacks).siteOf(stack)
  return [{ site, blockBytes: null, blocks, bytes, firstBytes }]
}

/** The time of a recording, in blocks of no private pool that the program has freed. */
interface Time {
  /** by event, and behind the last */
  readonly at: Int32Array
  /** at the last allocation */
  readonly last: number
}

function timeOf({ action, block, blocks, events }: Trace): Time {
  const at = new Int32Array(events + 1)
  for (let event = 0; event < events; event++) {
    const isFree = action[event] === Action.freeRequested && blocks.pool[block[event]] === 0
    at[event + 1] = at[event] + (isFree ? 1 : 0)
  }
  return { at, last: blocks.count === blocks.initial ? 0 : at[blocks.allocatedAt[blocks.count - 1]] }
}

/** Whether allocations are enough, and spread over the time from the first of them to the end. */
function isSteady(events: readonly number[], time: Time): boolean {
  if (events.length < LEAST_BLOCKS) return false
  const from = time.at[events[0]]
  let longestPause = 0
  let before = from
  for (const event of events) {
    longestPause = Math.max(longestPause, time.at[event] - before)
    before = time.at[event]
  }
  // The work under way ends; later frees belong to the end of the program.
  const end = Math.min(time.at[time.at.length - 1], time.last + longestPause)
  if (from > end / 2 || end - from < events.length || end - before > LONGEST_SILENCE * longestPause) return false
  const counts = new Array<number>(PARTS).fill(0)
  for (const event of events)
    counts[Math.min(PARTS - 1, Math.floor(((time.at[event] - from) * PARTS) / (end - from)))]++
  const last = counts[PARTS - 1]
  // Of few blocks the last part may have one fewer, since the end lies up to a cycle behind the last block.
  const usual = Math.floor((events.length - last) / (PARTS - 1))
  return counts.every(count => count > 0) && last >= Math.floor(usual / 2)
}

/** By number of a call stack: 1 if it loads or makes the weights of a model. */
function loadingStacks({ stacks }: Trace): Uint8Array {
  return stackValues(stacks, frame => {
    return isLoading(frame) || (OF_MODULES.test(frame.filename) && frame.name === '__init__') ? 1 : 0
  })
}
