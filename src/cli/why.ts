// `cuda-mempool why`: why a recorded run needed its memory, or ran out of it.

import { SlowReplayError } from '../core/base/errors.js'
import { whyText } from '../recordings/report/why-text.js'
import { recordedOutOfMemories } from '../recordings/trace/failures/out-of-memory.js'
import { remediesFor } from '../recordings/trace/tune/remedies.js'
import { onOneLine } from './exit.js'
import { printNext, readFiles, readOption, withProgressOn } from './recording-input.js'
import { print, say } from './terminal.js'

/** The options as text, from the command line. */
export interface WhyArguments {
  readonly gpu?: string
  readonly step?: string
}

/** Prints the text for one file. */
export async function why(file: string, { gpu, step }: WhyArguments): Promise<void> {
  const pattern = step === undefined ? undefined : readOption('--step', () => new RegExp(step))
  const [trace] = await readFiles([file], gpu)
  const last = recordedOutOfMemories(trace).at(-1)
  const tuned = await withProgressOn(trace, onProgress => remediesFor(trace, last, onProgress)).catch(error => {
    if (!(error instanceof SlowReplayError)) throw error
    say(onOneLine(error.message))
    return null
  })
  print(style => whyText(trace, style, { tuned, ...(pattern === undefined ? {} : { pattern }) }))
  printNext('report', [file])
}
