// The placement policy of PyTorch's CUDA caching allocator with its default settings, as a baseline. It decides where
// each block goes and when memory is obtained, and makes no driver call. The notes of c10/cuda/CUDACachingAllocator
// describe it. The model is right if it puts every block of a recording at PyTorch's own address;
// `PytorchResult.placement` counts these blocks.
//
// Sizes are rounded to 512 bytes. Blocks up to 1 MiB and larger blocks come from separate segments, and each stream
// has its own segments. A request takes the smallest free block that fits, at the lowest address. The rest of the
// block stays free if it is large enough; free neighbours merge. If no block fits, a new segment is obtained.

import { MiB } from '../../base/bytes.js'
import { DriverTally } from './driver-tally.js'
import {
  type BaseFor,
  Block,
  type BlockPool,
  MOST_SMALL_BYTES,
  type PlacementPolicy,
  type PolicyBlock,
  ROUNDING_BYTES,
  roundPytorchBytes,
  roundUp,
  type UsedRange,
} from './policy-blocks.js'
import { PolicyMemory } from './policy-memory.js'

const SMALL_SEGMENT_BYTES = 2 * MiB
const LARGE_SEGMENT_BYTES = 20 * MiB
/** From this size on a segment serves one request, rounded up to 2 MiB. */
const LEAST_OWN_SEGMENT_BYTES = 10 * MiB
const OWN_SEGMENT_ROUNDING_BYTES = 2 * MiB

/** The bytes that PyTorch obtains from the device when no free block fits a request of `rounded` bytes. */
export function pytorchSegmentBytes(rounded: number): number {
  if (rounded <= MOST_SMALL_BYTES) return SMALL_SEGMENT_BYTES
  if (rounded < LEAST_OWN_SEGMENT_BYTES) return LARGE_SEGMENT_BYTES
  return roundUp(rounded, OWN_SEGMENT_ROUNDING_BYTES)
}

/** The most bytes that stay with a large block, because they are too few to split off. */
export const MOST_UNSPLIT_BYTES = MOST_SMALL_BYTES

/** Whether the policy splits `restBytes` off a block, so that another request may have them. */
export function worthSplitting(restBytes: number, small: boolean): boolean {
  return small ? restBytes >= ROUNDING_BYTES : restBytes > MOST_UNSPLIT_BYTES
}

/** Whether the blocks of a segment are small ones. */
export function isSmallSegment(bytes: number): boolean {
  return bytes <= SMALL_SEGMENT_BYTES
}

interface PolicyOptions {
  /** the most bytes to obtain from the device; default no limit */
  readonly capacityBytes?: number
  readonly divisions?: number
}

export class PytorchPolicy extends PolicyMemory implements PlacementPolicy {
  readonly driver = new DriverTally('cuMemAlloc', 'cuMemFree')
  /** the first block of each segment, by the segment's base */
  private readonly segments = new Map<number, Block>()
  /** the most bytes of blocks from before, if their size is not certain */
  private readonly mostBytes = new Map<Block, number>()
  private readonly capacityBytes: number
  private readonly divisions: number

  constructor({ capacityBytes = Infinity, divisions = 0 }: PolicyOptions = {}) {
    super()
    this.capacityBytes = capacityBytes
    this.divisions = divisions
  }

  allocate(bytes: number, stream: number, baseFor?: BaseFor): PolicyBlock | null {
    const rounded = roundPytorchBytes(bytes, this.divisions)
    const pool = this.pools.of(stream, rounded <= MOST_SMALL_BYTES)
    let block = takeSmallest(pool, rounded)
    if (block === null) {
      const segmentBytes = pytorchSegmentBytes(rounded)
      if (this.reservedBytes + segmentBytes > this.capacityBytes) this.releaseFree()
      if (this.reservedBytes + segmentBytes > this.capacityBytes) return null
      block = this.addSegment(baseFor?.(segmentBytes) ?? this.syntheticBase(segmentBytes), segmentBytes, pool)
    }
    if (worthSplitting(block.bytes - rounded, pool.small)) pool.insert(block.cut(rounded))
    return block
  }

  release(block: PolicyBlock): void {
    const own = block as Block
    this.mostBytes.delete(own)
    own.pool.give(own)
    if (own.previous === null) this.segments.set(own.address, own)
  }

  reconsider(block: PolicyBlock, bytes: number): boolean {
    const { previous: below, next, pool, bytes: blockBytes } = block as Block
    const most = below === null ? undefined : this.mostBytes.get(below)
    if (below === null || most === undefined) return false
    const freeBytes = blockBytes + (next?.free ? next.bytes : 0)
    const tooFewBytes = roundPytorchBytes(bytes, this.divisions) - ROUNDING_BYTES
    const belowBytes = below.bytes + freeBytes - tooFewBytes
    if (belowBytes > most) return false
    this.release(block)
    const whole = below.next!
    pool.remove(whole)
    below.absorb(whole)
    pool.insert(below.cut(belowBytes))
    return true
  }

  adoptSegment(base: number, bytes: number, stream: number, used: readonly UsedRange[]): PolicyBlock[] {
    const pool = this.pools.of(stream, isSmallSegment(bytes))
    const block = new Block(base, bytes, pool)
    this.segments.set(base, block)
    this.watcher?.mapped(base, bytes)
    this.countReserved(bytes)
    const blocks = this.cutUsed(block, used)
    for (const [index, { mostBytes }] of used.entries()) {
      if (mostBytes !== undefined) this.mostBytes.set(blocks[index], mostBytes)
    }
    return blocks
  }

  releaseRecorded(address: number): boolean {
    return this.releaseSegment(address)
  }

  /** Gives the segment at `base` back to the device if all of it is free; returns whether it did. */
  releaseSegment(base: number): boolean {
    const block = this.segments.get(base)
    if (block === undefined || !block.free || block.next !== null) return false
    block.pool.remove(block)
    this.segments.delete(base)
    this.watcher?.unmapped(base, block.bytes)
    this.reservedBytes -= block.bytes
    this.driver.note('cuMemFree', block.bytes)
    return true
  }

  releaseFree(): void {
    for (const base of this.segments.keys()) this.releaseSegment(base)
  }

  private addSegment(base: number, bytes: number, pool: BlockPool): Block {
    const block = new Block(base, bytes, pool)
    this.segments.set(base, block)
    this.watcher?.mapped(base, bytes)
    this.driver.note('cuMemAlloc', bytes)
    this.countReserved(bytes)
    return block
  }
}

/** Takes the smallest free block that fits, at the lowest address. */
function takeSmallest(pool: BlockPool, bytes: number): Block | null {
  const block = pool.free.smallest(bytes)
  if (block !== null) pool.remove(block)
  return block
}
