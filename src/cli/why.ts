// `cuda-mempool why`: why a recorded run needed its memory, or ran out of it.

import { SlowReplayError } from '../core/base/errors.js'
import { printableJson } from '../core/base/shown-text.js'
import { whyText } from '../recordings/report/why/why-text.js'
import { curvesOf, liveAfter } from '../recordings/trace/analysis/curves.js'
import { stepsOf } from '../recordings/trace/analysis/steps.js'
import { holdersOf } from '../recordings/trace/failures/holders.js'
import { recordedOutOfMemories } from '../recordings/trace/failures/out-of-memory.js'
import { traceFigures } from '../recordings/trace/trace-figures.js'
import { remediesFor } from '../recordings/trace/tune/remedies.js'
import { onOneLine } from './exit.js'
import { printNext, readFiles, readOption, withProgressOn } from './recording-input.js'
import { print, say } from './terminal.js'

/** The options as text, from the command line. */
export interface WhyArguments {
  readonly gpu?: string
  readonly step?: string
  readonly json?: boolean
}

/** Prints the text for one file, or the same as JSON. */
export async function why(file: string, { gpu, step, json }: WhyArguments): Promise<void> {
  const pattern = step === undefined ? undefined : readOption('--step', () => new RegExp(step))
  const [trace] = await readFiles([file], gpu)
  const last = recordedOutOfMemories(trace).at(-1)
  const tuned = await withProgressOn(trace, onProgress => remediesFor(trace, last, onProgress)).catch(error => {
    if (!(error instanceof SlowReplayError)) throw error
    say(onOneLine(error.message))
    return null
  })
  if (json) {
    const steps = stepsOf(trace, pattern)
    const holders = holdersOf(trace, liveAfter(trace, curvesOf(trace).peakEvent))
    print(printableJson({ trace: traceFigures(trace), tuned, steps, holders }))
    return
  }
  print(style => whyText(trace, style, { tuned, ...(pattern === undefined ? {} : { pattern }) }))
  printNext('report', [file])
}
