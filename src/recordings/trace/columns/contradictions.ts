// Contradictions within a recording. TraceBuilder refuses events that contradict earlier events of their block. Those
// counted here leave figures that may be wrong, so reports name them.

import { type AddressPlaces, placesOf } from '../placements/address-places.js'
import { IndexSet } from '../placements/index-set.js'
import type { ReservedSegments } from '../reserved-segments.js'
import { Action, type Contradictions, NEVER, type Segment, type Trace } from '../trace.js'

type Recorded = Pick<
  Trace,
  'events' | 'action' | 'address' | 'bytes' | 'stream' | 'pool' | 'block' | 'blocks' | 'saysCompleted'
>

/** A block in use at the end of a recording. */
interface HeldBlock {
  readonly address: number
  readonly bytes: number
  readonly isRounded?: boolean
  readonly pending: boolean
}

/** The recording besides its events. */
interface Beside {
  /** the memory at its end; null if it does not have it */
  readonly final: {
    readonly blocks: readonly HeldBlock[]
    readonly segments: readonly unknown[]
    readonly wrongSums?: number
  } | null
  /** the segments before its first event, which the check changes */
  readonly segments: ReservedSegments
  /** the segments at its end by its final state, by rising address */
  readonly segmentsAtEnd: readonly Segment[]
  /** whether it names blocks from before its first event, which may lie in no segment */
  readonly namesBefore: boolean
}

/** Counts the contradictions of a trace. */
export function contradictionsOf(trace: Recorded, beside: Beside): Contradictions {
  return new Check(trace, beside).counts()
}

/** The memory that a recording describes, event by event. */
class Check {
  private readonly places: AddressPlaces
  /** the indexes of the places with a block in use */
  private readonly inUse: IndexSet
  /** by place: the block that was there last */
  private readonly last: Int32Array
  /** A recording without its last segments does not tell its first ones either. */
  private readonly knowsSegments: boolean
  private overlappingBlocks = 0
  private blocksOutside = 0
  private otherSizes = 0
  private otherSegments = 0

  constructor(
    private readonly trace: Recorded,
    private readonly beside: Beside,
  ) {
    const { action, blocks } = trace
    this.places = placesOf(blocks.address)
    const { length } = this.places.addresses
    this.inUse = new IndexSet(length)
    this.last = new Int32Array(length).fill(-1)
    const { final } = beside
    this.knowsSegments =
      final !== null &&
      (final.segments.length > 0 || action.includes(Action.segmentAlloc) || action.includes(Action.segmentMap))
  }

  counts(): Contradictions {
    const { trace, beside } = this
    for (let number = 0; number < trace.blocks.initial; number++) this.place(number, !beside.namesBefore)
    for (let event = 0; event < trace.events; event++) this.apply(event)
    const { overlappingBlocks, blocksOutside, otherSizes, otherSegments } = this
    const wrongSums = beside.final?.wrongSums ?? 0
    const atEnd = this.knowsSegments ? this.segmentsAtEnd() + this.blocksAtEnd(beside.final!.blocks) : 0
    return { overlappingBlocks, blocksOutside, otherSizes, otherSegments, atEnd, wrongSums }
  }

  private apply(event: number): void {
    const { action, block, bytes, blocks, saysCompleted } = this.trace
    const number = block[event]
    switch (action[event]) {
      case Action.alloc:
        this.place(number, true)
        break
      case Action.freeRequested:
      case Action.freeCompleted:
        if (bytes[event] !== blocks.bytes[number]) this.otherSizes++
        if (action[event] === (saysCompleted ? Action.freeCompleted : Action.freeRequested)) {
          this.inUse.delete(this.places.of[number])
        }
        break
      case Action.segmentAlloc:
      case Action.segmentFree:
      case Action.segmentMap:
      case Action.segmentUnmap:
        if (this.knowsSegments) this.applyToSegments(event)
    }
  }

  /** A block begins; `isInSegment` tells that it must lie in a segment. */
  private place(number: number, isInSegment: boolean): void {
    const { places, inUse, last, trace } = this
    const { addresses } = places
    const { address, bytes } = trace.blocks
    const [start, end] = [address[number], address[number] + bytes[number]]
    if (start === end) return
    const index = places.of[number]
    const [below, above] = [inUse.before(index), inUse.from(index)]
    const overlaps =
      (below >= 0 && addresses[below] + bytes[last[below]] > start) || (above >= 0 && addresses[above] < end)
    if (overlaps) this.overlappingBlocks++
    if (isInSegment && this.knowsSegments && !this.beside.segments.covers(start, end)) this.blocksOutside++
    inUse.add(index)
    last[index] = number
  }

  private applyToSegments(event: number): void {
    const { trace, places, inUse, last } = this
    const { segments } = this.beside
    const { action, address, bytes, stream, pool, blocks } = trace
    const [start, end] = [address[event], address[event] + bytes[event]]
    if (action[event] === Action.segmentAlloc || action[event] === Action.segmentMap) {
      if (segments.overlaps(start, end)) this.otherSegments++
    } else {
      if (!segments.covers(start, end)) this.otherSegments++
      const highest = inUse.before(places.from(end))
      if (highest >= 0 && places.addresses[highest] + blocks.bytes[last[highest]] > start) this.blocksOutside++
    }
    segments.apply(action[event], start, bytes[event], stream[event], pool[event])
  }

  /** How many segments are at the end by the events or by the final state, but not by both, or over each other. */
  private segmentsAtEnd(): number {
    const { segments, segmentsAtEnd: byState } = this.beside
    const byEvents = segments.list()
    return segments.overlapping + Math.max(byEvents.length, byState.length) - alike(byEvents, byState)
  }

  /** How many blocks are in use at the end by the events or by the final state, but not alike by both. */
  private blocksAtEnd(held: readonly HeldBlock[]): number {
    const { inUse, last, places, trace } = this
    const { bytes, freeRequestedAt } = trace.blocks
    let count = 0
    for (const block of held) {
      const index = places.at(block.address)
      if (block.bytes === 0 || index < 0) continue
      const number = last[index]
      const hasSize = block.isRounded ? bytes[number] <= block.bytes : bytes[number] === block.bytes
      const isAlike = inUse.has(index) && hasSize && (freeRequestedAt[number] !== NEVER) === block.pending
      if (!isAlike) count++
      inUse.delete(index)
    }
    for (let index = inUse.from(0); index >= 0; index = inUse.from(index + 1)) count++
    return count
  }
}

/** How many segments two lists by rising address have in common. */
function alike(left: readonly Segment[], right: readonly Segment[]): number {
  let count = 0
  let next = 0
  for (const { address, bytes } of left) {
    while (next < right.length && right[next].address < address) next++
    if (next < right.length && right[next].address === address && right[next].bytes === bytes) count++
  }
  return count
}
