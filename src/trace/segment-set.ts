import type { Segment } from './trace.js'

/**
 * What is obtained from the device at one moment, changed by segment events. Going backwards through a trace undoes an
 * allocation by `free` and a mapping by `unmap`, which is how the state before the first event is found.
 */
export class SegmentSet {
  private readonly plain = new Map<number, Segment>()
  /** mapped ranges of expandable segments, apart from each other */
  private mapped: Segment[] = []

  constructor(segments: Iterable<Segment> = []) {
    for (const segment of segments) this.add(segment)
  }

  /** All segments by rising address. */
  list(): Segment[] {
    return [...this.plain.values(), ...this.mapped].sort((a, b) => a.address - b.address)
  }

  add(segment: Segment): void {
    if (!segment.expandable) {
      this.plain.set(segment.address, segment)
      return
    }
    let { address, bytes } = segment
    const apart = this.mapped.filter(other => {
      if (other.stream !== segment.stream) return true
      if (other.address + other.bytes === address) address = other.address
      else if (other.address !== address + bytes) return true
      bytes += other.bytes
      return false
    })
    this.mapped = [...apart, { ...segment, address, bytes }]
  }

  /** Takes away the plain segment at `address`; one that is not there is none of ours. */
  free(address: number): void {
    this.plain.delete(address)
  }

  /** Takes `bytes` from `address` on out of the mapped ranges. */
  unmap(address: number, bytes: number): void {
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
