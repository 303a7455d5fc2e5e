// A cuMemPool of the driver. It takes memory from the device or the host in chunks of 32 MiB, or of the request
// rounded up to a multiple of 32 MiB. Requests are cut from the smallest free block that fits.
//
// A freed block carries the stream and position of its free. It serves its own stream at once. It serves another
// stream, if the pool's reuse attributes allow it, after the free has completed, or if that stream has waited for the
// free. If the device is full, the pool inserts such a wait. A chunk goes back only after a wait has shown the host
// that its frees have completed, as with the real driver. A pool that can be exported keeps its chunks until it is
// destroyed. Like a real pool, it does not detect use after free inside a chunk.

import { BestFitList } from '../../../base/best-fit-list.js'
import { CU_MEM_HANDLE_TYPE_NONE } from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'
import { costUs } from '../cost-model.js'
import type { AddressRegion, AddressSpace } from '../memory/address-space.js'
import type { Scheduler } from '../streams/scheduler.js'
import type { StreamQueue } from '../streams/stream-queue.js'
import { PoolAttributes } from './pool-attributes.js'
import { CHUNK_BYTES, type PoolPlace } from './pool-properties.js'
import { UnseenFrees } from './unseen-frees.js'

const UNIT_BYTES = 512

/** A pool that imports blocks of this one: pool-import.ts. */
interface Importer {
  /** The exporter has freed the allocation with this serial number. */
  lose(serial: number): void
}

/** A block of a chunk, live or free. */
class PoolBlock {
  live = false
  /** names the allocation to importers; 0 if it was not exported */
  serial = 0
  /** the stream and position of a free that the host has not seen complete */
  stream: StreamQueue | null = null
  position = 0
  /** neighbours in the chunk */
  previous: PoolBlock | null = null
  next: PoolBlock | null = null

  constructor(
    readonly chunk: AddressRegion,
    public address: number,
    public bytes: number,
  ) {}
}

/** A pool with memory of its own. */
export class MemoryPool extends PoolAttributes {
  /** the pools that import this pool */
  readonly imports = new Set<Importer>()
  private destroyed = false
  private exported = 0
  private readonly live = new Map<number, PoolBlock>()
  private readonly free = new BestFitList<PoolBlock>()
  /** free blocks with a free that the host has not seen complete */
  private readonly unseen = new UnseenFrees<PoolBlock>()

  constructor(
    /** unique while the driver lives */
    readonly id: number,
    readonly place: PoolPlace,
    private readonly space: AddressSpace,
    private readonly scheduler: Scheduler,
    private readonly interceptor: CallInterceptor,
  ) {
    super()
  }

  /** The address; null if the device or the pool is full. */
  allocate(bytes: number, stream: StreamQueue): number | null {
    const size = roundUp(bytes, UNIT_BYTES)
    let block = this.fit(size, stream) ?? this.grow(size)
    if (block === null) {
      if (this.reuseOpportunistic) this.seeCompleted()
      this.giveBack(0)
      block = this.fit(size, stream) ?? this.grow(size) ?? this.smallestFree(size)
      if (block === null) return null
      if (block.stream !== null) this.scheduler.wait(stream, block.stream, block.position)
    }
    this.take(block)
    this.cut(block, size)
    block.live = true
    this.live.set(block.address, block)
    this.addUsed(block.bytes)
    return block.address
  }

  /** Frees in the order of `stream`; false if no allocation of this pool begins at `ptr`. */
  release(ptr: number, stream: StreamQueue): boolean {
    const block = this.live.get(ptr)
    if (block === undefined) return false
    this.live.delete(ptr)
    this.usedBytes -= block.bytes
    block.live = false
    block.stream = stream
    block.position = this.scheduler.submit(stream, this.endOfExport(block))
    this.unseen.add(block)
    this.give(block)
    return true
  }

  owns(ptr: number): boolean {
    return this.live.has(ptr)
  }

  /** The serial number of the allocation at `ptr` for importers; undefined if no allocation begins there. */
  exportSerial(ptr: number): number | undefined {
    const block = this.live.get(ptr)
    if (block !== undefined && block.serial === 0) block.serial = ++this.exported
    return block?.serial
  }

  /** The exported allocation; undefined after its free. */
  findExported(ptr: number, serial: number): Readonly<PoolBlock> | undefined {
    const block = this.live.get(ptr)
    return block?.serial === serial ? block : undefined
  }

  /** Returns unused chunks now, and the other chunks when their blocks are freed. */
  destroy(): void {
    this.destroyed = true
    this.releaseThresholdBytes = 0
    this.seeCompleted()
    this.giveBack(0)
  }

  /** Whether the pool is destroyed and has no memory left. */
  get gone(): boolean {
    return this.destroyed && this.reservedBytes === 0
  }

  /** The host has waited: it sees completed frees, and chunks above the threshold go back. */
  synchronized(): void {
    if (this.reservedBytes === 0) return
    this.seeCompleted()
    if (this.reservedBytes > this.releaseThresholdBytes) this.giveBack(this.releaseThresholdBytes)
  }

  /** Returns chunks while at least `keepBytes` stay reserved. */
  trimTo(keepBytes: number): void {
    if (!this.givesBack) return
    for (const block of this.wholeChunks()) {
      if (this.reservedBytes - block.bytes >= keepBytes) this.giveChunk(block)
    }
  }

  private get givesBack(): boolean {
    return this.place.handleTypes === CU_MEM_HANDLE_TYPE_NONE || this.destroyed
  }

  /** The effect of a free on importers of the block, in stream order. */
  private endOfExport(block: PoolBlock): (() => void) | null {
    const { serial } = block
    block.serial = 0
    if (serial === 0) return null
    return () => {
      for (const pool of this.imports) pool.lose(serial)
    }
  }

  private giveBack(thresholdBytes: number): void {
    if (!this.givesBack) return
    for (const block of this.wholeChunks()) if (this.reservedBytes > thresholdBytes) this.giveChunk(block)
  }

  private wholeChunks(): PoolBlock[] {
    return this.free.all().filter(block => block.previous === null && block.next === null && block.stream === null)
  }

  private giveChunk(block: PoolBlock): void {
    this.take(block)
    this.reservedBytes -= block.bytes
    this.place.memory.give(block.bytes)
    this.space.release(block.chunk)
    this.interceptor.pay(costUs('cuMemUnmap', block.bytes) + costUs('cuMemRelease', block.bytes))
  }

  private grow(size: number): PoolBlock | null {
    const { memory, access, maxBytes } = this.place
    const bytes = roundUp(size, CHUNK_BYTES)
    if (this.reservedBytes + bytes > maxBytes) return null
    const contents = memory.take(bytes)
    if (contents === null) return null
    const chunk = this.space.claim(bytes)
    if (chunk === null) {
      memory.give(bytes)
      return null
    }
    chunk.hold(memory, contents, access)
    this.addReserved(bytes)
    this.interceptor.pay(costUs('cuMemCreate', bytes) + costUs('cuMemMap', bytes) + costUs('cuMemSetAccess', bytes))
    const block = new PoolBlock(chunk, chunk.base, bytes)
    this.free.insert(block)
    return block
  }

  private fit(size: number, stream: StreamQueue): PoolBlock | null {
    let block = this.free.smallest(size)
    while (block !== null && !this.mayServe(block, stream)) block = this.free.after(block)
    return block
  }

  private smallestFree(size: number): PoolBlock | null {
    return this.reuseInternal ? this.free.smallest(size) : null
  }

  private mayServe({ stream: other, position }: PoolBlock, stream: StreamQueue): boolean {
    if (other === null || other === stream) return true
    if (this.reuseOpportunistic && other.completed >= position) return true
    return this.reuseFollowEvents && stream.comesAfter(other, position)
  }

  private cut(block: PoolBlock, size: number): void {
    if (block.bytes === size) return
    const rest = new PoolBlock(block.chunk, block.address + size, block.bytes - size)
    rest.stream = block.stream
    rest.position = block.position
    rest.previous = block
    rest.next = block.next
    if (rest.next !== null) rest.next.previous = rest
    block.next = rest
    block.bytes = size
    this.unseen.add(rest)
    this.free.insert(rest)
  }

  /** Makes a block free, merged with free neighbours that wait for the same stream, or for none as the block does. */
  private give(block: PoolBlock): void {
    let whole = block
    if (canMerge(whole.previous, whole)) whole = this.merge(whole.previous!, whole)
    if (canMerge(whole, whole.next)) whole = this.merge(whole, whole.next!)
    this.free.insert(whole)
  }

  /** Merges two neighbours, which may be in the list of free blocks. The result is in no list. */
  private merge(low: PoolBlock, high: PoolBlock): PoolBlock {
    this.free.remove(low)
    this.free.remove(high)
    this.unseen.delete(high)
    low.bytes += high.bytes
    low.position = Math.max(low.position, high.position)
    low.next = high.next
    if (low.next !== null) low.next.previous = low
    return low
  }

  private seeCompleted(): void {
    this.unseen.eachCompleted(block => {
      this.take(block)
      block.stream = null
      block.position = 0
      this.give(block)
    })
  }

  private take(block: PoolBlock): void {
    this.free.remove(block)
    this.unseen.delete(block)
  }
}

function canMerge(low: PoolBlock | null, high: PoolBlock | null): boolean {
  return low !== null && high !== null && !low.live && !high.live && low.stream === high.stream
}

function roundUp(bytes: number, unit: number): number {
  return Math.ceil(bytes / unit) * unit
}
