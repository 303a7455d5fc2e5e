// `cuda-mempool tune`: tries PyTorch's settings over recordings, and prints which to set.

import { MiB, parseBytes } from '../base/bytes.js'
import { tuneText } from '../report/tune-text.js'
import { type TuneOptions, tune } from '../trace/tune/tune.js'
import { STATUS, UsageError } from './exit.js'
import { PIPED, readFile, withBar } from './recording-input.js'
import { print } from './terminal.js'

/** The options as text, from the command line. */
export interface TuneArguments {
  readonly gpu?: string
  readonly capacity?: string
  readonly setting?: readonly string[]
  readonly seconds?: string
  readonly json?: boolean
}

const LEAST_CAPACITY_BYTES = 2 * MiB
const MOST_DEVICES = 1024

/** Tunes all files together and returns the exit status. */
export async function tuneFiles(files: readonly string[], given: TuneArguments): Promise<number> {
  const options = optionsOf(given)
  const device = given.gpu === undefined ? {} : { device: deviceOf(given.gpu) }
  if (files.filter(file => file === PIPED).length > 1) {
    throw new UsageError(`${PIPED}: standard input has one recording`)
  }
  const report = await withBar(async bar => {
    const traces = files.map(file => readFile(file, { ...device, onProgress: done => bar.update(done, file) }))
    return await tune(traces, { ...options, onProgress: (done, what) => bar.update(done, what) })
  })
  print(given.json ? JSON.stringify(report) : style => tuneText(report, style))
  return STATUS.done
}

function optionsOf({ capacity, setting = [], seconds }: TuneArguments): TuneOptions {
  return {
    settings: setting,
    ...(capacity === undefined ? {} : { capacityBytes: capacityOf(capacity) }),
    ...(seconds === undefined ? {} : { seconds: secondsOf(seconds) }),
  }
}

function capacityOf(text: string): number {
  let bytes: number
  try {
    bytes = parseBytes(text)
  } catch (error) {
    throw new UsageError(`--capacity: ${(error as Error).message}`)
  }
  if (bytes >= LEAST_CAPACITY_BYTES) return bytes
  throw new UsageError(`--capacity: '${text}' is below 2MiB, the least that a device gives at once`)
}

function secondsOf(text: string): number {
  const seconds = text === '' ? NaN : Number(text)
  if (seconds > 0) return seconds
  throw new UsageError(`--seconds: '${text}' is no number above 0`)
}

function deviceOf(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  if (value <= MOST_DEVICES) return value
  throw new UsageError(`--gpu: '${text}' is no whole number from 0 to ${MOST_DEVICES}`)
}
