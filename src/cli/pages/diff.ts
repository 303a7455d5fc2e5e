// `cuda-mempool diff`: the memory that grew and shrank between two recorded runs, as text or as a page.

import { printable } from '../../core/base/shown-text.js'
import { diffText } from '../../recordings/report/diff-text.js'
import { pageDifference } from '../../recordings/report/page/page-difference.js'
import { DEFAULT_POLICIES } from '../../recordings/trace/replay-result.js'
import { printNext, readFiles } from '../recording-input.js'
import { print } from '../terminal.js'
import { checkPage, reportedTraces, writePage } from './page-output.js'

/** The options as text, from the command line. */
export interface DiffArguments {
  readonly gpu?: string
  readonly output?: string
  readonly force?: boolean
}

/** Prints the text for two files, and writes the page that `--output` names. */
export async function diff(
  before: string,
  after: string,
  { gpu, output, force = false }: DiffArguments,
): Promise<void> {
  if (output !== undefined) checkPage(output, force)
  const traces = await readFiles([before, after], gpu)
  const [first, second] = traces
  if (output !== undefined) {
    const reported = await reportedTraces(traces, DEFAULT_POLICIES)
    const names = [reported[0].tab, reported[1].tab] as const
    await writePage(output, reported, force, pageDifference(first, second, names))
  }
  print(style => diffText(first, second, style))
  printNext('report', [before, after])
  if (output !== undefined) print(() => `wrote ${printable(output)}; open it in a browser`)
}
