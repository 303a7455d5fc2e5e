// The memory of a recording at one event: the blocks in use, and the idle pieces of the segments.

import { placesOf } from '../placements/address-places.js'
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
  /** the number of the block before it in the segment, and of the block behind it; -1 for none */
  readonly before: number
  readonly behind: number
}

export interface MemoryAt {
  /** the numbers of the blocks that the program holds */
  readonly live: readonly number[]
  /** bytes of these blocks, as requested */
  readonly liveBytes: number
  /** the numbers of the blocks that the program freed, and that a stream still uses */
  readonly waiting: readonly number[]
  /** bytes of these blocks, as requested */
  readonly waitingBytes: number
  /** bytes of all segments; null if the recording has none */
  readonly reservedBytes: number | null
  /** by rising address */
  readonly segments: readonly Segment[]
  /** the numbers of all blocks in use, live or waiting, by rising address */
  readonly used: readonly number[]
  /** by rising address */
  readonly idle: readonly IdlePiece[]
}

/** The memory just before `event`, when there are these segments; `taken` is `takenBytes(trace)`. */
export function memoryAt(trace: Trace, event: number, reserved: ReservedSegments, taken: Float64Array): MemoryAt {
  const { blocks } = trace
  // Without completed frees in the recording, a freed block is idle at once.
  const completedAt = trace.saysCompleted ? blocks.freeCompletedAt : blocks.freeRequestedAt
  const inUse: number[] = []
  const live: number[] = []
  const waiting: number[] = []
  for (let number = 0; number < blocks.count && blocks.allocatedAt[number] < event; number++) {
    if (completedAt[number] < event) continue
    inUse.push(number)
    ;(blocks.freeRequestedAt[number] < event ? waiting : live).push(number)
  }
  const used = byAddress(trace, inUse)
  const segments = reserved.list()
  const bytesOf = (numbers: readonly number[]) => numbers.reduce((sum, number) => sum + blocks.bytes[number], 0)
  return {
    live,
    liveBytes: bytesOf(live),
    waiting,
    waitingBytes: bytesOf(waiting),
    reservedBytes: hasSegments(trace) ? segments.reduce((sum, { bytes }) => sum + bytes, 0) : null,
    segments,
    used,
    idle: idlePieces(trace, segments, used, taken),
  }
}

/** All blocks of a trace by rising address, and by block its place among them. */
interface BlockOrder {
  readonly order: Uint32Array
  readonly place: Uint32Array
}

/** Many failed requests may ask, so the blocks are sorted once. */
const orders = new WeakMap<Trace, BlockOrder>()

function orderOf(trace: Trace): BlockOrder {
  const known = orders.get(trace)
  if (known !== undefined) return known
  const { count, address } = trace.blocks
  const { addresses, of } = placesOf(address)
  /** by place: where its blocks begin in the order */
  const next = new Uint32Array(addresses.length + 1)
  for (let number = 0; number < count; number++) next[of[number] + 1]++
  for (let at = 1; at < next.length; at++) next[at] += next[at - 1]
  const order = new Uint32Array(count)
  const place = new Uint32Array(count)
  for (let number = 0; number < count; number++) {
    place[number] = next[of[number]]++
    order[place[number]] = number
  }
  orders.set(trace, { order, place })
  return { order, place }
}

/** These blocks by rising address. */
function byAddress(trace: Trace, numbers: readonly number[]): number[] {
  const { order, place } = orderOf(trace)
  const isWanted = new Uint8Array(order.length)
  for (const number of numbers) isWanted[place[number]] = 1
  const sorted: number[] = []
  for (let at = 0; at < order.length; at++) if (isWanted[at] === 1) sorted.push(order[at])
  return sorted
}

/** Segments and blocks by rising address. A rest that PyTorch would not split off belongs to the block before it. */
function idlePieces(
  { blocks, events }: Trace,
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
    let before = -1
    const note = (to: number, behind: number) => {
      // Without events all blocks are of the final state, which has their sizes with the rest.
      const hasRest = before >= 0 && events > 0
      if (to > cursor && (!hasRest || worthSplitting(to - cursor, small))) {
        pieces.push({ bytes: to - cursor, stream: segment.stream, segment, before, behind })
      }
    }
    while (next < used.length && blocks.address[used[next]] < segment.address) next++
    for (; next < used.length && blocks.address[used[next]] < end; next++) {
      const number = used[next]
      note(blocks.address[number], number)
      // Expandable segments split off every rest.
      const bytes = segment.expandable ? roundedBytes(blocks, number) : taken[number]
      cursor = Math.max(cursor, Math.min(end, blocks.address[number] + bytes))
      before = number
    }
    note(end, -1)
  }
  return pieces
}

function roundedBytes({ bytes, grantedBytes }: Trace['blocks'], number: number): number {
  return grantedBytes[number] || roundPytorchBytes(bytes[number])
}
