// For all commands that read recordings: the file or standard input, numbers in options, the progress bar, and the
// command to type next.

import { parseBytes } from '../core/base/bytes.js'
import { contradictionLines, nextLine } from '../recordings/report/trace-lines.js'
import {
  PIPED,
  readRecording,
  readRecordingOrText,
  readRecordings,
} from '../recordings/trace/formats/read-recording.js'
import type { TextFigures } from '../recordings/trace/messages/read-text.js'
import { Action, type Trace } from '../recordings/trace/trace.js'
import { LEAST_CAPACITY_BYTES } from '../recordings/trace/tune/least-capacity.js'
import { onOneLine, UsageError } from './exit.js'
import { ProgressBar } from './progress-bar.js'
import { note, print } from './terminal.js'

const MOST_COUNT = 1_000_000

/**
 * Reads one device of each file, with a bar for those that take long. `gpu` is the recorded device as text; without it
 * the device that failed first is read, or if none did the busiest one. Throws UsageError.
 */
export function readFiles(files: readonly string[], gpu: string | undefined): Promise<Trace[]> {
  const recorded = deviceOption(gpu)
  return readEach(files, (file, onProgress) => [readRecording(file, { ...recorded, onProgress })])
}

/** A recording, also one without events, or what a text says about an out of memory. Throws UsageError. */
export async function readToExplain(file: string, gpu: string | undefined): Promise<Trace | TextFigures> {
  const recorded = deviceOption(gpu)
  const [found] = await readEach([file], (each, onProgress) => [readRecordingOrText(each, { ...recorded, onProgress })])
  return found
}

/** The number of `--gpu`. Throws UsageError. */
export function deviceNumber(gpu: string | undefined): number | undefined {
  return gpu === undefined ? undefined : wholeNumber('--gpu', gpu, 0)
}

function deviceOption(gpu: string | undefined): { readonly device?: number } {
  const device = deviceNumber(gpu)
  return device === undefined ? {} : { device }
}

/** Like `readFiles`, but reads all devices of each file if `gpu` names none: first the device that failed first. */
export function readDevices(files: readonly string[], gpu: string | undefined): Promise<Trace[]> {
  if (gpu !== undefined) return readFiles(files, gpu)
  return readEach(files, (file, onProgress) => inOrderOfFailure(readRecordings(file, { onProgress })))
}

function inOrderOfFailure(traces: Trace[]): Trace[] {
  const failedUs = new Map(traces.map(trace => [trace, trace.timeUs[trace.action.indexOf(Action.outOfMemory)]]))
  const [failed, served] = [true, false].map(has => traces.filter(trace => (failedUs.get(trace) !== undefined) === has))
  return [...failed.sort((a, b) => failedUs.get(a)! - failedUs.get(b)!), ...served]
}

async function readEach<Read>(
  files: readonly string[],
  read: (file: string, onProgress: (done: number) => void) => Read[],
): Promise<Read[]> {
  const piped = files.filter(file => file === PIPED).length
  if (piped > 1) throw new UsageError(`${PIPED}: standard input has one recording`)
  if (piped > 0 && process.stdin.isTTY) {
    throw new UsageError(`${PIPED}: standard input is a terminal; pipe a recording into it`)
  }
  const traces: Read[] = []
  for (const file of files) {
    traces.push(...(await withProgress(onProgress => read(file, done => onProgress(done, file)))))
  }
  return traces
}

/** Says on stderr which recordings contradict themselves, for commands whose output does not. */
export function sayContradictions(traces: readonly Trace[]): void {
  for (const trace of traces) {
    for (const line of contradictionLines(trace)) note(onOneLine(`${trace.file}: ${line}`))
  }
}

/** Prints the command to type next with the same files, unless one was standard input, which is read by now. */
export function printNext(command: string, files: readonly string[]): void {
  if (!files.includes(PIPED)) print(({ paint }) => `\n${paint.bold(nextLine(command, ...files))}`)
}

/** Takes the share that is done and the name of the current work. */
type OnProgress = (fraction: number, what: string) => void

/** Runs `work` with a progress bar, which is gone afterwards. */
export async function withProgress<T>(work: (onProgress: OnProgress) => T | Promise<T>): Promise<T> {
  const bar = new ProgressBar()
  try {
    return await work((fraction, what) => bar.update(fraction, what))
  } finally {
    bar.clear()
  }
}

/** The same for work on one recording, whose file the bar names. */
export function withProgressOn<T>({ file }: Trace, work: (onProgress: OnProgress) => Promise<T>): Promise<T> {
  return withProgress(onProgress => work((fraction, what) => onProgress(fraction, `${file}: ${what}`)))
}

/** The number in an option's text; `most` may be Infinity, and `alternative` ends the error. Throws UsageError. */
export function wholeNumber(
  option: string,
  text: string,
  least: number,
  { most = MOST_COUNT, alternative = '' } = {},
): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  if (value >= least && value <= most) return value
  const range = most === Infinity ? `from ${least} on` : `from ${least} to ${most}`
  throw new UsageError(`${option}: '${text}' is no whole number ${range}${alternative}`)
}

/** The capacity that `--capacity` names, in bytes. Throws UsageError. */
export function capacityOf(text: string): number {
  return memoryOf('--capacity', text)
}

/** The memory that an option names, such as 24GiB, in bytes. Throws UsageError. */
export function memoryOf(option: string, text: string): number {
  const bytes = readOption(option, () => parseBytes(text))
  if (bytes >= LEAST_CAPACITY_BYTES) return bytes
  throw new UsageError(
    `${option}: '${text}' is below 2MiB, the least that a device gives at once; write a unit, like 24GiB`,
  )
}

/** The value of an option. Throws UsageError, which begins with the option, for each error of `read`. */
export function readOption<Value>(option: string, read: () => Value): Value {
  try {
    return read()
  } catch (error) {
    throw new UsageError(`${option}: ${(error as Error).message}`)
  }
}
