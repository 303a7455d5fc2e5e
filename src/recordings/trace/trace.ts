// A recorded allocation trace in memory, with one column for each field. So a million events take 50 MB, and a replay
// reads them without objects. All readers of foreign formats, and the recorder, make traces through TraceBuilder
// (trace-builder.ts).

import { WrongTypeError } from '../../core/base/argument-errors.js'
import { describe } from '../../core/base/bytes.js'

/**
 * The kinds of event, as in the column `Trace.action`. PyTorch's names are alloc, free_requested, free_completed,
 * segment_alloc, … oom.
 */
export const Action = {
  /** a block was allocated */
  alloc: 0,
  /** the program freed a block */
  freeRequested: 1,
  /** no stream uses a freed block any more: its address may be handed out again */
  freeCompleted: 2,
  /** memory was taken from the device */
  segmentAlloc: 3,
  /** memory was given back to the device */
  segmentFree: 4,
  /** physical memory was mapped into an address range */
  segmentMap: 5,
  /** physical memory was unmapped from an address range */
  segmentUnmap: 6,
  /** an allocation failed */
  outOfMemory: 7,
  /** a snapshot was taken here */
  snapshot: 8,
} as const

/** One of the numbers of `Action`. */
export type ActionCode = (typeof Action)[keyof typeof Action]

/** In the `…At` columns of blocks: before the trace began. Less than every event number. */
export const BEFORE = -1
/** In the `…At` columns of blocks: not within the trace. Greater than every event number. */
export const NEVER = 2 ** 31 - 1

/** One line of a call stack. */
export interface Frame {
  /** path of the source file */
  readonly filename: string
  /** line number, from 1; 0 if unknown */
  readonly line: number
  /** name of the function */
  readonly name: string
}

/**
 * The different call stacks, as paths in a trie of frames. Stack number 0 is the empty stack. `stackFrames` makes the
 * list of frames of a stack.
 */
export interface CallStacks {
  /** how many stacks there are */
  readonly count: number
  /** by stack: the node of its innermost frame; node 0 is the root */
  readonly node: Int32Array
  /** by node: the node of the frame that called it */
  readonly parent: Int32Array
  /** by node: index into `frames`; -1 for the root */
  readonly frame: Int32Array
  /** the different frames */
  readonly frames: readonly Frame[]
}

/** A part of a recording that the program or PyTorch has named, such as a step of an optimizer. */
export interface Annotation {
  /** its name */
  readonly name: string
  /** microseconds; NaN if it began before the recording */
  readonly startUs: number
  /** microseconds; NaN if the recording ends within it */
  readonly endUs: number
  /** number of the first event within it */
  readonly start: number
  /** number of the first event after it, or the count of events */
  readonly end: number
}

/** Memory taken from the device in one piece; for an expandable segment, one mapped range. */
export interface Segment {
  /** device address */
  readonly address: number
  /** size in bytes */
  readonly bytes: number
  /** index into `streams` */
  readonly stream: number
  /** whether it is a range of an expandable segment */
  readonly expandable: boolean
  /** index into `pools`; 0 for the default pool or if unknown */
  readonly pool: number
}

/**
 * All blocks of the trace, one column for each field. The `initial` blocks existed when the trace began (it may be
 * the end of a longer recording); then comes one block for each alloc event, in order. A block is live at event `e`
 * if `allocatedAt <= e && e < freeRequestedAt`, and its memory is in use until `freeCompletedAt`.
 */
export interface Blocks {
  /** how many blocks there are */
  readonly count: number
  /** how many of them existed before the first event */
  readonly initial: number
  /** as requested, before rounding */
  readonly bytes: Float64Array
  /**
   * the size of the block that served the request; NaN if unknown. PyTorch's snapshots have it for the blocks that
   * are held at their end, recordings of a pool of this package for all.
   */
  readonly grantedBytes: Float64Array
  /** the address that the recording's allocator chose */
  readonly address: Float64Array
  /** index into `streams`: the stream of the allocation */
  readonly stream: Uint32Array
  /** number of the alloc event, or BEFORE */
  readonly allocatedAt: Int32Array
  /** number of the event, BEFORE or NEVER */
  readonly freeRequestedAt: Int32Array
  /** number of the event, or NEVER */
  readonly freeCompletedAt: Int32Array
  /** index into `stacks`: the call stack of the allocation */
  readonly stack: Int32Array
  /** index into `pools`: the private pool of the memory, such as a graph's; 0 for the default pool or if unknown */
  readonly pool: Uint32Array
  /** index into `metadata`: the text that the program had set when it allocated; 0 for none */
  readonly metadata: Uint32Array
  /** index into `tags`; 0 for none */
  readonly tag: Uint32Array
  /** index into `categories`; 0 for none */
  readonly category: Uint32Array
}

/** A device of a recording whose events are left out. */
export interface OtherDevice {
  /** its number in the recording */
  readonly device: number
  /** how many events it has */
  readonly events: number
  /** the number of requests that failed on it; left out for 0 */
  readonly failedRequests?: number
}

/**
 * How much of a recording contradicts itself. Figures of a recording with any of these may be wrong. Those of segments
 * are 0 for a recording without segments.
 */
export interface Contradictions {
  /** blocks that began where another block was in use */
  readonly overlappingBlocks: number
  /** blocks that began outside of the segments, and segments that were given back with blocks in use */
  readonly blocksOutside: number
  /** events of frees that name another size than their allocation */
  readonly otherSizes: number
  /** segments that were taken where memory was taken already, or given back where none was */
  readonly otherSegments: number
  /** blocks and segments that the recording has otherwise at its end than by its events */
  readonly atEnd: number
  /** segments at its end whose sums are not those of their blocks */
  readonly wrongSums: number
}

/** A trace of one device. Columns have one entry for each event, in the order of time. */
export interface Trace {
  /** path or name of the recording */
  readonly file: string
  /** the device's number in the recording */
  readonly device: number
  /** other devices of the same recording, whose events are left out */
  readonly otherDevices: readonly OtherDevice[]
  /** the allocator whose calls were recorded: PyTorch's, a pool of this package, RMM's, or CUDA's own */
  readonly recorder: 'PyTorch' | 'cuda-mempool' | 'RMM' | 'CUDA'
  /**
   * PyTorch's allocator settings, as the environment variable PYTORCH_CUDA_ALLOC_CONF would name them: '' for its
   * defaults, null if the recording does not contain them
   */
  readonly settings: string | null
  /** how many events there are */
  readonly events: number
  /** events of the recording that were left out: of other memory, of unknown kinds or out of order */
  readonly skippedEvents: number
  /** events that the recording lost; null if it does not tell, as a ring buffer of PyTorch's */
  readonly dropped: number | null
  /** whether the recording says when frees complete; where it does not, a freed block is idle at once */
  readonly saysCompleted: boolean
  /** whether no block existed before the first event */
  readonly complete: boolean
  /** how often an event has an earlier time than the event before it */
  readonly timesGoBack: number
  /** how much of the recording contradicts itself */
  readonly contradictions: Contradictions
  /** an `Action` for each event */
  readonly action: Uint8Array
  /** address of the block or segment; for an outOfMemory event the free bytes of the device, NaN if unknown */
  readonly address: Float64Array
  /** requested bytes of a block or of a failed request, bytes of a segment, live bytes of a snapshot */
  readonly bytes: Float64Array
  /** index into `streams` */
  readonly stream: Uint32Array
  /** microseconds; 0 in a recording without times */
  readonly timeUs: Float64Array
  /** number of the block of an alloc or free event, -1 for other events */
  readonly block: Int32Array
  /** index into `stacks` */
  readonly stack: Int32Array
  /** index into `pools`: the pool of the block, segment or failed request; 0 for the default pool or if unknown */
  readonly pool: Uint32Array
  /** the different call stacks */
  readonly stacks: CallStacks
  /** PyTorch's ids of private pools, as `a,b`; number 0 is the default pool, `0,0` */
  readonly pools: readonly string[]
  /** the different texts that a program had set for allocations (`_set_memory_metadata`); number 0 is none, '' */
  readonly metadata: readonly string[]
  /** the different tags of a recorded `tagged` pool; number 0 is none, '' */
  readonly tags: readonly string[]
  /** the purposes of blocks, in the words of PyTorch's profiler, such as `gradient`; number 0 is none, '' */
  readonly categories: readonly string[]
  /** named parts of the recording, by rising start */
  readonly annotations: readonly Annotation[]
  /** the streams' handles in the recording, those of events first */
  readonly streams: readonly number[]
  /** how many of `streams` have events; the rest have initial blocks or segments only */
  readonly eventStreams: number
  /** all blocks of the trace */
  readonly blocks: Blocks
  /** the segments before the first event */
  readonly initialSegments: readonly Segment[]
  /** how many alloc events there are */
  readonly allocations: number
  /** seconds from the first to the latest event */
  readonly spanSeconds: number
  /** most requested bytes live at once, from alloc to freeRequested: no policy can do with less memory */
  readonly peakRequestedBytes: number
  /**
   * as `peakRequestedBytes`, and at each outOfMemory event with the failed request: no policy can serve the failed
   * requests too with less memory
   */
  readonly peakWithFailedBytes: number
  /** most bytes taken from the device at once; null if the recording does not contain it */
  readonly recordedPeakReservedBytes: number | null
}

/** The call stack of an event, innermost frame first; empty if none was recorded. */
export function framesOf(trace: Trace, event: number): readonly Frame[] {
  if (!ArrayBuffer.isView(trace?.stack))
    throw new WrongTypeError(`framesOf: trace must be a Trace, not ${describe(trace)}`)
  if (typeof event !== 'number') throw new WrongTypeError(`framesOf: event must be a number, not ${describe(event)}`)
  return stackFrames(trace.stacks, trace.stack[event])
}

/** The frames of a stack by its number, innermost first. */
export function stackFrames(stacks: CallStacks, stack: number): Frame[] {
  const { node, parent, frame, frames } = stacks ?? {}
  if (!ArrayBuffer.isView(node) || typeof stack !== 'number') {
    const given = `${describe(stacks)} and ${describe(stack)}`
    throw new WrongTypeError(`stackFrames: stacks and stack must be those of a Trace and a number, not ${given}`)
  }
  const found: Frame[] = []
  for (let at = node[stack]; at > 0; at = parent[at]) found.push(frames[frame[at]])
  return found
}

/** A frame as text: `file:line function`. */
export function frameText(frame: Frame): string {
  const { filename, line, name } = frame ?? {}
  if (typeof filename !== 'string' || typeof name !== 'string') {
    throw new WrongTypeError(`frameText: frame must be a frame of a call stack, not ${describe(frame)}`)
  }
  return `${filename}:${line} ${name}`
}

/**
 * What figures have of a call stack: frames, and letters of a name. Programs have fewer. A hundred stacks may have a
 * hundred thousand frames each, whose names have megabytes.
 */
export const MOST_IN_FIGURES = { frames: 1000, letters: 1000 } as const

/** Throws TypeError in the name of `call` unless `trace` is a Trace. */
export function checkTrace(call: string, trace: unknown): asserts trace is Trace {
  const isTrace = typeof trace === 'object' && trace !== null && 'blocks' in trace && 'action' in trace
  if (!isTrace) throw notTrace(call, trace)
}

/** The error for an argument `trace` of `call` that is no Trace. */
export function notTrace(call: string, trace: unknown): TypeError {
  const hint = typeof trace === 'string' ? '; readRecording(path) reads a file' : ''
  return new WrongTypeError(
    `${call}: trace must be a Trace of readRecording or recorded, not ${describe(trace)}${hint}`,
  )
}
