// The requests of a recording that failed: the memory at that moment, and why it did not suffice.

import { MiB } from '../../../core/base/bytes.js'
import { shortened } from '../../../core/base/shown-text.js'
import { CallSites } from '../frames/call-sites.js'
import { isSmallSegment, PlacementRules, pytorchSegmentBytes } from '../pytorch/model/placement-rules.js'
import { MOST_SMALL_BYTES, roundUp } from '../pytorch/model/policy-blocks.js'
import { understandPytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { ReservedSegments } from '../reserved-segments.js'
import { Action, checkTrace, type Frame, framesOf, frameText, MOST_IN_FIGURES, type Trace } from '../trace.js'
import { type Holder, holdersOf } from './holders.js'
import { type IdlePiece, memoryAt } from './memory-at.js'
import { takenBytes } from './taken-bytes.js'

/** This many of the last failed requests are described; the others are only counted. */
const MOST_DESCRIBED = 100
const HOLDERS = 5
/** Enough for a bar of a page. A recording may have a million idle pieces at each of its failed requests. */
const MOST_PIECES = 60
const [SMALL_PAGE_BYTES, LARGE_PAGE_BYTES] = [2 * MiB, 20 * MiB]

/**
 * Why a request failed:
 * - fragmentation: the memory sufficed, but not in one piece that PyTorch could use
 * - waiting: the memory would have sufficed, but freed blocks were still in use on another stream
 * - segmentTooSmall: an expandable segment has fewer addresses than were asked, by `expandable_segments_reserve`
 * - ownLimit: more was needed than the program's own limit allowed, and the device had room
 * - tooLittle: more was needed than the program could have of the device
 * - unknown: the recording does not tell
 */
export type Verdict = 'fragmentation' | 'waiting' | 'segmentTooSmall' | 'ownLimit' | 'tooLittle' | 'unknown'

/** A failed request of a recording, and the memory at that moment. Sizes are bytes. */
export interface RecordedOutOfMemory {
  /** number of the event */
  readonly event: number
  /** the request, as the recording's allocator rounded it */
  readonly askedBytes: number
  /** the stream's handle */
  readonly stream: number
  /**
   * the call stack of the request as text, innermost frame first; empty without a recorded stack. Of names of more than
   * 1000 letters it has the end, and of a deeper stack the innermost 1000 frames
   */
  readonly frames: readonly string[]
  /** the line of the program that asked, as `file:line function`; null if no call stack was recorded */
  readonly site: string | null
  /** the line of PyTorch, or of generated code, that it called; null for none */
  readonly through: string | null
  /** held by the program, as requested */
  readonly inUseBytes: number
  /** freed by the program, and still in use on another stream */
  readonly waitingBytes: number
  /** inUseBytes + askedBytes: no allocator can serve the request with less */
  readonly neededBytes: number
  /** taken from the device; null if the recording does not contain it */
  readonly reservedBytes: number | null
  /** in the pieces of reserved memory that no block uses; null like `reservedBytes` */
  readonly idleBytes: number | null
  /** how many such pieces there are; null like `reservedBytes` */
  readonly idlePieces: number | null
  /** the largest of these pieces; null like `reservedBytes` */
  readonly largestIdleBytes: number | null
  /** the largest piece that PyTorch gives to requests of this stream, pool and size; null like `reservedBytes` */
  readonly largestUsableBytes: number | null
  /** the most that one expandable segment can hold, if the recording's settings name it and the request is larger */
  readonly mostSegmentBytes: number | null
  /** free on the device; null if unknown */
  readonly deviceFreeBytes: number | null
  /** whether the device had room for the request, so that a limit of the program itself stopped it; null if unknown */
  readonly deviceHadRoom: boolean | null
  /** the program could reserve at least this much; null if unknown */
  readonly capacityBytes: number | null
  /** the program could not reserve this much more than `capacityBytes` or above; null if unknown */
  readonly capacityBelowBytes: number | null
  /** why the request failed */
  readonly verdict: Verdict
  /** whether no allocation follows in the recording */
  readonly isLast: boolean
  /** the call sites that held most of the memory in use: at most five, most bytes first */
  readonly holders: readonly Holder[]
  /** the call sites that had allocated most of the waiting memory: at most five, most bytes first */
  readonly waitingHolders: readonly Holder[]
}

/** A failed request, and the sizes of the largest idle pieces then, the largest first. */
export interface FailedRequest {
  readonly failed: RecordedOutOfMemory
  readonly largestIdle: readonly number[]
}

/**
 * The failed requests of a recording, in their order: all, or the last 100 of many. Throws TypeError for anything but a
 * trace.
 */
export function recordedOutOfMemories(trace: Trace): RecordedOutOfMemory[] {
  checkTrace('recordedOutOfMemories', trace)
  return failedRequests(trace).map(({ failed }) => failed)
}

/** The same with the sizes of idle memory. */
export function failedRequests(trace: Trace): FailedRequest[] {
  const failed = failedEvents(trace).slice(-MOST_DESCRIBED)
  if (failed.length === 0) return []
  const lastAllocation = trace.action.lastIndexOf(Action.alloc)
  const segments = new ReservedSegments(trace.initialSegments)
  let at = 0
  const taken = takenBytes(trace)
  const moments = failed.map(event => {
    segments.applyEvents(trace, at, event)
    at = event
    return momentOf(trace, event, segments, taken)
  })
  const limit = ownLimitOf(trace, moments)
  return moments.map(moment => {
    const capacity = capacityOf(moment, limit)
    const verdict = verdictOf(moment, capacity.capacityBytes)
    const isLast = moment.figures.event > lastAllocation
    return { failed: { ...moment.figures, ...capacity, verdict, isLast }, largestIdle: moment.largestIdle }
  })
}

/** The numbers of the outOfMemory events. */
export function failedEvents({ action, events }: Trace): number[] {
  const failed: number[] = []
  for (let event = action.indexOf(Action.outOfMemory); event >= 0 && event < events; ) {
    failed.push(event)
    event = action.indexOf(Action.outOfMemory, event + 1)
  }
  return failed
}

interface Capacity {
  readonly capacityBytes: number | null
  readonly capacityBelowBytes: number | null
}

interface Moment {
  readonly figures: Omit<RecordedOutOfMemory, 'verdict' | 'isLast' | keyof Capacity>
  /** the bytes that the allocator asked of the device for the request */
  readonly segmentBytes: number
  readonly largestIdle: readonly number[]
}

function momentOf(trace: Trace, event: number, segments: ReservedSegments, taken: Float64Array): Moment {
  const { live, liveBytes, waiting, waitingBytes, reservedBytes, idle } = memoryAt(trace, event, segments, taken)
  const askedBytes = trace.bytes[event]
  const stream = trace.stream[event]
  const isExpandable = segments.list().some(segment => segment.expandable)
  const segmentBytes = isExpandable
    ? roundUp(askedBytes, askedBytes <= MOST_SMALL_BYTES ? SMALL_PAGE_BYTES : LARGE_PAGE_BYTES)
    : pytorchSegmentBytes(askedBytes)
  const deviceFreeBytes = Number.isFinite(trace.address[event]) ? trace.address[event] : null
  const has = <T>(value: T) => (reservedBytes === null ? null : value)
  const pool = trace.pool[event]
  const usable = idle.filter(
    piece => piece.stream === stream && piece.segment.pool === pool && servesSize(piece, askedBytes),
  )
  const figures = {
    event,
    askedBytes,
    stream: trace.streams[stream],
    frames: framesOf(trace, event).slice(0, MOST_IN_FIGURES.frames).map(boundedText),
    ...CallSites.of(trace.stacks).siteOf(trace.stack[event]),
    inUseBytes: liveBytes,
    waitingBytes,
    neededBytes: liveBytes + askedBytes,
    reservedBytes,
    idleBytes: has(idle.reduce((sum, { bytes }) => sum + bytes, 0)),
    idlePieces: has(idle.length),
    largestIdleBytes: has(largest(idle)),
    largestUsableBytes: has(largest(usable)),
    mostSegmentBytes: isExpandable ? tooSmallSegment(trace.settings ?? '', askedBytes) : null,
    deviceFreeBytes,
    deviceHadRoom: deviceFreeBytes === null ? null : deviceFreeBytes >= segmentBytes,
    holders: holdersOf(trace, live).slice(0, HOLDERS),
    waitingHolders: holdersOf(trace, waiting).slice(0, HOLDERS),
  }
  return { figures, segmentBytes, largestIdle: largestSizes(idle) }
}

/** The bytes of an expandable segment that cannot hold a request; null if it can, or a stream's class may decide. */
function tooSmallSegment(settings: string, askedBytes: number): number | null {
  const { settings: understood, notReplayed } = understandPytorchSettings(settings)
  const { reserveBytes } = new PlacementRules(understood)
  const most = roundUp(reserveBytes, askedBytes <= MOST_SMALL_BYTES ? SMALL_PAGE_BYTES : LARGE_PAGE_BYTES)
  return askedBytes > most && notReplayed.every(each => !each.includes('_by_class')) ? most : null
}

/** Blocks up to 1 MiB and larger blocks have segments of their own. */
function servesSize({ segment }: IdlePiece, bytes: number): boolean {
  return segment.expandable || isSmallSegment(segment.bytes) === bytes <= MOST_SMALL_BYTES
}

function largest(pieces: readonly IdlePiece[]): number {
  return pieces.reduce((most, { bytes }) => Math.max(most, bytes), 0)
}

function boundedText({ filename, line, name }: Frame): string {
  const { letters } = MOST_IN_FIGURES
  return frameText({ filename: shortened(filename, letters), line, name: shortened(name, letters) })
}

function largestSizes(pieces: readonly IdlePiece[]): number[] {
  const sizes = Float64Array.from(pieces, ({ bytes }) => bytes).sort()
  return [...sizes.slice(-MOST_PIECES)].reverse()
}

/**
 * The program's own limit: at least what was reserved at any time, and too little for each request that failed though
 * the device had room. Null if these contradict each other, because the limit has changed.
 */
function ownLimitOf(trace: Trace, moments: readonly Moment[]): Capacity | null {
  const least = trace.recordedPeakReservedBytes
  const stopped = moments.filter(({ figures }) => figures.deviceHadRoom === true && figures.mostSegmentBytes === null)
  const below = stopped.map(({ figures, segmentBytes }) => (figures.reservedBytes ?? Infinity) + segmentBytes)
  const capacityBelowBytes = Math.min(...below)
  if (capacityBelowBytes === Infinity) return null
  return least === null || capacityBelowBytes <= least ? null : { capacityBytes: least, capacityBelowBytes }
}

/** The memory that the program could reserve at that moment. */
function capacityOf({ figures, segmentBytes }: Moment, limit: Capacity | null): Capacity {
  const { reservedBytes, deviceFreeBytes, deviceHadRoom, mostSegmentBytes } = figures
  if (reservedBytes === null) return { capacityBytes: null, capacityBelowBytes: null }
  if (deviceFreeBytes === null) return { capacityBytes: reservedBytes, capacityBelowBytes: null }
  if (!deviceHadRoom || (limit === null && mostSegmentBytes !== null)) {
    const capacityBytes = reservedBytes + deviceFreeBytes
    return { capacityBytes, capacityBelowBytes: capacityBytes + 1 }
  }
  return limit ?? { capacityBytes: reservedBytes, capacityBelowBytes: reservedBytes + segmentBytes }
}

function verdictOf({ figures }: Moment, capacityBytes: number | null): Verdict {
  const { neededBytes, waitingBytes, deviceHadRoom, mostSegmentBytes } = figures
  if (capacityBytes !== null && neededBytes <= capacityBytes) {
    if (mostSegmentBytes !== null) return 'segmentTooSmall'
    return neededBytes + waitingBytes > capacityBytes ? 'waiting' : 'fragmentation'
  }
  if (deviceHadRoom === null) return 'unknown'
  if (deviceHadRoom) return 'ownLimit'
  return capacityBytes === null ? 'unknown' : 'tooLittle'
}
