// Makes a Trace from events that arrive one by one, from a reader of a foreign format or from the recorder. Events go
// into columns that grow; one pass at the end finds the block of each event. A trace may be the end of a longer
// recording. So it may free a block that it did not allocate: such a block counts as live from the start.

import { FormatError } from '../../core/base/errors.js'
import { type AnnotationMark, annotationsOf } from './columns/annotations.js'
import { contradictionsOf } from './columns/contradictions.js'
import { EventColumns } from './columns/event-columns.js'
import { placeInPools } from './columns/private-pools.js'
import { AddressPlaces, firstRepeated } from './placements/address-places.js'
import { ReservedSegments } from './reserved-segments.js'
import { Action, BEFORE, type Blocks, NEVER, type OtherDevice, type Segment, type Trace } from './trace.js'

/** The memory at the end of a recording; streams by handle. */
export interface FinalState {
  readonly segments: readonly FinalSegment[]
  readonly blocks: readonly FinalBlock[]
  /** how many of the segments have other sums than their blocks; left out for none */
  readonly wrongSums?: number
}

export interface FinalSegment {
  readonly address: number
  readonly bytes: number
  readonly stream: number
  readonly expandable: boolean
  /** a number of `TraceBuilder.pools`; default the default pool */
  readonly pool?: number
}

export interface FinalBlock {
  readonly address: number
  /** as requested */
  readonly bytes: number
  /** whether `bytes` are those of the block, since the requested ones are unknown; default false */
  readonly isRounded?: boolean
  /** the size of the block, if known */
  readonly grantedBytes?: number
  readonly stream: number
  /** a number of `TraceBuilder.pools`; left out, that of its segment */
  readonly pool?: number
  /** freed by the program, but still in use by a stream */
  readonly pending: boolean
  /** a number of `TraceBuilder.stacks`: the call stack of its allocation, if known */
  readonly stack?: number
  readonly metadata?: string
  readonly tag?: string
}

export interface TraceOrigin {
  readonly file: string
  readonly device?: number
  readonly skippedEvents?: number
  readonly otherDevices?: readonly OtherDevice[]
  readonly recorder?: Trace['recorder']
  readonly settings?: string | null
  /** most bytes taken from the device at once, for a recording that has them without segments */
  readonly peakReservedBytes?: number
  /** whether it says when frees complete, if that is known; left out, the events and `final` tell */
  readonly saysCompleted?: boolean
  /** null if the recording does not contain it; the trace then starts with the blocks that it frees */
  readonly final?: FinalState | null
  /** the blocks from before the first event, if they are known; the events need not free them */
  readonly before?: readonly FinalBlock[]
  readonly annotations?: readonly AnnotationMark[]
  /** events that the recording lost; null, the default, if it does not tell */
  readonly dropped?: number | null
}

const NO_BLOCK = -1
/** No block is at this place now. */
const GONE = -1

export class TraceBuilder extends EventColumns {
  /** A builder with the events from `from` to `end - 1` only, which shares their memory. */
  part(from: number, end: number): TraceBuilder {
    const part = new TraceBuilder(this.stacks, this.pools, this.metadata, this.tags, this.categories)
    this.excerpt(part, from, end)
    return part
  }

  /** The trace of all events so far. Throws FormatError naming an event that contradicts earlier ones. */
  build(origin: TraceOrigin): Trace {
    const { file, device = 0, skippedEvents = 0, otherDevices = [], recorder = 'PyTorch', settings = null } = origin
    const { final = null, before = [], annotations = [], dropped = null } = origin
    const { events } = this
    const streams = new TraceStreams()
    const stream = new Uint32Array(events)
    for (let event = 0; event < events; event++) stream[event] = streams.of(this.stream[event])
    const eventStreams = streams.handles.length
    const { block, blocks } = this.findBlocks(streams, stream, final, before)
    const finalSegments = (final?.segments ?? []).map(({ address, bytes, stream, expandable, pool = 0 }) => {
      return { address, bytes, stream: streams.of(stream), expandable, pool }
    })
    const segments = new ReservedSegments(finalSegments)
    const segmentsAtEnd = segments.list()
    if (final !== null) this.undoSegments(segments, stream)
    const initialSegments = segments.list()
    placeInPools(blocks, this, final?.segments ?? [])
    const timeUs = this.timeUs.subarray(0, events)
    const peaks = this.peaksRequested(block, blocks)
    const recordedPeakReservedBytes = origin.peakReservedBytes ?? this.peakReserved(initialSegments, final)
    if (Math.max(peaks.served, recordedPeakReservedBytes ?? 0) > Number.MAX_SAFE_INTEGER) {
      throw new FormatError('has more than 2^53 bytes in use at once, so its sizes are damaged')
    }
    const columns = {
      events,
      action: this.action.subarray(0, events),
      address: this.address.subarray(0, events),
      bytes: this.bytes.subarray(0, events),
      stream,
      block,
      pool: this.poolsOf(block, blocks),
      blocks,
      saysCompleted: origin.saysCompleted === true || this.saysCompleted(final),
      initialSegments,
    }
    return {
      ...columns,
      file,
      device,
      otherDevices,
      recorder,
      settings,
      skippedEvents,
      dropped,
      complete: blocks.initial === 0,
      timesGoBack: timesBack(timeUs),
      contradictions: contradictionsOf(columns, { final, segments, segmentsAtEnd, namesBefore: before.length > 0 }),
      timeUs,
      stack: this.stack.subarray(0, events),
      stacks: this.stacks.callStacks(),
      pools: this.pools.names,
      metadata: this.metadata.names,
      tags: this.tags.names,
      categories: this.categories.names,
      annotations: annotationsOf(annotations, timeUs),
      streams: streams.handles,
      eventStreams,
      allocations: blocks.count - blocks.initial,
      // The clock may go back, so the last event need not be the latest.
      spanSeconds: events === 0 ? 0 : (timeUs.reduce((latest, us) => Math.max(latest, us)) - timeUs[0]) / 1e6,
      peakRequestedBytes: peaks.served,
      peakWithFailedBytes: peaks.withFailed,
      recordedPeakReservedBytes,
    }
  }

  /** A window may have no completed free, and yet show that its recorder tells what a stream still uses. */
  private saysCompleted(final: FinalState | null): boolean {
    const completes = this.action.subarray(0, this.events).includes(Action.freeCompleted)
    return completes || (final?.blocks.some(({ pending }) => pending) ?? false)
  }

  /** The block of each event, and all blocks. */
  private findBlocks(
    streams: TraceStreams,
    stream: Uint32Array,
    final: FinalState | null,
    before: readonly FinalBlock[],
  ) {
    const { places, named, block, orphans, allocations } = this.numberPlaces()
    const isNamed = (place: number) => place >= 0 && named[place] === 1
    const atEnd = final?.blocks ?? []
    // Where a recording has no segments, only `before` has the blocks that its events do not name.
    const untouched = lastAtEach([...before, ...atEnd]).filter(({ address }) => !isNamed(places.at(address)))
    const blocks = emptyBlocks(orphans.length + untouched.length, allocations)
    /** the block that is at each place now */
    const at = new Int32Array(places.addresses.length).fill(GONE)
    orphans.forEach((event, number) => {
      this.describeBlock(blocks, number, event, stream[event])
      if (this.action[event] === Action.freeCompleted) blocks.freeRequestedAt[number] = BEFORE
      at[block[event]] = number
    })
    untouched.forEach((each, i) => {
      const number = orphans.length + i
      blocks.address[number] = each.address
      blocks.bytes[number] = each.bytes
      blocks.stream[number] = streams.of(each.stream)
      blocks.pool[number] = each.pool ?? 0
      this.describeHeld(blocks, number, each)
      if (each.pending) blocks.freeRequestedAt[number] = BEFORE
    })
    const blockAt = (address: number) => at[places.at(address)] ?? GONE
    for (const each of before) {
      const number = blockAt(each.address)
      if (number === GONE) continue
      this.describeHeld(blocks, number, each)
      // Its free may name another stream, and no pool.
      blocks.stream[number] = streams.of(each.stream)
      blocks.pool[number] = each.pool ?? blocks.pool[number]
    }
    this.followEvents(blocks, block, at, stream)
    for (const each of atEnd) {
      const number = blockAt(each.address)
      if (number !== GONE) this.describeHeld(blocks, number, each)
    }
    return { block, blocks }
  }

  /** Numbers the addresses of blocks. `block` has the place of each event's block, NO_BLOCK for other events. */
  private numberPlaces() {
    const { events, action } = this
    const places = new AddressPlaces(this.address.subarray(0, events))
    /** by place: 1 if a block had it */
    const named = new Uint8Array(places.addresses.length)
    const block = new Int32Array(events).fill(NO_BLOCK)
    /** the first event of each block that no event allocates */
    const orphans: number[] = []
    let allocations = 0
    for (let event = 0; event < events; event++) {
      if (action[event] > Action.freeCompleted) continue
      const place = places.of[event]
      if (action[event] === Action.alloc) allocations++
      else if (named[place] === 0) orphans.push(event)
      named[place] = 1
      block[event] = place
    }
    return { places, named, block, orphans, allocations }
  }

  /** Describes the blocks that events allocate and free. In `block` their numbers replace their places. */
  private followEvents(blocks: WritableBlocks, block: Int32Array, at: Int32Array, stream: Uint32Array): void {
    const { events, action } = this
    let next = blocks.initial
    for (let event = 0; event < events; event++) {
      if (action[event] > Action.freeCompleted) continue
      const place = block[event]
      const held = at[place]
      if (action[event] === Action.alloc) {
        if (held !== GONE) this.endBlock(blocks, held, event)
        this.describeBlock(blocks, next, event, stream[event])
        blocks.allocatedAt[next] = event
        blocks.stack[next] = this.stack[event]
        this.describeAllocated(blocks, next, event)
        at[place] = block[event] = next++
      } else {
        if (held === GONE) throw this.contradiction(event, 'frees a block that is already free')
        block[event] = held
        if (action[event] === Action.freeRequested) this.requestFree(blocks, held, event)
        else {
          this.completeFree(blocks, held, event)
          at[place] = GONE
        }
      }
    }
  }

  private describeBlock(blocks: WritableBlocks, number: number, event: number, stream: number): void {
    blocks.address[number] = this.address[event]
    blocks.bytes[number] = this.bytes[event]
    blocks.stream[number] = stream
    blocks.pool[number] = this.poolOf(event)
  }

  private describeAllocated(blocks: WritableBlocks, number: number, event: number): void {
    if (this.metadatum !== null) blocks.metadata[number] = this.metadatum[event]
    if (this.tag !== null) blocks.tag[number] = this.tag[event]
    if (this.category !== null) blocks.category[number] = this.category[event]
    if (this.granted !== null) blocks.grantedBytes[number] = this.granted[event]
  }

  /** Adds to a block what the final state has and its alloc event has not. */
  private describeHeld(blocks: WritableBlocks, number: number, held: FinalBlock): void {
    blocks.grantedBytes[number] = held.grantedBytes ?? blocks.grantedBytes[number]
    blocks.stack[number] ||= held.stack ?? 0
    if (held.metadata !== undefined) blocks.metadata[number] ||= this.metadata.number(held.metadata)
    if (held.tag !== undefined) blocks.tag[number] ||= this.tags.number(held.tag)
  }

  private requestFree(blocks: WritableBlocks, number: number, event: number): void {
    if (blocks.freeRequestedAt[number] !== NEVER) throw this.contradiction(event, 'frees a block again')
    blocks.freeRequestedAt[number] = event
  }

  private completeFree(blocks: WritableBlocks, number: number, event: number): void {
    if (blocks.freeRequestedAt[number] === NEVER) {
      throw this.contradiction(event, 'completes a free that was never requested')
    }
    blocks.freeCompletedAt[number] = event
  }

  /** Ends a block whose address is handed out again: a recording without completed frees shows them like this. */
  private endBlock(blocks: WritableBlocks, number: number, event: number): void {
    if (blocks.freeRequestedAt[number] === NEVER)
      throw this.contradiction(event, 'allocates a block that is still live')
    blocks.freeCompletedAt[number] = event
  }

  private contradiction(event: number, what: string): FormatError {
    return new FormatError(`event ${event} ${what} (address 0x${this.address[event].toString(16)})`)
  }

  /** From the segments at the end of the recording to those before the first event. */
  private undoSegments(segments: ReservedSegments, stream: Uint32Array): void {
    for (let event = this.events - 1; event >= 0; event--) {
      segments.undo(this.action[event], this.address[event], this.bytes[event], stream[event], this.poolOf(event))
    }
  }

  /** By event: the pool of its block, of its segment or of the failed request. */
  private poolsOf(block: Int32Array, blocks: Blocks): Uint32Array {
    const pool = new Uint32Array(this.events)
    for (let event = 0; event < this.events; event++) {
      const number = block[event]
      pool[event] = number < 0 ? this.poolOf(event) : blocks.pool[number]
    }
    return pool
  }

  /** The most bytes live at once, of what was served, and with each failed request. */
  private peaksRequested(block: Int32Array, blocks: Blocks): { served: number; withFailed: number } {
    let live = 0
    for (let i = 0; i < blocks.initial; i++) if (blocks.freeRequestedAt[i] !== BEFORE) live += blocks.bytes[i]
    let served = live
    let withFailed = live
    for (let event = 0; event < this.events; event++) {
      const action = this.action[event]
      if (action === Action.alloc) {
        live += blocks.bytes[block[event]]
        if (live > served) served = live
      } else if (action === Action.freeRequested) live -= blocks.bytes[block[event]]
      else if (action === Action.outOfMemory) withFailed = Math.max(withFailed, live + this.bytes[event])
    }
    return { served, withFailed: Math.max(served, withFailed) }
  }

  private peakReserved(initialSegments: readonly Segment[], final: FinalState | null): number | null {
    let known = initialSegments.length > 0 || (final?.segments.length ?? 0) > 0
    let reserved = initialSegments.reduce((sum, segment) => sum + segment.bytes, 0)
    let peak = reserved
    for (let event = 0; event < this.events; event++) {
      const action = this.action[event]
      if (action < Action.segmentAlloc || action > Action.segmentUnmap) continue
      known = true
      const grows = action === Action.segmentAlloc || action === Action.segmentMap
      // A contradictory recording frees what it never had.
      reserved = Math.max(0, reserved + (grows ? this.bytes[event] : -this.bytes[event]))
      if (reserved > peak) peak = reserved
    }
    return known ? peak : null
  }
}

/** The last block of each address. */
function lastAtEach(blocks: readonly FinalBlock[]): readonly FinalBlock[] {
  if (firstRepeated(Float64Array.from(blocks.map(({ address }) => address))) < 0) return blocks
  return [...new Map(blocks.map(block => [block.address, block])).values()]
}

/** Numbers of stream handles, in the order of their first use. */
class TraceStreams {
  readonly handles: number[] = []
  private readonly numbers = new Map<number, number>()

  of(handle: number): number {
    let number = this.numbers.get(handle)
    if (number === undefined) {
      number = this.handles.push(handle) - 1
      this.numbers.set(handle, number)
    }
    return number
  }
}

type WritableBlocks = ReturnType<typeof emptyBlocks>

function emptyBlocks(initial: number, allocations: number) {
  const count = initial + allocations
  return {
    count,
    initial,
    bytes: new Float64Array(count),
    grantedBytes: new Float64Array(count).fill(Number.NaN),
    address: new Float64Array(count),
    stream: new Uint32Array(count),
    allocatedAt: new Int32Array(count).fill(BEFORE),
    freeRequestedAt: new Int32Array(count).fill(NEVER),
    freeCompletedAt: new Int32Array(count).fill(NEVER),
    stack: new Int32Array(count),
    pool: new Uint32Array(count),
    metadata: new Uint32Array(count),
    tag: new Uint32Array(count),
    category: new Uint32Array(count),
  } satisfies Blocks
}

function timesBack(timeUs: Float64Array): number {
  let count = 0
  for (let event = 1; event < timeUs.length; event++) if (timeUs[event] < timeUs[event - 1]) count++
  return count
}
