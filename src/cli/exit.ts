// How a command ends when it cannot do its work: one line on stderr that names the culprit and the remedy, nothing on
// stdout, and one of the statuses that scripts can rely on. A mistake of our own is shown in full instead.

import { CommanderError } from 'commander'
import { CudaError, DeviceLostError, FormatError, NoDeviceError, OutOfMemoryError, PoolError } from '../base/errors.js'

export const STATUS = {
  done: 0,
  /** our pool could not do what the recording did */
  failedReplay: 1,
  /** a wrong command line, an unreadable file, no device, or a device that refuses */
  refused: 2,
  /** a mistake of this program */
  defect: 3,
} as const

/** A command line that means nothing; the message says what would. */
export class UsageError extends Error {
  override name = 'UsageError'
}

const EXPECTED = [
  UsageError,
  RangeError,
  FormatError,
  NoDeviceError,
  CudaError,
  DeviceLostError,
  OutOfMemoryError,
  PoolError,
]

/** Says on stderr why a command ended, and returns its exit status. */
export function explain(error: unknown): number {
  if (error instanceof CommanderError) {
    // Help and version that were asked for come as errors too.
    if (error.exitCode === 0) return STATUS.done
    const asked = error.code === 'commander.help' ? 'name a command: info, demo or replay' : error.message
    return refuse(`${asked.replace(/^error: |\.$/g, '')}; see cuda-mempool --help`)
  }
  if (error instanceof NoDeviceError)
    return refuse(error.message.replace("openDevice('simulated')", '--device simulated'))
  if (EXPECTED.some(kind => error instanceof kind)) return refuse((error as Error).message)
  process.stderr.write(`cuda-mempool: a defect of this program: ${error instanceof Error ? error.stack : error}\n`)
  return STATUS.defect
}

/** Messages may hold names out of a file: no line feed and no terminal escape gets through. */
function refuse(message: string): number {
  process.stderr.write(`cuda-mempool: ${message.replace(/[\s\p{Cc}]+/gu, ' ').trim()}\n`)
  return STATUS.refused
}
