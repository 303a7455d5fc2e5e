// The result of `tune` as text: what to set, a table of all settings, and how far any allocator could go.

import { formatBytes } from '../../core/base/bytes.js'
import { shown } from '../../core/base/shown-text.js'
import { shortPath } from '../picture/short-path.js'
import { mergedSettings } from '../trace/pytorch/merged-settings.js'
import type { TuneRecording, TuneReport, TuneRun } from '../trace/tune/tune-report.js'
import { formatCount, formatNs, formatRatio, formatShare, MISSING } from './number-format.js'
import { besideText, mergeText, VARIABLE } from './settings-text.js'
import { type Column, rightColumn, type TextStyle, tableText, wrapText } from './table.js'
import { deviceLines } from './trace-lines.js'

export function tuneText(report: TuneReport, style: TextStyle): string {
  const { width, paint } = style
  const parts = [
    wrapText(introduction(report), width),
    settingsTable(report, style),
    ...(report.recordings.length > 1 ? [recordingsTable(report, style)] : []),
    ...report.recordings.slice(0, 1).map(recording => wrapText(floorOf(recording, report), width)),
    ...verdicts(report).map(text => wrapText(text, width)),
    ...adviceText(report, style),
    ...notes(report).map(text => paint.dim(wrapText(text, width))),
  ]
  return parts.join('\n\n')
}

function introduction(report: TuneReport): string {
  const { recordings, runs, baseline } = report
  const count = recordings.length
  const what = count === 1 ? shown(recordings[0].file) : `${formatCount(count)} recordings`
  const settings = baseline === '' ? "PyTorch's defaults" : baseline
  const tried = runs.length === 1 ? '1 setting' : `${formatCount(runs.length)} settings`
  return [`${tried} tried over ${what}. Recorded with ${settings}.`, ...besideText(report), ...mergeText(report)].join(
    ' ',
  )
}

function settingsTable({ runs, capacityBytes, baseline, advice }: TuneReport, style: TextStyle): string {
  const baselineRun = runs.find(run => run.settings === baseline)
  const least = (run: TuneRun) => {
    if (run.leastCapacityBytes !== null) return formatBytes(run.leastCapacityBytes)
    const before = baselineRun?.leastCapacityBytes ?? null
    return before === null ? MISSING : `> ${formatBytes(before)}`
  }
  const columns: Column<TuneRun>[] = [
    { title: 'setting', align: 'left', cell: labelOf },
    rightColumn('least\ncapacity', least),
    rightColumn('retries\nthere', run =>
      run.leastCapacityRetries === null ? MISSING : formatCount(run.leastCapacityRetries),
    ),
    rightColumn('reserved\nwithout limit', run => formatBytes(run.peakReservedBytes)),
    rightColumn('driver\ncalls', run => formatCount(run.deviceCalls)),
    rightColumn('their\ntime', run => formatNs(run.modelledDeviceSeconds * 1e9)),
  ]
  if (capacityBytes !== null) {
    const at = formatBytes(capacityBytes)
    columns.push(
      rightColumn(`fails at\n${at}`, run => formatCount(run.atCapacity?.failures ?? 0)),
      rightColumn(`retries at\n${at}`, run => formatCount(run.atCapacity?.retries ?? 0)),
    )
  }
  const tone = (run: TuneRun) => (advice.includes(run) ? style.paint.green : (line: string) => line)
  return tableText(runs, columns, { ...style, tone })
}

function recordingsTable({ recordings, runs, baseline }: TuneReport, style: TextStyle): string {
  const best = runs[0].settings
  const leastBy = (settings: string) => (recording: TuneRecording) => {
    const least = recording.runs.find(run => run.settings === settings)?.leastCapacityBytes ?? null
    return least === null ? MISSING : formatBytes(least)
  }
  const columns: Column<TuneRecording>[] = [
    { title: 'recording, worst first', align: 'left', cell: ({ file }) => shown(shortPath(file)) },
    rightColumn('in use at\nthe peak', ({ lowerBoundBytes }) => formatBytes(lowerBoundBytes)),
    rightColumn('packed', ({ packedBytes }) => (packedBytes === null ? MISSING : formatBytes(packedBytes))),
    rightColumn('reserved\nas recorded', ({ recordedPeakReservedBytes: bytes }) =>
      bytes === null ? MISSING : formatBytes(bytes),
    ),
    rightColumn(`least with\n${labelOf({ settings: baseline })}`, leastBy(baseline)),
    ...(best === baseline ? [] : [rightColumn(`least with\n${labelOf({ settings: best })}`, leastBy(best))]),
  ]
  return tableText(recordings, columns, style)
}

/** How far any allocator could go. */
function floorOf({ lowerBoundBytes, packedBytes, file }: TuneRecording, { recordings }: TuneReport): string {
  const which = recordings.length === 1 ? 'this run' : shown(shortPath(file))
  const bound = `No allocator can serve ${which} in less than ${formatBytes(lowerBoundBytes)}, what is in use at its peak.`
  if (packedBytes === null || lowerBoundBytes === 0) return bound
  const ratio = formatRatio(packedBytes / lowerBoundBytes)
  return `${bound} A plan that knows the whole run packs it into ${formatBytes(packedBytes)} (${ratio} times as much).`
}

/** Whether the recordings fit the capacity. */
function verdicts({ capacityBytes, recordings, runs, baseline }: TuneReport): string[] {
  if (capacityBytes === null) return []
  const limit = formatBytes(capacityBytes)
  return recordings.map(({ file, lowerBoundBytes, holders, runs: own }) => {
    const name = shown(shortPath(file))
    if (lowerBoundBytes > capacityBytes) {
      const over = formatBytes(lowerBoundBytes - capacityBytes)
      const held = holders.map(({ bytes, site }) => `${formatBytes(bytes)} by ${siteOf(site)}`)
      const who = held.length === 0 ? '' : ` At the peak most is held: ${held.join('; ')}.`
      return `${name} does not fit ${limit} with any setting: in use and request are ${over} above it.${who}`
    }
    const before = own.find(run => run.settings === baseline)!
    if (before.atCapacity?.failures === 0) {
      const spare = before.leastCapacityBytes === null ? null : capacityBytes - before.leastCapacityBytes
      return `${name} fits ${limit} as recorded${spare === null ? '' : `, with ${formatBytes(spare)} to spare`}.`
    }
    const best = own.find(run => run.settings === runs[0].settings)!
    const failed = `${name} does not fit ${limit} as recorded`
    const short =
      before.leastCapacityBytes === null ? '' : ` (${formatBytes(before.leastCapacityBytes - capacityBytes)} short)`
    if (best.atCapacity?.failures === 0) {
      const spare =
        best.leastCapacityBytes === null
          ? ''
          : `, with ${formatBytes(capacityBytes - best.leastCapacityBytes)} to spare`
      return `${failed}${short}; with ${best.settings || 'defaults'} it does${spare}.`
    }
    return `${failed}${short}, and with none of the settings tried. The program must use less, or run elsewhere.`
  })
}

/** The advice as sentences, each with the setting to copy on the next line. */
export function adviceLines(report: TuneReport): string[] {
  const { advice, runs, baseline } = report
  const before = runs.find(run => run.settings === baseline)!
  const verdict = verdicts(report)
  if (advice.length === 0) return [...verdict, noAdvice(report)]
  return [
    ...verdict,
    ...advice.flatMap(run => [whatItBuys(run, before), `${VARIABLE}=${mergedSettings(report.kept, run.settings)}`]),
  ]
}

/** The recorded settings are always tried. */
function noAdvice({ runs }: TuneReport): string {
  if (runs.length === 1) return 'Only the recorded settings were tried.'
  return `None of ${formatCount(runs.length)} settings tried needs 1 % less memory.`
}

function adviceText(report: TuneReport, { width, paint }: TextStyle): string[] {
  const { advice, runs, baseline, capacityBytes } = report
  const before = runs.find(run => run.settings === baseline)!
  if (advice.length === 0) {
    const fits = capacityBytes !== null && before.atCapacity?.failures === 0
    return [wrapText(fits ? 'Nothing needs to be set.' : noAdvice(report), width)]
  }
  const blocks = advice.map((run, i) => {
    const title = wrapText(`${i + 1}. ${whatItBuys(run, before)}`, width, '   ')
    return [title, paint.green(`   export ${VARIABLE}=${mergedSettings(report.kept, run.settings)}`)].join('\n')
  })
  return [paint.bold('What to set, the best first'), ...blocks]
}

function whatItBuys(run: TuneRun, before: TuneRun): string {
  const parts: string[] = []
  if (run.leastCapacityBytes !== null && before.leastCapacityBytes !== null) {
    const saved = formatShare(1 - run.leastCapacityBytes / before.leastCapacityBytes)
    parts.push(
      `Serves the run in ${formatBytes(run.leastCapacityBytes)} instead of ${formatBytes(before.leastCapacityBytes)} (${saved} less)`,
    )
  } else parts.push('Serves what failed')
  if (run.peakReservedBytes > before.peakReservedBytes) {
    parts.push(`without a limit it reserves more, ${formatBytes(run.peakReservedBytes)}`)
  }
  const [retries, retriesBefore] = [run.atCapacity?.retries, before.atCapacity?.retries]
  if (retries !== undefined && retriesBefore !== undefined && retries !== retriesBefore) {
    parts.push(
      `${formatCount(retries)} ${retries === 1 ? 'retry' : 'retries'} instead of ${formatCount(retriesBefore)}`,
    )
  }
  if (run.settings.includes('garbage_collection_threshold')) {
    parts.push('it needs a limit by torch.cuda.set_per_process_memory_fraction')
  }
  return `${parts.join('; ')}.`
}

function notes({ recordings, leftOut }: TuneReport): string[] {
  const lines: string[] = []
  for (const recording of recordings) {
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
  if (leftOut.length > 0) lines.push(`Not tried, because the time was over: ${leftOut.join('; ')}.`)
  lines.push(
    "A retry gives all idle memory back and waits for the GPU. Times are those of a model of the driver's calls.",
  )
  return lines
}

const SHORT_NAMES = [
  ['expandable_segments:True', 'expandable'],
  ['max_non_split_rounding_mb', 'non_split'],
  ['max_split_size_mb', 'max_split'],
  ['large_segment_size_mb', 'large_segment'],
  ['roundup_power2_divisions', 'roundup'],
  ['garbage_collection_threshold', 'gc'],
] as const

/** The settings with short names, for tables. */
function labelOf({ settings }: Pick<TuneRun, 'settings'>): string {
  return SHORT_NAMES.reduce((text, [name, short]) => text.replace(name, short), settings) || 'defaults'
}

function siteOf(site: string | null): string {
  return site === null ? 'blocks without a call stack' : shown(shortPath(site))
}
