// The memory that two recordings hold at their peaks, by call stack. Lines move when a program changes, so
// stacks are compared by files and functions.

import { siteOf } from '../failures/holders.js'
import { checkTrace, type Frame, stackFrames, type Trace } from '../trace.js'
import { inUseOf, liveAfter } from './curves.js'

/** The memory that a call stack holds at the peaks of two recordings. */
export interface StackDifference {
  /** the stack, the innermost call first, of the later recording if it has it; empty without one */
  readonly frames: readonly Frame[]
  /** the line of the program, as `file:line function`, of the later recording if it has the stack; null without one */
  readonly site: string | null
  /** the line of PyTorch that the site called, if any */
  readonly through: string | null
  /** requested bytes at the peak of the first recording, and of the second */
  readonly bytes: readonly [number, number]
  /** how many blocks these are */
  readonly blocks: readonly [number, number]
}

/** The memory that grew and shrank between two recordings. */
export interface TraceDifference {
  /** requested bytes at the peak of the first recording, and of the second */
  readonly peakBytes: readonly [number, number]
  /** by call stack, greatest change first */
  readonly stacks: readonly StackDifference[]
  /** whether both have call stacks */
  readonly hasStacks: boolean
}

interface Group {
  readonly frames: readonly Frame[]
  bytes: number
  blocks: number
}

/** Compares what two recordings hold at their peaks. Throws TypeError for anything but two traces. */
export function traceDifference(first: Trace, second: Trace): TraceDifference {
  for (const trace of [first, second]) checkTrace('traceDifference', trace)
  const [before, after] = [groupsAtPeak(first), groupsAtPeak(second)]
  const pairs: (readonly [Group | undefined, Group | undefined])[] = []
  for (const [key, group] of before) {
    const other = after.get(key)
    if (other === undefined) continue
    pairs.push([group, other])
    before.delete(key)
    after.delete(key)
  }
  // A file may have moved, or been renamed: the rest is compared by functions only.
  const byFunctions = new Map<string, Group>()
  for (const group of after.values()) {
    const key = functionsOf(group.frames)
    const alike = byFunctions.get(key)
    byFunctions.set(key, alike === undefined ? group : joined(alike, group))
  }
  for (const group of before.values()) {
    const key = functionsOf(group.frames)
    pairs.push([group, byFunctions.get(key)])
    byFunctions.delete(key)
  }
  for (const group of byFunctions.values()) pairs.push([undefined, group])
  const change = ({ bytes: [from, to] }: StackDifference) => Math.abs(to - from)
  return {
    peakBytes: [first.peakRequestedBytes, second.peakRequestedBytes],
    stacks: pairs.map(differenceOf).sort((a, b) => change(b) - change(a)),
    hasStacks: first.stacks.count > 1 && second.stacks.count > 1,
  }
}

function groupsAtPeak(trace: Trace): Map<string, Group> {
  const { blocks, stacks } = trace
  const byStack = new Map<number, Group>()
  for (const number of liveAfter(trace, inUseOf(trace).peakEvent)) {
    const stack = blocks.stack[number]
    let group = byStack.get(stack)
    if (group === undefined) {
      group = { frames: stackFrames(stacks, stack), bytes: 0, blocks: 0 }
      byStack.set(stack, group)
    }
    group.bytes += blocks.bytes[number]
    group.blocks++
  }
  const groups = new Map<string, Group>()
  for (const group of byStack.values()) {
    const key = group.frames.map(({ filename, name }) => `${filename}\n${name}`).join('\n\n')
    const alike = groups.get(key)
    groups.set(key, alike === undefined ? group : joined(alike, group))
  }
  return groups
}

function joined(a: Group, b: Group): Group {
  return { frames: a.frames, bytes: a.bytes + b.bytes, blocks: a.blocks + b.blocks }
}

function functionsOf(frames: readonly Frame[]): string {
  return frames.map(({ name }) => name).join('\n')
}

function differenceOf([before, after]: readonly [Group | undefined, Group | undefined]): StackDifference {
  const frames = after?.frames ?? before?.frames ?? []
  return {
    frames,
    ...siteOf(frames),
    bytes: [before?.bytes ?? 0, after?.bytes ?? 0],
    blocks: [before?.blocks ?? 0, after?.blocks ?? 0],
  }
}
