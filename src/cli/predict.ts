// `cuda-mempool predict`: the memory of a program with a size that was not recorded, from recordings with two others.

import { predictText } from '../recordings/report/predict-text.js'
import { predict } from '../recordings/trace/predict/predict.js'
import { answer } from './answers.js'
import { STATUS, UsageError } from './exit.js'
import { capacityOf, readFiles, sayContradictions, wholeNumber } from './recording-input.js'
import { print, printJson } from './terminal.js'

/** The options as text, from the command line. */
export interface PredictArguments {
  readonly batch: string
  readonly for: string
  readonly capacity?: string
  readonly gpu?: string
  readonly json?: boolean
}

const EXAMPLE = 'like --batch 4,8 for two files recorded with 4 and 8'

/** Predicts from two files, compares with a third if there is one, and returns the exit status. */
export async function predictFiles(files: readonly string[], given: PredictArguments): Promise<number> {
  if (files.length < 2 || files.length > 3) {
    throw new UsageError(
      `predict needs two recordings of one program with two sizes, and a third only as a check, not ${files.length}`,
    )
  }
  const sizes = sizesOf(given.batch)
  const size = wholeNumber('--for', given.for, 1)
  const capacity = given.capacity === undefined ? {} : { capacityBytes: capacityOf(given.capacity) }
  const traces = await readFiles(files, given.gpu)
  sayContradictions(traces)
  const [first, second, check] = traces
  const report = predict([first, second], { sizes, size, ...capacity, check })
  if (given.json) printJson(answer('predict', report))
  else print(style => predictText(report, style))
  return STATUS.done
}

function sizesOf(text: string): [number, number] {
  const words = text.split(',').map(word => word.trim())
  if (words.length !== 2) throw new UsageError(`--batch: '${text}' must be two sizes, ${EXAMPLE}`)
  const [first, second] = words.map(word => wholeNumber('--batch', word, 1, { alternative: `; ${EXAMPLE}` }))
  if (first === second)
    throw new UsageError(`--batch: both sizes are ${first}; record the program with two, ${EXAMPLE}`)
  return [first, second]
}
