// For all commands that read recordings: the file or standard input, numbers in options, the progress bar, and the
// command to type next.

import { parseBytes } from '../base/bytes.js'
import { nextLine } from '../report/trace-lines.js'
import {
  readPipedRecording,
  readPipedRecordings,
  readRecording,
  readRecordings,
} from '../trace/formats/read-recording.js'
import { LEAST_CAPACITY_BYTES } from '../trace/least-capacity.js'
import type { Trace } from '../trace/trace.js'
import { UsageError } from './exit.js'
import { ProgressBar } from './progress-bar.js'
import { print } from './terminal.js'

/** The file name that means standard input. */
export const PIPED = '-'
const MOST_COUNT = 1_000_000

/**
 * Reads one device of each file, with a bar for those that take long. `gpu` is the recorded device as text; without it
 * the one with the most events is read. Throws UsageError.
 */
export function readFiles(files: readonly string[], gpu: string | undefined): Promise<Trace[]> {
  const recorded = gpu === undefined ? {} : { device: wholeNumber(gpu, '--gpu', 0, '') }
  return readEach(files, (file, onProgress) => {
    const options = { ...recorded, onProgress }
    return [file === PIPED ? readPipedRecording(options) : readRecording(file, options)]
  })
}

/** Like `readFiles`, but reads all devices of each file if `gpu` names none, by rising device. */
export function readDevices(files: readonly string[], gpu: string | undefined): Promise<Trace[]> {
  if (gpu !== undefined) return readFiles(files, gpu)
  return readEach(files, (file, onProgress) =>
    file === PIPED ? readPipedRecordings({ onProgress }) : readRecordings(file, { onProgress }),
  )
}

async function readEach(
  files: readonly string[],
  read: (file: string, onProgress: (done: number) => void) => Trace[],
): Promise<Trace[]> {
  const piped = files.filter(file => file === PIPED).length
  if (piped > 1) throw new UsageError(`${PIPED}: standard input has one recording`)
  if (piped > 0 && process.stdin.isTTY) {
    throw new UsageError(`${PIPED}: standard input is a terminal; pipe a recording into it`)
  }
  const traces: Trace[] = []
  for (const file of files) traces.push(...(await withBar(bar => read(file, done => bar.update(done, file)))))
  return traces
}

/** Prints the command to type next with the same files, unless one was standard input, which is read by now. */
export function printNext(command: string, files: readonly string[]): void {
  if (!files.includes(PIPED)) print(({ paint }) => `\n${paint.bold(nextLine(command, ...files))}`)
}

/** Runs `work` with a progress bar, which is gone afterwards. */
export async function withBar<T>(work: (bar: ProgressBar) => T | Promise<T>): Promise<T> {
  const bar = new ProgressBar()
  try {
    return await work(bar)
  } finally {
    bar.clear()
  }
}

/** The number in an option's text; `most` may be Infinity. Throws UsageError. */
export function wholeNumber(
  text: string,
  option: string,
  least: number,
  alternative: string,
  most = MOST_COUNT,
): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  if (value >= least && value <= most) return value
  const range = most === Infinity ? `from ${least} on` : `from ${least} to ${most}`
  throw new UsageError(`${option}: '${text}' is no whole number ${range}${alternative}`)
}

/** The memory that an option names, such as 24GiB, in bytes. Throws UsageError. */
export function capacityOf(text: string): number {
  const bytes = readOption('--capacity', () => parseBytes(text))
  if (bytes >= LEAST_CAPACITY_BYTES) return bytes
  throw new UsageError(`--capacity: '${text}' is below 2MiB, the least that a device gives at once`)
}

/** The value of an option. Throws UsageError, which begins with the option, for each error of `read`. */
export function readOption<Value>(option: string, read: () => Value): Value {
  try {
    return read()
  } catch (error) {
    throw new UsageError(`${option}: ${(error as Error).message}`)
  }
}
