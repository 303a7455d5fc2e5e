// Reads recordings of all formats. The contents of a file tell its format, not its name.

import { describe } from '../../base/bytes.js'
import { FormatError } from '../../base/errors.js'
import { checkBytes, checkOptions, heldSnapshots, type SnapshotOptions, withName } from '../pytorch/pytorch-snapshot.js'
import { checkText, isJson, isPickle, readSnapshotFile, readStandardInput } from '../pytorch/snapshot-file.js'
import type { Trace } from '../trace.js'
import { isChromeTrace } from './chrome-events.js'
import type { DeviceChoice } from './format-options.js'
import { isNsightHeader, readNsightCsv } from './nsight-rows.js'
import { isSqlite, readNsightSqlite, startOf } from './nsight-sqlite.js'
import { readProfilerTrace } from './profiler-trace.js'
import { isRmmHeader, readRmm } from './rmm-csv.js'

const STANDARD_INPUT = 'standard input'

/**
 * Reads the trace of one device from a recording: a memory snapshot of PyTorch (pickle or JSON), a trace of
 * torch.profiler with memory events, a CSV file of RMM's LoggingResourceAdaptor, or a database of Nsight Systems with
 * memory events (or its table as CSV). All but the database may be packed by gzip. Throws FormatError, starting with
 * the path, for a file that cannot be read, has another format, is damaged, or holds no events. Throws TypeError or
 * RangeError for a bad argument or option.
 */
export function readRecording(path: string, options: SnapshotOptions = {}): Trace {
  checkPath('readRecording', path)
  checkOptions('readRecording', options)
  return withName(path, () => read(path, options.device ?? 'busiest', options.onProgress)[0])
}

/**
 * Reads the traces of all devices of a recording, by rising device. Throws like `readRecording`, and FormatError for
 * more than 64 devices.
 */
export function readRecordings(path: string, options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  checkPath('readRecordings', path)
  checkOptions('readRecordings', options, ['onProgress'])
  return withName(path, () => read(path, 'all', options.onProgress))
}

/** Like `readRecording`, for standard input. */
export function readPipedRecording(options: SnapshotOptions = {}): Trace {
  checkOptions('readPipedRecording', options)
  return withName(STANDARD_INPUT, () => readPiped(options.device ?? 'busiest', options.onProgress)[0])
}

/** Like `readRecordings`, for standard input. */
export function readPipedRecordings(options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  checkOptions('readPipedRecordings', options, ['onProgress'])
  return withName(STANDARD_INPUT, () => readPiped('all', options.onProgress))
}

/**
 * Like `readRecording`, for bytes without gzip; `file` becomes the name of the trace, and is not read. A Uint8Array
 * serves, too. It cannot read a database.
 */
export function parseRecording(bytes: Buffer, file: string, options: SnapshotOptions = {}): Trace {
  const buffer = checkBytes('parseRecording', bytes)
  checkOptions('parseRecording', options)
  checkKind(buffer)
  return parse([buffer], file, options.device ?? 'busiest', options.onProgress)[0]
}

/** Like `readRecordings`, for bytes without gzip; `file` becomes the name of the traces, and is not read. */
export function parseRecordings(bytes: Buffer, file: string, options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  const buffer = checkBytes('parseRecordings', bytes)
  checkOptions('parseRecordings', options, ['onProgress'])
  checkKind(buffer)
  return parse([buffer], file, 'all', options.onProgress)
}

function checkPath(call: string, path: unknown): void {
  if (typeof path === 'string' && path !== '') return
  throw new TypeError(`${call}: path must name a recording, not ${describe(path)}`)
}

type OnProgress = SnapshotOptions['onProgress']

function read(path: string, device: DeviceChoice, onProgress: OnProgress): Trace[] {
  if (isSqlite(startOf(path))) return readNsightSqlite(path, device)
  return parse([readSnapshotFile(path, checkKind)], path, device, onProgress)
}

function readPiped(device: DeviceChoice, onProgress: OnProgress): Trace[] {
  return parse([readStandardInput(checkKind)], STANDARD_INPUT, device, onProgress)
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
