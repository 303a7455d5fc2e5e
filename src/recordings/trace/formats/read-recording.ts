// Reads recordings of all formats. The contents of a file tell its format, not its name.

import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import { describe } from '../../../core/base/bytes.js'
import { FormatError } from '../../../core/base/errors.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import { isUint8Array } from '../../../core/base/typed-arrays.js'
import { figuresOfText, type TextFigures } from '../messages/read-text.js'
import { heldSnapshots } from '../pytorch/pytorch-snapshot.js'
import type { Trace } from '../trace.js'
import { isChromeTrace } from './chrome-events.js'
import { foreignKind, isForeignJson, isMessage, unknownKind } from './foreign-files.js'
import type { DeviceChoice, OnProgress } from './format-options.js'
import { isNsightHeader, readNsightCsv } from './nsight-rows.js'
import { isSqlite, readNsightSqlite, startOf } from './nsight-sqlite.js'
import { readProfilerTrace } from './profiler-trace.js'
import { checkText, isJson, isPickle, isUtf16, readFile, readStandardInput, unpackedBytes } from './recording-file.js'
import { isRmmHeader, readRmm } from './rmm-csv.js'

/** The path that means standard input, or of an output standard output. */
export const PIPED = '-'

/** The first bytes of a file, which tell its format. */
const START_BYTES = 4096

/** Options of `readRecordings`. */
export interface RecordingsOptions {
  /** the name of the traces, and of the recording in errors; default the path, or 'recording' for bytes */
  readonly name?: string
  /** called from time to time with the share that is done, up to 1 */
  readonly onProgress?: (fraction: number) => void
}

/** Options of `readRecording`. */
export interface RecordingOptions extends RecordingsOptions {
  /** the device whose events are read; default the device that failed first, or if none did the busiest one */
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
  const { device = 'preferred' } = options
  if (device !== 'preferred' && (!Number.isInteger(device) || device < 0)) {
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

/**
 * As `readRecording`, but also reads a snapshot without events, as a trace of no events, and the texts that
 * `figuresOfText` knows. Throws FormatError.
 */
export function readRecordingOrText(source: string, options: RecordingOptions = {}): Trace | TextFigures {
  const { name = nameOf(source), device = 'preferred', onProgress } = options
  return named(name, () => {
    if (source !== PIPED && isSqlite(startOf(source))) return readNsightSqlite(source, name, device)[0]
    const check = (start: Buffer) => checkReadable(start, name)
    const held = [source === PIPED ? readStandardInput(check) : readFile(source, check)]
    const figures = isRecording(held[0]) ? null : figuresOfText(held[0], name)
    if (figures !== null) return figures
    checkKind(held[0].subarray(0, START_BYTES), name, true)
    return parse(held, name, device, onProgress, true)[0]
  })
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
  const check = (start: Buffer) => checkKind(start, name)
  return named(name, () => {
    if (typeof source !== 'string') return parse([unpackedBytes(source, check)], name, device, onProgress)
    if (source === PIPED) return parse([readStandardInput(check)], name, device, onProgress)
    if (isSqlite(startOf(source))) return readNsightSqlite(source, name, device)
    return parse([readFile(source, check)], name, device, onProgress)
  })
}

/** Calls `read`. A FormatError gets the name before its message. */
function named<Value>(name: string, read: () => Value): Value {
  try {
    return read()
  } catch (error) {
    throw error instanceof FormatError ? new FormatError(`${name}: ${error.message}`) : error
  }
}

function nameOf(source: string | Uint8Array): string {
  if (typeof source !== 'string') return 'recording'
  return source === PIPED ? 'standard input' : source
}

/** `held` has the bytes as its only entry, which a snapshot of PyTorch takes out; see `heldSnapshots`. */
function parse(
  held: Buffer[],
  file: string,
  device: DeviceChoice,
  onProgress: OnProgress,
  takesState = false,
): Trace[] {
  const reader = readerOf(held[0])
  if (reader === null) return heldSnapshots(held, file, device, onProgress, takesState)
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

/** The keys that a recording in JSON has, early or late. */
const RECORDING_KEYS = ['"device_traces"', '"segments"', '"total_size"']

function isRecording(bytes: Buffer): boolean {
  if (isPickle(bytes) || isRmmHeader(bytes) || isNsightHeader(bytes)) return true
  return isJson(bytes) && (isChromeTrace(bytes) || RECORDING_KEYS.some(key => bytes.includes(key)))
}

/** Throws FormatError unless a file that starts with `start` can be a recording; `ofTexts` as in `unknownKind`. */
function checkKind(start: Buffer, name: string, ofTexts = false): void {
  checkText(start)
  if (isRecording(start) || (isJson(start) && !isForeignJson(start) && !isMessage(start))) return
  throw new FormatError(foreignKind(start) ?? unknownKind(name, ofTexts))
}

/** Throws FormatError unless a file that starts with `start` can be a recording or a text. */
function checkReadable(start: Buffer, name: string): void {
  if (isUtf16(start)) return
  const isText = start.length > 0 && !start.includes(0) && foreignKind(start) === null && !isForeignJson(start)
  if (!isText && !isMessage(start)) checkKind(start, name, true)
}
