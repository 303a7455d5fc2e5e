// The differences of two recordings in words, for the text and for the page.

import { formatBytes } from '../../core/base/bytes.js'
import { inUseOf } from '../trace/analysis/curves.js'
import type { SiteDifference, StackDifference, TraceDifference } from '../trace/analysis/stack-diff.js'
import { stepsOf } from '../trace/analysis/steps.js'
import { BEFORE, type Trace } from '../trace/trace.js'
import { formatCount } from './number-format.js'
import { placeText, siteText } from './place-text.js'

/** What happened to the memory of a call site. */
type Change = 'new' | 'gone' | 'grown' | 'shrunk'
type Changed = Pick<SiteDifference, 'bytes'>

/** A sentence if both are recordings of one run. */
export function sameRunLines(before: Trace, after: Trace): string[] {
  return isSameRun(before, after) ? ['A and B are recordings of one run on one device.'] : []
}

/** The sentences about both peaks. */
export function peakLines(before: Trace, after: Trace, difference: TraceDifference): string[] {
  const [from, to] = [before.recordedPeakReservedBytes, after.recordedPeakReservedBytes]
  return [
    totalsOf('Most in use', difference.peakBytes),
    [momentsOf(difference), ...sameStepOf(before, difference)].join(' '),
    ...(from === null || to === null ? [] : [totalsOf('Most reserved', [from, to])]),
  ]
}

/** The sentence about all call sites that changed. */
export function changesLine(changed: readonly SiteDifference[]): string {
  if (changed.length === 0) return 'By call site nothing changed at the peak.'
  const kinds = { new: 0, gone: 0, grown: 0, shrunk: 0 }
  for (const each of changed) kinds[changeOf(each)] += each.bytes[1] - each.bytes[0]
  const sums = Object.entries(kinds).filter(([, bytes]) => bytes !== 0)
  return `By call site, at the peaks: ${sums.map(([kind, bytes]) => `${kind} ${signedBytes(bytes)}`).join(', ')}.`
}

/** The call sites, or stacks, whose bytes differ. */
export function changedOf<Each extends Changed>(all: readonly Each[]): Each[] {
  return all.filter(({ bytes: [from, to] }) => from !== to)
}

/** Recordings of one process: they share the time of an event and its address. */
function isSameRun(a: Trace, b: Trace): boolean {
  if (a.device !== b.device || a.timeUs[0] === 0) return false
  const [earlier, later] = a.timeUs[0] <= b.timeUs[0] ? [a, b] : [b, a]
  const event = earlier.timeUs.indexOf(later.timeUs[0])
  return event >= 0 && earlier.address[event] === later.address[0]
}

function totalsOf(what: string, [from, to]: readonly [number, number]): string {
  const change = to === from ? 'no change' : signedBytes(to - from)
  return `${what}: ${formatBytes(from)} in A, ${formatBytes(to)} in B (${change}).`
}

/** Steps differ by their data: if the peaks are in two steps, the peak of A in the step of B's peak tells more. */
function sameStepOf(before: Trace, { peakSteps: [a, b], peakBytes }: TraceDifference): string[] {
  const step = a === null || b === null || a === b ? undefined : stepsOf(before)?.steps[b - 1]
  if (step === undefined) return []
  const most = inUseOf(before)
    .inUseBytes.subarray(step.from, step.to)
    .reduce((top, bytes) => Math.max(top, bytes), 0)
  return [totalsOf(`In step ${formatCount(b!)} at most`, [most, peakBytes[1]])]
}

function momentsOf({ peakEvents, peakSteps }: TraceDifference): string {
  const [a, b] = peakEvents.map((event, i) => {
    const step = peakSteps[i] === null ? '' : ` in step ${formatCount(peakSteps[i])}`
    return event === BEFORE ? 'before the first event' : `at event ${formatCount(event)}${step}`
  })
  return `A's peak is ${a}, B's ${b}.`
}

/** `+1.50 MiB` */
export function signedBytes(bytes: number): string {
  return `${bytes < 0 ? '−' : '+'}${formatBytes(Math.abs(bytes))}`
}

function changeOf({ bytes: [from, to] }: Changed): Change {
  if (from === 0) return 'new'
  if (to === 0) return 'gone'
  return to > from ? 'grown' : 'shrunk'
}

/** The place in the program, and what happened there. */
export function changeText(site: SiteDifference): string {
  return `${placeText(site)} (${wasOf(site.bytes)})`
}

function wasOf(bytes: readonly [number, number]): string {
  const kind = changeOf({ bytes })
  return kind === 'new' || kind === 'gone' ? kind : `from ${formatBytes(bytes[0])}`
}

/** The part of a site's change that stacks with one description have. */
interface PartOfSite {
  readonly text: string
  readonly bytes: readonly [number, number]
}

/**
 * How the change of a site is parted between what it called and who called it, greatest first; empty if all of its
 * stacks are alike in that.
 */
export function partsOf({ stacks }: SiteDifference, all: readonly StackDifference[]): PartOfSite[] {
  const changed = changedOf(stacks.map(i => all[i]))
  const differ = (of: (stack: StackDifference) => string | null) => new Set(changed.map(of)).size > 1
  const [throughs, callers] = [differ(({ through }) => through), differ(({ caller }) => caller)]
  const parts = new Map<string, [number, number]>()
  for (const { through, caller, bytes } of changed) {
    const inside = throughs ? (through === null ? 'by itself' : `in ${siteText(through)}`) : ''
    const from = callers && caller !== null ? `called by ${siteText(caller)}` : ''
    const text = [inside, from].filter(part => part !== '').join(', ') || 'otherwise'
    const [before, after] = parts.get(text) ?? [0, 0]
    parts.set(text, [before + bytes[0], after + bytes[1]])
  }
  const found = changedOf([...parts].map(([text, bytes]) => ({ text: `${text} (${wasOf(bytes)})`, bytes })))
  const size = ({ bytes: [from, to] }: PartOfSite) => Math.abs(to - from)
  return found.length < 2 ? [] : found.sort((a, b) => size(b) - size(a))
}
