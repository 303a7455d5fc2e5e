// The placement policy of PyTorch's CUDA caching allocator without expandable segments, as a baseline. It decides where
// each block goes and when memory is obtained and given back, and makes no driver call. The notes of
// c10/cuda/CUDACachingAllocator describe it. The model is right if it puts every block of a recording at PyTorch's own
// address; `PytorchResult.placement` counts these blocks.
//
// Sizes are rounded to 512 bytes. Blocks up to 1 MiB and larger blocks come from separate segments, and each stream
// has its own segments. A request takes the smallest free block that fits, at the lowest address. The rest of the
// block stays free if it is large enough; free neighbours merge. If no block fits, a new segment is obtained.
// A private pool, as of a CUDA graph, has segments of its own, which stay until nothing uses the pool any more.
// placement-rules.ts has the settings that change sizes and splits.

import { DriverTally } from './driver-tally.js'
import { isSmallSegment } from './placement-rules.js'
import {
  type BaseFor,
  ModelBlock,
  type ModelPool,
  type PlacementPolicy,
  type PolicyBlock,
  ROUNDING_BYTES,
  type UsedRange,
} from './policy-blocks.js'
import { PolicyMemory } from './policy-memory.js'

export class PytorchPolicy extends PolicyMemory implements PlacementPolicy {
  readonly driver = new DriverTally('cuMemAlloc', 'cuMemFree')
  /** the addresses of the segments */
  private readonly bases = new Set<number>()
  /** the most bytes of blocks from before, if their size is not certain */
  private readonly mostBytes = new Map<ModelBlock, number>()

  allocate(bytes: number, stream: number, owner = 0, baseFor?: BaseFor): PolicyBlock | null {
    const rounded = this.rules.round(bytes)
    const pool = this.poolOf(rounded, stream, owner)
    const block = this.takeFree(pool, rounded) ?? this.obtain(pool, rounded, baseFor)
    if (block !== null) this.splitRest(block, rounded)
    return block
  }

  release(block: PolicyBlock): void {
    const own = block as ModelBlock
    this.mostBytes.delete(own)
    own.pool.give(own)
  }

  reconsider(block: PolicyBlock, bytes: number): boolean {
    const { previous: below, next, pool, bytes: blockBytes } = block as ModelBlock
    const most = below === null ? undefined : this.mostBytes.get(below)
    if (below === null || most === undefined) return false
    const freeBytes = blockBytes + (next?.free ? next.bytes : 0)
    const tooFewBytes = this.rules.round(bytes) - ROUNDING_BYTES
    const belowBytes = below.bytes + freeBytes - tooFewBytes
    if (belowBytes > most) return false
    this.release(block)
    const whole = below.next!
    pool.remove(whole)
    below.absorb(whole)
    pool.insert(below.cut(belowBytes))
    return true
  }

  adoptSegment(base: number, bytes: number, stream: number, used: readonly UsedRange[], owner = 0): PolicyBlock[] {
    const pool = this.pools.of(stream, isSmallSegment(bytes), owner)
    const block = new ModelBlock(base, bytes, pool)
    this.bases.add(base)
    this.watcher?.mapped(base, bytes)
    this.countReserved(bytes)
    const blocks = this.cutUsed(block, used)
    for (const [index, { mostBytes }] of used.entries()) {
      if (mostBytes !== undefined) this.mostBytes.set(blocks[index], mostBytes)
    }
    return blocks
  }

  releaseAt(base: number): boolean {
    const block = this.pools.idle.at(base)
    if (block === undefined) return false
    block.pool.remove(block)
    this.bases.delete(base)
    this.watcher?.unmapped(base, block.bytes)
    this.reservedBytes -= block.bytes
    this.driver.note('cuMemFree', block.bytes)
    return true
  }

  releaseFree(): void {
    for (const { address } of this.idle()) this.releaseAt(address)
  }

  idleBytes(): number {
    return this.idle().reduce((sum, { bytes }) => sum + bytes, 0)
  }

  holds(address: number): boolean {
    return this.bases.has(address)
  }

  protected override idleAddressIn({ address, previous, next }: ModelBlock): number {
    return previous === null && next === null ? address : -1
  }

  /** A block in a new segment, or null if no memory given back makes room for it. */
  private obtain(pool: ModelPool, rounded: number, baseFor: BaseFor | undefined): ModelBlock | null {
    const bytes = this.rules.segmentBytes(rounded)
    if (this.reservedBytes > this.garbageBytes) this.collectGarbage()
    if (!this.hasRoom(bytes) && !(this.releaseOversize(pool, rounded) && this.hasRoom(bytes))) {
      this.synchronize()
      this.releaseFree()
      this.retries++
      if (!this.hasRoom(bytes)) return null
    }
    return this.addSegment(baseFor?.(bytes) ?? this.syntheticBase(bytes), bytes, pool)
  }

  private hasRoom(bytes: number): boolean {
    return this.reservedBytes + bytes <= Math.min(this.capacityBytes, this.limitBytes)
  }

  /**
   * Gives back idle segments of large blocks of the default pool that were free for longer than the mean, and again,
   * until no more than the threshold is reserved.
   */
  private collectGarbage(): void {
    let idle = this.pools.idle.of([0]).filter(({ pool }) => !pool.small)
    const ageOf = (block: ModelBlock) => block.pool.searches.count - block.freedAt
    let age = idle.reduce((sum, block) => sum + ageOf(block), 0)
    let released = idle.length
    const enough = this.garbageBytes
    while (this.reservedBytes > enough && released > 0 && idle.length > 0) {
      const mean = age / idle.length
      const old = idle.filter(block => ageOf(block) >= mean)
      released = old.length
      idle = idle.filter(block => ageOf(block) < mean)
      for (const block of old) {
        age -= ageOf(block)
        this.releaseAt(block.address)
      }
    }
  }

  /**
   * Gives back the smallest block of a size that is not split and that is enough for a request; or else such blocks
   * from the largest on, until they are enough together. Returns whether they are.
   */
  private releaseOversize(pool: ModelPool, rounded: number): boolean {
    const { maxSplitBytes } = this.rules
    if (maxSplitBytes === Infinity) return false
    const needed = Math.max(maxSplitBytes, rounded)
    const one = pool.free.smallest(needed)
    if (one !== null) return this.releaseAt(one.address)
    let released = 0
    for (let block = pool.free.before(); block !== null && released < needed; block = pool.free.before(block)) {
      if (block.bytes < maxSplitBytes) break
      released += block.bytes
      this.releaseAt(block.address)
    }
    return released >= needed
  }

  private addSegment(base: number, bytes: number, pool: ModelPool): ModelBlock {
    const block = new ModelBlock(base, bytes, pool)
    this.bases.add(base)
    this.watcher?.mapped(base, bytes)
    this.driver.note('cuMemAlloc', bytes)
    this.countReserved(bytes)
    return block
  }
}
