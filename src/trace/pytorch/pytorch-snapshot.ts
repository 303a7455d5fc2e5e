// Reads PyTorch's memory snapshots: torch.cuda.memory._snapshot() or _dump_snapshot(), as pickle or JSON, with or
// without gzip. snapshot-file.ts reads the bytes, pickle.ts and snapshot-json.ts parse them, and snapshot-events.ts
// and snapshot-state.ts interpret their contents.

import { describe } from '../../base/bytes.js'
import { FormatError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Trace } from '../trace.js'
import { allocatorSettings } from './allocator-settings.js'
import { dictionary, list } from './data-checks.js'
import { readPickle } from './pickle.js'
import { SnapshotEvents } from './snapshot-events.js'
import { checkKind, isPickle, readSnapshotFile, readStandardInput } from './snapshot-file.js'
import { readJson } from './snapshot-json.js'
import { finalState } from './snapshot-state.js'

/** Options of `readRecording`, `parseRecording`, `readSnapshot` and `parseSnapshot`. */
export interface SnapshotOptions {
  /** the device whose events are read; default the device with the most events */
  readonly device?: number
  /** called from time to time with the share that is done, up to 1 */
  readonly onProgress?: (fraction: number) => void
}

/** Allocators of which our writer notes that they were recorded. */
const RECORDERS: readonly Trace['recorder'][] = ['cuda-mempool', 'RMM', 'CUDA']
const PICKLE_SHARE = 0.9
const STANDARD_INPUT = 'standard input'
const RECORDING_HINT = 'record with torch.cuda.memory._record_memory_history() before taking the snapshot'

/**
 * Reads the trace of one device from a snapshot file. Events of unknown kinds are left out, and counted in
 * `skippedEvents`. Throws FormatError, starting with the path, for a file that cannot be read, is no snapshot, is
 * damaged, or holds no events. Throws TypeError or RangeError for a bad argument or option.
 */
export function readSnapshot(path: string, options: SnapshotOptions = {}): Trace {
  if (typeof path !== 'string' || path === '') {
    throw new TypeError(`readSnapshot: path must name a snapshot file, not ${describe(path)}`)
  }
  checkOptions('readSnapshot', options)
  return withName(path, () => parseSnapshot(readSnapshotFile(path), path, options))
}

/** Like `readSnapshot`, for what is piped into this process. */
export function readPipedSnapshot(options: SnapshotOptions = {}): Trace {
  return withName(STANDARD_INPUT, () => parseSnapshot(readStandardInput(), STANDARD_INPUT, options))
}

/**
 * Like `readSnapshot`, for bytes without gzip; `file` becomes the name of the trace, and is not read. A Uint8Array
 * serves, too.
 */
export function parseSnapshot(bytes: Buffer, file: string, options: SnapshotOptions = {}): Trace {
  if (!((bytes as unknown) instanceof Uint8Array)) {
    const hint = typeof bytes === 'string' ? '; readSnapshot(path) reads a file' : ''
    throw new TypeError(`parseSnapshot: bytes must be a Buffer or Uint8Array, not ${describe(bytes)}${hint}`)
  }
  checkOptions('parseSnapshot', options)
  const { device, onProgress } = options
  const buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes as Uint8Array)
  const events = new SnapshotEvents()
  const root = parse(buffer, events, read => onProgress?.((PICKLE_SHARE * read) / buffer.length))
  if (Array.isArray(root)) {
    throw new FormatError(`is a bare list, as of segments, and holds no events; ${RECORDING_HINT}`)
  }
  const snapshot = dictionary(root, 'the snapshot')
  const traces = list(snapshot['device_traces'] ?? [], 'device_traces')
  const chosen = device ?? busiest(traces)
  const place = `device_traces[${chosen}]`
  const rows = list(traces[chosen] ?? [], place)
  if (rows.length === 0) throw new FormatError(noEvents(traces, chosen))
  const skippedEvents = events.select(rows, place)
  const { segments } = snapshot
  const trace = events.builder.build({
    file,
    device: chosen,
    skippedEvents,
    otherDevices: withEvents(traces).filter(other => other.device !== chosen),
    recorder: RECORDERS.find(each => each === snapshot['recorder']) ?? 'PyTorch',
    settings: allocatorSettings(snapshot['allocator_settings']),
    final: segments === undefined ? null : finalState(segments, chosen, events.stackOf),
  })
  onProgress?.(1)
  return trace
}

export function checkOptions(call: string, options: SnapshotOptions): void {
  checkOptionNames(call, options, ['device', 'onProgress'])
  const { device, onProgress } = options
  if (device !== undefined && (!Number.isInteger(device) || device < 0)) {
    throw new RangeError(`device must be a device number, 0 or above, not ${describe(device)}`)
  }
  if (onProgress !== undefined && typeof onProgress !== 'function') {
    throw new TypeError(`onProgress must be a function, not ${describe(onProgress)}`)
  }
}

/** Adds the name of the file to an error. */
export function withName(name: string, read: () => Trace): Trace {
  try {
    return read()
  } catch (error) {
    throw error instanceof FormatError ? new FormatError(`${name}: ${error.message}`) : error
  }
}

function parse(bytes: Buffer, events: SnapshotEvents, onProgress: (bytesRead: number) => void): unknown {
  checkKind(bytes)
  if (!isPickle(bytes)) return readJson(bytes, events)
  return readPickle(bytes, { dictionary: events.dictionary, list: events.list, onProgress })
}

/** The device with the most events; the lowest of several. */
function busiest(traces: readonly unknown[]): number {
  let best = 0
  traces.forEach((events, device) => {
    if (list(events, `device_traces[${device}]`).length > list(traces[best], '').length) best = device
  })
  return best
}

/** The devices that have events, with their count. */
function withEvents(traces: readonly unknown[]): { device: number; events: number }[] {
  return traces
    .map((events, device) => ({ device, events: Array.isArray(events) ? events.length : 0 }))
    .filter(({ events }) => events > 0)
}

function noEvents(traces: readonly unknown[], device: number): string {
  const others = withEvents(traces).map(other => other.device)
  if (others.length === 0) return `holds no events; ${RECORDING_HINT}`
  return `holds no events of device ${device}; it has some of device ${others.join(', ')}`
}
