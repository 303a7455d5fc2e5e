// The call sites whose memory grows from step to step.
//
// The first step is not judged: it makes memory that stays, such as the state of an optimizer. A later step counts for
// a site if it allocated blocks there that outlive the last step, and if two further steps were recorded. A site grows
// if that holds for at least half of the steps of both halves. So caches that fill at the start do not count, and rings
// of buffers that later steps free do not either. Half of the steps suffices, since a program may log or evaluate in
// every second step only.

import { firstIndex } from '../../../core/base/binary-search.js'
import type { Trace } from '../trace.js'
import { type SiteBlocks, SiteSums } from './site-sums.js'
import type { Steps } from './steps.js'

/** A call site whose memory grows, and all its blocks that outlive the last step. */
interface LeakingSite extends SiteBlocks {
  /** how many of the judged steps left something there */
  readonly steps: number
  /** bytes that these steps left there, as requested */
  readonly leftBytes: number
  readonly leftBlocks: number
}

/** Memory that steps after the first leave behind for good. */
export interface StepLeaks {
  /** how many steps after the first could be judged */
  readonly judged: number
  /** whether memory grows by the rule for sites, whichever call sites it is from */
  readonly grows: boolean
  /** most bytes first */
  readonly sites: readonly LeakingSite[]
  /** blocks of the judged steps that outlive the last step, by call site, growing or not; most bytes first */
  readonly kept: readonly SiteBlocks[]
}

/** One step that leaves something may be chance. */
const LEAST_JUDGED = 2
/** A step that leaves less than this behind does not leak: smaller blocks are counters and flags. */
export const LEAST_BYTES_A_STEP = 512

export function stepLeaksOf(trace: Trace, { steps }: Steps): StepLeaks {
  const judged = steps.filter(({ leftBytes }) => leftBytes !== null).length - 1
  if (judged < LEAST_JUDGED) return { judged: Math.max(0, judged), grows: false, sites: [], kept: [] }
  const { blocks } = trace
  const sums = new SiteSums(trace)
  const bytes = new Float64Array(steps.length + 1)
  // A program that ends frees what it has kept.
  const ending = steps[steps.length - 1].to
  let step = 0
  for (let number = blocks.initial; number < blocks.count; number++) {
    while (step < steps.length && blocks.allocatedAt[number] >= steps[step].to) step++
    if (blocks.freeRequestedAt[number] < ending) continue
    sums.add(number, step)
    bytes[step] += blocks.bytes[number]
  }
  const growing = [...bytes.keys()].filter(each => bytes[each] >= LEAST_BYTES_A_STEP)
  const [from, to] = [steps[0].to, steps[judged].to]
  const kept: SiteBlocks[] = []
  const sites: LeakingSite[] = []
  for (const { of, parts, numbers } of sums.list()) {
    const firstFrom = (event: number) => firstIndex(numbers.length, i => blocks.allocatedAt[numbers[i]] >= event)
    const left = numbers.slice(firstFrom(from), firstFrom(to))
    const leftBytes = left.reduce((sum, number) => sum + blocks.bytes[number], 0)
    if (leftBytes >= LEAST_BYTES_A_STEP) kept.push({ ...of, blocks: left.length, bytes: leftBytes })
    const count = stepsOfGrowth(parts, judged)
    if (count === 0 || leftBytes < LEAST_BYTES_A_STEP * count) continue
    sites.push({ ...of, steps: count, leftBytes, leftBlocks: left.length })
  }
  sites.sort((a, b) => b.leftBytes - a.leftBytes)
  kept.sort((a, b) => b.bytes - a.bytes)
  return { judged, grows: stepsOfGrowth(growing, judged) > 0, sites, kept }
}

/** How many of the judged steps are among `steps`; 0 if there are too few of one half. */
function stepsOfGrowth(steps: readonly number[], judged: number): number {
  const middle = 1 + Math.ceil(judged / 2)
  const early = steps.filter(step => step >= 1 && step < middle).length
  const late = steps.filter(step => step >= middle && step <= judged).length
  return early >= (middle - 1) / 2 && late >= (judged + 1 - middle) / 2 ? early + late : 0
}
