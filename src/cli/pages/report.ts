// `cuda-mempool report`: reads recordings, replays them, and writes one page about all of them.

import { printable, shown } from '../../core/base/shown-text.js'
import { pictureSvg } from '../../recordings/report/export/svg.js'
import { answerOf } from '../../recordings/report/page/headline.js'
import { rankLines } from '../../recordings/report/page/page-ranks.js'
import { wrapText } from '../../recordings/report/table.js'
import { excerptOf } from '../../recordings/trace/columns/excerpt.js'
import { PIPED } from '../../recordings/trace/formats/read-recording.js'
import type { Policy } from '../../recordings/trace/replay-result.js'
import type { Trace } from '../../recordings/trace/trace.js'
import { written } from '../answers.js'
import { STATUS, UsageError } from '../exit.js'
import { checkOutput, writeOutput } from '../output-file.js'
import { printNext, readDevices } from '../recording-input.js'
import { policiesOf } from '../replay.js'
import { print, printJson } from '../terminal.js'
import { reportedTraces, writePage } from './page-output.js'

/** The options as text, from the command line. */
export interface ReportArguments {
  readonly output?: string
  readonly force?: boolean
  readonly gpu?: string
  readonly policy?: string
  readonly events?: string
  readonly last?: string
  readonly json?: boolean
}

const RECORDING_ENDINGS = /(\.(pickle|pkl|json|csv|sqlite))?(\.gz)?$/i

/** Writes the page, prints the verdict and the page's path, and returns the exit status. */
export async function reportFiles(files: readonly string[], given: ReportArguments): Promise<number> {
  const path = given.output ?? pageBeside(files[0])
  if (!/\.(html?|svg)$/i.test(path)) throw new UsageError(`--output: '${path}' does not end in .html or .svg`)
  const force = given.force ?? false
  checkOutput(path, force)
  const policies = given.policy === undefined ? undefined : (policiesOf(given.policy) as Policy[])
  const traces = (await readDevices(files, given.gpu)).map(trace => {
    const range = rangeOf(trace, given.events, given.last)
    return range === null ? trace : excerptOf(trace, ...range)
  })
  const isSvg = path.toLowerCase().endsWith('.svg')
  if (isSvg && traces.length > 1) {
    throw new UsageError(
      `--output: an .svg shows one recording, and there are ${traces.length}; write .html, or choose by --gpu`,
    )
  }
  const reported = await reportedTraces(traces, policies)
  if (isSvg) await writeOutput(path, [pictureSvg(traces[0], reported[0].replay)], force)
  else await writePage(path, reported, force)
  if (given.json) {
    printJson(written(path, isSvg ? 'svg' : 'html', traces))
    return STATUS.done
  }
  if (reported.length > 1)
    print(style =>
      rankLines(reported)
        .map(line => wrapText(line, style.width))
        .join('\n'),
    )
  for (const each of reported) {
    print(style => {
      const [first, ...more] = answerOf(each).verdict
      const name = reported.length > 1 ? `${shown(each.tab)}: ` : ''
      const lines = [`${name}${first}`, ...more].map(line => wrapText(line, style.width))
      return [style.paint.bold(lines[0]), ...lines.slice(1)].join('\n')
    })
  }
  print(`wrote ${printable(path)}; open it in a browser`)
  printNext('replay', files.slice(0, 1))
  return STATUS.done
}

/** The page of a recording that the options do not name. */
function pageBeside(file: string): string {
  if (file !== PIPED) return `${file.replace(RECORDING_ENDINGS, '')}.html`
  throw new UsageError(`${PIPED}: standard input has no name; name the page by -o`)
}

/** The events that the options name; null for all. */
function rangeOf(trace: Trace, events: string | undefined, last: string | undefined): [number, number] | null {
  if (events !== undefined && last !== undefined) throw new UsageError('--events and --last: give one of them')
  if (last !== undefined) return [Math.max(0, trace.events - count(last, '--last')), trace.events]
  if (events === undefined) return null
  const [from, to, ...more] = events.split('..')
  if (to === undefined || more.length > 0) throw new UsageError(`--events: '${events}' is no range like 1M..2M`)
  const [start, end] = [count(from, '--events'), Math.min(trace.events, count(to, '--events'))]
  if (start < end) return [start, end]
  throw new UsageError(`--events: ${trace.file} has no events in ${events}; it has ${trace.events}`)
}

/** `500k` → 500,000 */
function count(text: string, option: string): number {
  const [, digits = '', unit = ''] = /^(\d+(?:\.\d+)?)([kM]?)$/.exec(text.trim()) ?? []
  const value = Math.round(Number(digits) * { '': 1, k: 1e3, M: 1e6 }[unit]!)
  if (digits !== '' && (value > 0 || option === '--events')) return value
  throw new UsageError(`${option}: '${text}' is no number of events like 500k or 2M`)
}
