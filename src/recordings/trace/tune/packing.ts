// How little memory a recorded run needs if its whole future is known: the blocks are packed into one range of
// addresses by heuristics for dynamic storage allocation. The best result bounds from above what any allocator that
// does not move blocks could reach; the bytes live at the peak bound it from below.
//
// Small programs are packed again and again by squeaky wheel optimization (Joslin and Clements, 1999): blocks that end
// above the lower bound come earlier in the next order.

import { BestFitList } from '../../../core/base/best-fit-list.js'
import { firstIndex } from '../../../core/base/binary-search.js'
import { Random } from '../../../core/base/random.js'
import { failedEvents } from '../failures/out-of-memory.js'
import { NEVER, type Trace } from '../trace.js'

/** Blocks to pack: sizes, and the half-open range of time in which each is in use. */
export interface Lifetimes {
  readonly bytes: Float64Array
  readonly from: Float64Array
  readonly to: Float64Array
}

/** All sizes and addresses are multiples of this. */
const UNIT_BYTES = 512
/** Above this many blocks only the pass in the order of time is made: the others compare each block with many. */
const MOST_COMPARED = 25_000
/** Pairs of blocks that the other orders and all further rounds may compare, which takes about a second. */
const MOST_PAIRS = 2e8
const MOST_ROUNDS = 500
/** No better packing is searched than one so close to the lower bound. */
const CLOSE = 1 + 1 / 1024
/** A block above the bound moves forwards by so large a part of the order, at least and at most. */
const [LEAST_MOVE, MOST_MOVE] = [0.1, 0.5]

const packed = new WeakMap<Trace, number>()

/** The bytes of the best packing found of a trace's blocks and failed requests. */
export function packedBytesOf(trace: Trace): number {
  const bytes = packed.get(trace) ?? packedBytes(lifetimesOf(trace))
  packed.set(trace, bytes)
  return bytes
}

/** The blocks of a trace, and its failed requests as blocks that are freed at once. */
export function lifetimesOf(trace: Trace): Lifetimes {
  const { blocks, bytes } = trace
  const failed = failedEvents(trace)
  const count = blocks.count + failed.length
  const lifetimes = { bytes: new Float64Array(count), from: new Float64Array(count), to: new Float64Array(count) }
  for (let block = 0; block < blocks.count; block++) {
    lifetimes.bytes[block] = roundUp(blocks.bytes[block])
    lifetimes.from[block] = blocks.allocatedAt[block]
    lifetimes.to[block] = Math.min(blocks.freeCompletedAt[block], NEVER)
  }
  failed.forEach((event, i) => {
    lifetimes.bytes[blocks.count + i] = roundUp(bytes[event])
    lifetimes.from[blocks.count + i] = event
    lifetimes.to[blocks.count + i] = event + 0.5
  })
  return lifetimes
}

/** The most bytes in use at once: no packing needs less. */
export function lowerBoundBytes({ bytes, from, to }: Lifetimes): number {
  const rising = (times: Float64Array) =>
    Array.from({ length: bytes.length }, (_, i) => i).sort((a, b) => times[a] - times[b])
  const ends = rising(to)
  let [live, peak, ended] = [0, 0, 0]
  for (const block of rising(from)) {
    // A block that ends at a moment makes room for one that begins there.
    for (; ended < ends.length && to[ends[ended]] <= from[block]; ended++) live -= bytes[ends[ended]]
    live += bytes[block]
    peak = Math.max(peak, live)
  }
  return peak
}

/** The bytes of the best packing found. `packings` collects the addresses of each heuristic, for tests. */
export function packedBytes(lifetimes: Lifetimes, packings?: Float64Array[]): number {
  const { bytes, from, to } = lifetimes
  const count = bytes.length
  const area = (i: number) => bytes[i] * (to[i] - from[i])
  const orders: ((a: number, b: number) => number)[] = [(a, b) => from[a] - from[b] || bytes[b] - bytes[a]]
  if (count <= MOST_COMPARED) {
    orders.push((a, b) => bytes[b] - bytes[a] || to[b] - from[b] - (to[a] - from[a]))
    orders.push((a, b) => to[b] - from[b] - (to[a] - from[a]) || bytes[b] - bytes[a])
    orders.push((a, b) => area(b) - area(a))
  }
  const bound = lowerBoundBytes(lifetimes)
  const limit = { pairs: MOST_PAIRS }
  let best = Infinity
  for (const [index, order] of orders.entries()) {
    const sequence = Array.from({ length: count }, (_, i) => i).sort((a, b) => order(a, b) || a - b)
    const packing = index === 0 ? packInTime(lifetimes, sequence) : packLowest(lifetimes, sequence, limit)
    if (packing === null) return best
    packings?.push(packing)
    best = Math.min(best, heightOf(lifetimes, packing))
    if (best <= bound * CLOSE && packings === undefined) break
  }
  if (best > bound * CLOSE && count <= MOST_COMPARED) best = Math.min(best, improved(lifetimes, bound, limit, packings))
  return count === 0 ? 0 : best
}

/** The pairs of blocks that may still be compared. */
interface Limit {
  pairs: number
}

/** The bytes of the best packing of several rounds, each of which learns from the round before. */
function improved(lifetimes: Lifetimes, bound: number, limit: Limit, packings?: Float64Array[]): number {
  const { bytes } = lifetimes
  const count = bytes.length
  if (count ** 2 > MOST_PAIRS) return Infinity // to find the blocks beside each block would take too long
  const random = new Random(1)
  const crowds = mostBeside(lifetimes)
  let sequence = Array.from({ length: count }, (_, i) => i)
  sequence.sort((a, b) => crowds[b] - crowds[a] || bytes[b] - bytes[a] || a - b)
  const rank = new Float64Array(count)
  let best = Infinity
  for (let round = 0; round < MOST_ROUNDS && best > bound * CLOSE; round++) {
    const addresses = packLowest(lifetimes, sequence, limit)
    if (addresses === null) break
    packings?.push(addresses)
    const height = heightOf(lifetimes, addresses)
    best = Math.min(best, height)
    for (const [i, block] of sequence.entries()) {
      const above = Math.max(0, addresses[block] + bytes[block] - bound) / (height - bound)
      rank[block] = i - count * above * (LEAST_MOVE + (MOST_MOVE - LEAST_MOVE) * random.fraction())
    }
    sequence = sequence.toSorted((a, b) => rank[a] - rank[b])
  }
  return best
}

/** By block: the most bytes in use at once during its life. */
function mostBeside({ bytes, from, to }: Lifetimes): Float64Array {
  const times = [...new Set([...from, ...to])].sort((a, b) => a - b)
  const indexOf = new Map(times.map((time, index) => [time, index]))
  const live = new Float64Array(times.length)
  for (let block = 0; block < bytes.length; block++) {
    live[indexOf.get(from[block])!] += bytes[block]
    live[indexOf.get(to[block])!] -= bytes[block]
  }
  for (let i = 1; i < live.length; i++) live[i] += live[i - 1]
  return Float64Array.from(bytes, (_, block) =>
    live.subarray(indexOf.get(from[block])!, indexOf.get(to[block])!).reduce((most, each) => Math.max(most, each), 0),
  )
}

function heightOf({ bytes }: Lifetimes, addresses: Float64Array): number {
  return addresses.reduce((height, address, i) => Math.max(height, address + bytes[i]), 0)
}

/**
 * Puts each block, in the given order, at the lowest address where no block placed before is in its way. Null if that
 * compares too many pairs of blocks.
 */
function packLowest({ bytes, from, to }: Lifetimes, sequence: readonly number[], limit: Limit): Float64Array | null {
  const addresses = new Float64Array(bytes.length)
  // By rising address.
  const placed = new Int32Array(bytes.length)
  for (const [count, block] of sequence.entries()) {
    const [begin, end, size] = [from[block], to[block], bytes[block]]
    let address = 0
    let i = 0
    for (; i < count; i++) {
      const other = placed[i]
      const base = addresses[other]
      if (base >= address + size) break
      if (from[other] < end && begin < to[other]) address = Math.max(address, base + bytes[other])
    }
    limit.pairs -= i
    if (limit.pairs < 0) return null
    addresses[block] = address
    const place = firstIndex(count, i => addresses[placed[i]] >= address)
    placed.copyWithin(place + 1, place, count)
    placed[place] = block
  }
  return addresses
}

/** Puts each block, in the order of time, into the smallest hole of one range that fits, at its lowest address. */
function packInTime({ bytes, from, to }: Lifetimes, sequence: readonly number[]): Float64Array {
  const addresses = new Float64Array(bytes.length)
  const ends = [...sequence].sort((a, b) => to[a] - to[b])
  const holes = new Holes()
  let ended = 0
  for (const block of sequence) {
    for (; ended < ends.length && to[ends[ended]] <= from[block]; ended++) {
      holes.add(addresses[ends[ended]], bytes[ends[ended]])
    }
    addresses[block] = holes.take(bytes[block])
  }
  return addresses
}

interface Hole {
  readonly address: number
  readonly bytes: number
}

/** The holes between blocks of one range, and all above its top. */
class Holes {
  private readonly bySize = new BestFitList<Hole>()
  private readonly byStart = new Map<number, Hole>()
  private readonly byEnd = new Map<number, Hole>()
  private top = 0

  /** The address of `bytes` in the smallest hole that fits. */
  take(bytes: number): number {
    const hole = this.bySize.smallest(bytes)
    if (hole === null) {
      this.top += bytes
      return this.top - bytes
    }
    this.remove(hole)
    if (hole.bytes > bytes) this.insert({ address: hole.address + bytes, bytes: hole.bytes - bytes })
    return hole.address
  }

  /** Makes a hole, as one with those beside it. */
  add(address: number, bytes: number): void {
    const [below, above] = [this.byEnd.get(address), this.byStart.get(address + bytes)]
    for (const beside of [below, above]) if (beside !== undefined) this.remove(beside)
    const start = below?.address ?? address
    const end = address + bytes + (above?.bytes ?? 0)
    if (end === this.top) this.top = start
    else this.insert({ address: start, bytes: end - start })
  }

  private insert(hole: Hole): void {
    this.bySize.insert(hole)
    this.byStart.set(hole.address, hole)
    this.byEnd.set(hole.address + hole.bytes, hole)
  }

  private remove(hole: Hole): void {
    this.bySize.remove(hole)
    this.byStart.delete(hole.address)
    this.byEnd.delete(hole.address + hole.bytes)
  }
}

function roundUp(bytes: number): number {
  return Math.max(UNIT_BYTES, Math.ceil(bytes / UNIT_BYTES) * UNIT_BYTES)
}
