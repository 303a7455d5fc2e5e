// The recordings of a page beside each other, such as one of each rank of a job: how far each is from the median.

import { formatBytes } from '../../../core/base/bytes.js'
import { shortened } from '../../../core/base/shown-text.js'
import { traceDifference } from '../../trace/analysis/stack-diff.js'
import { Action, type Trace } from '../../trace/trace.js'
import { WORTH } from '../../trace/tune/ranking.js'
import { changeText, signedBytes } from '../difference-words.js'
import { formatCount, formatShare } from '../number-format.js'
import { isUnknown } from '../place-text.js'
import type { PageRanks } from './page-data.js'
import { mostInUse } from './page-difference.js'
import type { ReportedTrace } from './reported-trace.js'

type Rank = Pick<ReportedTrace, 'trace' | 'tab'>

/** A peak that recordings are compared by. */
interface Figure {
  readonly name: string
  of(trace: Trace): number
}
const IN_USE: Figure = { name: 'in use', of: trace => trace.peakRequestedBytes }
const RESERVED: Figure = { name: 'reserved', of: trace => trace.recordedPeakReservedBytes ?? 0 }

/** A recording and the median recording, by the figure in which they differ. */
interface Apart {
  readonly rank: Rank
  readonly middle: Rank
  readonly figure: Figure
  /** the difference as a share of the median */
  readonly share: number
}

/** The comparison of two recordings or more. */
export function pageRanks(ranks: readonly Rank[]): PageRanks {
  const apart = mostApart(ranks)
  const rows = [...ranks.keys()].sort((a, b) => biggest(ranks[b].trace) - biggest(ranks[a].trace))
  const first = apart === null ? null : ranks.indexOf(apart.rank)
  return {
    lines: rankLines(ranks),
    first,
    order: first === null ? rows : [first, ...rows.filter(row => row !== first)],
    curves: ranks.map(({ trace }) => mostInUse(trace)),
  }
}

/** Sentences about the recording that differs most from the median. */
export function rankLines(ranks: readonly Rank[]): string[] {
  const apart = mostApart(ranks)
  return [
    ...failedLine(ranks),
    ...(apart === null ? [alikeLine(ranks)] : [apartLine(apart, ranks.length), ...siteLine(apart)]),
  ]
}

/** The recordings that ran out of memory, if others did not. */
function failedLine(ranks: readonly Rank[]): string[] {
  const failed = ranks.filter(hasFailed)
  if (failed.length === 0 || failed.length === ranks.length) return []
  const who = failed.length === 1 ? shortened(failed[0].tab) : formatCount(failed.length)
  return [`Of ${formatCount(ranks.length)} recordings ${who} ran out of memory.`]
}

function apartLine({ rank, middle, figure, share }: Apart, count: number): string {
  const than = count === 2 ? shortened(middle.tab) : `the median, ${shortened(middle.tab)}`
  const other = figure === IN_USE ? RESERVED : IN_USE
  const otherShare = shareOf(rank, middle, other)
  const also = otherShare === null ? '' : ` At most ${peakText(rank, other)}, ${shareText(otherShare)}.`
  const compared = `${shareText(share)} than ${than} (${formatBytes(figure.of(middle.trace))})`
  return `Of ${formatCount(count)} recordings ${shortened(rank.tab)} differs most: at most ${peakText(rank, figure)}, ${compared}.${also}`
}

/** The recording that is farthest from the median; of those that ran out of memory if some did. */
function mostApart(ranks: readonly Rank[]): Apart | null {
  return farthest(ranks.filter(hasFailed), ranks) ?? farthest(ranks, ranks)
}

function farthest(candidates: readonly Rank[], ranks: readonly Rank[]): Apart | null {
  let most: Apart | null = null
  for (const figure of [RESERVED, IN_USE]) {
    const sorted = [...ranks].sort((a, b) => figure.of(a.trace) - figure.of(b.trace))
    const middle = sorted[Math.floor((ranks.length - 1) / 2)]
    for (const rank of candidates) {
      const share = shareOf(rank, middle, figure)
      if (share === null || rank === middle) continue
      if (Math.abs(share) > Math.abs(most?.share ?? 0)) most = { rank, middle, figure, share }
    }
  }
  return most !== null && Math.abs(most.share) >= WORTH ? most : null
}

/** The call site whose memory differs most at the peaks, if it matters. */
function siteLine({ rank, middle }: Apart): string[] {
  const { sites, hasStacks, peakBytes } = traceDifference(middle.trace, rank.trace)
  const [most] = sites
  if (!hasStacks || most === undefined || isUnknown(most)) return []
  const bytes = most.bytes[1] - most.bytes[0]
  if (Math.abs(bytes) < WORTH * peakBytes[0]) return []
  return [`By call site, at the peaks, most is ${signedBytes(bytes)}: ${changeText(most)}.`]
}

function alikeLine(ranks: readonly Rank[]): string {
  const range = ({ of, name }: Figure) => {
    const all = ranks.map(({ trace }) => of(trace))
    const [least, most] = [Math.min(...all), Math.max(...all)].map(formatBytes)
    return `${least === most ? most : `${least} to ${most}`} ${name}`
  }
  return `The ${formatCount(ranks.length)} recordings are alike: ${range(IN_USE)}, ${range(RESERVED)}.`
}

/** By how much a recording has more than another; null if one of them is unknown. */
function shareOf(rank: Rank, than: Rank, { of }: Figure): number | null {
  const [own, other] = [of(rank.trace), of(than.trace)]
  return own === 0 || other === 0 ? null : own / other - 1
}

function shareText(share: number): string {
  return `${formatShare(Math.abs(share))} ${share < 0 ? 'less' : 'more'}`
}

function peakText({ trace }: Rank, { of, name }: Figure): string {
  return `${formatBytes(of(trace))} ${name}`
}

function hasFailed({ trace }: Rank): boolean {
  return trace.action.includes(Action.outOfMemory)
}

function biggest(trace: Trace): number {
  return Math.max(RESERVED.of(trace), IN_USE.of(trace))
}
