// The events of a memory snapshot, added to a TraceBuilder while the file is read, so that a million of them never
// exist as objects. In the lists of the snapshot, the complement of its row stands for an event, and one object for
// each different list of stack frames. A bad event is reported when its place in the lists is known.

import { FormatError } from '../../../core/base/errors.js'
import type { DeviceFailures } from '../formats/format-options.js'
import { FrameEntry } from '../stack-table.js'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { isDictionary, isTimeUs, isWhole } from './data-checks.js'

const ACTIONS: ReadonlyMap<unknown, number> = new Map<string, number>([
  ['alloc', Action.alloc],
  ['free_requested', Action.freeRequested],
  ['free_completed', Action.freeCompleted],
  ['segment_alloc', Action.segmentAlloc],
  ['segment_free', Action.segmentFree],
  ['segment_map', Action.segmentMap],
  ['segment_unmap', Action.segmentUnmap],
  ['oom', Action.outOfMemory],
  ['snapshot', Action.snapshot],
])
/** Keys of events and frames, and their usual texts. */
export const EVENT_TEXTS: readonly string[] = [
  ...['action', 'addr', 'device_free', 'size', 'stream', 'time_us', 'frames', 'user_metadata', 'compile_context'],
  ...['filename', 'line', 'name', 'pool_id', 'granted', 'tag', 'category'],
  ...['alloc', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map', 'segment_unmap'],
]
/** An action with an unknown name, such as annotate. */
const UNKNOWN = 254
const NOT_TEXT = 255
/** A longer list arrives in several parts, so its first part must stay a list. */
const PICKLE_BATCH = 1000

/** The fields of an event or a stack frame, as read; missing ones are undefined. */
class RawFields {
  action: unknown
  addr: unknown
  device_free: unknown
  size: unknown
  stream: unknown
  time_us: unknown
  frames: unknown
  user_metadata: unknown
  pool_id: unknown
  granted: unknown
  tag: unknown
  category: unknown
  filename: unknown
  line: unknown
  name: unknown
}

/** A list of stack frames that is in the stack table. */
class FoldedStack {
  constructor(readonly number: number) {}
}

export class SnapshotEvents {
  readonly builder = new TraceBuilder()
  private readonly stacks: FoldedStack[] = []
  /** lists of 1000 frames or more and lists of blocks, kept because many events or blocks may share one list */
  private readonly long = new Map<readonly unknown[], number>()
  /** the last row of all selections */
  private selected = -1

  /** Makes room for as many events, if there will be so many. */
  reserve(events: number): void {
    this.builder.reserve(events)
  }

  /** For readPickle: an event becomes the complement of its row, and a stack frame its entry in the table. */
  readonly dictionary = (items: readonly unknown[], from: number, to: number): unknown => {
    if (!isEventOrFrame(items, from, to)) return undefined
    const fields = new RawFields()
    for (let i = from; i < to; i += 2) {
      const value = items[i + 1]
      switch (items[i]) {
        case 'action':
          fields.action = value
          break
        case 'addr':
          fields.addr = value
          break
        case 'device_free':
          fields.device_free = value
          break
        case 'size':
          fields.size = value
          break
        case 'stream':
          fields.stream = value
          break
        case 'time_us':
          fields.time_us = value
          break
        case 'frames':
          fields.frames = value
          break
        case 'user_metadata':
          fields.user_metadata = value
          break
        case 'filename':
          fields.filename = value
          break
        case 'line':
          fields.line = value
          break
        case 'name':
          fields.name = value
          break
        case 'pool_id':
          fields.pool_id = value
          break
        case 'granted':
          fields.granted = value
          break
        case 'tag':
          fields.tag = value
          break
        case 'category':
          fields.category = value
          break
      }
    }
    return fields.action === undefined ? this.frame(fields) : this.event(fields, fields.frames)
  }

  /** For readPickle: a list of stack frames becomes a FoldedStack. */
  readonly list = (items: readonly unknown[], from: number, to: number): unknown =>
    items[from] instanceof FrameEntry && to - from < PICKLE_BATCH ? this.folded(items, from, to) : undefined

  /** Adds an event of a JSON snapshot; null if `value` is not an event. */
  json(value: unknown): number | null {
    if (!isDictionary(value) || value['action'] === undefined) return null
    return this.event(value, this.entries(value['frames']))
  }

  /** The number of a block's list of frames; 0 for anything else. */
  readonly stackOf = (frames: unknown): number => {
    if (!Array.isArray(frames)) return Math.max(0, this.stack(frames))
    let number = this.long.get(frames)
    if (number === undefined) {
      number = Math.max(0, this.stack(this.entries(frames)))
      this.long.set(frames, number)
    }
    return number
  }

  /**
   * A builder with the events in `rows`, without all others and those of unknown kinds. Rows of later calls must come
   * after them. Throws FormatError naming the first bad event.
   */
  select(rows: readonly unknown[], place: string): TraceBuilder {
    const { builder } = this
    let previous = this.selected
    let first = -1
    let kept = 0
    for (let i = 0; i < rows.length; i++) {
      const complement = rows[i]
      const row = typeof complement === 'number' ? ~complement : -1
      if (row <= previous || row >= builder.events) {
        throw new FormatError(`${place}[${i}] must be an event with an action`)
      }
      previous = row
      if (first === -1) first = row
      if (builder.action[row] === UNKNOWN) continue
      const wrong = this.complaint(row)
      if (wrong !== undefined) throw new FormatError(`${place}[${i}].${wrong}`)
      builder.move(row, first + kept++)
    }
    this.selected = previous
    return first === -1 ? builder.part(0, 0) : builder.part(first, first + kept)
  }

  /** Whether a device has events of known kinds. Bad rows count; `select` names them. */
  hasKnown(rows: readonly unknown[]): boolean {
    const { action } = this.builder
    return rows.some(complement => typeof complement !== 'number' || action[~complement] !== UNKNOWN)
  }

  /** The failed requests in the rows of a device; null without any. */
  failuresIn(rows: readonly unknown[]): DeviceFailures | null {
    const { action, timeUs } = this.builder
    let count = 0
    let firstUs = Infinity
    for (const complement of rows) {
      const row = typeof complement === 'number' ? ~complement : -1
      if (action[row] !== Action.outOfMemory) continue
      count++
      firstUs = Math.min(firstUs, timeUs[row])
    }
    return count === 0 ? null : { count, firstUs }
  }

  /** The number of a pool's id, such as [0, 1], in the builder; the default pool for anything else. */
  readonly poolOf = (id: unknown): number => {
    if (!Array.isArray(id) || id.length !== 2) return 0
    const [device, number] = id
    if (device === 0 && number === 0) return 0
    return isWhole(device) && isWhole(number) ? this.builder.pools.number(`${device},${number}`) : 0
  }

  private event(fields: Partial<RawFields>, frames: unknown): number {
    const action = typeof fields.action === 'string' ? (ACTIONS.get(fields.action) ?? UNKNOWN) : NOT_TEXT
    const address = action === Action.outOfMemory ? fields.device_free : fields.addr
    const time = fields.time_us === undefined ? 0 : toNumber(fields.time_us)
    const stack = this.stack(frames)
    const size = toNumber(fields.size)
    const bytes = action === Action.outOfMemory ? countable(size) : size
    const { builder } = this
    const row = builder.add(action, toNumber(address), bytes, toNumber(fields.stream), time, stack)
    if (fields.pool_id !== undefined) builder.notePool(row, this.poolOf(fields.pool_id))
    if (action === Action.alloc) {
      const { user_metadata: metadata, tag, category, granted } = fields
      if (typeof metadata === 'string') builder.noteMetadata(row, metadata)
      if (typeof tag === 'string') builder.noteTag(row, tag)
      if (typeof category === 'string') builder.noteCategory(row, category)
      if (isWhole(granted)) builder.noteGranted(row, granted)
    }
    return ~row
  }

  private frame({ filename, line, name }: Partial<RawFields>): FrameEntry | undefined {
    if (typeof filename !== 'string' || typeof line !== 'number' || typeof name !== 'string') return undefined
    return this.builder.stacks.entry(filename, line, name)
  }

  /** A list of frames with each frame of JSON as its entry. */
  private entries(frames: unknown): unknown {
    if (!Array.isArray(frames)) return frames
    return frames.map(frame => (frame instanceof FrameEntry || !isDictionary(frame) ? frame : this.frame(frame)))
  }

  private folded(items: readonly unknown[], from: number, to: number): FoldedStack | undefined {
    const number = this.builder.stacks.number(items, from, to)
    if (number < 0) return undefined
    this.stacks[number] ??= new FoldedStack(number)
    return this.stacks[number]
  }

  /** The number of an event's list of frames, -1 for anything else. */
  private stack(frames: unknown): number {
    if (frames instanceof FoldedStack) return frames.number
    if (frames === undefined || frames === null) return 0
    if (!Array.isArray(frames)) return -1
    if (frames.length < PICKLE_BATCH) return this.builder.stacks.number(frames)
    const number = this.long.get(frames) ?? this.builder.stacks.number(frames)
    this.long.set(frames, number)
    return number
  }

  private complaint(row: number): string | undefined {
    const { action, address, bytes, stream, timeUs, stack } = this.builder
    if (action[row] === NOT_TEXT) return 'action must be text'
    if (!isWhole(address[row]) && action[row] !== Action.outOfMemory) return 'addr must be an address'
    if (!isWhole(bytes[row])) return 'size must be a whole number of bytes'
    if (!isWhole(stream[row])) return 'stream must be a stream handle'
    if (!isTimeUs(timeUs[row])) return 'time_us must be a number of microseconds below 2^53'
    return stack[row] < 0 ? 'frames must be a list of stack frames: filename, line, name' : undefined
  }
}

/** By its keys. A snapshot may have a million dictionaries of segments and blocks, too. */
function isEventOrFrame(items: readonly unknown[], from: number, to: number): boolean {
  for (let key = from; key < to; key += 2) if (items[key] === 'action' || items[key] === 'filename') return true
  return false
}

/** A request that failed may be for any size: more than can be counted becomes the most that can. */
function countable(bytes: number): number {
  return Number.isInteger(bytes) ? Math.min(bytes, Number.MAX_SAFE_INTEGER) : bytes
}

function toNumber(value: unknown): number {
  return typeof value === 'number' ? value : NaN
}
