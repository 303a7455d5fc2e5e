// Blocks of PyTorch's caching allocator, as both models of it keep them: linked to their neighbours in a segment, and
// sorted while they are free.

import { BestFitList } from '../../../base/best-fit-list.js'
import { MiB } from '../../../base/bytes.js'
import type { MemoryWatcher } from '../../placements/placements.js'
import type { DriverTally } from './driver-tally.js'

export const ROUNDING_BYTES = 512
export const MOST_SMALL_BYTES = MiB

/** The bytes of the block that PyTorch takes for a request by default. */
export function roundPytorchBytes(bytes: number): number {
  return Math.max(ROUNDING_BYTES, roundUp(bytes, ROUNDING_BYTES))
}

export function roundUp(bytes: number, step: number): number {
  return Math.ceil(bytes / step) * step
}

/** A part of a segment, in use or free. */
export interface PolicyBlock {
  readonly address: number
  readonly bytes: number
  readonly stream: number
}

/** A block that was in use before the policy began. */
export interface UsedRange {
  readonly address: number
  /** the size of the block, not of the request */
  readonly bytes: number
  /** the most bytes that it may have, if it can be more than `bytes` */
  readonly mostBytes?: number
}

/** A model of an allocator, as the replay of a recording uses it. */
export interface PlacementPolicy {
  readonly reservedBytes: number
  /** the most reserved since the caller has set it last */
  peakReservedBytes: number
  readonly driver: DriverTally
  /** how often a request was tried again after all free memory was given back: PyTorch's num_alloc_retries */
  readonly retries: number
  /** told which addresses get memory, and which lose it */
  watcher: MemoryWatcher | null
  /**
   * A block of at least `bytes` for stream number `stream`, or null when the capacity is spent. `baseFor` may return
   * the address of a new segment, whose first `bytes` get memory; undefined leaves the address to the policy.
   */
  allocate(bytes: number, stream: number, baseFor?: BaseFor): PolicyBlock | null
  /** Takes back a block that no stream uses. */
  release(block: PolicyBlock): void
  /**
   * For a block just allocated for `bytes` that PyTorch placed elsewhere: takes it back if the block below it, from
   * before the policy began, may be so large that the request does not fit behind it. Returns whether it did.
   */
  reconsider(block: PolicyBlock, bytes: number): boolean
  /** Adds memory that existed before the policy began, with its blocks in use by rising address; returns these. */
  adoptSegment(base: number, bytes: number, stream: number, used: readonly UsedRange[]): PolicyBlock[]
  /** Gives the recorded memory back to the device if all of it is free; returns whether it did. */
  releaseRecorded(address: number, bytes: number): boolean
  /** Gives all memory back that can be given back. */
  releaseFree(): void
  /** The bytes that `releaseFree` would give back. */
  idleBytes(): number
  /** Whether a request would take the reserved bytes above `limitBytes`. */
  needsMore(bytes: number, stream: number, limitBytes: number): boolean
  /** Whether the policy has memory at this address that may not be offered to it again. */
  holds(address: number): boolean
}

export type BaseFor = (bytes: number) => number | undefined

export class Block implements PolicyBlock {
  free = false
  /** how often the blocks of this kind had been searched when this one became free */
  freedAt = 0
  /** false for a part of an expandable segment without memory; such a part is not free either */
  mapped = true
  previous: Block | null = null
  next: Block | null = null

  constructor(
    public address: number,
    public bytes: number,
    readonly pool: BlockPool,
  ) {}

  get stream(): number {
    return this.pool.stream
  }

  /** Shortens the block to `bytes`; returns the rest, which is neither free nor in a list. */
  cut(bytes: number): Block {
    const rest = new Block(this.address + bytes, this.bytes - bytes, this.pool)
    rest.mapped = this.mapped
    rest.previous = this
    rest.next = this.next
    if (rest.next !== null) rest.next.previous = rest
    this.next = rest
    this.bytes = bytes
    return rest
  }

  /** Takes over the bytes of a neighbour, which is in no list. */
  absorb(neighbour: Block): void {
    this.bytes += neighbour.bytes
    if (neighbour === this.next) {
      this.next = neighbour.next
      if (this.next !== null) this.next.previous = this
    } else {
      this.address = neighbour.address
      this.previous = neighbour.previous
      if (this.previous !== null) this.previous.next = this
    }
  }
}

/** How often the small or the large blocks of all streams were searched. */
interface Searches {
  count: number
}

/** The small or the large blocks of one stream. */
export class BlockPool {
  readonly free = new BestFitList<Block>()

  constructor(
    readonly stream: number,
    readonly small: boolean,
    readonly searches: Searches,
  ) {}

  insert(block: Block): void {
    this.free.insert(block)
    block.free = true
    block.freedAt = this.searches.count
  }

  remove(block: Block): void {
    this.free.remove(block)
    block.free = false
  }

  /** Makes a block free, merged with its free neighbours. */
  give(block: Block): void {
    for (const neighbour of [block.previous, block.next]) {
      if (neighbour === null || !neighbour.free) continue
      this.remove(neighbour)
      block.absorb(neighbour)
    }
    this.insert(block)
  }
}

/** The pools of all streams. */
export class BlockPools {
  readonly all: BlockPool[] = []
  /** of large and small blocks */
  private readonly searches: readonly Searches[] = [{ count: 0 }, { count: 0 }]

  of(stream: number, small: boolean): BlockPool {
    const index = 2 * stream + (small ? 1 : 0)
    for (let next = this.all.length; next <= index; next++) {
      this.all.push(new BlockPool(next >>> 1, (next & 1) === 1, this.searches[next & 1]))
    }
    return this.all[index]
  }

  /** The pools of small or of large blocks of all streams. */
  kind(small: boolean): BlockPool[] {
    return this.all.filter(pool => pool.small === small)
  }
}
