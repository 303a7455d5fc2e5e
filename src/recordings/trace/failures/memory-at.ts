// The memory of a recording at one event: the blocks in use, and the idle pieces of the segments.

import { isSmallSegment, worthSplitting } from '../pytorch/model/placement-rules.js'
import { roundPytorchBytes } from '../pytorch/model/policy-blocks.js'
import { hasSegments, type ReservedSegments } from '../reserved-segments.js'
import type { Segment, Trace } from '../trace.js'

/** Memory of a segment that no block uses. */
export interface IdlePiece {
  readonly bytes: number
  /** index into `Trace.streams`: the stream that may use it */
  readonly stream: number
  readonly segment: Segment
}

export interface MemoryAt {
  /** the numbers of the blocks that the program holds */
  readonly live: readonly number[]
  /** bytes of these blocks, as requested */
  readonly liveBytes: number
  /** requested bytes of blocks that the program freed, and that a stream still uses */
  readonly waitingBytes: number
  /** bytes of all segments; null if the recording has none */
  readonly reservedBytes: number | null
  readonly idle: readonly IdlePiece[]
}

/** The memory just before `event`, when there are these segments; `taken` is `takenBytes(trace)`. */
export function memoryAt(trace: Trace, event: number, segments: ReservedSegments, taken: Float64Array): MemoryAt {
  const { blocks } = trace
  // Without completed frees in the recording, a freed block is idle at once.
  const completedAt = trace.saysCompleted ? blocks.freeCompletedAt : blocks.freeRequestedAt
  const used: number[] = []
  const live: number[] = []
  let liveBytes = 0
  let waitingBytes = 0
  for (let number = 0; number < blocks.count && blocks.allocatedAt[number] < event; number++) {
    if (completedAt[number] < event) continue
    used.push(number)
    if (blocks.freeRequestedAt[number] < event) waitingBytes += blocks.bytes[number]
    else {
      live.push(number)
      liveBytes += blocks.bytes[number]
    }
  }
  used.sort((a, b) => blocks.address[a] - blocks.address[b])
  const list = segments.list()
  const reservedBytes = hasSegments(trace) ? list.reduce((sum, { bytes }) => sum + bytes, 0) : null
  return { live, liveBytes, waitingBytes, reservedBytes, idle: idlePieces(trace, list, used, taken) }
}

/** Segments and blocks by rising address. A rest that PyTorch would not split off belongs to the block before it. */
function idlePieces(
  { blocks }: Trace,
  segments: readonly Segment[],
  used: readonly number[],
  taken: Float64Array,
): IdlePiece[] {
  const pieces: IdlePiece[] = []
  let next = 0
  for (const segment of segments) {
    const end = segment.address + segment.bytes
    const small = segment.expandable || isSmallSegment(segment.bytes)
    let cursor = segment.address
    const note = (to: number) => {
      const isBlockBefore = cursor > segment.address
      if (to > cursor && (!isBlockBefore || worthSplitting(to - cursor, small))) {
        pieces.push({ bytes: to - cursor, stream: segment.stream, segment })
      }
    }
    while (next < used.length && blocks.address[used[next]] < segment.address) next++
    for (; next < used.length && blocks.address[used[next]] < end; next++) {
      const number = used[next]
      note(blocks.address[number])
      // Expandable segments split off every rest.
      const bytes = segment.expandable ? roundedBytes(blocks, number) : taken[number]
      cursor = Math.max(cursor, Math.min(end, blocks.address[number] + bytes))
    }
    note(end)
  }
  return pieces
}

function roundedBytes({ bytes, grantedBytes }: Trace['blocks'], number: number): number {
  return grantedBytes[number] || roundPytorchBytes(bytes[number])
}
