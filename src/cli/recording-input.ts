// For all commands that read recordings: the file or standard input, numbers in options, the progress bar.

import { parseBytes } from '../base/bytes.js'
import { readPipedRecording, readRecording } from '../trace/formats/read-recording.js'
import { LEAST_CAPACITY_BYTES } from '../trace/least-capacity.js'
import type { SnapshotOptions } from '../trace/pytorch/pytorch-snapshot.js'
import type { Trace } from '../trace/trace.js'
import { UsageError } from './exit.js'
import { ProgressBar } from './progress-bar.js'

/** The file name that means standard input. */
export const PIPED = '-'
const MOST_COUNT = 1_000_000

/** Reads all files, with a bar for those that take long. `gpu` is the recorded device as text. Throws UsageError. */
export async function readFiles(files: readonly string[], gpu: string | undefined): Promise<Trace[]> {
  const recorded = gpu === undefined ? {} : { device: wholeNumber(gpu, '--gpu', 0, '') }
  if (files.filter(file => file === PIPED).length > 1) {
    throw new UsageError(`${PIPED}: standard input has one recording`)
  }
  const traces: Trace[] = []
  for (const file of files) {
    traces.push(await withBar(bar => readFile(file, { ...recorded, onProgress: done => bar.update(done, file) })))
  }
  return traces
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

/** The number in an option's text. Throws UsageError. */
export function wholeNumber(
  text: string,
  option: string,
  least: number,
  alternative: string,
  most = MOST_COUNT,
): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  if (value >= least && value <= most) return value
  throw new UsageError(`${option}: '${text}' is no whole number from ${least} to ${most}${alternative}`)
}

/** The memory that an option names, such as 24GiB, in bytes. Throws UsageError. */
export function capacityOf(text: string): number {
  let bytes: number
  try {
    bytes = parseBytes(text)
  } catch (error) {
    throw new UsageError(`--capacity: ${(error as Error).message}`)
  }
  if (bytes >= LEAST_CAPACITY_BYTES) return bytes
  throw new UsageError(`--capacity: '${text}' is below 2MiB, the least that a device gives at once`)
}

function readFile(file: string, options: SnapshotOptions): Trace {
  if (file !== PIPED) return readRecording(file, options)
  if (process.stdin.isTTY) throw new UsageError(`${PIPED}: standard input is a terminal; pipe a recording into it`)
  return readPipedRecording(options)
}
