// The placement policy of PyTorch's CUDA caching allocator with `expandable_segments`, as a baseline beside the
// default one of pytorch-policy.ts. It makes no driver call.
//
// Each stream has one segment for blocks up to 1 MiB and one for larger blocks. A segment is a long range of
// addresses, which gets memory in pages of 2 MiB or 20 MiB where it is needed. Parts without memory are blocks, too.
// A request takes the best free block; the size of a block counts with the part without memory after it. If no block
// fits, pages are mapped at the lowest part without memory that, with free neighbours, has room. All free whole pages
// are unmapped when the capacity is spent.

import { MiB, TiB } from '../../base/bytes.js'
import { MAPPING_CALLS } from '../../driver/driver.js'
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

const SMALL_PAGE_BYTES = 2 * MiB
const LARGE_PAGE_BYTES = 20 * MiB
/** The addresses of a segment over the memory of the device: more than 1, so that pages may move to its end. */
const SPAN_OF_CAPACITY = 9 / 8
/** The addresses of a segment of a device of unknown size: more than any GPU's memory. */
const UNLIMITED_SPAN_BYTES = TiB

interface ExpandablePolicyOptions {
  /** the most bytes to map; default no limit */
  readonly capacityBytes?: number
}

export class ExpandablePolicy extends PolicyMemory implements PlacementPolicy {
  readonly driver = new DriverTally(...MAPPING_CALLS)
  /** the parts without memory of each pool, by rising address */
  private readonly unmapped = new Map<BlockPool, Block[]>()
  private readonly capacityBytes: number
  private readonly spanBytes: number

  constructor({ capacityBytes = Infinity }: ExpandablePolicyOptions = {}) {
    super()
    this.capacityBytes = capacityBytes
    this.spanBytes = Math.min(UNLIMITED_SPAN_BYTES, capacityBytes * SPAN_OF_CAPACITY)
  }

  allocate(bytes: number, stream: number, baseFor?: BaseFor): PolicyBlock | null {
    const rounded = roundPytorchBytes(bytes)
    const pool = this.pools.of(stream, rounded <= MOST_SMALL_BYTES)
    let block = takeBest(pool, rounded) ?? this.extend(pool, rounded, baseFor)
    if (block === null) {
      this.releaseFree()
      block = this.extend(pool, rounded, baseFor)
    }
    if (block === null) return null
    if (block.bytes - rounded >= ROUNDING_BYTES) pool.insert(block.cut(rounded))
    return block
  }

  release(block: PolicyBlock): void {
    const own = block as Block
    own.pool.give(own)
  }

  /** The size of a block from before is certain, because all that is not needed is split off. */
  reconsider(): boolean {
    return false
  }

  /** Mapped ranges of one stream and one kind of blocks are taken to be parts of one segment, if pages fit between. */
  adoptSegment(base: number, bytes: number, stream: number, used: readonly UsedRange[]): PolicyBlock[] {
    const pool = this.pools.of(stream, holdsSmallBlocks(bytes, used))
    const block = this.partAt(pool, base, bytes)
    this.hold(block, bytes)
    this.countReserved(bytes)
    return this.cutUsed(block, used)
  }

  releaseRecorded(address: number, bytes: number): boolean {
    for (const { free } of this.pools.all) {
      const block = free.all().find(each => each.address <= address && address + bytes <= each.address + each.bytes)
      if (block === undefined) continue
      const pages = wholePages(block)
      if (pages.from !== address || pages.to !== address + bytes) return false
      this.unmap(block)
      return true
    }
    return false
  }

  releaseFree(): void {
    for (const { free } of this.pools.all) for (const block of free.all()) this.unmap(block)
  }

  /** Maps pages for a block of at least `bytes`, together with free memory beside them. Null if too few are left. */
  private extend(pool: BlockPool, bytes: number, baseFor: BaseFor | undefined): Block | null {
    let block = this.findRoom(pool, bytes) ?? this.addSegment(pool, bytes, baseFor)
    if (!block.mapped && !this.map(block, Math.min(block.bytes, bytes))) return null
    while (block.bytes < bytes) {
      const next: Block = block.next!
      if (!this.map(next, Math.min(bytes - block.bytes, next.bytes))) return null
      block = next
    }
    pool.remove(block)
    return block
  }

  /** The first block of the lowest run of free blocks and parts without memory that has `bytes` of addresses. */
  private findRoom(pool: BlockPool, bytes: number): Block | undefined {
    for (const part of this.unmappedOf(pool)) {
      const first = part.previous?.free ? part.previous : part
      let room = 0
      for (let block: Block | null = first; block !== null && room < bytes; block = block.next) {
        if (block.mapped && !block.free) break
        room += block.bytes
      }
      if (room >= bytes) return first
    }
    return undefined
  }

  private addSegment(pool: BlockPool, bytes: number, baseFor?: BaseFor): Block {
    const span = roundUp(Math.max(this.spanBytes, bytes), pageBytes(pool))
    const block = new Block(baseFor?.(bytes) ?? this.syntheticBase(span), span, pool)
    this.lose(block)
    this.driver.note('cuMemAddressReserve', span)
    return block
  }

  /** Maps `bytes` of a part without memory, rounded up to whole pages, and merges them with free neighbours. */
  private map(part: Block, bytes: number): boolean {
    const mapped = roundUp(bytes, pageBytes(part.pool))
    if (this.reservedBytes + mapped > this.capacityBytes) return false
    this.hold(part, mapped)
    this.countMapped(mapped, pageBytes(part.pool))
    this.countReserved(mapped)
    part.pool.give(part)
    return true
  }

  /** Unmaps the whole pages in a free block; the rest stays free. */
  private unmap(block: Block): void {
    const { pool } = block
    const { from, to } = wholePages(block)
    if (from >= to) return
    pool.remove(block)
    let part = block
    if (from > block.address) {
      part = block.cut(from - block.address)
      pool.insert(block)
    }
    if (to < part.address + part.bytes) pool.insert(part.cut(to - part.address))
    this.watcher?.unmapped(part.address, part.bytes)
    this.reservedBytes -= part.bytes
    const page = pageBytes(pool)
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
  private hold(part: Block, bytes: number): void {
    this.forget(part)
    if (bytes < part.bytes) this.lose(part.cut(bytes))
    part.mapped = true
    this.watcher?.mapped(part.address, bytes)
  }

  /** A part without memory, which a range of memory at `base` begins. */
  private partAt(pool: BlockPool, base: number, bytes: number): Block {
    const last = this.unmappedOf(pool).at(-1)
    const gap = last === undefined ? -1 : base - last.address
    if (last === undefined || gap <= 0 || gap % pageBytes(pool) > 0 || gap + bytes > last.bytes) {
      return this.addSegment(pool, bytes, () => base)
    }
    const part = last.cut(gap)
    this.lose(part)
    return part
  }

  private lose(part: Block): void {
    part.mapped = false
    const parts = this.unmappedOf(part.pool)
    const above = parts.findIndex(other => other.address > part.address)
    parts.splice(above < 0 ? parts.length : above, 0, part)
  }

  private forget(part: Block): void {
    const parts = this.unmappedOf(part.pool)
    parts.splice(parts.indexOf(part), 1)
  }

  private unmappedOf(pool: BlockPool): Block[] {
    let parts = this.unmapped.get(pool)
    if (parts === undefined) {
      parts = []
      this.unmapped.set(pool, parts)
    }
    return parts
  }

  /** Each page has a handle of its own; one call gives access to all that are mapped at a time. */
  private countMapped(bytes: number, page: number): void {
    const pages = bytes / page
    this.driver.note('cuMemCreate', page, pages)
    this.driver.note('cuMemMap', page, pages)
    this.driver.noteAccess(page, pages)
  }
}

/**
 * Takes the smallest free block that fits, at the lowest address. The next larger block is
 * taken instead as long as it cannot grow as far as the smaller one.
 */
function takeBest(pool: BlockPool, bytes: number): Block | null {
  let block = pool.free.smallest(bytes)
  if (block === null) return null
  for (let next = pool.free.after(block); next !== null; next = pool.free.after(next)) {
    if (bytesWithGrowth(next) >= bytesWithGrowth(block)) break
    block = next
  }
  pool.remove(block)
  return block
}

function bytesWithGrowth({ bytes, next }: Block): number {
  return next === null || next.mapped ? bytes : bytes + next.bytes
}

function pageBytes({ small }: BlockPool): number {
  return small ? SMALL_PAGE_BYTES : LARGE_PAGE_BYTES
}

/** The whole pages of a segment that lie in a block. */
function wholePages(block: Block): { from: number; to: number } {
  let first = block
  while (first.previous !== null) first = first.previous
  const base = first.address
  const page = pageBytes(block.pool)
  const from = base + roundUp(block.address - base, page)
  const end = block.address + block.bytes
  return { from, to: end - ((end - base) % page) }
}

/** Whether a mapped range belongs to a segment of small blocks; without blocks its length tells the pages. */
function holdsSmallBlocks(bytes: number, used: readonly UsedRange[]): boolean {
  if (used.length > 0) return used[0].bytes <= MOST_SMALL_BYTES
  return bytes % LARGE_PAGE_BYTES > 0
}
