// How a command ends when it fails: stdout stays empty, one line on stderr names the cause and the remedy, and
// scripts can rely on the exit status. A bug of this program is shown with its stack instead.

import { CommanderError } from 'commander'
import { OutOfRangeError } from '../core/base/argument-errors.js'
import {
  CudaError,
  DescriptorError,
  DeviceLostError,
  FormatError,
  KeepError,
  MissingFileError,
  NoDeviceError,
  NoLibraryError,
  OutOfMemoryError,
  PoolError,
  SlowReplayError,
} from '../core/base/errors.js'
import { say } from './terminal.js'

export const STATUS = {
  done: 0,
  /** cuda-mempool could not serve an allocation of the recording */
  failedReplay: 1,
  /** a wrong command line, an unreadable file, no device, or a device that refuses */
  refused: 2,
  /** a bug of this program */
  defect: 3,
  /** a condition of --fail-if holds, or a run needs more memory than its base */
  conditionHeld: 4,
} as const

/** A wrong command line; the message names the remedy. */
export class UsageError extends Error {
  override name = 'UsageError'
}

const EXPECTED = [
  UsageError,
  OutOfRangeError,
  FormatError,
  NoDeviceError,
  NoLibraryError,
  MissingFileError,
  CudaError,
  DescriptorError,
  DeviceLostError,
  KeepError,
  OutOfMemoryError,
  PoolError,
  SlowReplayError,
]

/**
 * Says on stderr why a command ended, and returns the exit status. `command` is the one that the command line names, if
 * any.
 */
export function explain(error: unknown, command?: string): number {
  if (error instanceof CommanderError) {
    // Commander throws errors for --help and --version, too.
    if (error.exitCode === 0) return STATUS.done
    const page = ['cuda-mempool', ...(command === undefined ? [] : [command]), '--help'].join(' ')
    return refuse(`${error.message.replace(/^error: |\.$/g, '')}; see ${page}`)
  }
  if (error instanceof NoDeviceError)
    return refuse(error.message.replace("openDevice('simulated')", '--device simulated'))
  if (EXPECTED.some(kind => error instanceof kind)) return refuse((error as Error).message)
  if (isTooLong(error)) return refuse('the result is longer than a text can be; take a part of the recording')
  say(`a defect of this program: ${error instanceof Error ? error.stack : error}`)
  return STATUS.defect
}

/** Whether V8 could not make a text, because it would be too long. */
function isTooLong(error: unknown): boolean {
  return error instanceof RangeError && error.message === 'Invalid string length'
}

/** A message without the line feeds that names from a file may have. */
export function onOneLine(message: string): string {
  return message.replace(/\s+/g, ' ').trim()
}

function refuse(message: string): number {
  say(onOneLine(message))
  return STATUS.refused
}
