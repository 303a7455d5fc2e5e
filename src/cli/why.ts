// `cuda-mempool why`: why a recorded run needed its memory, or ran out of it.

import { whyText } from '../report/why-text.js'
import { remediesFor } from '../trace/tune/remedies.js'
import { UsageError } from './exit.js'
import { printNext, readFiles, withBar } from './recording-input.js'
import { print } from './terminal.js'

/** The options as text, from the command line. */
export interface WhyArguments {
  readonly gpu?: string
  readonly step?: string
}

/** Prints the text for one file. */
export async function why(file: string, { gpu, step }: WhyArguments): Promise<void> {
  const pattern = step === undefined ? undefined : patternOf(step)
  const [trace] = await readFiles([file], gpu)
  const tuned = await withBar(bar => remediesFor(trace, (done, what) => bar.update(done, `${trace.file}: ${what}`)))
  print(style => whyText(trace, style, { tuned, ...(pattern === undefined ? {} : { pattern }) }))
  printNext('report', [file])
}

function patternOf(text: string): RegExp {
  try {
    return new RegExp(text)
  } catch (error) {
    throw new UsageError(`--step: ${(error as Error).message}`)
  }
}
