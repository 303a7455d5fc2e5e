// A run compared with its base in words, for text, Markdown and JUnit XML.

import { formatBytes } from '../../../core/base/bytes.js'
import { shown } from '../../../core/base/shown-text.js'
import type { FigureName, Growth, GrowthFigure, GrowthLimit, PeakPlace } from '../../trace/analysis/run-growth.js'
import type { SiteChange } from '../../trace/analysis/stack-diff.js'
import { recordedOutOfMemories } from '../../trace/failures/out-of-memory.js'
import { BEFORE, type Trace } from '../../trace/trace.js'
import { initialOf } from '../../trace/trace-figures.js'
import { signedBytes } from '../difference-words.js'
import { formatCount, MISSING } from '../number-format.js'
import { placeText } from '../place-text.js'
import { counted, deviceLines, gapsOf, initialLines } from '../trace-lines.js'
import { askerText } from '../why/out-of-memory-text.js'

const PERCENT_DIGITS = 3

/** A run, its base and what grew. */
export interface Checked {
  readonly base: Trace
  readonly run: Trace
  readonly growth: Growth
}

/** The figures as tables name them. */
export const FIGURES: Readonly<Record<FigureName, string>> = {
  inUse: 'peak in use',
  reserved: 'peak reserved',
  failedRequests: 'failures',
}

/** The cells of a figure: base, run, growth, what is allowed, and the result. */
export function cellsOf({ name, base, run, most, passed, byTiming }: GrowthFigure): string[] {
  const amount = name === 'failedRequests' ? formatCount : (bytes: number) => formatBytes(bytes)
  const values = [base, run].map(value => (value === null ? MISSING : amount(value)))
  const isLimited = base !== null && most !== null && most !== Number.MAX_SAFE_INTEGER
  const allowed = isLimited ? amount(most - base) : MISSING
  const result = byTiming ? 'by timing' : passed === null ? 'unknown' : passed ? 'passed' : 'failed'
  return [...values, base === null || run === null ? MISSING : changeOf(name, base, run), allowed, result]
}

/** `+52 MiB (+5.2 %)` */
function changeOf(name: FigureName, base: number, run: number): string {
  if (run === base) return 'none'
  if (name === 'failedRequests') return `${run > base ? '+' : '−'}${formatCount(Math.abs(run - base))}`
  const percent = Number(((100 * Math.abs(run - base)) / base).toPrecision(PERCENT_DIGITS))
  return `${signedBytes(run - base)}${base === 0 ? '' : ` (${run > base ? '+' : '−'}${percent} %)`}`
}

/** The names of the recordings, and the limit. */
export function titleOf({ base, run, growth }: Checked): string {
  return `${shown(run.file)} against ${shown(base.file)}, growth up to ${limitText(growth.limit)} allowed.`
}

export function limitText(limit: GrowthLimit): string {
  return 'bytes' in limit ? formatBytes(limit.bytes) : `${limit.percent} %`
}

/** The sentences about what failed, or one that nothing did. */
export function verdictLines({ run, growth }: Checked): string[] {
  const { figures, limit } = growth
  const failed = figures.filter(({ passed }) => passed === false)
  if (failed.length > 0) return failed.map(figure => failureOf(figure, run, limit))
  if (figures.some(({ byTiming }) => byTiming)) {
    return [`Only reserved memory grew by more than ${limitText(limit)}, by the timing of freed blocks that wait.`]
  }
  const grew = figures.some(({ base, run }) => base !== null && run !== null && run > base)
  return [grew ? `No memory grew by more than ${limitText(limit)}.` : 'No memory grew.']
}

/** The sentence about a figure that is above its limit. */
export function failureOf(figure: GrowthFigure, trace: Trace, limit: GrowthLimit): string {
  const { name, base, run } = figure
  if (name !== 'failedRequests') {
    const what = name === 'inUse' ? 'Memory in use' : 'Memory reserved'
    const [from, to] = [formatBytes(base!), formatBytes(run!)]
    return `${what} at the peak grew by more than ${limitText(limit)}: from ${from} to ${to}, ${changeOf(name, base!, run!)}.`
  }
  const last = recordedOutOfMemories(trace).at(-1)!
  const count = run === 1 ? 'A request' : `${formatCount(run)} requests`
  return `${count} failed, and none in the base: ${formatBytes(last.askedBytes)} asked${askerText(last)} (event ${formatCount(last.event)}).`
}

/** Gaps of the recordings, and differences between them beside their memory. */
export function notesOf({ base, run, growth }: Checked): string[] {
  const [, reserved] = growth.figures
  const notes: string[] = []
  if (base.device !== run.device) {
    notes.push(`Different devices: GPU ${base.device} in the base, GPU ${run.device} in the run.`)
  }
  if (base.recorder !== run.recorder) {
    notes.push(`Different allocators were recorded: ${base.recorder} in the base, ${run.recorder} in the run.`)
  }
  if (base.settings !== run.settings) {
    const [from, to] = [base, run].map(({ settings }) => (settings === null ? 'unknown' : `'${shown(settings)}'`))
    notes.push(`The allocator's settings differ: ${from} in the base, ${to} in the run.`)
  }
  if (reserved.byTiming) {
    const [from, to] = growth.waitingBytes.map(formatBytes)
    notes.push(
      `Freed blocks waited for other streams: at most ${from} in the base, ${to} in the run. How long depends on the ` +
        'speed of the GPU, so the growth of reserved memory that comes from it does not fail.',
    )
  } else if (reserved.passed === null) {
    const without = reserved.base === null ? 'base' : 'run'
    notes.push(`The ${without} has no segments, so reserved memory is not compared.`)
  }
  if (growth.figures[0].passed === true && reserved.passed === false) notes.push(RESERVED_ONLY)
  if ((growth.figures[2].base ?? 0) > 0) {
    notes.push(
      'Requests failed in the base, so its peaks are those of memory that ran out, and failures are not compared.',
    )
  }
  const [ofBase, ofRun] = [base, run].map(trace => [
    ...deviceLines(trace),
    ...initialLines(initialOf(trace)),
    ...gapsOf(trace),
  ])
  const both = ofBase.filter(line => ofRun.includes(line))
  const named = (name: string, lines: readonly string[]) =>
    lines.filter(line => !both.includes(line)).map(line => `${name}: ${line}`)
  notes.push(...both.map(line => `Both: ${line}`), ...named('Base', ofBase), ...named('Run', ofRun))
  return notes
}

const RESERVED_ONLY =
  'Memory in use is within its limit, so no call site holds the growth. Reserved memory also grows when idle memory lies ' +
  'in pieces, when freed blocks wait for other streams, and by the settings of the allocator.'

/** Where both peaks lie. */
export function peaksLine({ growth: { peaks } }: Checked): string {
  return `The peak is ${momentText(peaks.base)} in the base, ${momentText(peaks.run)} in the run.`
}

function momentText({ event, events, step, steps }: PeakPlace): string {
  if (event === BEFORE) return 'before the first event'
  const inStep = step === null ? '' : ` (step ${formatCount(step)} of ${formatCount(steps)})`
  return `at event ${formatCount(event)} of ${formatCount(events)}${inStep}`
}

/** A call site that grew: by how much, where, and what it was. */
export function siteCells(site: SiteChange): {
  readonly growth: string
  readonly place: string
  readonly was: string
} {
  const [from, to] = site.bytes
  const was = from === 0 ? 'new' : `grown from ${formatBytes(from)}`
  return { growth: signedBytes(to - from), place: placeText(site), was }
}

/** The sums of the call sites behind the first `listed`, and of those that shrank. */
export function restLines({ grown, shrunkBytes }: Growth, listed: number): string[] {
  const rest = grown.slice(listed)
  const bytes = rest.reduce((sum, { bytes: [from, to] }) => sum + to - from, 0)
  return [
    ...(rest.length > 0 ? [`${counted(rest.length, 'other call site')} grew by ${formatBytes(bytes)} together.`] : []),
    ...(shrunkBytes > 0 ? [`Others hold ${formatBytes(shrunkBytes)} less.`] : []),
  ]
}
