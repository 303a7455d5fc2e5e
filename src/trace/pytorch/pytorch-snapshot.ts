// Reads PyTorch's memory snapshots: torch.cuda.memory._snapshot() or _dump_snapshot(), as pickle or JSON, with or
// without gzip. snapshot-file.ts reads the bytes, pickle.ts and snapshot-json.ts parse them, and snapshot-events.ts
// and snapshot-state.ts interpret their contents.

import { describe } from '../../base/bytes.js'
import { FormatError } from '../../base/errors.js'
import type { Trace } from '../trace.js'
import { dictionary, list } from './data-checks.js'
import { readPickle } from './pickle.js'
import { SnapshotEvents } from './snapshot-events.js'
import { readSnapshotFile } from './snapshot-file.js'
import { readJson } from './snapshot-json.js'
import { finalState } from './snapshot-state.js'

/** Options of `readSnapshot` and `parseSnapshot`. */
export interface SnapshotOptions {
  /** the device whose events are read; default the device with the most events */
  readonly device?: number
  /** called from time to time with the share that is done, up to 1 */
  readonly onProgress?: (fraction: number) => void
}

const PICKLE_SHARE = 0.9
const RECORDING_HINT = 'record with torch.cuda.memory._record_memory_history() before taking the snapshot'

/**
 * Reads the trace of one device from a snapshot file. Events of unknown kinds are left out, and counted in
 * `skippedEvents`. Throws FormatError, starting with the path, for a file that cannot be read, is no snapshot, is
 * damaged, or holds no events. Throws RangeError for a bad `device`.
 */
export function readSnapshot(path: string, options: SnapshotOptions = {}): Trace {
  try {
    return parseSnapshot(readSnapshotFile(path), path, options)
  } catch (error) {
    throw error instanceof FormatError ? new FormatError(`${path}: ${error.message}`) : error
  }
}

/** Like `readSnapshot`, for bytes without gzip; `file` becomes the name of the trace, and is not read. */
export function parseSnapshot(bytes: Buffer, file: string, { device, onProgress }: SnapshotOptions = {}): Trace {
  if (device !== undefined && (!Number.isInteger(device) || device < 0)) {
    throw new RangeError(`device must be a device number, 0 or above, not ${describe(device)}`)
  }
  const events = new SnapshotEvents()
  const root = parse(bytes, events, read => onProgress?.((PICKLE_SHARE * read) / bytes.length))
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
  const final = snapshot['segments'] === undefined ? null : finalState(snapshot['segments'], chosen)
  const trace = events.builder.build({ file, device: chosen, skippedEvents, final })
  onProgress?.(1)
  return trace
}

function parse(bytes: Buffer, events: SnapshotEvents, onProgress: (bytesRead: number) => void): unknown {
  if (bytes[0] === 0x80) {
    return readPickle(bytes, { dictionary: events.dictionary, list: events.list, onProgress })
  }
  const start = bytes.subarray(0, 64).toString('latin1').trimStart()
  if (start.startsWith('{') || start.startsWith('[')) return readJson(bytes, events)
  const kind = start.startsWith('PK') ? 'a ZIP archive, as torch.save makes them' : 'no memory snapshot'
  throw new FormatError(`is ${kind}; a pickle of protocol 2 to 5 or JSON is wanted, packed by gzip or not`)
}

/** The device with the most events; the lowest of several. */
function busiest(traces: readonly unknown[]): number {
  let best = 0
  traces.forEach((events, device) => {
    if (list(events, `device_traces[${device}]`).length > list(traces[best], '').length) best = device
  })
  return best
}

function noEvents(traces: readonly unknown[], device: number): string {
  const others = traces.flatMap((events, other) => (Array.isArray(events) && events.length > 0 ? [other] : []))
  if (others.length === 0) return `holds no events; ${RECORDING_HINT}`
  return `holds no events of device ${device}; it has some of device ${others.join(', ')}`
}
