// Reads recordings of all formats. The contents of a file tell its format, not its name.

import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import { describe } from '../../../core/base/bytes.js'
import { FormatError } from '../../../core/base/errors.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import { isUint8Array } from '../../../core/base/typed-arrays.js'
import { heldSnapshots } from '../pytorch/pytorch-snapshot.js'
import type { Trace } from '../trace.js'
import { isChromeTrace } from './chrome-events.js'
import type { DeviceChoice, OnProgress } from './format-options.js'
import { isNsightHeader, readNsightCsv } from './nsight-rows.js'
import { isSqlite, readNsightSqlite, startOf } from './nsight-sqlite.js'
import { readProfilerTrace } from './profiler-trace.js'
import { checkText, isJson, isPickle, readFile, readStandardInput, unpackedBytes } from './recording-file.js'
import { isRmmHeader, readRmm } from './rmm-csv.js'

/** The path that means standard input, or of an output standard output. */
export const PIPED = '-'

/** Options of `readRecordings`. */
export interface RecordingsOptions {
  /** the name of the traces, and of the recording in errors; default the path, or 'recording' for bytes */
  readonly name?: string
  /** called from time to time with the share that is done, up to 1 */
  readonly onProgress?: (fraction: number) => void
}

/** Options of `readRecording`. */
export interface RecordingOptions extends RecordingsOptions {
  /** the device whose events are read; default the device with the most events */
  readonly device?: number
}

/**
 * Reads the trace of one device from a recording: a memory snapshot of PyTorch (pickle or JSON), a trace of
 * torch.profiler with memory events, a CSV file of RMM's LoggingResourceAdaptor, or a database of Nsight Systems with
 * memory events (or its table as CSV). `source` is a path, '-' for standard input, or the bytes of a file. All but the
 * database may be packed by gzip; a database is read by its path only. Events of unknown kinds are left out, and
 * counted in `skippedEvents`. Throws FormatError, starting with the name, for a recording that cannot be read, has
 * another format, is damaged, or holds no events. Throws TypeError or RangeError for a bad argument or option.
 */
export function readRecording(source: string | Uint8Array, options: RecordingOptions = {}): Trace {
  checkOptions('readRecording', source, options, ['device', 'name', 'onProgress'])
  const { device = 'busiest' } = options
  if (device !== 'busiest' && (!Number.isInteger(device) || device < 0)) {
    throw new OutOfRangeError(`device must be a device number, 0 or above, not ${describe(device)}`)
  }
  return read(source, device, options)[0]
}

/**
 * Reads the traces of all devices of a recording, by rising device. Throws like `readRecording`, and FormatError for
 * more than 64 devices.
 */
export function readRecordings(source: string | Uint8Array, options: RecordingsOptions = {}): Trace[] {
  checkOptions('readRecordings', source, options, ['name', 'onProgress'])
  return read(source, 'all', options)
}

function checkOptions(call: string, source: unknown, options: RecordingsOptions, names: readonly string[]): void {
  if (!isUint8Array(source) && (typeof source !== 'string' || source === '')) {
    throw new WrongTypeError(`${call}: source must be the path of a recording or its bytes, not ${describe(source)}`)
  }
  checkOptionNames(call, options, names)
  const { name, onProgress } = options
  if (name !== undefined && typeof name !== 'string') {
    throw new WrongTypeError(`${call}: name must be a string, not ${describe(name)}`)
  }
  if (onProgress !== undefined && typeof onProgress !== 'function') {
    throw new WrongTypeError(`onProgress must be a function, not ${describe(onProgress)}`)
  }
}

function read(source: string | Uint8Array, device: DeviceChoice, options: RecordingsOptions): Trace[] {
  const { name = nameOf(source), onProgress } = options
  try {
    if (typeof source !== 'string') return parse([unpackedBytes(source, checkKind)], name, device, onProgress)
    if (source === PIPED) return parse([readStandardInput(checkKind)], name, device, onProgress)
    if (isSqlite(startOf(source))) return readNsightSqlite(source, name, device)
    return parse([readFile(source, checkKind)], name, device, onProgress)
  } catch (error) {
    throw error instanceof FormatError ? new FormatError(`${name}: ${error.message}`) : error
  }
}

function nameOf(source: string | Uint8Array): string {
  if (typeof source !== 'string') return 'recording'
  return source === PIPED ? 'standard input' : source
}

/** `held` has the bytes as its only entry, which a snapshot of PyTorch takes out; see `heldSnapshots`. */
function parse(held: Buffer[], file: string, device: DeviceChoice, onProgress: OnProgress): Trace[] {
  const reader = readerOf(held[0])
  if (reader === null) return heldSnapshots(held, file, device, onProgress)
  const [bytes] = held
  const traces = reader(bytes, file, { device, onBytes: done => onProgress?.(done / bytes.length) })
  onProgress?.(1)
  return traces
}

/** The reader of the format of a file; null for a memory snapshot of PyTorch. */
function readerOf(bytes: Buffer): typeof readRmm | null {
  if (isRmmHeader(bytes)) return readRmm
  if (isNsightHeader(bytes)) return readNsightCsv
  return isJson(bytes) && isChromeTrace(bytes) ? readProfilerTrace : null
}

/** Throws FormatError unless a file that starts with `start` can be a recording. */
function checkKind(start: Buffer): void {
  checkText(start)
  if (isPickle(start) || isJson(start) || isRmmHeader(start) || isNsightHeader(start)) return
  if (isSqlite(start)) throw new FormatError('is an SQLite database, which is read only as a file that is not packed')
  if (start.toString('latin1', 0, 2) === 'PK') {
    throw new FormatError('is a ZIP archive, as torch.save makes them; take a snapshot with _dump_snapshot instead')
  }
  throw new FormatError(
    "is no recording: a snapshot of PyTorch, a trace of torch.profiler, RMM's CSV or an export of Nsight Systems " +
      '(nsys export --type sqlite) is wanted',
  )
}
