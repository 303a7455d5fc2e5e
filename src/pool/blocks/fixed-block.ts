// A block of a block pool, live or free, as an object with fields, for the reasons in docs/v8.md. It is the
// allocation of its buffers. Each block that was ever handed out has one.

import type { Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'

/** Bits of a tag. A handle has the tag that its block was taken with, and so never `shared`. */
export const enum State {
  free = 0,
  /** used by other streams than its own; without `live`: freed, but in no ring yet */
  shared = 1,
  live = 2,
}

/**
 * Free blocks for one stream, from the newest to the oldest. A taken block stays on top until another block is taken.
 * If it is freed before that, it is already in its place.
 */
export class Ring {
  newest: FixedBlock

  constructor(
    /** the sentinel under the oldest block, never free; its `newer` is the oldest block */
    readonly bottom: FixedBlock,
    /** the stream of the ring's last allocation */
    public stream: Stream,
  ) {
    this.newest = bottom
  }

  /** Removes the newest block if it is taken. */
  dropTaken(): void {
    if ((this.newest.tag & State.live) !== 0) this.newest = this.newest.older
  }

  /** Makes a block that is in no ring the newest. */
  push(block: FixedBlock): void {
    this.dropTaken()
    const { newest } = this
    block.older = newest
    newest.newer = block
    this.newest = block
  }
}

/** The part of the pool that a block calls. */
export interface FixedBlockOwner extends BufferSource {
  readonly blockBytes: number
  readonly defaultStream: Stream
  addressOfBlock(record: number): number
  /** another stream uses a live block until it is freed */
  announceUse(block: FixedBlock, stream: Stream): void
  /** takes back the block of a buffer with this tag; of a wrapped pool's buffer the wrapper calls `release` */
  releaseBlock(block: FixedBlock, tag: number, stream?: Stream): void
  refuseStale(call: string): never
}

export class FixedBlock implements Allocation {
  /** the outermost wrapper that handed it out */
  wrapper: BufferOwner | null = null
  /** the stream of the allocation */
  stream: Stream
  /** bytes of a live block that were not requested */
  slack = 0
  /**
   * while free: the stamp that must have passed before other streams may have it; a float64 from the start, for V8
   */
  stamp = Number.NaN
  /** while in a ring: the next older block, or the bottom */
  older: FixedBlock = this
  /** while in a ring, and not the newest: the next newer block */
  newer: FixedBlock = this
  /** its ring, or the ring that it goes to when its stream frees it */
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
    if (this.wrapper === null) this.pool.releaseBlock(this, buffer.tag, stream)
    else this.wrapper.release(buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.wrapper = owner
    return this
  }
}
