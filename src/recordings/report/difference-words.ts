// The differences of two recordings in words, for the text and for the page.

import { formatBytes } from '../../core/base/bytes.js'
import type { StackDifference } from '../trace/analysis/stack-diff.js'
import type { Trace } from '../trace/trace.js'
import { siteText } from './why/out-of-memory-text.js'

/** What happened to the memory of a call stack. */
type Change = 'new' | 'gone' | 'grown' | 'shrunk'

/** A sentence if both are recordings of one run. */
export function sameRunLines(before: Trace, after: Trace): string[] {
  return isSameRun(before, after) ? ['A and B are recordings of one run on one device.'] : []
}

/** The sentences about both peaks. */
export function peakLines(before: Trace, after: Trace): string[] {
  const [from, to] = [before.recordedPeakReservedBytes, after.recordedPeakReservedBytes]
  return [
    totalsOf('Most in use', [before.peakRequestedBytes, after.peakRequestedBytes]),
    ...(from === null || to === null ? [] : [totalsOf('Most reserved', [from, to])]),
  ]
}

/** The sentence about all call stacks that changed. */
export function changesLine(changed: readonly StackDifference[]): string {
  if (changed.length === 0) return 'By call stack nothing changed at the peak.'
  const kinds = { new: 0, gone: 0, grown: 0, shrunk: 0 }
  for (const each of changed) kinds[changeOf(each)] += each.bytes[1] - each.bytes[0]
  const sums = Object.entries(kinds).filter(([, bytes]) => bytes !== 0)
  return `By call stack, at the peaks: ${sums.map(([kind, bytes]) => `${kind} ${signedBytes(bytes)}`).join(', ')}.`
}

/** The call stacks whose bytes differ. */
export function changedOf(stacks: readonly StackDifference[]): StackDifference[] {
  return stacks.filter(({ bytes: [from, to] }) => from !== to)
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

/** `+1.50 MiB` */
export function signedBytes(bytes: number): string {
  return `${bytes < 0 ? '−' : '+'}${formatBytes(Math.abs(bytes))}`
}

function changeOf({ bytes: [from, to] }: StackDifference): Change {
  if (from === 0) return 'new'
  if (to === 0) return 'gone'
  return to > from ? 'grown' : 'shrunk'
}

/** The place in the program, and what happened there. */
export function placeOf(difference: StackDifference): string {
  const { site, through, bytes } = difference
  const place = site === null ? 'without a call stack' : siteText(site)
  const inside = through === null ? '' : `, in ${siteText(through)}`
  const kind = changeOf(difference)
  const was = kind === 'new' || kind === 'gone' ? kind : `from ${formatBytes(bytes[0])}`
  return `${place}${inside} (${was})`
}
