// Reads PyTorch's memory snapshots: torch.cuda.memory._snapshot() or _dump_snapshot(), as pickle or JSON, with or
// without gzip. pickle.ts and snapshot-json.ts parse the bytes, and snapshot-events.ts and snapshot-state.ts interpret
// their contents.

import { FormatError } from '../../../core/base/errors.js'
import { type ChosenDevice, chooseDevices, type DeviceChoice, type OnProgress } from '../formats/format-options.js'
import { isPickle } from '../formats/recording-file.js'
import type { Trace } from '../trace.js'
import { allocatorSettings } from './allocator-settings.js'
import { dictionary, isWhole, list } from './data-checks.js'
import { readPickle } from './pickle.js'
import { EVENT_TEXTS, SnapshotEvents } from './snapshot-events.js'
import { readJson } from './snapshot-json.js'
import { annotationMarks, blocksBefore, finalState } from './snapshot-state.js'

/** The allocators that our writer names as recorded. */
const RECORDERS: readonly Trace['recorder'][] = ['cuda-mempool', 'RMM', 'CUDA']
const PICKLE_SHARE = 0.9
const RECORDING_HINT = 'record with torch.cuda.memory._record_memory_history() before taking the snapshot'

/**
 * The traces of the chosen devices, from the bytes that are the only entry of `held`. They are taken out, so that their
 * memory is free once they are read.
 */
export function heldSnapshots(held: Buffer[], file: string, device: DeviceChoice, onProgress: OnProgress): Trace[] {
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
    onProgress: OnProgress,
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

function parse(bytes: Buffer, events: SnapshotEvents, onProgress: (bytesRead: number) => void): unknown {
  if (!isPickle(bytes)) return readJson(bytes, events)
  return readPickle(bytes, { dictionary: events.dictionary, list: events.list, expected: EVENT_TEXTS, onProgress })
}
