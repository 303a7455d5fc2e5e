// Where a policy placed the blocks of a trace, and which memory existed when.

import { BEFORE, NEVER, type Trace } from '../trace.js'
import { DisjointRanges } from './disjoint-ranges.js'

/**
 * Rectangles of addresses and events: memory existed at the addresses `address[i]` to `address[i] + bytes[i]` from
 * event `from[i]` on, until event `to[i]`. Two rectangles of equal `memory` show the same memory at two places, as the
 * views of a caching pool do.
 */
export interface ExistenceRanges {
  /** how many there are */
  readonly count: number
  /** device address */
  readonly address: Float64Array
  /** size in bytes */
  readonly bytes: Float64Array
  /** the position of its first byte among all memory that the policy took, in bytes */
  readonly memory: Float64Array
  /** number of the event that mapped it, or BEFORE */
  readonly from: Int32Array
  /** number of the event that unmapped it, or NEVER */
  readonly to: Int32Array
}

/** Where a policy placed the blocks of a trace, once through it. */
export interface Placements {
  /** by block: its address, NaN if the policy could not serve it; null for a policy whose addresses mean nothing */
  readonly address: Float64Array | null
  /** the memory that existed, by rising `from` and address; null if unknown */
  readonly ranges: ExistenceRanges | null
  /** by event: bytes taken from the device after it; null if unknown */
  readonly reservedBytes: Float64Array | null
}

/** Told by a policy which addresses get memory, and which lose it. */
export interface MemoryWatcher {
  /** `memory` is the position of its first byte among all memory; left out, it is new memory */
  mapped(address: number, bytes: number, memory?: number): void
  unmapped(address: number, bytes: number): void
}

interface Range {
  address: number
  bytes: number
  memory: number
  from: number
  to: number
}

/** Collects placements while a policy goes through a trace for the first time. */
export class PlacementCollector implements MemoryWatcher {
  private readonly address: Float64Array
  private readonly reservedBytes: Float64Array
  /** the event that is being replayed */
  private now = BEFORE
  private readonly open = new DisjointRanges<Range>(cut)
  private readonly ended: Range[] = []
  private newMemory = 0
  private readonly events: number

  constructor({ events, blocks }: Pick<Trace, 'events' | 'blocks'>) {
    this.events = events
    this.address = new Float64Array(blocks.count).fill(Number.NaN)
    this.reservedBytes = new Float64Array(events)
  }

  /** Notes where a block is. */
  place(block: number, address: number): void {
    if (this.isCollecting) this.address[block] = address
  }

  /** Notes the reserved bytes after an event. */
  after(event: number, reservedBytes: number): void {
    if (!this.isCollecting) return
    this.reservedBytes[event] = reservedBytes
    this.now = event + 1
  }

  mapped(address: number, bytes: number, memory = this.take(bytes)): void {
    if (!this.isCollecting) return
    this.unmapped(address, bytes)
    this.open.add({ address, bytes, memory, from: this.now, to: NEVER })
  }

  unmapped(address: number, bytes: number): void {
    if (!this.isCollecting) return
    for (const range of this.open.take(address, address + bytes)) {
      if (range.from < this.now) this.ended.push({ ...range, to: this.now })
    }
  }

  /** The position of new memory among all memory. */
  take(bytes: number): number {
    const memory = this.newMemory
    this.newMemory += bytes
    return memory
  }

  /** Observes a pass; `addressOf` is that of a block's memory. */
  observer<Held>(addressOf: (held: Held) => number, reservedBytes: () => number) {
    return {
      allocated: (block: number, held: Held) => this.place(block, addressOf(held)),
      event: (event: number) => this.after(event, reservedBytes()),
    }
  }

  placements(): Placements {
    return {
      address: this.address,
      ranges: columnsOf(joined([...this.ended, ...this.open.all()])),
      reservedBytes: this.reservedBytes,
    }
  }

  private get isCollecting(): boolean {
    return this.now < this.events
  }
}

/** The part of a range between two addresses. */
function cut(range: Range, from: number, to: number): Range {
  return { ...range, address: from, bytes: to - from, memory: range.memory + from - range.address }
}

/** The ranges in order, with neighbours of equal events and neighbouring memory as one. */
function joined(ranges: Range[]): Range[] {
  ranges.sort((a, b) => a.from - b.from || a.to - b.to || a.address - b.address)
  const found: Range[] = []
  for (const range of ranges) {
    const last = found.at(-1)
    const isNext =
      last !== undefined &&
      last.from === range.from &&
      last.to === range.to &&
      last.address + last.bytes === range.address &&
      last.memory + last.bytes === range.memory
    if (isNext) last.bytes += range.bytes
    else found.push({ ...range })
  }
  return found.sort((a, b) => a.from - b.from || a.address - b.address)
}

function columnsOf(ranges: readonly Range[]): ExistenceRanges {
  return {
    count: ranges.length,
    address: Float64Array.from(ranges, range => range.address),
    bytes: Float64Array.from(ranges, range => range.bytes),
    memory: Float64Array.from(ranges, range => range.memory),
    from: Int32Array.from(ranges, range => range.from),
    to: Int32Array.from(ranges, range => range.to),
  }
}
