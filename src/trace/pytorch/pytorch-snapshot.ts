// Reads PyTorch's memory snapshots: torch.cuda.memory._snapshot() or _dump_snapshot(), as pickle or JSON, with or
// without gzip. snapshot-file.ts reads the bytes, pickle.ts and snapshot-json.ts parse them, and snapshot-events.ts
// and snapshot-state.ts interpret their contents.

import { describe } from '../../base/bytes.js'
import { FormatError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { isUint8Array } from '../../base/typed-arrays.js'
import { type ChosenDevice, chooseDevices, type DeviceChoice } from '../formats/format-options.js'
import type { Trace } from '../trace.js'
import { dictionary, isWhole, list } from './data-checks.js'
import { readPickle } from './pickle.js'
import { EVENT_TEXTS, SnapshotEvents } from './snapshot-events.js'
import { checkKind, isPickle, readSnapshotFile, withoutMark } from './snapshot-file.js'
import { readJson } from './snapshot-json.js'
import { allocatorSettings, annotationMarks, blocksBefore, finalState } from './snapshot-state.js'

/** Options of `readRecording`, `parseRecording`, `readSnapshot` and `parseSnapshot`. */
export interface SnapshotOptions {
  /** the device whose events are read; default the device with the most events */
  readonly device?: number
  /** called from time to time with the share that is done, up to 1 */
  readonly onProgress?: (fraction: number) => void
}

/** The allocators that our writer names as recorded. */
const RECORDERS: readonly Trace['recorder'][] = ['cuda-mempool', 'RMM', 'CUDA']
const PICKLE_SHARE = 0.9
const RECORDING_HINT = 'record with torch.cuda.memory._record_memory_history() before taking the snapshot'

/**
 * Reads the trace of one device from a snapshot file. Events of unknown kinds are left out, and counted in
 * `skippedEvents`. Throws FormatError, starting with the path, for a file that cannot be read, is not a snapshot, is
 * damaged, or holds no events. Throws TypeError or RangeError for a bad argument or option.
 */
export function readSnapshot(path: string, options: SnapshotOptions = {}): Trace {
  checkPath('readSnapshot', path)
  checkOptions('readSnapshot', options)
  const { device = 'busiest', onProgress } = options
  return withName(path, () => heldSnapshots([readSnapshotFile(path)], path, device, onProgress)[0])
}

/**
 * Reads the traces of all devices of a snapshot file, by rising device, in one pass over the file. Throws like
 * `readSnapshot`.
 */
export function readSnapshots(path: string, options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  checkPath('readSnapshots', path)
  checkOptions('readSnapshots', options, ['onProgress'])
  return withName(path, () => heldSnapshots([readSnapshotFile(path)], path, 'all', options.onProgress))
}

/**
 * Like `readSnapshot`, for bytes without gzip; `file` becomes the name of the trace, and is not read. A Uint8Array
 * serves, too.
 */
export function parseSnapshot(bytes: Buffer, file: string, options: SnapshotOptions = {}): Trace {
  const held = [checkBytes('parseSnapshot', bytes)]
  checkOptions('parseSnapshot', options)
  return heldSnapshots(held, file, options.device ?? 'busiest', options.onProgress)[0]
}

/** Like `readSnapshots`, for bytes without gzip; `file` becomes the name of the traces, and is not read. */
export function parseSnapshots(bytes: Buffer, file: string, options: Omit<SnapshotOptions, 'device'> = {}): Trace[] {
  const held = [checkBytes('parseSnapshots', bytes)]
  checkOptions('parseSnapshots', options, ['onProgress'])
  return heldSnapshots(held, file, 'all', options.onProgress)
}

/**
 * The traces of the chosen devices, from the bytes that are the only entry of `held`. They are taken out, so that their
 * memory is free once they are read.
 */
export function heldSnapshots(
  held: Buffer[],
  file: string,
  device: DeviceChoice,
  onProgress: SnapshotOptions['onProgress'],
): Trace[] {
  const traces = new Snapshot(held, file, onProgress).traces(device)
  onProgress?.(1)
  return traces
}

/** Events of PyTorch take some 53 bytes in a pickle, without call stacks. */
const LEAST_BYTES_AN_EVENT = 48

/** A snapshot that was parsed. */
class Snapshot {
  private readonly events = new SnapshotEvents()
  private readonly contents: Record<string, unknown>
  /** by device: its events */
  private readonly lists: readonly unknown[]

  constructor(
    held: Buffer[],
    private readonly file: string,
    onProgress: SnapshotOptions['onProgress'],
  ) {
    const { length } = held[0]
    this.events.reserve(Math.floor(length / LEAST_BYTES_AN_EVENT))
    const root = parse(held.pop()!, this.events, read => onProgress?.((PICKLE_SHARE * read) / length))
    if (Array.isArray(root)) {
      throw new FormatError(`is a bare list, as of segments, and holds no events; ${RECORDING_HINT}`)
    }
    this.contents = dictionary(root, 'the snapshot')
    if (!('device_traces' in this.contents || 'segments' in this.contents)) {
      throw new FormatError(
        'is no memory snapshot of PyTorch, which has segments and device_traces; _dump_snapshot() writes one',
      )
    }
    this.lists = list(this.contents['device_traces'] ?? [], 'device_traces')
  }

  /** The traces of the chosen devices. Throws FormatError. */
  traces(choice: DeviceChoice): Trace[] {
    const counts = new Map<number, number>()
    this.lists.forEach((events, device) => {
      const { length } = list(events, `device_traces[${device}]`)
      if (length > 0) counts.set(device, length)
    })
    if (counts.size === 0) throw new FormatError(`holds no events; ${RECORDING_HINT}`)
    return chooseDevices(counts, choice).map(chosen => this.traceOf(chosen))
  }

  /** The trace of a device that has events; the calls must name devices by rising number. */
  private traceOf({ device, otherDevices }: ChosenDevice): Trace {
    const { events, contents } = this
    const place = `device_traces[${device}]`
    const rows = list(this.lists[device], place)
    const builder = events.select(rows, place)
    const { segments, dropped, skipped, peak_reserved: peakReserved, says_completed: saysCompleted } = contents
    return builder.build({
      file: this.file,
      device,
      skippedEvents: rows.length - builder.events + (isWhole(skipped) ? skipped : 0),
      otherDevices,
      recorder: RECORDERS.find(each => each === contents['recorder']) ?? 'PyTorch',
      settings: allocatorSettings(contents['allocator_settings']),
      final: segments === undefined ? null : finalState(segments, device, events),
      annotations: annotationMarks(contents['external_annotations'], device),
      dropped: isWhole(dropped) ? dropped : null,
      before: blocksBefore(contents['blocks_before'], events),
      saysCompleted: saysCompleted === true,
      ...(isWhole(peakReserved) ? { peakReservedBytes: peakReserved } : {}),
    })
  }
}

function checkPath(call: string, path: unknown): void {
  if (typeof path === 'string' && path !== '') return
  throw new TypeError(`${call}: path must name a snapshot file, not ${describe(path)}`)
}

export function checkBytes(call: string, bytes: unknown): Buffer {
  if (!isUint8Array(bytes)) {
    const hint = typeof bytes === 'string' ? '; readSnapshot(path) reads a file' : ''
    throw new TypeError(`${call}: bytes must be a Buffer or Uint8Array, not ${describe(bytes)}${hint}`)
  }
  return withoutMark(Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes))
}

export function checkOptions(
  call: string,
  options: SnapshotOptions,
  names: readonly string[] = ['device', 'onProgress'],
): void {
  checkOptionNames(call, options, names)
  const { device, onProgress } = options
  if (device !== undefined && (!Number.isInteger(device) || device < 0)) {
    throw new RangeError(`device must be a device number, 0 or above, not ${describe(device)}`)
  }
  if (onProgress !== undefined && typeof onProgress !== 'function') {
    throw new TypeError(`onProgress must be a function, not ${describe(onProgress)}`)
  }
}

/** Adds the name of the file to an error. */
export function withName<T>(name: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw error instanceof FormatError ? new FormatError(`${name}: ${error.message}`) : error
  }
}

function parse(bytes: Buffer, events: SnapshotEvents, onProgress: (bytesRead: number) => void): unknown {
  checkKind(bytes)
  if (!isPickle(bytes)) return readJson(bytes, events)
  return readPickle(bytes, { dictionary: events.dictionary, list: events.list, expected: EVENT_TEXTS, onProgress })
}
