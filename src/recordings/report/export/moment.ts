// The memory that a program held at one moment, by call stack.

import { OutOfRangeError } from '../../../core/base/argument-errors.js'
import { describe } from '../../../core/base/bytes.js'
import { FormatError } from '../../../core/base/errors.js'
import { inUseOf, liveAfter } from '../../trace/analysis/curves.js'
import { type StackSum, stackSums } from '../../trace/failures/stack-sums.js'
import type { CallSites, NamedFrame } from '../../trace/frames/call-sites.js'
import { FrameKind } from '../../trace/frames/frame-kind.js'
import { BEFORE, checkTrace, type Frame, stackFrames, type Trace } from '../../trace/trace.js'
import { RECORDERS } from '../recorders.js'

/** What the blocks of one call stack are together. */
export interface HeldStack {
  /** the call stack, innermost frame first; empty if none was recorded */
  readonly frames: readonly Frame[]
  /** requested bytes */
  readonly bytes: number
  /** how many blocks there are */
  readonly blocks: number
}

/** The event after which most requested bytes were in use, the first of several; -1 for before the first event. */
export function peakEvent(trace: Trace): number {
  checkTrace('peakEvent', trace)
  return inUseOf(trace).peakEvent
}

/**
 * What the program held after `event`, most bytes first. Throws RangeError for an event that the trace does not have,
 * and FormatError if no block has a call stack.
 */
export function heldStacks(trace: Trace, event: number): HeldStack[] {
  checkTrace('heldStacks', trace)
  return sorted(joined(sumsAt(trace, event))).map(([stack, sum]) => ({
    frames: stackFrames(trace.stacks, stack),
    ...sum,
  }))
}

/** As `heldStacks`, by the number of the stack; BEFORE for blocks from before the recording. */
export function sumsAt(trace: Trace, event: number): Map<number, StackSum> {
  if (!Number.isInteger(event) || event < BEFORE || event >= trace.events) {
    throw new OutOfRangeError(`event must be a whole number from 0 to ${trace.events - 1}, not ${describe(event)}`)
  }
  if (trace.blocks.stack.every(stack => stack === 0)) {
    throw new FormatError(`${trace.file}: no call stacks were recorded; ${RECORDERS[trace.recorder].stacks}`)
  }
  return sumsOf(trace, liveAfter(trace, event))
}

const call = (name: string): NamedFrame => ({ file: '', line: 0, name, kind: FrameKind.unnamed })
const [NO_STACK, BEFORE_START] = [[call('(no call stack)')], [call('(before the recording)')]]

/** The calls of a number of `sumsAt`, the innermost first, without machinery; there is at least one. */
export function callsAt(sites: CallSites, stack: number): readonly NamedFrame[] {
  if (stack === BEFORE) return BEFORE_START
  const calls = sites.callsOf(stack)
  return calls.length === 0 ? NO_STACK : calls
}

/** The allocations of the whole recording, by the number of the call stack, most bytes first. */
export function allocatedSums(trace: Trace): Map<number, StackSum> {
  const { count, initial } = trace.blocks
  return sumsOf(
    trace,
    Array.from({ length: count - initial }, (_, i) => initial + i),
  )
}

/** Blocks from before the recording have no stack either. */
function joined(sums: Map<number, StackSum>): Map<number, StackSum> {
  const before = sums.get(BEFORE)
  if (before === undefined) return sums
  const { bytes, blocks } = sums.get(0) ?? { bytes: 0, blocks: 0 }
  const others = [...sums].filter(([stack]) => stack !== BEFORE && stack !== 0)
  return new Map([...others, [0, { bytes: before.bytes + bytes, blocks: before.blocks + blocks }]])
}

function sumsOf(trace: Trace, numbers: readonly number[]): Map<number, StackSum> {
  return new Map(sorted(stackSums(trace, numbers)))
}

function sorted(sums: Map<number, StackSum>): [number, StackSum][] {
  return [...sums].sort(([, a], [, b]) => b.bytes - a.bytes)
}
