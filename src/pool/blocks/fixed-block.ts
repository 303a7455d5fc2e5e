// A block of a block pool, live or free: what is known of it is in fields of an object, which is the allocation of its buffers, for
// the reasons of block.ts. There is one for each block that was ever handed out.

import type { Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'

/** Bits; a handle has the tag that its block was taken with, and so never `shared`. */
export const enum State {
  free = 0,
  /** used by other streams than its own; alone: freed, but in no ring yet */
  shared = 1,
  live = 2,
}

/**
 * Free blocks that the same streams may have, from the newest to the oldest. The newest stays where it is when it is taken,
 * until another one is: given back before that, it is where it has to be.
 */
export class Ring {
  newest: FixedBlock

  constructor(
    /** under the oldest block, which is the newer one of it, if there is any; never free */
    readonly bottom: FixedBlock,
    /** of the last allocation from it */
    public stream: Stream,
  ) {
    this.newest = bottom
  }

  /** The newest block, if it is taken, is in the ring no more. */
  dropTaken(): void {
    if ((this.newest.tag & State.live) !== 0) this.newest = this.newest.older
  }

  /** A block that is in no ring becomes the newest. */
  push(block: FixedBlock): void {
    this.dropTaken()
    const { newest } = this
    block.older = newest
    newest.newer = block
    this.newest = block
  }
}

/** What a block asks of its pool. */
export interface FixedBlockOwner extends BufferSource {
  readonly blockBytes: number
  readonly defaultStream: Stream
  addressOfBlock(record: number): number
  /** another stream uses a live block until it is freed */
  announceUse(block: FixedBlock, stream: Stream): void
  refuseStale(call: string): never
}

export class FixedBlock implements Allocation {
  /** the outermost wrapper that handed it out */
  wrapper: BufferOwner | null = null
  /** the stream of the allocation */
  stream: Stream
  /** bytes that the user of a live block has not asked for */
  slack = 0
  /** while free: what must have passed before other streams may have it; a float64 from the start */
  stamp = Number.NaN
  /** while in a ring: the next older block, or the bottom */
  older: FixedBlock = this
  /** while in a ring: the next newer block, of all but the newest */
  newer: FixedBlock = this
  /** where it is, or comes to be when its stream frees it */
  ring: Ring | null = null

  constructor(
    readonly pool: FixedBlockOwner,
    /** the number of the block, from 0 */
    readonly record: number,
    /** generation × 8 + state */
    public tag: number,
  ) {
    this.stream = pool.defaultStream
  }

  get owner(): BufferOwner {
    return this.wrapper ?? this.pool
  }

  get isShared(): boolean {
    return (this.tag & State.shared) !== 0
  }

  addressOf(record: number, tag: number, call: string): number {
    if (!this.isLive(record, tag)) this.pool.refuseStale(call)
    return this.pool.addressOfBlock(record)
  }

  requestedBytesOf(record: number, tag: number, call: string): number {
    if (!this.isLive(record, tag)) this.pool.refuseStale(call)
    return this.pool.blockBytes - this.slack
  }

  isLive(_record: number, tag: number): boolean {
    return (this.tag & ~State.shared) === tag
  }

  recordUse(record: number, tag: number, stream: Stream): void {
    if (!this.isLive(record, tag)) this.pool.refuseStale('recordUse')
    this.pool.announceUse(this, stream)
  }

  free(buffer: DeviceBuffer, stream?: Stream): void {
    if (this.wrapper === null) this.pool.release(buffer, stream)
    else this.wrapper.release(buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.wrapper = owner
    return this
  }
}
