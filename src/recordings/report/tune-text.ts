// The result of `tune` as text: a table of all settings, how far any allocator could go, and the settings to choose.

import { formatBytes } from '../../core/base/bytes.js'
import { shown } from '../../core/base/shown-text.js'
import { shortPath } from '../trace/frames/short-path.js'
import { isLess } from '../trace/tune/ranking.js'
import type { TuneRecording, TuneReport, TuneRun } from '../trace/tune/tune-report.js'
import { adviceOf, capacitiesOf, conflictsOf, isTimedWithin, leftOutOf, noAdvice, timedRun } from './advice-text.js'
import { formatCount, formatNs, MISSING } from './number-format.js'
import { besideText, mergeText, notInEffect } from './settings-text.js'
import { type Column, rightColumn, type TextStyle, tableText, wrapText } from './table.js'
import { counted, deviceLines, packingOf } from './trace-lines.js'
import { noneOr, runOf, settingsName, verdictsOf } from './verdict-text.js'
import { checkpointingText } from './why/categories-text.js'

export function tuneText(report: TuneReport, style: TextStyle): string {
  const { width, paint } = style
  const parts = [
    wrapText(introduction(report), width),
    settingsTable(report, style),
    ...(report.recordings.length > 1 ? [recordingsTable(report, style), wrapText(worstOf(report), width)] : []),
    wrapText(floorOf(report), width),
    ...[...verdictsOf(report), ...waitingOf(report)].map(text => wrapText(text, width)),
    ...adviceText(report, style),
    ...beyondSettings(report).map(text => wrapText(text, width)),
    ...[...conflictsOf(report), ...notes(report)].map(text => paint.dim(wrapText(text, width))),
  ]
  return parts.join('\n\n')
}

function introduction(report: TuneReport): string {
  const { recordings, runs, baseline } = report
  const count = recordings.length
  const what = count === 1 ? shown(recordings[0].file) : `${formatCount(count)} recordings`
  return [
    `${counted(runs.length, 'setting')} tried over ${what}. Recorded with ${settingsName(baseline)}.`,
    ...notInEffect(recordings.map(({ recordedSettings }) => recordedSettings)),
    ...besideText(report),
    ...mergeText(report),
  ].join(' ')
}

function settingsTable(report: TuneReport, style: TextStyle): string {
  const { runs, recordings, isLimited, baseline, advice } = report
  const before = runOf(runs, baseline)
  const least = (run: TuneRun) =>
    recordings.length === 1 || run.leastCapacityBytes !== null
      ? leastText(run, before)
      : `≥ ${formatBytes(boundOf(run.settings))}`
  // Each recording needs its least capacity with the setting; where that is unknown, more than with those of today.
  const boundOf = (settings: string) =>
    Math.max(
      ...recordings.map(
        ({ runs: own }) => runOf(own, settings).leastCapacityBytes ?? runOf(own, baseline).leastCapacityBytes ?? 0,
      ),
    )
  const timed = (run: TuneRun) => timedRun(run, report).modelledDeviceSeconds
  const sizes = capacitiesOf(recordings)
  const within = sizes.length === 1 ? sizes[0] : isLimited ? 'the limits' : 'the peaks'
  const columns: Column<TuneRun>[] = [
    { title: 'setting', align: 'left', cell: labelOf },
    rightColumn('reserved,\nno limit', run => formatBytes(run.peakReservedBytes)),
    ...(before.within === null ? [] : [rightColumn(`within\n${within}`, servedText)]),
    ...(isLimited ? [rightColumn('reserved\nthere', reservedWithin)] : []),
    rightColumn('least\ncapacity', least),
    ...(runs.every(run => timed(run) === 0)
      ? []
      : [rightColumn<TuneRun>('driver\ntime', run => formatNs(timed(run) * 1e9))]),
  ]
  const tone = (run: TuneRun) => (advice.includes(run) ? style.paint.green : (line: string) => line)
  return tableText(runs, columns, { ...style, tone })
}

/** The least capacity of a run; more than today's is known only to be more. */
function leastText({ leastCapacityBytes: least }: TuneRun, { leastCapacityBytes: today }: TuneRun): string {
  if (least !== null) return formatBytes(least)
  return today === null ? MISSING : `> ${formatBytes(today)}`
}

function servedText({ within }: TuneRun): string {
  if (within === null) return MISSING
  if (within.failures > 0) return `${formatCount(within.failures)} failed`
  return noneOr(within.retries)
}

function reservedWithin({ within }: TuneRun): string {
  return within === null || within.failures > 0 ? MISSING : formatBytes(within.peakReservedBytes)
}

function recordingsTable({ recordings, baseline, advice }: TuneReport, style: TextStyle): string {
  const leastBy =
    (settings: string) =>
    ({ runs }: TuneRecording) =>
      leastText(runOf(runs, settings), runOf(runs, baseline))
  const columns: Column<TuneRecording>[] = [
    { title: 'recording, by least capacity', align: 'left', cell: ({ file }) => shown(shortPath(file)) },
    rightColumn('in use at\nthe peak', ({ lowerBoundBytes }) => formatBytes(lowerBoundBytes)),
    rightColumn('reserved,\nno limit', ({ runs }) => formatBytes(runOf(runs, baseline).peakReservedBytes)),
    ...[baseline, ...advice.slice(0, 1).map(({ settings }) => settings)].map(settings =>
      rightColumn(`least with\n${labelOf({ settings })}`, leastBy(settings)),
    ),
  ]
  return tableText(recordings, columns, style)
}

/** The recording that needs most, with the settings of today and with the best. */
function worstOf({ recordings, baseline, advice }: TuneReport): string {
  const moreText = (settings: string) =>
    recordings.flatMap(({ file, runs }) => {
      const [now, was] = [settings, baseline].map(each => runOf(runs, each).leastCapacityBytes ?? 0)
      return isLess(was, now)
        ? [`${shown(shortPath(file))} then needs ${formatBytes(now)} instead of ${formatBytes(was)}.`]
        : []
    })
  const text = (settings: string, name: string) => {
    const least = ({ runs }: TuneRecording) => runOf(runs, settings).leastCapacityBytes ?? 0
    const worst = recordings.reduce((a, b) => (least(b) > least(a) ? b : a))
    return `${shown(shortPath(worst.file))} needs most with ${name}: ${formatBytes(least(worst))}.`
  }
  const best = advice.slice(0, 1).map(({ settings }) => text(settings, settingsName(settings)))
  const worse = advice.slice(0, 1).flatMap(({ settings }) => moreText(settings))
  const sums = 'Sizes of a setting above are those of the worst recording; retries and times are sums.'
  return [text(baseline, "today's settings"), ...best, ...worse, sums].join(' ')
}

/** How far any allocator could go. */
function floorOf({ recordings }: TuneReport): string {
  const most = recordings.reduce((a, b) => (b.lowerBoundBytes > a.lowerBoundBytes ? b : a))
  const { lowerBoundBytes, lowerBoundRequest, packedBytes, file, runs } = most
  const which = recordings.length === 1 ? 'this run' : shown(shortPath(file))
  const held =
    lowerBoundRequest === null
      ? 'what is in use at its peak'
      : `in use together with the request that failed at event ${formatCount(lowerBoundRequest.event)}`
  const bound = `No allocator can serve ${which} in less than ${formatBytes(lowerBoundBytes)}, ${held}.`
  const least = runs.map(({ leastCapacityBytes }) => leastCapacityBytes)
  return [bound, ...packingOf(packedBytes, lowerBoundBytes, least)].join(' ')
}

/** Replays within a capacity wait for other streams, as PyTorch does when it runs full. */
function waitingOf({ recordings }: TuneReport): string[] {
  const most = Math.max(...recordings.map(({ withWaitingBytes }) => withWaitingBytes ?? 0))
  const needed = Math.max(...recordings.map(({ lowerBoundBytes }) => lowerBoundBytes))
  if (!isLess(needed, most)) return []
  return [
    `Up to ${formatBytes(most)} are in use, or freed while another stream uses them. No setting ends that; a retry waits ` +
      'for the streams. cuda-mempool why names the call sites.',
  ]
}

function adviceText(report: TuneReport, { width, paint }: TextStyle): string[] {
  const advice = adviceOf(report)
  if (advice.length === 0) return noAdvice(report).map(text => wrapText(text, width))
  const blocks = advice.map(({ text, line }, i) =>
    [wrapText(`${i + 1}. ${text}`, width, '   '), paint.green(`   ${line}`)].join('\n'),
  )
  return [paint.bold(`What to set, the best first by ${orderOf(report)}`), ...blocks]
}

function orderOf(report: TuneReport): string {
  if (!report.isLimited) return 'what it reserves'
  return isTimedWithin(report) ? 'failures, retries, and what it reserves there' : 'the least that serves'
}

/** The memory that the program itself could save; settings do not change it. */
function beyondSettings({ recordings }: TuneReport): string[] {
  const [first, ...others] = recordings
  return others.length > 0 || first.activations === null
    ? []
    : [`Beside settings: ${checkpointingText(first.activations)} cuda-mempool why has all categories.`]
}

function notes(report: TuneReport): string[] {
  const lines: string[] = []
  for (const recording of report.recordings) {
    const { file, blocksBefore, dropped } = recording
    lines.push(...deviceLines(recording).map(line => `${shown(shortPath(file))}: ${line}`))
    if (dropped !== null && dropped > 0) {
      const events = dropped === 1 ? 'One event of' : `${formatCount(dropped)} events of`
      lines.push(
        `${events} ${shown(shortPath(file))} were lost: the run may need more than is said here. Record with a larger max_entries.`,
      )
    }
    if (blocksBefore === 0) continue
    const blocks = blocksBefore === 1 ? 'One block is' : `${formatCount(blocksBefore)} blocks are`
    lines.push(
      `${shown(shortPath(file))} begins in the middle: ${blocks} from before, and what came earlier was not tried. Record from the start of the program to be sure.`,
    )
  }
  lines.push(...leftOutOf(report))
  lines.push(
    '> and ≥: at least so much, not searched further. A retry gives all idle memory back and waits for the GPU. ' +
      `Driver times are of a model, ${isTimedWithin(report) ? 'within the limit' : 'without a limit'}.`,
  )
  return lines
}

const SHORT_NAMES = [
  ['expandable_segments:True', 'expandable'],
  ['expandable_segments_reserve', 'reserve'],
  ['max_non_split_rounding_mb', 'non_split'],
  ['max_split_size_mb', 'split'],
  ['large_segment_size_mb', 'large_segment'],
  ['roundup_power2_divisions', 'roundup'],
  ['garbage_collection_threshold', 'gc'],
] as const

/** The settings with short names, for tables. */
function labelOf({ settings }: Pick<TuneRun, 'settings'>): string {
  return SHORT_NAMES.reduce((text, [name, short]) => text.replace(name, short), settings) || 'defaults'
}
