// The path of a request that neither the caches nor the heap could serve: a list of steps and a loop over it. The
// first step that finds a block is the last one tried. The README of the folder above explains the steps of the
// default plan under the names that they have here, and `Steps` all of them.

import type { PoolConfig } from '../options.js'
import type { Miss, Waiting } from './parts.js'
import type { StepName, Steps } from './steps.js'

/** Steps in the order in which they are tried. */
export interface Plan {
  readonly beforeGrowth: readonly StepName[]
  readonly growth: readonly StepName[]
}

export function planFor({ crossStreamReuse }: PoolConfig, hasSlabs: boolean): Plan {
  const waitsEarly = crossStreamReuse === 'wait-before-grow'
  const waitsLate = crossStreamReuse === 'wait-before-oom'
  return {
    beforeGrowth: chosen(
      'reuseOrdered',
      'takeInView',
      'refuseForeignCapture', // the steps from here on may call the driver
      'poll',
      'drain',
      'carveSlab',
      waitsEarly && 'waitForStream',
    ),
    growth: chosen(
      hasSlabs && 'growToBound',
      waitsEarly && 'waitToStitch',
      'stitchOrGrow',
      waitsEarly && 'waitOnHostToStitch',
      waitsLate && 'waitForStream',
      waitsLate && 'waitToStitch', // before the next one, which may grow however much lies idle
      'growToLimit',
      'drainAll',
      waitsLate && 'waitToGrow',
      !hasSlabs && 'takeFromOtherHeap',
      'waitOnHost',
    ),
  }
}

/** A graph may be launched at any time, so its memory must not depend on any work. */
export const CAPTURE_PLAN: Plan = {
  beforeGrowth: ['independent', 'drainCompletely', 'returnSlabs', 'takeInView'],
  growth: ['growToBound', 'stitchOrGrow', 'growToLimit', 'waitOnHost'],
}

function chosen(...steps: readonly (StepName | false)[]): StepName[] {
  return steps.filter(step => step !== false)
}

/** A taken block for a miss, of the first step of a plan that finds one; 0 when none does. */
export function* follow(steps: Steps, { beforeGrowth, growth }: Plan, miss: Miss): Waiting<number> {
  if (!steps.mayHelp(miss)) return 0
  const record = yield* firstOf(steps, beforeGrowth, miss)
  if (record !== 0) return record
  const grown = yield* firstOf(steps, growth, miss)
  if (grown !== 0) steps.growths++
  return grown
}

function* firstOf(steps: Steps, names: readonly StepName[], miss: Miss): Waiting<number> {
  for (const name of names) {
    const result = steps[name](miss)
    const record = typeof result === 'number' ? result : yield* result
    if (record !== 0) return record
  }
  return 0
}
