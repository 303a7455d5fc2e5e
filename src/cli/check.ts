// `cuda-mempool check`: whether a recorded run needs more memory than its base, for continuous integration.

import { parseBytes } from '../core/base/bytes.js'
import { checkText } from '../recordings/report/check/check-text.js'
import type { Checked } from '../recordings/report/check/check-words.js'
import { checkJunit } from '../recordings/report/check/junit.js'
import { checkMarkdown } from '../recordings/report/check/markdown.js'
import { type GrowthLimit, growthOf } from '../recordings/trace/analysis/run-growth.js'
import { PIPED } from '../recordings/trace/formats/read-recording.js'
import type { Trace } from '../recordings/trace/trace.js'
import { traceFigures } from '../recordings/trace/trace-figures.js'
import { answer } from './answers.js'
import { STATUS, UsageError } from './exit.js'
import { checkOutput, writeOutput } from './output-file.js'
import { printNext, readDevices, readFiles } from './recording-input.js'
import { print, printJson } from './terminal.js'

/** The options as text, from the command line. */
export interface CheckArguments {
  readonly against: string
  readonly maxGrowth: string
  readonly gpu?: string
  readonly markdown?: string
  readonly junit?: string
  readonly force?: boolean
  readonly json?: boolean
}

const SHARE = /^\s*(\d+(?:\.\d+)?)\s*%\s*$/
/** A run that may become eleven times as large is not checked at all. */
const MOST_PERCENT = 1000

/** Compares a run with its base, writes the files that the options name, and returns the exit status. */
export async function check(file: string, given: CheckArguments): Promise<number> {
  const limit = limitOf(given.maxGrowth)
  const outputs = outputsOf(given)
  for (const { path } of outputs) checkOutput(path, given.force ?? false)
  const checked = await compared(file, given, limit)
  const { base, run, growth } = checked
  for (const { path, textOf } of outputs) await writeOutput(path, [textOf(checked)], given.force ?? false)
  if (given.json) {
    printJson(answer('check', { ...growth, trace: { base: traceFigures(base), run: traceFigures(run) } }))
  } else if (outputs.every(({ path }) => path !== PIPED)) {
    print(style => checkText(checked, style))
    if (!growth.passed) printNext('diff', [given.against, file])
  }
  return growth.passed ? STATUS.done : STATUS.conditionHeld
}

/** The largest growth that an option allows. Throws UsageError. */
function limitOf(text: string): GrowthLimit {
  const percent = Number(SHARE.exec(text)?.[1] ?? NaN)
  if (percent <= MOST_PERCENT) return { percent }
  const bytes = /[a-z]/i.test(text) ? bytesIn(text) : NaN
  if (bytes >= 0) return { bytes }
  throw new UsageError(
    `--max-growth: '${text}' is no limit; write a share like 2%, up to ${MOST_PERCENT}%, or a size like 64MiB`,
  )
}

function bytesIn(text: string): number {
  try {
    return parseBytes(text)
  } catch {
    return NaN
  }
}

interface Output {
  readonly path: string
  readonly textOf: (checked: Checked) => string
}

/** The files to write. Throws UsageError if two results have one place. */
function outputsOf({ markdown, junit, json }: CheckArguments): Output[] {
  const outputs = [
    ...(markdown === undefined ? [] : [{ path: markdown, textOf: checkMarkdown }]),
    ...(junit === undefined ? [] : [{ path: junit, textOf: checkJunit }]),
  ]
  const paths = [...outputs.map(({ path }) => path), ...(json ? [PIPED] : [])]
  const twice = paths.find((path, i) => paths.indexOf(path) < i)
  if (twice === undefined) return outputs
  const where = twice === PIPED ? 'standard output' : twice
  throw new UsageError(`${where}: --markdown, --junit and --json need a place each`)
}

/** Reads the run and the same device of the base, and compares them. */
async function compared(file: string, { against, gpu }: CheckArguments, limit: GrowthLimit): Promise<Checked> {
  if (file === PIPED && against === PIPED) throw new UsageError(`${PIPED}: standard input has one recording`)
  const [run] = await readFiles([file], gpu)
  const bases = await readDevices([against], gpu)
  const base = bases.find(({ device }) => device === run.device) ?? bases.reduce(busier)
  return { base, run, growth: growthOf(base, run, limit) }
}

function busier(a: Trace, b: Trace): Trace {
  return b.events > a.events ? b : a
}
