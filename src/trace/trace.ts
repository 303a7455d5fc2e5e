// A recorded allocation trace in memory: what happened, one column per field, so that a million events take 50 MB and a
// replay reads them without touching an object. Readers of foreign formats and our own recorder all end here, through
// TraceBuilder (trace-builder.ts).

/** What an event says. The names are ours; PyTorch's are alloc, free_requested, free_completed, segment_alloc, … oom. */
export const Action = {
  /** a block was handed out */
  alloc: 0,
  /** its user gave it back */
  freeRequested: 1,
  /** no stream uses it any longer: from here its address may be handed out again */
  freeCompleted: 2,
  /** memory was obtained from the device */
  segmentAlloc: 3,
  /** memory was given back to the device */
  segmentFree: 4,
  /** physical memory was mapped into an address range */
  segmentMap: 5,
  /** memory of an expandable segment was unmapped */
  segmentUnmap: 6,
  /** a request got nothing */
  outOfMemory: 7,
  /** the state was photographed here */
  snapshot: 8,
} as const

/** The number of an `Action`. */
export type ActionCode = (typeof Action)[keyof typeof Action]

/** In the `…At` columns of blocks: it happened before the trace began. Less than every event number. */
export const BEFORE = -1
/** In the `…At` columns of blocks: it did not happen while the trace lasted. Greater than every event number. */
export const NEVER = 2 ** 31 - 1

/** One line of a call stack, innermost first. */
export interface Frame {
  /** source file */
  readonly filename: string
  /** line in it, from 1 */
  readonly line: number
  /** function */
  readonly name: string
}

/** Memory obtained from the device in one piece. Of an expandable segment: one range of it that is mapped. */
export interface Segment {
  /** where it begins */
  readonly address: number
  /** its size */
  readonly bytes: number
  /** index into `streams` */
  readonly stream: number
  /** whether it grows by mapping */
  readonly expandable: boolean
}

/**
 * Every block of the trace, one column per field: first the `initial` ones that were there when the trace began (it may
 * be the end of a longer recording), then one per alloc event, in order. A block is live at event `e` if
 * `allocatedAt <= e && e < freeRequestedAt`, and its memory is in use until `freeCompletedAt`.
 */
export interface Blocks {
  /** how many blocks there are */
  readonly count: number
  /** how many of them were there when the recording began */
  readonly initial: number
  /** as requested, before any rounding */
  readonly bytes: Float64Array
  /** where the recording's own allocator put it */
  readonly address: Float64Array
  /** index into `streams`: the stream it was allocated on */
  readonly stream: Uint32Array
  /** number of the alloc event, or BEFORE */
  readonly allocatedAt: Int32Array
  /** number of the event, BEFORE or NEVER */
  readonly freeRequestedAt: Int32Array
  /** number of the event, or NEVER */
  readonly freeCompletedAt: Int32Array
}

/** A trace of one device. Columns have one entry per event, in the order in which things happened. */
export interface Trace {
  /** its file name, for messages */
  readonly file: string
  /** the device's number in the recording */
  readonly device: number
  /** how many events there are */
  readonly events: number
  /** events of the recording that are left out because they say nothing of memory, or nothing that is known here */
  readonly skippedEvents: number
  /** by event: an `Action` */
  readonly action: Uint8Array
  /** base of the block or segment; of an outOfMemory event: the bytes that were free on the device; NaN where unknown */
  readonly address: Float64Array
  /** requested bytes of a block or of a failed request, bytes of a segment, live bytes of a snapshot */
  readonly bytes: Float64Array
  /** index into `streams` */
  readonly stream: Uint32Array
  /** microseconds; 0 where the recording has no times */
  readonly timeUs: Float64Array
  /** number of the block that an alloc or free event speaks of, -1 for other events */
  readonly block: Int32Array
  /** index into `stacks` */
  readonly stack: Int32Array
  /** the different call stacks; number 0 is the empty one */
  readonly stacks: readonly (readonly Frame[])[]
  /** the streams' handles as recorded, first those that events name */
  readonly streams: readonly number[]
  /** how many of `streams` events name; the rest only hold initial blocks or segments */
  readonly eventStreams: number
  /** every block that was allocated */
  readonly blocks: Blocks
  /** what was obtained from the device before the trace began */
  readonly initialSegments: readonly Segment[]
  /** number of alloc events */
  readonly allocations: number
  /** from the first event to the last */
  readonly spanSeconds: number
  /** most requested bytes live at once, from alloc to freeRequested: no policy can do with less memory */
  readonly peakRequestedBytes: number
  /** most bytes obtained from the device at once; null if the recording does not say */
  readonly recordedPeakReservedBytes: number | null
}

/** The call stack recorded with an event, innermost first; empty if none was. */
export function framesOf(trace: Trace, event: number): readonly Frame[] {
  return trace.stacks[trace.stack[event]]
}

/** A frame as people read it: where, then which function. */
export function frameText({ filename, line, name }: Frame): string {
  return `${filename}:${line} ${name}`
}
