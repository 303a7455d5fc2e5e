// Blocks of PyTorch's caching allocator, as both models of it keep them: linked to their neighbours in a segment, and
// sorted while they are free.

import { BestFitList } from '../../../../core/base/best-fit-list.js'
import { MiB } from '../../../../core/base/bytes.js'
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
  /** the private pools that nothing uses any more, so that their free memory may be given back */
  readonly unusedPools: Set<number>
  /**
   * A block of at least `bytes` for stream number `stream` of a pool, or null when the capacity is spent. Pool 0 is
   * the default pool, others are private. `baseFor` may return the address of a new segment, whose first `bytes` get
   * memory; undefined leaves the address to the policy.
   */
  allocate(bytes: number, stream: number, pool?: number, baseFor?: BaseFor): PolicyBlock | null
  /** Takes back a block that no stream uses. */
  release(block: PolicyBlock): void
  /**
   * For a block just allocated for `bytes` that PyTorch placed elsewhere: takes it back if the block below it, from
   * before the policy began, may be so large that the request does not fit behind it. Returns whether it did.
   */
  reconsider(block: PolicyBlock, bytes: number): boolean
  /** Adds memory that existed before the policy began, with its blocks in use by rising address; returns these. */
  adoptSegment(base: number, bytes: number, stream: number, used: readonly UsedRange[], pool?: number): PolicyBlock[]
  /** Gives the memory at `address` back to the device if all of it is free; returns whether it did. */
  releaseAt(address: number, bytes: number): boolean
  /** Gives all memory back that can be given back; none of a private pool in use. */
  releaseFree(): void
  /** The bytes that `releaseFree` would give back. */
  idleBytes(): number
  /** Whether a request would take the reserved bytes above `limitBytes`. */
  needsMore(bytes: number, stream: number, pool: number, limitBytes: number): boolean
  /** Whether the policy has memory at this address that may not be offered to it again. */
  holds(address: number): boolean
}

export type BaseFor = (bytes: number) => number | undefined

export class ModelBlock implements PolicyBlock {
  free = false
  /** how often the blocks of this kind had been searched when this one became free */
  freedAt = 0
  /** false for a part of an expandable segment without memory; such a part is not free either */
  mapped = true
  previous: ModelBlock | null = null
  next: ModelBlock | null = null

  constructor(
    public address: number,
    public bytes: number,
    readonly pool: ModelPool,
    /** the address of the first block of its segment */
    readonly base = address,
  ) {}

  get stream(): number {
    return this.pool.stream
  }

  /** Shortens the block to `bytes`; returns the rest, which is neither free nor in a list. */
  cut(bytes: number): ModelBlock {
    const rest = new ModelBlock(this.address + bytes, this.bytes - bytes, this.pool, this.base)
    rest.mapped = this.mapped
    rest.previous = this
    rest.next = this.next
    if (rest.next !== null) rest.next.previous = rest
    this.next = rest
    this.bytes = bytes
    return rest
  }

  /** Takes over the bytes of a neighbour, which is in no list. */
  absorb(neighbour: ModelBlock): void {
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

/** How often the small or the large blocks of all streams of a pool were searched. */
interface Searches {
  count: number
}

/** The small or the large blocks of one stream, of the default pool or of a private one. */
export class ModelPool {
  readonly free = new BestFitList<ModelBlock>()

  constructor(
    readonly stream: number,
    readonly small: boolean,
    /** 0 for the default pool */
    readonly owner: number,
    readonly searches: Searches,
    private readonly idle: IdleMemory,
  ) {}

  insert(block: ModelBlock): void {
    this.free.insert(block)
    block.free = true
    block.freedAt = this.searches.count
    this.idle.add(block)
  }

  remove(block: ModelBlock): void {
    this.free.remove(block)
    block.free = false
    this.idle.delete(block)
  }

  /** Makes a block free, merged with its free neighbours. */
  give(block: ModelBlock): void {
    for (const neighbour of [block.previous, block.next]) {
      if (neighbour === null || !neighbour.free) continue
      this.remove(neighbour)
      block.absorb(neighbour)
    }
    this.insert(block)
  }
}

/** The free blocks that have memory which could go back to the device. */
class IdleMemory {
  /** by the address of that memory */
  private readonly blocks = new Map<number, ModelBlock>()

  /** `addressIn` is the address of such memory in a free block, -1 without any. */
  constructor(private readonly addressIn: (block: ModelBlock) => number) {}

  add(block: ModelBlock): void {
    const address = this.addressIn(block)
    if (address < 0) return
    this.blocks.set(address, block)
  }

  delete(block: ModelBlock): void {
    const address = this.addressIn(block)
    if (address >= 0) this.blocks.delete(address)
  }

  /** The block with such memory from this address on. */
  at(address: number): ModelBlock | undefined {
    return this.blocks.get(address)
  }

  /** The blocks of these owners, in their order. */
  of(owners: readonly number[]): ModelBlock[] {
    const found = new Map(owners.map(owner => [owner, [] as ModelBlock[]]))
    for (const block of this.blocks.values()) found.get(block.pool.owner)?.push(block)
    return [...found.values()].flat()
  }
}

/** The pools of all streams, of the default pool and of private ones. */
export class BlockPools {
  readonly idle: IdleMemory
  /** by owner; of each its pools by stream and size */
  private readonly byOwner: OwnPools[] = []

  constructor(idleAddressIn: (block: ModelBlock) => number) {
    this.idle = new IdleMemory(idleAddressIn)
  }

  of(stream: number, small: boolean, owner: number): ModelPool {
    this.byOwner[owner] ??= { pools: new Array(2), searches: [{ count: 0 }, { count: 0 }] }
    const { pools, searches } = this.byOwner[owner]
    const kind = small ? 1 : 0
    const index = 2 * stream + kind
    pools[index] ??= new ModelPool(stream, small, owner, searches[kind], this.idle)
    return pools[index]
  }
}

interface OwnPools {
  readonly pools: ModelPool[]
  /** of large and small blocks */
  readonly searches: readonly Searches[]
}
