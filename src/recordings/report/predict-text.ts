// A prediction as text: the figures beside the recorded ones, whether it fits, the certainty, and the call sites.

import { formatBytes, formatBytesUp } from '../../core/base/bytes.js'
import type { Predicted, PredictReport, PredictRun, PredictSite } from '../trace/predict/predict-report.js'
import { formatCount, formatShare } from './number-format.js'
import { placeText } from './place-text.js'
import { settingLine } from './settings-text.js'
import { type Column, rightColumn, type TextStyle, tableText, wrapText } from './table.js'
import { counted, fitted } from './trace-lines.js'

const MOST_SITES = 8
/** Where less than this share is unsure, a sentence about it would say 0.0 %. */
const LEAST_SHARE = 0.0005

const BESIDE =
  "This is PyTorch's memory alone. The CUDA context and libraries often take 0.3 to 1 GiB of a device beside it."

/** The whole text in lines of at most `width` columns. */
export function predictText(report: PredictReport, style: TextStyle): string {
  const { width, paint } = style
  const lines = (texts: readonly string[]) => texts.map(text => wrapText(text, width)).join('\n')
  const parts = [
    paint.bold(wrapText(headOf(report), width)),
    tableText(rowsOf(report), COLUMNS, style),
    ...(report.capacityBytes === null
      ? []
      : [`${paint.bold(lines([fitOf(report, report.asRecorded)]))}\n${lines([BESIDE])}`]),
    ...(report.better === null ? [] : [betterText(report, report.better, style)]),
    lines([...checkText(report), ...certaintyOf(report)]),
    ['Held at the peak of each, by call site:', tableText(sitesOf(report), siteColumns(report), style)].join('\n'),
  ]
  return parts.map(part => fitted(part, width)).join('\n\n')
}

function headOf({ size, recordings: [first, second] }: PredictReport): string {
  return `Predicted for ${size}, not measured: from recordings at ${first.size} and ${second.size}.`
}

interface Row {
  readonly size: string
  readonly inUse: string
  readonly reserved: string
  readonly what: string
}

const COLUMNS: readonly Column<Row>[] = [
  rightColumn('size', row => row.size),
  rightColumn('most in use', row => row.inUse),
  rightColumn('most reserved', row => row.reserved),
  { title: '', align: 'left', cell: row => row.what },
]

function rowsOf({ size, recordings, inUseBytes, asRecorded, check }: PredictReport): Row[] {
  const recorded = [...recordings, ...(check === null ? [] : [check])].map(each => ({
    size: String(each.size),
    inUse: formatBytes(each.inUseBytes),
    reserved: each.reservedBytes === null ? '–' : formatBytes(each.reservedBytes),
    what: 'recorded',
  }))
  const row = (what: string, of: (figure: Predicted) => number) => ({
    size: String(size),
    inUse: formatBytes(of(inUseBytes)),
    reserved: formatBytes(of(asRecorded.reservedBytes)),
    what,
  })
  const isRange = [inUseBytes, asRecorded.reservedBytes].some(({ low, high }) => low < high)
  return [
    ...recorded.slice(0, 2),
    row('predicted', each => each.estimate),
    ...(isRange ? [row('at least', each => each.low), row('at most', each => each.high)] : []),
    ...recorded.slice(2),
  ]
}

function checkText({ check, inUseBytes, asRecorded }: PredictReport): string[] {
  if (check === null) return []
  const off = (predicted: number, recorded: number) => formatShare(Math.abs(predicted / recorded - 1))
  const reserved =
    check.reservedBytes === null
      ? ''
      : `, and of most reserved ${off(asRecorded.reservedBytes.estimate, check.reservedBytes)}`
  return [
    `Compared with the recording at ${check.size}, the prediction of most in use is ${off(inUseBytes.estimate, check.inUseBytes)} off${reserved}.`,
  ]
}

function fitOf({ size, capacityBytes }: PredictReport, { fits, retries, reservedBytes }: PredictRun): string {
  const capacity = formatBytes(capacityBytes ?? 0)
  const spare = (capacityBytes ?? 0) - reservedBytes.estimate
  const room = spare > 0 ? `, with ${formatBytes(spare)} to spare` : ''
  const how = (retries ?? 0) > 0 ? `, but must give back its cache ${counted(retries!, 'time')}` : room
  if (fits === 'yes') return `${size} fits ${capacity}, as predicted${how}.`
  if (fits === 'likely') return `${size} may fit ${capacity}${how}; if what is unsure grows most, it does not.`
  if (fits === 'unlikely') return `${size} may not fit ${capacity}; it does only if what is unsure grows least.`
  return `${size} does not fit ${capacity}, as predicted.`
}

function betterText(report: PredictReport, better: PredictRun, { width, paint }: TextStyle): string {
  const { estimate } = better.reservedBytes
  const isSame = better.fits === report.asRecorded.fits
  const fits = !isSame ? `. ${fitOf(report, better)}` : better.fits === 'no' ? ', which does not fit either' : ''
  const text = `With this setting it would reserve ${formatBytesUp(estimate)} instead of ${formatBytes(report.asRecorded.reservedBytes.estimate)}${fits.replace(/\.$/, '')}:`
  return [wrapText(text, width), paint.green(`    ${settingLine(better.settings, report.platform)}`)].join('\n')
}

function certaintyOf({ size, recordings, isBeyond, shares }: PredictReport): string[] {
  const [first, second] = recordings
  const texts = [`${formatShare(shares.line)} of the bytes at the peak keep their size or grow in a straight line.`]
  if (shares.otherwise >= LEAST_SHARE) {
    texts.push(`${formatShare(shares.otherwise)} grow otherwise: the range has the least and the most that is likely.`)
  }
  if (shares.unmatched >= LEAST_SHARE) {
    texts.push(`${formatShare(shares.unmatched)} were allocated in one recording only.`)
  }
  if (isBeyond) {
    const where = size < first.size ? `below ${first.size}` : `beyond ${second.size}`
    texts.push(`${size} is ${where}, so growth is assumed to go on as from ${first.size} to ${second.size}.`)
    if (size < first.size)
      texts.push('Blocks of equal bytes that are freed may be smaller there, as the range allows for.')
  }
  for (const { size: full } of recordings.filter(({ ranFull }) => ranFull)) {
    texts.push(`The recording at ${full} ran full. The prediction has no limit, and leaves out requests that failed.`)
  }
  return texts
}

interface SiteRow extends Pick<PredictSite, 'recordedBytes' | 'predictedBytes'> {
  readonly place: string
}

/** The largest sites, and the rest of what is in use. */
function sitesOf({ sites, recordings, inUseBytes }: PredictReport): SiteRow[] {
  const named = sites.slice(0, MOST_SITES).map(site => ({ ...site, place: placeText({ site: site.site }) }))
  const restOf = (all: number, of: (row: SiteRow) => number) => all - named.reduce((sum, row) => sum + of(row), 0)
  const rest = {
    place: 'other places',
    recordedBytes: [0, 1].map(i => restOf(recordings[i].inUseBytes, row => row.recordedBytes[i])),
    predictedBytes: restOf(inUseBytes.estimate, row => row.predictedBytes),
  }
  const hasMore = rest.predictedBytes > 0 || rest.recordedBytes.some(bytes => bytes > 0)
  return hasMore ? [...named, rest] : named
}

function siteColumns({ recordings, size }: PredictReport): Column<SiteRow>[] {
  return [
    ...recordings.map((each, i) =>
      rightColumn<SiteRow>(`at ${formatCount(each.size)}`, site => formatBytes(site.recordedBytes[i])),
    ),
    rightColumn(`at ${formatCount(size)}`, site => formatBytes(site.predictedBytes)),
    { title: 'call site', align: 'left', cell: ({ place }) => place },
  ]
}
