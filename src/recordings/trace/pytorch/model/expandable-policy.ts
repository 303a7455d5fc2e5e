// The placement policy of PyTorch's CUDA caching allocator with `expandable_segments`, as a baseline beside the
// default one of pytorch-policy.ts. It makes no driver call.
//
// Each stream of a pool has one segment for blocks up to 1 MiB and one for larger blocks. A segment is a long range of
// addresses, which gets memory in pages of 2 MiB or, by default, 20 MiB where it is needed. Parts without memory are
// blocks, too.
// A request takes the best free block; the size of a block counts with the part without memory after it. If no block
// fits, pages are mapped at the lowest part without memory that, with free neighbours, has room. All free whole pages
// are unmapped when the capacity is spent. A stream whose segment has no addresses left gets a further segment.

import { TiB } from '../../../../core/base/bytes.js'
import { SortedList } from '../../../../core/base/sorted-list.js'
import { MAPPING_CALLS } from '../../../../core/driver/driver.js'
import { DriverTally } from './driver-tally.js'
import {
  type BaseFor,
  MOST_SMALL_BYTES,
  ModelBlock,
  type ModelPool,
  type PlacementPolicy,
  type PolicyBlock,
  roundUp,
  type UsedRange,
} from './policy-blocks.js'
import { PolicyMemory, type PolicyOptions } from './policy-memory.js'

/** The addresses of a segment over the memory of the device: more than 1, so that pages may move to its end. */
const SPAN_OF_CAPACITY = 9 / 8
/** The addresses of a segment of a device of unknown size: more than any GPU's memory. */
const UNLIMITED_SPAN_BYTES = TiB

export class ExpandablePolicy extends PolicyMemory implements PlacementPolicy {
  readonly driver = new DriverTally(...MAPPING_CALLS)
  /** the parts without memory of each pool, by rising address */
  private readonly unmapped = new Map<ModelPool, SortedList<ModelBlock>>()
  private readonly spanBytes: number

  constructor(options: PolicyOptions = {}) {
    super({ ...options, settings: { ...options.settings, expandableSegments: true } })
    const whole = Math.min(UNLIMITED_SPAN_BYTES, this.capacityBytes * SPAN_OF_CAPACITY)
    this.spanBytes = Math.min(whole, this.rules.reserveBytes)
  }

  allocate(bytes: number, stream: number, owner = 0, baseFor?: BaseFor): PolicyBlock | null {
    const rounded = this.rules.round(bytes)
    const pool = this.poolOf(rounded, stream, owner)
    let block = this.takeFree(pool, rounded) ?? this.extendWithinLimit(pool, rounded, baseFor)
    if (block === null) {
      this.synchronize()
      this.releaseFree()
      this.retries++
      block = this.extendWithinLimit(pool, rounded, baseFor)
    }
    if (block !== null) this.splitRest(block, rounded)
    return block
  }

  release(block: PolicyBlock): void {
    const own = block as ModelBlock
    own.pool.give(own)
  }

  /** The size of a block from before is certain, because all that is not needed is split off. */
  reconsider(): boolean {
    return false
  }

  /** Mapped ranges of one stream and one kind of blocks are taken to be parts of one segment, if pages fit between. */
  adoptSegment(base: number, bytes: number, stream: number, used: readonly UsedRange[], owner = 0): PolicyBlock[] {
    const pool = this.pools.of(stream, holdsSmallBlocks(bytes, used, this.rules.pageBytes(false)), owner)
    const block = this.partAt(pool, base, bytes)
    this.hold(block, bytes)
    this.countReserved(bytes)
    return this.cutUsed(block, used)
  }

  releaseAt(address: number, bytes: number): boolean {
    const block = this.pools.idle.at(address)
    if (block === undefined || this.wholePages(block).to !== address + bytes) return false
    this.unmap(block)
    return true
  }

  releaseFree(): void {
    for (const block of this.idle()) this.unmap(block)
  }

  idleBytes(): number {
    return this.idle().reduce((sum, block) => {
      const { from, to } = this.wholePages(block)
      return sum + to - from
    }, 0)
  }

  holds(): boolean {
    return false
  }

  /**
   * The smallest free block that fits, at the lowest address. The next larger block is taken instead as long as it
   * cannot grow as far as the smaller one.
   */
  protected override bestFree(pool: ModelPool, rounded: number): ModelBlock | null {
    let block = pool.free.smallest(rounded)
    if (block === null) return null
    for (let next = pool.free.after(block); next !== null; next = pool.free.after(next)) {
      if (bytesWithGrowth(next) >= bytesWithGrowth(block)) break
      block = next
    }
    return block
  }

  /** As `extend`. PyTorch compares a segment's bytes with the program's limit, not those of the pages. */
  private extendWithinLimit(pool: ModelPool, bytes: number, baseFor: BaseFor | undefined): ModelBlock | null {
    const segmentBytes = this.rules.segmentBytes(bytes)
    return this.reservedBytes + segmentBytes > this.limitBytes ? null : this.extend(pool, bytes, baseFor)
  }

  /**
   * Maps pages for a block of at least `bytes`, together with free memory beside them. Null if too few are left, or if
   * no segment can have so many addresses.
   */
  private extend(pool: ModelPool, bytes: number, baseFor: BaseFor | undefined): ModelBlock | null {
    const room = this.findRoom(pool, bytes)
    if (room === undefined && bytes > roundUp(this.rules.reserveBytes, this.rules.pageBytes(pool.small))) return null
    let block = room ?? this.addSegment(pool, bytes, baseFor)
    if (!block.mapped && !this.map(block, Math.min(block.bytes, bytes))) return null
    while (block.bytes < bytes) {
      const next: ModelBlock = block.next!
      if (!this.map(next, Math.min(bytes - block.bytes, next.bytes))) return null
      block = next
    }
    pool.remove(block)
    return block
  }

  /** The first block of the lowest run of free blocks and parts without memory that has `bytes` of addresses. */
  private findRoom(pool: ModelPool, bytes: number): ModelBlock | undefined {
    for (const part of this.unmappedOf(pool)) {
      const first = part.previous?.free ? part.previous : part
      let room = 0
      for (let block: ModelBlock | null = first; block !== null && room < bytes; block = block.next) {
        if (block.mapped && !block.free) break
        room += block.bytes
      }
      if (room >= bytes) return first
    }
    return undefined
  }

  private addSegment(pool: ModelPool, bytes: number, baseFor?: BaseFor): ModelBlock {
    const span = roundUp(Math.max(this.spanBytes, bytes), this.rules.pageBytes(pool.small))
    const block = new ModelBlock(baseFor?.(bytes) ?? this.syntheticBase(span), span, pool)
    this.lose(block)
    this.driver.note('cuMemAddressReserve', span)
    return block
  }

  /** Maps `bytes` of a part without memory, rounded up to whole pages, and merges them with free neighbours. */
  private map(part: ModelBlock, bytes: number): boolean {
    const mapped = roundUp(bytes, this.rules.pageBytes(part.pool.small))
    if (this.reservedBytes + mapped > this.capacityBytes) return false
    this.hold(part, mapped)
    this.countMapped(mapped, this.rules.pageBytes(part.pool.small))
    this.countReserved(mapped)
    part.pool.give(part)
    return true
  }

  /** Unmaps the whole pages in a free block; the rest stays free. */
  private unmap(block: ModelBlock): void {
    const { pool } = block
    const { from, to } = this.wholePages(block)
    pool.remove(block)
    let part = block
    if (from > block.address) {
      part = block.cut(from - block.address)
      pool.insert(block)
    }
    if (to < part.address + part.bytes) pool.insert(part.cut(to - part.address))
    this.watcher?.unmapped(part.address, part.bytes)
    this.reservedBytes -= part.bytes
    const page = this.rules.pageBytes(pool.small)
    this.driver.note('cuMemUnmap', page, part.bytes / page)
    this.driver.note('cuMemRelease', page, part.bytes / page)
    for (const neighbour of [part.previous, part.next]) {
      if (neighbour === null || neighbour.mapped) continue
      this.forget(neighbour)
      part.absorb(neighbour)
    }
    // A segment without any memory ends.
    if (part.previous !== null || part.next !== null) this.lose(part)
    else this.driver.note('cuMemAddressFree', part.bytes)
  }

  /** The first `bytes` of a part have memory from now on. */
  private hold(part: ModelBlock, bytes: number): void {
    this.forget(part)
    if (bytes < part.bytes) this.lose(part.cut(bytes))
    part.mapped = true
    this.watcher?.mapped(part.address, bytes)
  }

  /** A part without memory, which a range of memory at `base` begins. */
  private partAt(pool: ModelPool, base: number, bytes: number): ModelBlock {
    const last = this.unmappedOf(pool).before(Infinity)
    const gap = last === undefined ? -1 : base - last.address
    if (last === undefined || gap <= 0 || gap % this.rules.pageBytes(pool.small) > 0 || gap + bytes > last.bytes) {
      return this.addSegment(pool, bytes, () => base)
    }
    const part = last.cut(gap)
    this.lose(part)
    return part
  }

  private lose(part: ModelBlock): void {
    part.mapped = false
    this.unmappedOf(part.pool).insert(part, part.address)
  }

  private forget(part: ModelBlock): void {
    this.unmappedOf(part.pool).remove(part, part.address)
  }

  private unmappedOf(pool: ModelPool): SortedList<ModelBlock> {
    let parts = this.unmapped.get(pool)
    if (parts === undefined) {
      parts = new SortedList()
      this.unmapped.set(pool, parts)
    }
    return parts
  }

  protected override idleAddressIn(block: ModelBlock): number {
    if (block.bytes < this.rules.pageBytes(block.pool.small)) return -1
    const { from, to } = this.wholePages(block)
    return from < to ? from : -1
  }

  /** The whole pages of its segment that lie in a block; without any, they end before they begin. */
  private wholePages({ address, bytes, base, pool }: ModelBlock): { from: number; to: number } {
    const page = this.rules.pageBytes(pool.small)
    const from = base + roundUp(address - base, page)
    const end = address + bytes
    return { from, to: end - ((end - base) % page) }
  }

  /** Each page has a handle of its own; one call gives access to all that are mapped at a time. */
  private countMapped(bytes: number, page: number): void {
    const pages = bytes / page
    this.driver.note('cuMemCreate', page, pages)
    this.driver.note('cuMemMap', page, pages)
    this.driver.noteAccess(page, pages)
  }
}

function bytesWithGrowth({ bytes, next }: ModelBlock): number {
  return next === null || next.mapped ? bytes : bytes + next.bytes
}

/** Whether a mapped range belongs to a segment of small blocks; without blocks its length tells the pages. */
function holdsSmallBlocks(bytes: number, used: readonly UsedRange[], largePageBytes: number): boolean {
  if (used.length > 0) return used[0].bytes <= MOST_SMALL_BYTES
  return bytes % largePageBytes > 0
}
