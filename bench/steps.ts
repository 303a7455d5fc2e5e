// What each step of the slow path and each tuned number earns: steps are switched off, and numbers halved and doubled,
// one at a time, each in a process of its own. Recordings and random mixes run on the simulated device.
// Run: node dist/bench/steps.js [FILE...] [--lags N,...] [--seeds N] [--only NAMES] [--jobs N] [--smoke] [--save DIR]

import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { InvalidArgumentError } from 'commander'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { machineOf, save } from './machine.js'
import { type BenchOptions, benchmark, count, optionsOf } from './options.js'
import { errorLine } from './rivals/programs.js'
import type { Figures, Task } from './steps/measure.js'
import { type Row, stepsText } from './steps/table.js'
import { OTHER_STEPS, TODAY, VARIANTS, type Variant } from './steps/variants.js'

interface Options extends BenchOptions {
  readonly lags: number[]
  readonly seeds: number
  readonly only?: string[]
  readonly jobs: number
}

const TRACES = fileURLToPath(new URL('../../traces', import.meta.url))
const MEASURE_VARIANT = fileURLToPath(new URL('steps/measure-variant.js', import.meta.url))
const SMOKE_FILE = 'graphs-serve.pickle.gz'
const SMOKE_NAMES = ['takeInView', 'stepBytes halved']
const run = promisify(execFile)

const program = benchmark('what each step of the slow path and each tuned number earns')
  .argument('[files...]', 'recordings; default all of traces/')
  .option('--lags <n,...>', 'replay each recording at each of these lags', lags, [8])
  .option('--seeds <n>', 'run each mix with so many seeds', count, 4)
  .option('--only <names>', 'with commas, steps, numbers or rows of the table; default all', names)
  .option('--jobs <n>', 'processes at a time', count, Math.max(1, availableParallelism() >> 1))
  .showSuggestionAfterError(false) // bad input gets one line
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : 2))
const options = optionsOf<Options>(program)
const isSmoke = options.smoke === true
const task: Task = {
  files: filesOf(program.args),
  lags: options.lags,
  seeds: isSmoke ? 1 : options.seeds,
  mixSteps: isSmoke ? 2000 : 40_000,
}
const fileNames = task.files.map(file => basename(file))
const only = options.only ?? (isSmoke ? SMOKE_NAMES : undefined)
const variants = VARIANTS.filter(each => each === TODAY || only === undefined || isNamed(each, only))

const device = openDevice(new SimulatedDriver())
const machine = machineOf(device)
device.close()
writeResult([])
const rows = await rowsOf()
console.log(`${fileNames.join(', ')}; lags ${task.lags.join(', ')}; seeds of each mix: ${task.seeds}`)
console.log(stepsText(rows, OTHER_STEPS, process.stdout.columns ?? 300))
writeResult(rows)
if (rows[0].figures === null) process.exitCode = 1

/** The rows of all variants in their order; `--jobs` of them are measured at a time. */
async function rowsOf(): Promise<Row[]> {
  const rows = new Array<Row>(variants.length)
  let [next, done] = [0, 0]
  const work = async () => {
    while (next < variants.length) {
      const index = next++
      rows[index] = await rowOf(variants[index])
      const line = `${++done} of ${variants.length}: ${variants[index].name}`
      process.stderr.write(process.stderr.isTTY ? `${line}\x1b[K\r` : `${line}\n`)
    }
  }
  await Promise.all(Array.from({ length: options.jobs }, work))
  return rows
}

async function rowOf(variant: Variant): Promise<Row> {
  const { name } = variant
  try {
    const { stdout } = await run(process.execPath, [MEASURE_VARIANT, JSON.stringify({ variant, task })])
    return { name, figures: JSON.parse(stdout) as Figures, reason: null }
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string }
    return { name, figures: null, reason: errorLine(stderr ?? '') || message }
  }
}

/** At the start too, so that a bad path is found early. */
function writeResult(rows: readonly Row[]): void {
  try {
    save(options.save, 'steps', { machine, parameters: { ...task, files: fileNames }, rows })
  } catch (error) {
    program.error(`error: --save: ${(error as Error).message}`)
  }
}

function filesOf(given: readonly string[]): string[] {
  const recordings = isSmoke ? [SMOKE_FILE] : readdirSync(TRACES).filter(file => file.endsWith('.pickle.gz'))
  const files = given.length > 0 ? [...given] : recordings.sort().map(file => join(TRACES, file))
  for (const file of files) {
    try {
      if (readRecording(file).peakWithFailedBytes === 0) throw new Error(`${file} allocates nothing`)
    } catch (error) {
      program.error(`error: ${(error as Error).message}`)
    }
  }
  return files
}

function isNamed({ name, subject }: Variant, only: readonly string[]): boolean {
  return only.includes(name) || only.includes(subject)
}

function lags(text: string): number[] {
  return text.split(',').map(count)
}

function names(text: string): string[] {
  const given = text.split(',')
  const wrong = given.find(name => !VARIANTS.some(variant => isNamed(variant, [name])))
  if (wrong === undefined) return given
  const subjects = [...new Set(VARIANTS.map(({ subject }) => subject))]
  throw new InvalidArgumentError(`'${wrong}' is none of ${subjects.join(', ')}, nor a row of the table.`)
}
