// The steps of a training run, and the memory that each leaves behind.

import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import { describe } from '../../../core/base/bytes.js'
import { groupedBy } from '../groups.js'
import { type Annotation, BEFORE, type Blocks, checkTrace, type Trace } from '../trace.js'

/** A step leaves behind the blocks that are still held after this number of further steps. */
export const LATER_STEPS = 2
/** PyTorch always writes the first, and the second in a profiled run. */
const USUAL_STEPS = [/^Optimizer\.step#/, /^ProfilerStep#/]

/** The columns of blocks, of a trace or of a picture, that tell what steps leave behind. */
type StepBlocks = Pick<Blocks, 'count' | 'initial' | 'bytes' | 'allocatedAt' | 'freeRequestedAt'>

/** One step of a training run: from the end of the step before, or the first event. */
export interface Step {
  /** number of its first event */
  readonly from: number
  /** number of the first event after it */
  readonly to: number
  /** bytes allocated within it and still held after two further steps; null if the recording ends before */
  readonly leftBytes: number | null
  /** how many blocks these are; null like `leftBytes` */
  readonly leftBlocks: number | null
}

/** The steps of a recording. */
export interface Steps {
  /** the annotations whose ends are the ends of steps, such as `Optimizer.step#AdamW.step` */
  readonly name: string
  /** the steps in their order, without the events after the last */
  readonly steps: readonly Step[]
}

/**
 * The steps of a recording by its annotations: those that `pattern` finds, by default those of an optimizer, else
 * those of a profiler. Of several optimizers, the optimizer with most steps counts. Null without such annotations.
 * Throws TypeError for anything but a trace, and if `pattern` is not a regular expression.
 */
export function stepsOf(trace: Trace, pattern?: RegExp): Steps | null {
  checkTrace('stepsOf', trace)
  if (pattern !== undefined && Object.prototype.toString.call(pattern) !== '[object RegExp]') {
    throw new WrongTypeError(`stepsOf: pattern must be a regular expression, not ${describe(pattern)}`)
  }
  const ended = trace.annotations.filter(({ endUs }) => !Number.isNaN(endUs))
  const found =
    pattern === undefined
      ? USUAL_STEPS.map(usual => matching(ended, usual)).find(list => list.length > 0)
      : matching(ended, pattern)
  if (found === undefined || found.length === 0) return null
  const ofProfiler = pattern === undefined && USUAL_STEPS[1].test(found[0].name)
  const alike = pattern === undefined && !ofProfiler ? mostOfOneName(found) : found
  // A recording that lost its first events still has the annotations of steps that ended before the rest.
  const ends = [...new Set(alike.map(({ end }) => end))].filter(end => end > 0).sort((a, b) => a - b)
  if (ends.length === 0) return null
  return { name: ofProfiler ? 'ProfilerStep' : alike[0].name, steps: leftBehind(trace.blocks, ends) }
}

/** The number of the step that an event is in, from 1; a step that did not end counts. Null without steps. */
export function stepAt(trace: Trace, event: number): number | null {
  const found = stepsOf(trace)
  return found === null ? null : (stepOf(found, event) ?? found.steps.length + 1)
}

/** The number of the step that an event is in, from 1; null behind the last step or without steps. */
export function stepOf(found: Steps | null, event: number): number | null {
  const index = found?.steps.findIndex(({ to }) => event < to) ?? -1
  return index < 0 ? null : index + 1
}

/**
 * The numbers of the blocks that a step left behind; empty if the recording ends before that is known. Throws TypeError
 * for anything but a trace and its steps, and RangeError for a step that is not among them.
 */
export function leftBlocks(trace: Trace, found: Steps, step: number): number[] {
  checkTrace('leftBlocks', trace)
  const { blocks } = trace
  if (!Array.isArray(found?.steps)) {
    throw new WrongTypeError(`leftBlocks: steps must be what stepsOf(trace) returns, not ${describe(found)}`)
  }
  const { steps } = found
  if (!Number.isInteger(step) || step < 0 || step >= steps.length) {
    throw new OutOfRangeError(`leftBlocks: step must be a whole number below ${steps.length}, not ${describe(step)}`)
  }
  return blocksLeft(
    blocks,
    steps.map(({ to }) => to),
    step,
  )
}

/** As `leftBlocks`, for steps that end before the events `ends`. */
export function blocksLeft(blocks: StepBlocks, ends: readonly number[], step: number): number[] {
  const left: number[] = []
  const later = ends[step + LATER_STEPS]
  if (later === undefined) return left
  const from = step === 0 ? 0 : ends[step - 1]
  for (let number = blocks.initial; number < blocks.count && blocks.allocatedAt[number] < ends[step]; number++) {
    if (blocks.allocatedAt[number] >= from && blocks.freeRequestedAt[number] >= later) left.push(number)
  }
  return left
}

function matching(annotations: readonly Annotation[], pattern: RegExp): Annotation[] {
  // A global expression would go on from where it last matched.
  const plain = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ''))
  return annotations.filter(({ name }) => plain.test(name))
}

function mostOfOneName(annotations: readonly Annotation[]): Annotation[] {
  const byName = groupedBy(annotations, ({ name }) => name)
  return [...byName.values()].reduce((most, alike) => (alike.length > most.length ? alike : most))
}

/** The steps that end before the events `ends`. */
export function leftBehind(blocks: StepBlocks, ends: readonly number[]): Step[] {
  const bytes = new Float64Array(ends.length)
  const counts = new Float64Array(ends.length)
  let step = 0
  for (let number = blocks.initial; number < blocks.count; number++) {
    const { allocatedAt, freeRequestedAt } = blocks
    while (step < ends.length && allocatedAt[number] >= ends[step]) step++
    const later = ends[step + LATER_STEPS]
    if (later === undefined) break
    if (allocatedAt[number] === BEFORE || freeRequestedAt[number] < later) continue
    bytes[step] += blocks.bytes[number]
    counts[step]++
  }
  return ends.map((to, i) => {
    const isKnown = i + LATER_STEPS < ends.length
    return {
      from: i === 0 ? 0 : ends[i - 1],
      to,
      leftBytes: isKnown ? bytes[i] : null,
      leftBlocks: isKnown ? counts[i] : null,
    }
  })
}
