// The placement policy of PyTorch's CUDA caching allocator with its default settings, as a baseline. It decides where
// each block goes and when memory is obtained, and makes no driver call. The notes of c10/cuda/CUDACachingAllocator
// describe it. The model is right if it puts every block of a recording at PyTorch's own address;
// `PytorchResult.placement` counts these blocks.
//
// Sizes are rounded to 512 bytes. Blocks up to 1 MiB and larger blocks come from separate segments, and each stream
// has its own segments. A request takes the smallest free block that fits, at the lowest address. The rest of the
// block stays free if it is large enough; free neighbours merge. If no block fits, a new segment is obtained.

import { MiB } from '../../base/bytes.js'

const ROUNDING_BYTES = 512
const MOST_SMALL_BYTES = MiB
const SMALL_SEGMENT_BYTES = 2 * MiB
const LARGE_SEGMENT_BYTES = 20 * MiB
/** From this size on a segment serves one request, rounded up to 2 MiB. */
const LEAST_OWN_SEGMENT_BYTES = 10 * MiB
const OWN_SEGMENT_ROUNDING_BYTES = 2 * MiB
/** The address of segments that no recording places: above every address of a GPU. */
const FIRST_SYNTHETIC_BASE = 2 ** 52

/**
 * The bytes that PyTorch reserves for a request. With `divisions` (its roundup_power2_divisions, a power of two),
 * requests above 512 × divisions are rounded up to one of `divisions` equal steps between powers of two.
 */
export function roundPytorchBytes(bytes: number, divisions = 0): number {
  if (divisions > 1 && bytes > ROUNDING_BYTES * divisions) {
    return roundUp(bytes, 2 ** Math.floor(Math.log2(bytes)) / divisions)
  }
  return Math.max(ROUNDING_BYTES, roundUp(bytes, ROUNDING_BYTES))
}

/** The bytes that PyTorch obtains from the device when no free block fits a request of `rounded` bytes. */
export function pytorchSegmentBytes(rounded: number): number {
  if (rounded <= MOST_SMALL_BYTES) return SMALL_SEGMENT_BYTES
  if (rounded < LEAST_OWN_SEGMENT_BYTES) return LARGE_SEGMENT_BYTES
  return roundUp(rounded, OWN_SEGMENT_ROUNDING_BYTES)
}

/** A part of a segment, in use or free. */
export interface PolicyBlock {
  readonly address: number
  readonly bytes: number
  readonly stream: number
}

/** A block that was in use before the policy began; bytes as requested. */
export interface UsedRange {
  readonly address: number
  readonly bytes: number
}

class Block implements PolicyBlock {
  free = false
  previous: Block | null = null
  next: Block | null = null

  constructor(
    public address: number,
    public bytes: number,
    readonly stream: number,
    readonly small: boolean,
  ) {}
}

export interface PolicyOptions {
  /** the most bytes to obtain from the device; default no limit */
  readonly capacityBytes?: number
  readonly divisions?: number
}

export class PytorchPolicy {
  reservedBytes = 0
  peakReservedBytes = 0
  segmentsObtained = 0
  segmentsReturned = 0
  /** free blocks by size, then address, for each stream: one list for small and one for large blocks */
  private readonly free: Block[][] = []
  /** the first block of each segment, by the segment's base */
  private readonly segments = new Map<number, Block>()
  private nextSyntheticBase = FIRST_SYNTHETIC_BASE
  private readonly capacityBytes: number
  private readonly divisions: number

  constructor({ capacityBytes = Infinity, divisions = 0 }: PolicyOptions = {}) {
    this.capacityBytes = capacityBytes
    this.divisions = divisions
  }

  /**
   * A block of at least `bytes` for stream number `stream`, or null when the capacity is spent. `baseFor` may return
   * the address of a new segment of the given size; undefined leaves the address to the policy.
   */
  allocate(bytes: number, stream: number, baseFor?: (segmentBytes: number) => number | undefined): PolicyBlock | null {
    const rounded = roundPytorchBytes(bytes, this.divisions)
    const small = rounded <= MOST_SMALL_BYTES
    let block = this.takeFree(rounded, stream, small)
    if (block === null) {
      const segmentBytes = pytorchSegmentBytes(rounded)
      if (this.reservedBytes + segmentBytes > this.capacityBytes) this.releaseFreeSegments()
      if (this.reservedBytes + segmentBytes > this.capacityBytes) return null
      block = this.addSegment(baseFor?.(segmentBytes) ?? this.syntheticBase(segmentBytes), segmentBytes, stream, small)
    }
    this.split(block, rounded)
    return block
  }

  /** Takes back a block that no stream uses. */
  release(block: PolicyBlock): void {
    const own = block as Block
    for (const neighbour of [own.previous, own.next]) if (neighbour?.free) this.merge(own, neighbour)
    this.putFree(own)
  }

  /**
   * Adds a segment that existed before the policy began, with its blocks in use by rising address. Returns these
   * blocks. Memory between them is free, or belongs to the block below if the policy would not have split it off.
   */
  adoptSegment(base: number, bytes: number, stream: number, used: readonly UsedRange[]): PolicyBlock[] {
    const small = bytes <= SMALL_SEGMENT_BYTES
    const end = base + bytes
    const blocks: PolicyBlock[] = []
    let last: Block | null = null
    let cursor = base
    const append = (to: number, free: boolean) => {
      const block = new Block(cursor, to - cursor, stream, small)
      block.previous = last
      if (last === null) this.segments.set(base, block)
      else last.next = block
      if (free) this.putFree(block)
      last = block
      cursor = to
      return block
    }
    used.forEach(({ address, bytes: requested }, i) => {
      if (address > cursor) append(address, true)
      const limit = used[i + 1]?.address ?? end
      const rounded = roundPytorchBytes(requested, this.divisions)
      blocks.push(append(worthSplitting(limit - address - rounded, small) ? address + rounded : limit, false))
    })
    if (cursor < end) append(end, true)
    this.countReserved(bytes)
    return blocks
  }

  /** Gives the segment at `base` back to the device if all of it is free; returns whether it did. */
  releaseSegment(base: number): boolean {
    const block = this.segments.get(base)
    if (block === undefined || !block.free || block.next !== null) return false
    this.dropFree(block)
    this.segments.delete(base)
    this.reservedBytes -= block.bytes
    this.segmentsReturned++
    return true
  }

  /** Gives back every segment that is entirely free. */
  releaseFreeSegments(): void {
    for (const base of this.segments.keys()) this.releaseSegment(base)
  }

  private addSegment(base: number, bytes: number, stream: number, small: boolean): Block {
    const block = new Block(base, bytes, stream, small)
    this.segments.set(base, block)
    this.segmentsObtained++
    this.countReserved(bytes)
    return block
  }

  private countReserved(bytes: number): void {
    this.reservedBytes += bytes
    this.peakReservedBytes = Math.max(this.peakReservedBytes, this.reservedBytes)
  }

  private syntheticBase(bytes: number): number {
    const base = this.nextSyntheticBase
    this.nextSyntheticBase += bytes
    return base
  }

  /** Shortens `block` to `bytes` and frees the rest, if the rest is large enough. */
  private split(block: Block, bytes: number): void {
    if (!worthSplitting(block.bytes - bytes, block.small)) return
    const rest = new Block(block.address + bytes, block.bytes - bytes, block.stream, block.small)
    rest.previous = block
    rest.next = block.next
    if (rest.next !== null) rest.next.previous = rest
    block.next = rest
    block.bytes = bytes
    this.putFree(rest)
  }

  /** Merges the free `neighbour` into `block`. */
  private merge(block: Block, neighbour: Block): void {
    this.dropFree(neighbour)
    block.bytes += neighbour.bytes
    if (neighbour === block.next) {
      block.next = neighbour.next
      if (block.next !== null) block.next.previous = block
    } else {
      block.address = neighbour.address
      block.previous = neighbour.previous
      if (block.previous !== null) block.previous.next = block
      else this.segments.set(block.address, block)
    }
  }

  private takeFree(bytes: number, stream: number, small: boolean): Block | null {
    const list = this.freeList(stream, small)
    const found = lowerBound(list, bytes, 0)
    if (found === list.length) return null
    const [block] = list.splice(found, 1)
    block.free = false
    return block
  }

  private putFree(block: Block): void {
    const list = this.freeList(block.stream, block.small)
    list.splice(lowerBound(list, block.bytes, block.address), 0, block)
    block.free = true
  }

  private dropFree(block: Block): void {
    const list = this.freeList(block.stream, block.small)
    list.splice(lowerBound(list, block.bytes, block.address), 1)
    block.free = false
  }

  private freeList(stream: number, small: boolean): Block[] {
    const index = 2 * stream + (small ? 1 : 0)
    while (this.free.length <= index) this.free.push([])
    return this.free[index]
  }
}

function worthSplitting(restBytes: number, small: boolean): boolean {
  return small ? restBytes >= ROUNDING_BYTES : restBytes > MOST_SMALL_BYTES
}

/**
 * The index of the first block in `list` that is not before (`bytes`, `address`), in the order of size, then address.
 */
function lowerBound(list: readonly Block[], bytes: number, address: number): number {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const block = list[middle]
    if (block.bytes < bytes || (block.bytes === bytes && block.address < address)) low = middle + 1
    else high = middle
  }
  return low
}

function roundUp(bytes: number, step: number): number {
  return Math.ceil(bytes / step) * step
}
