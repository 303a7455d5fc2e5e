// `cuda-mempool convert`: a recording in the format of another program.

import { listed } from '../core/base/readable.js'
import { printable } from '../core/base/shown-text.js'
import { openDevice } from '../core/device/open.js'
import { collapsedStacks } from '../recordings/report/export/collapsed.js'
import { allocationRows } from '../recordings/report/export/csv.js'
import { perfettoTrace } from '../recordings/report/export/perfetto.js'
import { type PolicyMemory, recordedMemory, replayedMemory } from '../recordings/report/export/policy-memory.js'
import { pprofProfile } from '../recordings/report/export/pprof.js'
import { reportJson } from '../recordings/report/export/report-json.js'
import { pictureSvg } from '../recordings/report/export/svg.js'
import { PIPED } from '../recordings/trace/formats/read-recording.js'
import { shellWord } from '../recordings/trace/formats/shell-word.js'
import { pickleSnapshot } from '../recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { replay } from '../recordings/trace/replay.js'
import { replayDevices } from '../recordings/trace/replay-devices.js'
import type { ReplayOptions } from '../recordings/trace/replay-options.js'
import type { ReplayReport } from '../recordings/trace/replay-result.js'
import type { Trace } from '../recordings/trace/trace.js'
import { written } from './answers.js'
import { STATUS, UsageError } from './exit.js'
import { checkReplayedByDefault, parseCondition, sayHeld } from './fail-if.js'
import { checkOutput, writeOutput } from './output-file.js'
import { readFiles, sayContradictions, wholeNumber, withProgressOn } from './recording-input.js'
import { print, printJson } from './terminal.js'

/** The options as text, from the command line. */
export interface ConvertArguments {
  readonly output: string
  readonly to?: string
  readonly force?: boolean
  readonly gpu?: string
  readonly at?: string
  readonly failIf?: readonly string[]
  readonly json?: boolean
}

type Format = 'pickle' | 'json' | 'csv' | 'perfetto' | 'pprof' | 'collapsed' | 'svg'

const ENDINGS: Readonly<Record<string, Format>> = {
  '.pickle': 'pickle',
  '.json': 'json',
  '.csv': 'csv',
  '.pftrace': 'perfetto',
  '.pb.gz': 'pprof',
  '.collapsed': 'collapsed',
  '.folded': 'collapsed',
  '.svg': 'svg',
}
const FORMATS = [...new Set(Object.values(ENDINGS))]
/** The next step with a result. */
const NEXT: Readonly<Record<Format, (path: string) => string>> = {
  pickle: () => 'open it in https://pytorch.org/memory_viz',
  perfetto: () => 'open it in https://ui.perfetto.dev',
  pprof: path => `look at it with: go tool pprof -http=: ${shellWord(path)}`,
  collapsed: path => `look at it with: npx speedscope ${shellWord(path)}`,
  csv: () => 'a row for each allocation',
  svg: () => 'curves, allocations and address maps',
  json: () => 'the figures of the replay; docs/command-line.schema.json is their schema',
}
/** The formats of one moment, which --at chooses. */
const OF_A_MOMENT: readonly Format[] = ['pprof', 'collapsed']

/** Converts a file and returns the exit status. */
export async function convertFile(file: string, given: ConvertArguments): Promise<number> {
  const { output, force = false } = given
  const format = formatOf(given)
  const conditions = (given.failIf ?? []).map(parseCondition)
  const at = given.at === undefined ? undefined : wholeNumber('--at', given.at, 0, { most: Infinity })
  if (at !== undefined && !OF_A_MOMENT.includes(format)) {
    throw new UsageError(`--at: a ${format} file has the whole recording; leave it out`)
  }
  if (conditions.length > 0 && format !== 'json') throw new UsageError('--fail-if: needs a .json output, or replay')
  checkReplayedByDefault(conditions)
  if (given.json && output === PIPED) throw new UsageError('-o -: standard output has the result; leave --json out')
  checkOutput(output, force)
  const [trace] = await readFiles([file], given.gpu)
  sayContradictions([trace])
  checkDevices(trace, given.gpu)
  if (at !== undefined && at >= trace.events) {
    throw new UsageError(`--at: ${trace.file} has events 0 to ${trace.events - 1}, not ${at}`)
  }
  const { pieces, report } = await contentsOf(trace, format, at)
  await writeOutput(output, pieces, force)
  if (given.json) printJson(written(output, format, [trace]))
  else if (output !== PIPED) print(`${printable(output)}: ${NEXT[format](output)}`)
  return report !== undefined && sayHeld(conditions, report) ? STATUS.conditionHeld : STATUS.done
}

function formatOf({ output, to }: ConvertArguments): Format {
  if (to !== undefined) {
    const format = FORMATS.find(each => each === to)
    if (format !== undefined) return format
    throw new UsageError(`--to: there is no '${to}'; there are ${FORMATS.join(', ')}`)
  }
  const ending = Object.keys(ENDINGS).find(each => output.endsWith(each))
  if (ending !== undefined) return ENDINGS[ending]
  const known = Object.keys(ENDINGS).join(', ')
  if (output === PIPED) throw new UsageError(`-o -: name the format by --to: ${FORMATS.join(', ')}`)
  throw new UsageError(`${output}: the ending names no format; write ${known}, or name the format by --to`)
}

/** A file of several devices needs a choice, since the output has one. */
function checkDevices({ file, device, otherDevices }: Trace, gpu: string | undefined): void {
  if (gpu !== undefined || otherDevices.length === 0) return
  const devices = [device, ...otherDevices.map(other => other.device)].sort((a, b) => a - b)
  throw new UsageError(`${file}: has events of GPU ${listed(devices)}; choose one by --gpu`)
}

async function contentsOf(
  trace: Trace,
  format: Format,
  at: number | undefined,
): Promise<{ pieces: Iterable<string | Uint8Array>; report?: ReplayReport }> {
  switch (format) {
    case 'pickle':
      return { pieces: [pickleSnapshot(trace)] }
    case 'csv':
      return { pieces: allocationRows(trace, await memories(trace)) }
    case 'perfetto':
      return { pieces: perfettoTrace(trace, await memories(trace)) }
    case 'svg':
      return { pieces: [pictureSvg(trace, await replayed(trace, { placements: true }))] }
    case 'pprof':
      return { pieces: [pprofProfile(trace, at)] }
    case 'collapsed':
      return { pieces: [collapsedStacks(trace, at)] }
    case 'json': {
      const report = await replayed(trace, { leastCapacity: true })
      return { pieces: [`${reportJson(report)}\n`], report }
    }
  }
}

/** Where each policy of a replay had its memory, and the recorded allocator first. */
async function memories(trace: Trace): Promise<PolicyMemory[]> {
  const all = replayedMemory(await replayed(trace, { placements: true }))
  return all.some(({ policy }) => policy === 'recorded') ? all : [recordedMemory(trace), ...all]
}

/** A replay on the simulated device, so that its figures are the same on each machine. */
async function replayed(trace: Trace, options: ReplayOptions): Promise<ReplayReport> {
  using _held = openDevice('simulated')
  return await withProgressOn(trace, onProgress =>
    replay(trace, replayDevices(trace, 'simulated'), { ...options, onProgress }),
  )
}
