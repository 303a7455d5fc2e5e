import { DisjointRanges } from './placements/disjoint-ranges.js'
import { Action, type Segment, type Trace } from './trace.js'

const OPPOSITE: Readonly<Record<number, number>> = {
  [Action.segmentAlloc]: Action.segmentFree,
  [Action.segmentFree]: Action.segmentAlloc,
  [Action.segmentMap]: Action.segmentUnmap,
  [Action.segmentUnmap]: Action.segmentMap,
}

/** Whether a trace says when memory was taken from the device. Some recordings have only the peak of it. */
export function hasSegments({ initialSegments, action }: Trace): boolean {
  return initialSegments.length > 0 || action.includes(Action.segmentAlloc) || action.includes(Action.segmentMap)
}

/**
 * The segments at one moment. Segment events change it forwards or, to find the state before a trace began,
 * backwards. Other events change nothing. Where a contradictory recording has two segments at one address, the later
 * event counts.
 */
export class ReservedSegments {
  /** no two mapped ranges of a stream and pool touch */
  private readonly ranges = new DisjointRanges<Segment>((segment, from, to) => ({
    ...segment,
    address: from,
    bytes: to - from,
  }))

  /** how many of the first segments lay over others before them */
  readonly overlapping: number

  constructor(segments: Iterable<Segment> = []) {
    let overlapping = 0
    for (const segment of segments) {
      if (this.overlaps(segment.address, segment.address + segment.bytes)) overlapping++
      this.add(segment)
    }
    this.overlapping = overlapping
  }

  /** All segments by rising address. */
  list(): Segment[] {
    return this.ranges.all()
  }

  apply(action: number, address: number, bytes: number, stream: number, pool = 0): void {
    if (action === Action.segmentAlloc) this.add({ address, bytes, stream, expandable: false, pool })
    else if (action === Action.segmentFree) this.free(address)
    else if (action === Action.segmentMap) this.add({ address, bytes, stream, expandable: true, pool })
    else if (action === Action.segmentUnmap) this.ranges.take(address, address + bytes)
  }

  /** Applies the events of a trace from `from` to before `end`. */
  applyEvents({ action, address, bytes, stream, pool }: Trace, from: number, end: number): void {
    for (let event = from; event < end; event++) {
      this.apply(action[event], address[event], bytes[event], stream[event], pool[event])
    }
  }

  undo(action: number, address: number, bytes: number, stream: number, pool = 0): void {
    this.apply(OPPOSITE[action] ?? action, address, bytes, stream, pool)
  }

  /** Whether any memory between two addresses is in a segment. */
  overlaps(from: number, to: number): boolean {
    return this.ranges.overlaps(from, to)
  }

  /** Whether all memory between two addresses is in one segment. */
  covers(from: number, to: number): boolean {
    const found = this.ranges.endingAbove(from)
    return found !== undefined && found.address <= from && to <= found.address + found.bytes
  }

  private free(address: number): void {
    const found = this.ranges.endingAbove(address)
    if (found?.address === address && !found.expandable) this.ranges.take(address, address + found.bytes)
  }

  private add(segment: Segment): void {
    this.ranges.add(segment.expandable ? this.joined(segment) : segment)
  }

  /** A mapped range together with its neighbours, after others have lost its addresses. */
  private joined(segment: Segment): Segment {
    const { ranges } = this
    let { address, bytes } = segment
    ranges.take(address, address + bytes)
    for (const other of [ranges.endingAbove(address - 1), ranges.endingAbove(address + bytes)]) {
      if (other === undefined || !other.expandable) continue
      if (other.stream !== segment.stream || other.pool !== segment.pool) continue
      if (other.address + other.bytes === address) address = other.address
      else if (other.address !== address + bytes) continue
      bytes += other.bytes
    }
    return { ...segment, address, bytes }
  }
}
