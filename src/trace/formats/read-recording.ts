// Reads recordings of all formats. The contents of a file tell its format, not its name.

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { describe } from '../../base/bytes.js'
import { FormatError } from '../../base/errors.js'
import {
  checkBytes,
  checkOptions,
  heldSnapshot,
  heldSnapshots,
  type SnapshotOptions,
  withName,
} from '../pytorch/pytorch-snapshot.js'
import { isJson, isPickle, readSnapshotFile, readStandardInput } from '../pytorch/snapshot-file.js'
import type { Trace } from '../trace.js'
import { isChromeTrace } from './chrome-events.js'
import type { FormatOptions } from './format-options.js'
import { isNsightHeader, readNsightCsv } from './nsight-rows.js'
import { isSqlite, readNsightSqlite, sqliteError } from './nsight-sqlite.js'
import { readProfilerTrace } from './profiler-trace.js'
import { isRmmHeader, readRmm } from './rmm-csv.js'

const STANDARD_INPUT = 'standard input'
const FIRST_BYTES = 64

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
  return withName(path, () =>
    isSqlite(startOf(path))
      ? readNsightSqlite(path, path, formatOptions(options, 1))
      : parse([readSnapshotFile(path, checkKind)], path, options),
  )
}

/** Reads the traces of all devices of a recording, by rising device. Throws like `readRecording`. */
export function readRecordings(path: string, options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  checkPath('readRecordings', path)
  checkOptions('readRecordings', options, ['onProgress'])
  return withName(path, () => {
    const inFormat = formatOptions(options, 1)
    if (isSqlite(startOf(path))) return ofAllDevices(device => readNsightSqlite(path, path, { ...inFormat, device }))
    return parseAll([readSnapshotFile(path, checkKind)], path, options)
  })
}

/** Like `readRecording`, for standard input. */
export function readPipedRecording(options: SnapshotOptions = {}): Trace {
  checkOptions('readPipedRecording', options)
  return withName(STANDARD_INPUT, () => parse([readStandardInput(checkKind)], STANDARD_INPUT, options))
}

/** Like `readRecordings`, for standard input. */
export function readPipedRecordings(options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  checkOptions('readPipedRecordings', options, ['onProgress'])
  return withName(STANDARD_INPUT, () => parseAll([readStandardInput(checkKind)], STANDARD_INPUT, options))
}

/**
 * Like `readRecording`, for bytes without gzip; `file` becomes the name of the trace, and is not read. A Uint8Array
 * serves, too. It cannot read a database.
 */
export function parseRecording(bytes: Buffer, file: string, options: SnapshotOptions = {}): Trace {
  const buffer = checkBytes('parseRecording', bytes)
  checkOptions('parseRecording', options)
  checkKind(buffer)
  return parse([buffer], file, options)
}

/** Like `readRecordings`, for bytes without gzip; `file` becomes the name of the traces, and is not read. */
export function parseRecordings(bytes: Buffer, file: string, options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  const buffer = checkBytes('parseRecordings', bytes)
  checkOptions('parseRecordings', options, ['onProgress'])
  checkKind(buffer)
  return parseAll([buffer], file, options)
}

function checkPath(call: string, path: unknown): void {
  if (typeof path === 'string' && path !== '') return
  throw new TypeError(`${call}: path must name a recording, not ${describe(path)}`)
}

/** `held` has the bytes as its only entry, which a snapshot of PyTorch takes out; see `heldSnapshot`. */
function parseAll(held: Buffer[], file: string, options: Omit<SnapshotOptions, 'device'>): Trace[] {
  if (readerOf(held[0]) === null) return heldSnapshots(held, file, options)
  return ofAllDevices(device => parse(held, file, device === undefined ? options : { ...options, device }))
}

function parse(held: Buffer[], file: string, options: SnapshotOptions): Trace {
  const read = readerOf(held[0])
  if (read === null) return heldSnapshot(held, file, options)
  const trace = read(held[0], file, formatOptions(options, held[0].length))
  options.onProgress?.(1)
  return trace
}

/** The reader of the format of a file; null for a memory snapshot of PyTorch. */
function readerOf(bytes: Buffer): typeof readRmm | null {
  if (isRmmHeader(bytes)) return readRmm
  if (isNsightHeader(bytes)) return readNsightCsv
  return isJson(bytes) && isChromeTrace(bytes) ? readProfilerTrace : null
}

/** The traces of the busiest device and of the others, by rising device. */
function ofAllDevices(read: (device: number | undefined) => Trace): Trace[] {
  const busiest = read(undefined)
  const others = busiest.otherDevices.map(({ device }) => read(device))
  return [busiest, ...others].sort((a, b) => a.device - b.device)
}

/** Throws FormatError unless a file that starts with `start` can be a recording. */
function checkKind(start: Buffer): void {
  if (start.length === 0) throw new FormatError('the file is empty')
  if (isPickle(start) || isJson(start) || isRmmHeader(start) || isNsightHeader(start)) return
  if (isSqlite(start)) throw sqliteError('run.sqlite')
  if (start.toString('latin1', 0, 2) === 'PK') {
    throw new FormatError('is a ZIP archive, as torch.save makes them; take a snapshot with _dump_snapshot instead')
  }
  throw new FormatError(
    "is no recording: a snapshot of PyTorch, a trace of torch.profiler, RMM's CSV or an export of Nsight Systems " +
      '(nsys export --type sqlite) is wanted',
  )
}

/** The first bytes of a file; none of a pipe, which can be read only once, and of a file that cannot be read. */
function startOf(path: string): Buffer {
  const start = Buffer.alloc(FIRST_BYTES)
  let file: number | undefined
  try {
    file = openSync(path, 'r')
    if (fstatSync(file).isFile()) return start.subarray(0, readSync(file, start, 0, FIRST_BYTES, 0))
  } catch {
    // The reader of the whole file says why.
  } finally {
    if (file !== undefined) closeSync(file)
  }
  return Buffer.alloc(0)
}

function formatOptions({ device, onProgress }: SnapshotOptions, total: number): FormatOptions {
  return { device, onBytes: read => onProgress?.(read / total) }
}
