// Reads PyTorch's memory snapshots: torch.cuda.memory._snapshot() or _dump_snapshot(), as pickle or JSON, packed by gzip or
// not. Events and stack frames are folded into a TraceBuilder while the pickle is read, so that a million of them never
// exist as objects: what stands for an event in the lists of the snapshot is a number, the complement of its row. What is
// wrong with an event is said later, when its place in the lists is known.

import { FormatError } from '../base/errors.js'
import { readPickle } from './pickle.js'
import { readSnapshotFile } from './snapshot-file.js'
import { FrameEntry } from './stack-table.js'
import { Action, type Trace } from './trace.js'
import { type FinalBlock, type FinalSegment, type FinalState, TraceBuilder } from './trace-builder.js'

export interface SnapshotOptions {
  /** which device's events to take; by default the device that has most */
  readonly device?: number
  /** called now and then with the share that is done, up to 1 */
  readonly onProgress?: (fraction: number) => void
}

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
/** An action of a name that is not known here, annotate among them. */
const UNKNOWN = 254
const NOT_TEXT = 255
/** A longer list comes in several pieces, so its first piece must stay a list. */
const PICKLE_BATCH = 1000
const PICKLE_SHARE = 0.9
const RECORDING_HINT = 'record with torch.cuda.memory._record_memory_history() before taking the snapshot'

/**
 * Reads the trace of one device out of a snapshot file. Events of unknown kinds are left out and counted in
 * `skippedEvents`. Throws a FormatError that begins with the path, for a file that cannot be read, is no snapshot, is
 * damaged, or holds no events.
 */
export function readSnapshot(path: string, options: SnapshotOptions = {}): Trace {
  try {
    return parseSnapshot(readSnapshotFile(path), path, options)
  } catch (error) {
    throw error instanceof FormatError ? new FormatError(`${path}: ${error.message}`) : error
  }
}

/** Like `readSnapshot`, of the unpacked bytes; `file` only names the trace. */
export function parseSnapshot(bytes: Buffer, file: string, { device, onProgress }: SnapshotOptions = {}): Trace {
  const fold = new Folding()
  const root = parse(bytes, fold, read => onProgress?.((PICKLE_SHARE * read) / bytes.length))
  if (Array.isArray(root)) throw new FormatError(`holds a list of segments but no events; ${RECORDING_HINT}`)
  const snapshot = dictionary(root, 'the snapshot')
  const traces = list(snapshot['device_traces'] ?? [], 'device_traces')
  const chosen = device ?? busiest(traces)
  if (!Number.isInteger(chosen) || chosen < 0) throw new RangeError(`device must be a device number, not ${chosen}`)
  const place = `device_traces[${chosen}]`
  const events = list(traces[chosen] ?? [], place)
  if (events.length === 0) {
    throw new FormatError(`holds no events${device === undefined ? '' : ` of device ${device}`}; ${RECORDING_HINT}`)
  }
  const skippedEvents = fold.select(events, place)
  const final = snapshot['segments'] === undefined ? null : finalState(snapshot['segments'], chosen)
  const trace = fold.builder.build({ file, device: chosen, skippedEvents, final })
  onProgress?.(1)
  return trace
}

function parse(bytes: Buffer, fold: Folding, onProgress: (bytesRead: number) => void): unknown {
  if (bytes[0] === 0x80) return readPickle(bytes, { dictionary: fold.dictionary, list: fold.list, onProgress })
  const start = bytes.subarray(0, 64).toString('latin1').trimStart()
  if (start.startsWith('{') || start.startsWith('[')) return parseJson(bytes, fold)
  if (start.startsWith('PK'))
    throw new FormatError('is a ZIP archive, as torch.save makes them; pickle.dump the snapshot')
  throw new FormatError(
    'is no memory snapshot: neither a pickle of protocol 2 to 5, nor JSON, nor one of these in gzip',
  )
}

/** Parses JSON and folds its events too, so that from here on both forms look the same. */
function parseJson(bytes: Buffer, fold: Folding): unknown {
  let root: unknown
  try {
    root = JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw new FormatError(`is not valid JSON, or too large for it: ${(error as Error).message.split('\n')[0]}`)
  }
  const traces = isDictionary(root) ? root['device_traces'] : undefined
  for (const events of Array.isArray(traces) ? traces : []) {
    if (!Array.isArray(events)) continue
    for (let i = 0; i < events.length; i++) events[i] = fold.jsonEvent(events[i])
  }
  return root
}

/** The fields of an event or a stack frame, as found; absent ones are undefined. */
class RawFields {
  action: unknown
  addr: unknown
  device_free: unknown
  size: unknown
  stream: unknown
  time_us: unknown
  frames: unknown
  filename: unknown
  line: unknown
  name: unknown
}

/** Stands for a list of stack frames that is in the table. */
class FoldedStack {
  constructor(readonly number: number) {}
}

class Folding {
  readonly builder = new TraceBuilder()
  private readonly stacks: FoldedStack[] = []
  /** lists of a thousand frames or more, which would take too long if many events shared them */
  private readonly long = new Map<readonly unknown[], number>()

  /** For readPickle: an event becomes the complement of its row, a stack frame the table's entry for it. */
  readonly dictionary = (items: readonly unknown[], from: number, to: number): unknown => {
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
        case 'filename':
          fields.filename = value
          break
        case 'line':
          fields.line = value
          break
        case 'name':
          fields.name = value
          break
      }
    }
    return fields.action === undefined ? this.frame(fields) : this.event(fields)
  }

  /** For readPickle: a list of stack frames becomes a FoldedStack. */
  readonly list = (items: readonly unknown[], from: number, to: number): unknown =>
    items[from] instanceof FrameEntry && to - from < PICKLE_BATCH ? this.folded(items, from, to) : undefined

  /** An event of a JSON snapshot; null for what is none. */
  jsonEvent(value: unknown): number | null {
    if (!isDictionary(value) || value['action'] === undefined) return null
    const fields: RawFields = Object.assign(new RawFields(), value)
    if (Array.isArray(fields.frames))
      fields.frames = fields.frames.map(frame => isDictionary(frame) && this.frame(frame))
    return this.event(fields)
  }

  /**
   * Keeps the events that `rows` lists and drops the rest and those of unknown kinds, whose number it returns. Throws a
   * FormatError naming the first that is not as it should be.
   */
  select(rows: readonly unknown[], place: string): number {
    const { builder } = this
    let kept = 0
    let previous = -1
    for (let i = 0; i < rows.length; i++) {
      const complement = rows[i]
      const row = typeof complement === 'number' ? ~complement : -1
      if (row <= previous || row >= builder.events)
        throw new FormatError(`${place}[${i}] must be an event with an action`)
      previous = row
      if (builder.action[row] === UNKNOWN) continue
      const wrong = this.complaint(row)
      if (wrong !== undefined) throw new FormatError(`${place}[${i}].${wrong}`)
      builder.move(row, kept++)
    }
    builder.events = kept
    return rows.length - kept
  }

  private event(fields: RawFields): number {
    const action = typeof fields.action === 'string' ? (ACTIONS.get(fields.action) ?? UNKNOWN) : NOT_TEXT
    const address = action === Action.outOfMemory ? fields.device_free : fields.addr
    const time = fields.time_us === undefined ? 0 : toNumber(fields.time_us)
    const stack = this.stack(fields.frames)
    return ~this.builder.add(action, toNumber(address), toNumber(fields.size), toNumber(fields.stream), time, stack)
  }

  private frame({ filename, line, name }: Partial<RawFields>): FrameEntry | undefined {
    if (typeof filename !== 'string' || typeof line !== 'number' || typeof name !== 'string') return undefined
    return this.builder.stacks.entry(filename, line, name)
  }

  private folded(items: readonly unknown[], from: number, to: number): FoldedStack | undefined {
    const number = this.builder.stacks.number(items, from, to)
    if (number < 0) return undefined
    this.stacks[number] ??= new FoldedStack(number)
    return this.stacks[number]
  }

  /** The number of what was found as the frames of an event, -1 if that is no list of frames. */
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
    if (!Number.isFinite(timeUs[row])) return 'time_us must be a number of microseconds'
    return stack[row] < 0 ? 'frames must be a list of stack frames: filename, line, name' : undefined
  }
}

/** The device with the most events; a tie goes to the lowest. */
function busiest(traces: readonly unknown[]): number {
  let best = 0
  traces.forEach((events, device) => {
    if (list(events, `device_traces[${device}]`).length > list(traces[best], '').length) best = device
  })
  return best
}

function finalState(value: unknown, device: number): FinalState {
  const segments: FinalSegment[] = []
  const blocks: FinalBlock[] = []
  const bases = new Set<number>()
  const lists = new Set<unknown>()
  list(value, 'segments').forEach((entry, i) => {
    const place = `segments[${i}]`
    const segment = dictionary(entry, place)
    if ((segment['device'] ?? 0) !== device) return
    const address = whole(segment['address'], `${place}.address`, 'an address')
    const bytes = whole(segment['total_size'], `${place}.total_size`, 'a whole number of bytes')
    const stream = whole(segment['stream'], `${place}.stream`, 'a stream handle')
    const inside = list(segment['blocks'] ?? [], `${place}.blocks`)
    if (bases.has(address)) throw new FormatError(`${place}.address is that of another segment too`)
    if (inside.length > 0 && lists.has(inside))
      throw new FormatError(`${place}.blocks are those of another segment too`)
    bases.add(address)
    lists.add(inside)
    segments.push({ address, bytes, stream, expandable: segment['is_expandable'] === true })
    for (const block of finalBlocks(inside, address, bytes, place)) blocks.push({ ...block, stream })
  })
  return { segments, blocks }
}

/** The blocks of a segment that are in use, free ones left out. Snapshots of before 2023 have no block addresses. */
function finalBlocks(blocks: readonly unknown[], base: number, total: number, segmentPlace: string) {
  const used: Omit<FinalBlock, 'stream'>[] = []
  let cursor = base
  blocks.forEach((entry, i) => {
    const place = `${segmentPlace}.blocks[${i}]`
    const block = dictionary(entry, place)
    const size = whole(block['size'], `${place}.size`, 'a whole number of bytes')
    const address = whole(block['address'] ?? cursor, `${place}.address`, 'an address')
    if (address < cursor || address + size > base + total) {
      throw new FormatError(`${place} lies outside its segment, or over the block before it`)
    }
    cursor = address + size
    const { state } = block
    if (state === 'inactive') return
    const pending = state === 'active_pending_free' || state === 'active_awaiting_free'
    if (!pending && state !== 'active_allocated') throw new FormatError(`${place}.state is none that is known`)
    const bytes = whole(block['requested_size'] ?? size, `${place}.requested_size`, 'a whole number of bytes')
    used.push({ address, bytes, pending })
  })
  return used
}

function isDictionary(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value)
}

function dictionary(value: unknown, place: string): Record<string, unknown> {
  if (!isDictionary(value)) throw new FormatError(`${place} must be a dictionary`)
  return value
}

function list(value: unknown, place: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new FormatError(`${place} must be a list`)
  return value
}

function whole(value: unknown, place: string, what: string): number {
  if (!isWhole(value)) throw new FormatError(`${place} must be ${what}`)
  return value
}

function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function toNumber(value: unknown): number {
  return typeof value === 'number' ? value : NaN
}
