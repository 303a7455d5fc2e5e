// Runs the same allocations and frees through our caching pool and through other allocators, each in a process of its
// own that begins with an empty allocator. Shows growth and tails: a median of warm calls has neither.
// Run: node dist/bench/rivals/run.js [WORKLOAD...] [--programs NAMES] [--passes N] [--steps N] [--rounds N]
//        [--timeout S] [--device D] [--out FILE]

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command, InvalidArgumentError } from 'commander'
import { readRecording } from '../../src/entries/trace.js'
import { headline } from '../machine.js'
import { count } from '../options.js'
import type { Chosen } from './chosen-device.js'
import { type Figures, figuresOf, medianFigures, parseResult } from './figures.js'
import { type Operations, peakLiveBytes, writeOperations } from './operations.js'
import { PROGRAM_NAMES, type Program, type ProgramName, Programs, runProgram } from './programs.js'
import { type ProgramOutcome, type WorkloadResult, workloadText } from './table.js'
import { MIXES, mixOperations, THIRDS, traceOperations } from './workloads.js'

interface Options {
  readonly programs?: ProgramName[]
  readonly passes: number
  readonly steps: number
  readonly rounds: number
  readonly timeout: number
  readonly device?: string
  readonly out?: string
}

/** A mix or a recording, before it is measured. */
interface Workload {
  readonly name: string
  readonly operations: Operations
  readonly passes: number
  readonly steps: number | null
}

const CHOSEN_DEVICE = fileURLToPath(new URL('chosen-device.js', import.meta.url))
const TRACES = fileURLToPath(new URL('../../../traces', import.meta.url))
const MIX_NAMES = MIXES.map(({ name }) => name)

const program = new Command('run.js')
  .description('the same allocations and frees through our caching pool and through other allocators')
  .argument('[workloads...]', `recordings, or ${MIX_NAMES.join(', ')}; default all mixes and the recordings in traces/`)
  .option('--programs <names>', `with commas, of ${PROGRAM_NAMES.join(', ')}; default all`, programNames)
  .option('--passes <n>', 'go through a recording so many times', count, 4)
  .option('--steps <n>', 'steps of a mix, a multiple of 3', steps, 300_000)
  .option('--rounds <n>', 'run each program so many times, by turns; medians are shown', count, 1)
  .option('--timeout <s>', 'seconds after which a program is stopped', count, 120)
  .option('--device <which>', "auto, simulated or a GPU's number; default CUDA_MEMPOOL_DEVICE")
  .option('--out <file>', 'write the result there, as JSON')
  .helpOption('--help', 'show this')
  .parse()
const options = program.opts<Options>()

const { machine, choice } = chosenDevice()
const { simulated } = machine

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-rivals-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
const workloads = workloadsOf(program.args)
const found = new Programs(folder, !simulated)
const programs = (options.programs ?? PROGRAM_NAMES).map(name => found.find(name))
const runnable = programs.filter(({ command }) => command !== null)
const width = process.stdout.columns ?? 220

console.log(headline(machine, 'driver calls cost what its model on the host costs, not what a GPU’s do'))
for (const { name, about, reason } of programs)
  console.log(`  ${name}: ${about}${reason === null ? '' : ` (${reason})`}`)
console.log(
  'Times of all calls are from runs without a clock between calls; those of single calls include its reading.',
)
console.log('The first third of a mix includes the allocations that fill it.')
const results: WorkloadResult[] = []
writeReport()
for (const workload of workloads) {
  results.push(measure(workload))
  console.log(`\n${workloadText(results.at(-1)!, width)}`)
  writeReport()
}

/** See chosen-device.ts. Ends the program if the device cannot be opened. */
function chosenDevice(): Chosen {
  const args = options.device === undefined ? [] : ['--device', options.device]
  const { status, stdout } = spawnSync(process.execPath, [CHOSEN_DEVICE, ...args], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (status !== 0) process.exit(status ?? 2)
  return JSON.parse(stdout) as Chosen
}

/** At the start, so that a bad path is found early, and after each workload, so that a run may be cut short. */
function writeReport(): void {
  const { passes, steps, rounds, timeout, out } = options
  if (out === undefined) return
  const report = {
    machine,
    versions: found.versions,
    parameters: { passes, steps, rounds, timeoutSeconds: timeout },
    programs: programs.map(({ name, about, reason }) => ({ name, about, reason, clockNs: clockOf(name) })),
    workloads: results,
  }
  try {
    writeFileSync(out, `${JSON.stringify(report, null, 2)}\n`)
  } catch (error) {
    program.error(`error: --out: ${(error as Error).message}`, { exitCode: 2 })
  }
}

/** Nanoseconds of a reading of a program's clock, in the first workload that it finished. */
function clockOf(name: ProgramName): number | null {
  const outcomes = results.flatMap(({ programs }) => programs.filter(outcome => outcome.name === name))
  return outcomes.find(({ figures }) => figures !== null)?.figures?.clockNs ?? null
}

function workloadsOf(names: readonly string[]): Workload[] {
  const recordings = readdirSync(TRACES).filter(file => file.endsWith('.pickle.gz'))
  const chosen = names.length > 0 ? names : [...MIX_NAMES, ...recordings.sort().map(file => join(TRACES, file))]
  try {
    return chosen.map(name => {
      const mix = MIXES.find(each => each.name === name)
      if (mix !== undefined) {
        const { steps } = options
        return { name, operations: mixOperations(mix, steps), passes: 1, steps: steps / THIRDS }
      }
      const operations = traceOperations(readRecording(name))
      return { name: basename(name).replace(/\..*/, ''), operations, passes: options.passes, steps: null }
    })
  } catch (error) {
    return program.error(`error: ${(error as Error).message}`, { exitCode: 2 })
  }
}

function measure({ name, operations, passes, steps }: Workload): WorkloadResult {
  const file = join(folder, 'operations')
  writeOperations(file, operations)
  const rounds = runnable.map((): Figures[] => [])
  const reasons = runnable.map((): string | null => null)
  for (let round = 0; round < options.rounds; round++) {
    for (const [index, each] of runnable.entries()) {
      if (reasons[index] !== null) continue
      process.stderr.write(`${name}: ${each.name}${process.stderr.isTTY ? '\x1b[K\r' : '\n'}`)
      try {
        rounds[index].push(runTwice(each, operations, file, passes))
      } catch (error) {
        reasons[index] = (error as Error).message
      }
    }
  }
  const outcomes = runnable.map((each, index): ProgramOutcome => {
    const figures = reasons[index] === null ? medianFigures(rounds[index]) : null
    const roundsNs = rounds[index].map(({ parts }) => parts.map(({ ns }) => ns))
    return { name: each.name, figures, reason: reasons[index], roundsNs }
  })
  const calls = operations.buffer.length
  return { name, steps, calls, passes, peakLiveBytes: peakLiveBytes(operations), programs: outcomes }
}

/** Once with a clock after each call, and once without. */
function runTwice(each: Program, operations: Operations, file: string, passes: number): Figures {
  const timings = join(folder, 'timings')
  const args = [file, String(passes), choice]
  const timed = parseResult(runProgram(each, [...args, timings], options.timeout))
  const plain = parseResult(runProgram(each, args, options.timeout))
  return figuresOf(operations, timed, plain, timings)
}

function steps(text: string): number {
  if (count(text) % THIRDS !== 0) throw new InvalidArgumentError(`Write a multiple of ${THIRDS}.`)
  return Number(text)
}

function programNames(text: string): ProgramName[] {
  const names = text.split(',') as ProgramName[]
  const wrong = names.find(name => !PROGRAM_NAMES.includes(name))
  if (wrong !== undefined) throw new InvalidArgumentError(`'${wrong}' is none of ${PROGRAM_NAMES.join(', ')}.`)
  return names
}
