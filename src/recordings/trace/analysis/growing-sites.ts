// The call sites whose memory grows through the whole recording, without the help of steps: inference has none.
//
// A site may keep blocks. Those that are not freed before the last allocation of all count. Time is the
// number of blocks that the program has freed: the load of a model, however long, is one moment. The site grows if
// - its first block is in the first half of the recording. Later ones may belong to the work under way at the end;
// - it has at least LEAST_BLOCKS, and some in each of four equal parts of that time;
// - the last part has at least half the average of the others. In caches that fill up blocks become fewer;
// - the time after the last block is at most twice the longest pause between two. A full cache adds no more;
// - the program frees at least the same number of blocks in that time. A program that only loads weights does not;
// - its frames do not load or make the weights of a model;
// - the blocks are not in a private pool. A graph keeps the blocks of its capture.
//
// Or a call stack replaces one block by a larger one again and again, as torch.cat() to a result does. It grows if its
// blocks never get smaller, all but the last are freed, and the larger ones are spread as above. Sizes that vary with
// the data get smaller, too.

import { CallSites } from '../frames/call-sites.js'
import { stackValues } from '../frames/stack-values.js'
import { Action, NEVER, type Trace } from '../trace.js'
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
  /** where one block is replaced by a larger one: the bytes of the first; else null */
  readonly firstBytes: number | null
}

/** Most bytes first. */
export function growingSitesOf(trace: Trace): GrowingSite[] {
  const frees = freesBefore(trace)
  const loads = loadingStacks(trace)
  return [...keepingSites(trace, frees, loads), ...enlargingSites(trace, frees, loads)].sort(
    (a, b) => b.bytes - a.bytes,
  )
}

function keepingSites(trace: Trace, frees: Int32Array, loads: Uint8Array): GrowingSite[] {
  const { blocks } = trace
  const sums = new SiteSums(trace)
  // What is freed later is freed by the end of the program.
  const ending = blocks.allocatedAt[blocks.count - 1]
  for (let number = blocks.initial; number < blocks.count; number++) {
    if (blocks.freeRequestedAt[number] > ending && blocks.pool[number] === 0) sums.add(number)
  }
  return sums.list().flatMap(({ of, numbers }) => {
    const at = numbers.map(number => blocks.allocatedAt[number])
    return isSteady(at, frees) && loads[blocks.stack[numbers[0]]] === 0 ? [{ ...of, firstBytes: null }] : []
  })
}

/** A call stack whose blocks never get smaller so far. */
interface Enlarging {
  readonly firstBytes: number
  bytes: number
  /** number of the last block */
  last: number
  /** the events with a block larger than all before */
  readonly at: number[]
}

function enlargingSites(trace: Trace, frees: Int32Array, loads: Uint8Array): GrowingSite[] {
  const { blocks } = trace
  // By stack: a loop has the same one each time, and a recording may have very many.
  const found = new Map<number, Enlarging | null>()
  for (let number = blocks.initial; number < blocks.count; number++) {
    const stack = blocks.stack[number]
    if (stack === 0 || blocks.pool[number] > 0) continue
    const bytes = blocks.bytes[number]
    const known = found.get(stack)
    if (known === undefined) {
      found.set(stack, { firstBytes: bytes, bytes, last: number, at: [blocks.allocatedAt[number]] })
    } else if (known !== null) {
      // The block before must go: one that stays is kept, and not replaced.
      if (bytes < known.bytes || blocks.freeRequestedAt[known.last] === NEVER) found.set(stack, null)
      if (bytes > known.bytes) known.at.push(blocks.allocatedAt[number])
      known.bytes = bytes
      known.last = number
    }
  }
  const sites = CallSites.of(trace.stacks)
  return Array.from(found, ([stack, each]): GrowingSite[] => {
    if (each === null || blocks.freeRequestedAt[each.last] !== NEVER) return []
    if (!isSteady(each.at, frees) || loads[stack] === 1) return []
    return [
      { site: sites.siteOf(stack).site, blockBytes: null, blocks: 1, bytes: each.bytes, firstBytes: each.firstBytes },
    ]
  }).flat()
}

/** By event, and behind the last: how many blocks the program has freed before it. */
function freesBefore({ action, events }: Trace): Int32Array {
  const frees = new Int32Array(events + 1)
  for (let event = 0; event < events; event++) {
    frees[event + 1] = frees[event] + (action[event] === Action.freeRequested ? 1 : 0)
  }
  return frees
}

/** Whether allocations are enough, and spread over the time from the first of them to the end. */
function isSteady(events: readonly number[], frees: Int32Array): boolean {
  const from = frees[events[0]]
  const end = frees[frees.length - 1]
  if (events.length < LEAST_BLOCKS || from > end / 2 || end - from < events.length) return false
  const counts = new Array<number>(PARTS).fill(0)
  let longestPause = 0
  let before = from
  for (const event of events) {
    const at = frees[event]
    counts[Math.min(PARTS - 1, Math.floor(((at - from) * PARTS) / (end - from)))]++
    longestPause = Math.max(longestPause, at - before)
    before = at
  }
  const last = counts[PARTS - 1]
  // Of few blocks the last part may have one fewer, since the end lies up to a cycle behind the last block.
  const usual = Math.floor((events.length - last) / (PARTS - 1))
  return (
    counts.every(count => count > 0) && last >= Math.floor(usual / 2) && end - before <= LONGEST_SILENCE * longestPause
  )
}

/** By number of a call stack: 1 if it loads or makes the weights of a model. */
function loadingStacks({ stacks }: Trace): Uint8Array {
  return stackValues(stacks, frame => {
    return isLoading(frame) || (OF_MODULES.test(frame.filename) && frame.name === '__init__') ? 1 : 0
  })
}
