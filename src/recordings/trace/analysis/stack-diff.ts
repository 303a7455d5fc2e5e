// The memory that two recordings hold at their peaks, by call site, and below by call stack. Lines move when a program
// changes, so calls are compared by files and functions; and a call further out says nothing about what a site holds.

import { mainCall, mostOf } from '../failures/holders.js'
import { checkTrace, type Frame, stackFrames, type Trace } from '../trace.js'
import { inUseOf } from './curves.js'
import { heldAt, type StackAtPeak } from './peak-stacks.js'
import { PathKeys, pairedSites, pairedStacks } from './site-pairs.js'
import { stepAt } from './steps.js'

/** The memory that a call stack holds at the peaks of two recordings. */
export interface StackDifference {
  /** the stack, the innermost call first, of the later recording if it has it; empty without one */
  readonly frames: readonly Frame[]
  /** the line of the program, as `file:line function`, of the later recording if it has the stack; null without one */
  readonly site: string | null
  /** the line of PyTorch that the site called, if any */
  readonly through: string | null
  /** the line of the program that called the site, if any */
  readonly caller: string | null
  /** requested bytes at the peak of the first recording, and of the second */
  readonly bytes: readonly [number, number]
  /** how many blocks these are */
  readonly blocks: readonly [number, number]
}

/** The memory that a call site holds at the peaks of two recordings, through all of its stacks. */
export interface SiteDifference {
  /** the line of the program, as `file:line function`, of the later recording if it has it; null without a stack */
  readonly site: string | null
  /** the line of PyTorch that the site called for most of these bytes, if any */
  readonly through: string | null
  /** whether it called that line for all of these bytes */
  readonly throughAll: boolean
  /** whether these are blocks from before the recording, without a call stack */
  readonly before: boolean
  /** requested bytes at the peak of the first recording, and of the second */
  readonly bytes: readonly [number, number]
  /** how many blocks these are */
  readonly blocks: readonly [number, number]
  /** indices into `stacks` of the difference, greatest change first */
  readonly stacks: readonly number[]
}

/** The memory that grew and shrank between two recordings. */
export interface TraceDifference {
  /** requested bytes at the peak of the first recording, and of the second */
  readonly peakBytes: readonly [number, number]
  /** the events of the peaks; -1 for before the first event */
  readonly peakEvents: readonly [number, number]
  /** the steps of the peaks, from 1, with one that did not end; null without steps */
  readonly peakSteps: readonly [number | null, number | null]
  /** by call site, greatest change first */
  readonly sites: readonly SiteDifference[]
  /** by call stack, greatest change first */
  readonly stacks: readonly StackDifference[]
  /** whether both have call stacks */
  readonly hasStacks: boolean
}

/** Compares what two recordings hold at their peaks. Throws TypeError for anything but two traces. */
export function traceDifference(first: Trace, second: Trace): TraceDifference {
  for (const trace of [first, second]) checkTrace('traceDifference', trace)
  const peakEvents = [inUseOf(first).peakEvent, inUseOf(second).peakEvent] as const
  const held = [heldAt(first, peakEvents[0]), heldAt(second, peakEvents[1])] as const
  const keys = new PathKeys(...held)
  const pairs = pairedSites(...held, keys)
  const bySite = pairs.map(pair => ({ pair, stacks: pairedStacks(pair, keys).map(stackDifference).sort(byChange) }))
  const stacks = bySite.flatMap(site => site.stacks).sort(byChange)
  const indices = new Map(stacks.map((stack, i) => [stack, i]))
  return {
    peakBytes: [first.peakRequestedBytes, second.peakRequestedBytes],
    peakEvents,
    peakSteps: [stepAt(first, peakEvents[0]), stepAt(second, peakEvents[1])],
    sites: bySite
      .map(site => ({ ...siteDifference(site.pair), stacks: site.stacks.map(stack => indices.get(stack)!) }))
      .sort(byChange),
    stacks,
    hasStacks: first.stacks.count > 1 && second.stacks.count > 1,
  }
}

/** A call site without its stacks. */
export type SiteChange = Omit<SiteDifference, 'stacks'>

/** The call sites that hold memory after one event of each recording. */
export function siteChanges(first: Trace, firstEvent: number, second: Trace, secondEvent: number): SiteChange[] {
  const held = [heldAt(first, firstEvent), heldAt(second, secondEvent)] as const
  return pairedSites(...held, new PathKeys(...held)).map(siteDifference)
}

type Changed = Pick<StackDifference, 'bytes'>

function byChange({ bytes: [fromA, toA] }: Changed, { bytes: [fromB, toB] }: Changed): number {
  return Math.abs(toB - fromB) - Math.abs(toA - fromA)
}

type Sides = readonly [before: readonly StackAtPeak[], after: readonly StackAtPeak[]]

function stackDifference(sides: Sides): StackDifference {
  const [{ trace, stack, site, caller }] = sides[1].length > 0 ? sides[1] : sides[0]
  return { frames: stackFrames(trace.stacks, stack), ...site, caller, ...sumsOf(sides) }
}

/** The name of a site is that of its later recording, of the line with most bytes if several are one. */
function siteDifference(sides: Sides): SiteChange {
  const named = sides[1].length > 0 ? sides[1] : sides[0]
  const bytesBy = (nameOf: (held: StackAtPeak) => string | null) => {
    const bytes = new Map<string | null, number>()
    for (const held of named) bytes.set(nameOf(held), (bytes.get(nameOf(held)) ?? 0) + held.bytes)
    return bytes
  }
  const [{ before }] = named
  const all = named.reduce((sum, held) => sum + held.bytes, 0)
  const main = mainCall(
    bytesBy(({ site }) => site.through),
    all,
  )
  return { site: mostOf(bytesBy(({ site }) => site.site)), ...main, before, ...sumsOf(sides) }
}

function sumsOf([before, after]: Sides): Pick<StackDifference, 'bytes' | 'blocks'> {
  const bytes = (held: readonly StackAtPeak[]) => held.reduce((sum, each) => sum + each.bytes, 0)
  const blocks = (held: readonly StackAtPeak[]) => held.reduce((sum, each) => sum + each.blocks, 0)
  return { bytes: [bytes(before), bytes(after)], blocks: [blocks(before), blocks(after)] }
}
