// `cuda-mempool diff`: the memory that grew and shrank between two recorded runs, as text or as a page.

import { printable } from '../../core/base/shown-text.js'
import { diffText } from '../../recordings/report/diff-text.js'
import { pageDifference } from '../../recordings/report/page/page-difference.js'
import { traceDifference } from '../../recordings/trace/analysis/stack-diff.js'
import { PIPED } from '../../recordings/trace/formats/read-recording.js'
import { traceFigures } from '../../recordings/trace/trace-figures.js'
import { answer } from '../answers.js'
import { printNext, readFiles } from '../recording-input.js'
import { print, printJson } from '../terminal.js'
import { checkPage, reportedTraces, writePage } from './page-output.js'

/** The options as text, from the command line. */
export interface DiffArguments {
  readonly gpu?: string
  readonly output?: string
  readonly force?: boolean
  readonly json?: boolean
}

/** Prints the text for two files, or the same as JSON, and writes the page that `--output` names. */
export async function diff(
  before: string,
  after: string,
  { gpu, output, force = false, json }: DiffArguments,
): Promise<void> {
  if (output !== undefined) checkPage(output, force)
  const traces = await readFiles([before, after], gpu)
  // Of two runs on several devices the same device is compared, although the default may differ.
  const other = gpu === undefined && after !== PIPED && traces[1].device !== traces[0].device
  if (other && traces[1].otherDevices.some(({ device }) => device === traces[0].device)) {
    traces.splice(1, 1, ...(await readFiles([after], String(traces[0].device))))
  }
  const [first, second] = traces
  if (output !== undefined) {
    const reported = await reportedTraces(traces)
    const names = [reported[0].tab, reported[1].tab] as const
    await writePage(output, reported, force, pageDifference(first, second, names))
  }
  if (json) {
    const [figures, others] = [first, second].map(traceFigures)
    printJson(answer('diff', { before: figures, after: others, ...traceDifference(first, second) }))
    return
  }
  print(style => diffText(first, second, style))
  printNext('report', [before, after])
  if (output !== undefined) print(() => `wrote ${printable(output)}; open it in a browser`)
}
