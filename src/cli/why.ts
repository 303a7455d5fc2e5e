// `cuda-mempool why`: why a recorded run needed its memory, or ran out of it.

import { SlowReplayError } from '../core/base/errors.js'
import { printableJson } from '../core/base/shown-text.js'
import { plainFacts, whyFacts } from '../recordings/report/why/why-facts.js'
import { whyText } from '../recordings/report/why/why-text.js'
import { remediesFor } from '../recordings/trace/tune/remedies.js'
import { onOneLine } from './exit.js'
import { memoryOf, printNext, readFiles, readOption, withProgressOn } from './recording-input.js'
import { print, say } from './terminal.js'

/** The options as text, from the command line. */
export interface WhyArguments {
  readonly gpu?: string
  readonly step?: string
  readonly deviceMemory?: string
  readonly json?: boolean
}

/** Prints the text for one file, or the same as JSON. */
export async function why(file: string, { gpu, step, deviceMemory, json }: WhyArguments): Promise<void> {
  const pattern = step === undefined ? undefined : readOption('--step', () => new RegExp(step))
  const deviceBytes = deviceMemory === undefined ? null : memoryOf('--device-memory', deviceMemory)
  const [trace] = await readFiles([file], gpu)
  const facts = whyFacts(trace, pattern)
  const last = facts.trace.outOfMemories.at(-1)
  const tuned = await withProgressOn(trace, onProgress => remediesFor(trace, last, onProgress)).catch(error => {
    if (!(error instanceof SlowReplayError)) throw error
    say(onOneLine(error.message))
    return null
  })
  if (json) {
    const { trace: figures, ...others } = plainFacts(facts)
    print(printableJson({ trace: figures, tuned, ...others, deviceBytes }))
    return
  }
  print(style => whyText(trace, style, { tuned, facts, deviceBytes, ...(pattern === undefined ? {} : { pattern }) }))
  printNext('report', [file])
}
