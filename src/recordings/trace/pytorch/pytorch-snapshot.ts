// Reads PyTorch's memory snapshots: torch.cuda.memory._snapshot() or _dump_snapshot(), as pickle or JSON, with or
// without gzip. pickle.ts and snapshot-json.ts parse the bytes, and snapshot-events.ts and snapshot-state.ts interpret
// their contents.

import { FormatError } from '../../../core/base/errors.js'
import {
  type ChosenDevice,
  chooseDevices,
  type DeviceChoice,
  type DeviceFailures,
  type OnProgress,
} from '../formats/format-options.js'
import { isPickle } from '../formats/recording-file.js'
import type { Trace } from '../trace.js'
import type { FinalState } from '../trace-builder.js'
import { allocatorSettings } from './allocator-settings.js'
import { dictionary, isDictionary, isWhole, list, whole } from './data-checks.js'
import { readPickle } from './pickle.js'
import { EVENT_TEXTS, SnapshotEvents } from './snapshot-events.js'
import { readJson } from './snapshot-json.js'
import { annotationMarks, blocksBefore, finalState } from './snapshot-state.js'

/** The allocators that our writer names as recorded. */
const RECORDERS: readonly Trace['recorder'][] = ['cuda-mempool', 'RMM', 'CUDA']
const PICKLE_SHARE = 0.9
const RECORDING_HINT = 'record with torch.cuda.memory._record_memory_history() before taking the snapshot'
const STATE_ONLY = `holds no events, only the state at its end, which cuda-mempool why reads; ${RECORDING_HINT}`

/**
 * The traces of the chosen devices, from the bytes that are the only entry of `held`. They are taken out, so that their
 * memory is free once they are read. A snapshot without events is refused, or with `takesState` read as a trace of no
 * events, whose initial blocks and segments are the state.
 */
export function heldSnapshots(
  held: Buffer[],
  file: string,
  device: DeviceChoice,
  onProgress: OnProgress,
  takesState = false,
): Trace[] {
  const snapshot = new Snapshot(held, file, onProgress)
  const traces = snapshot.hasEvents ? snapshot.traces(device) : snapshot.states(device, takesState)
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
  /** the number of events of each device that has some of known kinds */
  private readonly counts = new Map<number, number>()

  constructor(
    held: Buffer[],
    private readonly file: string,
    onProgress: OnProgress,
  ) {
    const { length } = held[0]
    this.events.reserve(Math.floor(length / LEAST_BYTES_AN_EVENT))
    const root = parse(held.pop()!, this.events, read => onProgress?.((PICKLE_SHARE * read) / length))
    // torch.cuda.memory_snapshot() is the list of segments without the rest.
    this.contents = Array.isArray(root) ? segmentsAlone(root) : dictionary(root, 'the snapshot')
    if (!('device_traces' in this.contents || 'segments' in this.contents)) {
      throw new FormatError(
        'is no memory snapshot of PyTorch, which has segments and device_traces; _dump_snapshot() writes one',
      )
    }
    this.lists = list(this.contents['device_traces'] ?? [], 'device_traces')
    this.lists.forEach((rows, device) => {
      const entries = list(rows, `device_traces[${device}]`)
      if (this.events.hasKnown(entries)) this.counts.set(device, entries.length)
    })
  }

  get hasEvents(): boolean {
    return this.counts.size > 0
  }

  /** The traces of the chosen devices. Throws FormatError. */
  traces(choice: DeviceChoice): Trace[] {
    const { counts } = this
    const failures = new Map<number, DeviceFailures>()
    for (const device of counts.size > 1 ? counts.keys() : []) {
      const failed = this.events.failuresIn(this.lists[device] as readonly unknown[])
      if (failed !== null) failures.set(device, failed)
    }
    return this.tracesOf(chooseDevices(counts, choice, failures))
  }

  /** The traces of no events of the chosen devices; preferred is the device with the most segments. */
  states(choice: DeviceChoice, takesState: boolean): Trace[] {
    const segments = list(this.contents['segments'] ?? [], 'segments')
    if (segments.length === 0) throw new FormatError(`holds no events; ${RECORDING_HINT}`)
    if (!takesState) throw new FormatError(STATE_ONLY)
    const counts = new Map<number, number>()
    segments.forEach((segment, i) => {
      const device = whole(dictionary(segment, `segments[${i}]`), 'device', `segments[${i}]`, 'a device number', 0)
      counts.set(device, (counts.get(device) ?? 0) + 1)
    })
    return this.tracesOf(
      chooseDevices(counts, choice).map(({ device, otherDevices }) => {
        return { device, otherDevices: otherDevices.map(other => ({ ...other, events: 0 })) }
      }),
    )
  }

  /** The traces of devices by rising number. */
  private tracesOf(chosen: readonly ChosenDevice[]): Trace[] {
    return chosen.map((device, i) => this.traceOf(device, i === chosen.length - 1))
  }

  private traceOf({ device, otherDevices }: ChosenDevice, isLast: boolean): Trace {
    const { events, contents } = this
    const place = `device_traces[${device}]`
    const rows = list(this.lists[device] ?? [], place)
    const builder = events.select(rows, place)
    const { dropped, skipped, peak_reserved: peakReserved, says_completed: saysCompleted } = contents
    return builder.build({
      file: this.file,
      device,
      skippedEvents: rows.length - builder.events + (isWhole(skipped) ? skipped : 0),
      otherDevices,
      recorder: RECORDERS.find(each => each === contents['recorder']) ?? 'PyTorch',
      settings: allocatorSettings(contents['allocator_settings']),
      final: this.finalState(device, isLast),
      annotations: annotationMarks(contents['external_annotations'], device),
      dropped: isWhole(dropped) ? dropped : null,
      before: blocksBefore(contents['blocks_before'], events),
      saysCompleted: saysCompleted === true,
      ...(isWhole(peakReserved) ? { peakReservedBytes: peakReserved } : {}),
    })
  }

  /** Takes out the segments with the last device, so that their memory is free before the trace is built. */
  private finalState(device: number, isLast: boolean): FinalState | null {
    const { segments } = this.contents
    if (isLast) this.contents['segments'] = undefined
    return segments === undefined ? null : finalState(segments, device, this.events)
  }
}

/** A list of segments as the snapshot that it is a part of. Throws FormatError for another list. */
function segmentsAlone(root: readonly unknown[]): Record<string, unknown> {
  const [first] = root
  if (root.length === 0 || (isDictionary(first) && 'total_size' in first)) return { segments: root }
  throw new FormatError(
    'is a bare list, but not of segments with their total_size; _dump_snapshot() writes a snapshot that is read',
  )
}

function parse(bytes: Buffer, events: SnapshotEvents, onProgress: (bytesRead: number) => void): unknown {
  if (!isPickle(bytes)) return readJson(bytes, events)
  return readPickle(bytes, { dictionary: events.dictionary, list: events.list, expected: EVENT_TEXTS, onProgress })
}
