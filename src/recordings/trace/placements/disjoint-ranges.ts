import { SortedList } from '../../../core/base/sorted-list.js'

interface AddressRange {
  readonly address: number
  readonly bytes: number
}

/** Ranges of addresses that do not overlap. */
export class DisjointRanges<Range extends AddressRange> {
  private readonly ranges = new SortedList<Range>()

  /** `cut` makes the part of a range between two addresses. */
  constructor(private readonly cut: (range: Range, from: number, to: number) => Range) {}

  /** All ranges by rising address. */
  all(): Range[] {
    return [...this.ranges]
  }

  /** Adds a range; other ranges lose its addresses. */
  add(range: Range): void {
    if (this.overlaps(range.address, endOf(range))) this.take(range.address, endOf(range))
    if (range.bytes > 0) this.ranges.insert(range, range.address)
  }

  /** Removes what lies between two addresses, and returns it by rising address. */
  take(from: number, to: number): Range[] {
    const taken: Range[] = []
    for (let range = this.endingAbove(from); range !== undefined && range.address < to && from < to; ) {
      taken.push(range)
      this.ranges.remove(range, range.address)
      range = this.endingAbove(from)
    }
    return taken.map(range => {
      const [start, end] = [Math.max(from, range.address), Math.min(to, endOf(range))]
      if (range.address < start) this.ranges.insert(this.cut(range, range.address, start), range.address)
      if (endOf(range) > end) this.ranges.insert(this.cut(range, end, endOf(range)), end)
      return this.cut(range, start, end)
    })
  }

  overlaps(from: number, to: number): boolean {
    return from < to && (this.endingAbove(from)?.address ?? Infinity) < to
  }

  /** The first range that ends above an address. */
  endingAbove(address: number): Range | undefined {
    const below = this.ranges.before(address)
    return below !== undefined && endOf(below) > address ? below : this.ranges.from(address)
  }
}

function endOf({ address, bytes }: AddressRange): number {
  return address + bytes
}
