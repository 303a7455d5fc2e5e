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
 * backwards. Other events change nothing.
 */
export class ReservedSegments {
  private readonly plain = new Map<number, Segment>()
  /** mapped ranges of expandable segments; no two overlap or touch within a stream and pool */
  private mapped: Segment[] = []

  constructor(segments: Iterable<Segment> = []) {
    for (const segment of segments) this.add(segment)
  }

  /** All segments by rising address. */
  list(): Segment[] {
    return [...this.plain.values(), ...this.mapped].sort((a, b) => a.address - b.address)
  }

  apply(action: number, address: number, bytes: number, stream: number, pool = 0): void {
    if (action === Action.segmentAlloc) this.add({ address, bytes, stream, expandable: false, pool })
    else if (action === Action.segmentFree) this.plain.delete(address)
    else if (action === Action.segmentMap) this.add({ address, bytes, stream, expandable: true, pool })
    else if (action === Action.segmentUnmap) this.unmap(address, bytes)
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

  private add(segment: Segment): void {
    if (!segment.expandable) {
      this.plain.set(segment.address, segment)
      return
    }
    let { address, bytes } = segment
    const apart = this.mapped.filter(other => {
      if (other.stream !== segment.stream || other.pool !== segment.pool) return true
      if (other.address + other.bytes === address) address = other.address
      else if (other.address !== address + bytes) return true
      bytes += other.bytes
      return false
    })
    this.mapped = [...apart, { ...segment, address, bytes }]
  }

  /** Removes `bytes` from `address` on from the mapped ranges. */
  private unmap(address: number, bytes: number): void {
    const end = address + bytes
    this.mapped = this.mapped.flatMap(range => {
      const rangeEnd = range.address + range.bytes
      if (rangeEnd <= address || range.address >= end) return [range]
      const left = { ...range, bytes: address - range.address }
      const right = { ...range, address: end, bytes: rangeEnd - end }
      return [left, right].filter(part => part.bytes > 0)
    })
  }
}
