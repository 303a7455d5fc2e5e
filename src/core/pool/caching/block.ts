// A block that a heap has handed out: a live one, or one kept for a stream in the stream caches. From
// `StreamCaches.handOut` to `StreamCaches.handBack` the object, not the record, holds the block's tag, its stream,
// and its stamp as the mark before it. The cached path reads and writes plain objects of one shape: a field of such
// an object costs one load, an element of a typed array eight. Each record gets one such object, when it is first
// handed out (docs/internals/decisions.md#0011-cached-blocks-are-objects).

import { assert } from '../../base/assert.js'
import { LAST_GENERATION, type State } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'

/** Of a block's tag. Const enums are written out as numbers, which keeps hot methods small enough to be inlined. */
export const enum Tag {
  stateMask = 7,
  /** tags above this have no room for another generation */
  last = (2 ** 28 - 1) * 8,
}
assert(Number(Tag.last) === LAST_GENERATION * 8, 'the last tag is one of the last generation')

/** The calls that a block makes on its pool. */
export interface BlockOwner extends BufferSource {
  readonly defaultStream: Stream
  /** the device address of a block */
  addressOfRecord(record: number): number
  /** another stream uses a live block until it is freed */
  announceUse(block: Block, stream: Stream): void
  /** takes back the block of a buffer with this tag; of a wrapped pool's buffer the wrapper calls `release` */
  releaseBlock(block: Block, tag: number, stream?: Stream): void
  refuseStale(call: string): never
  /** whether `checkUse` must be called before each use of an address */
  readonly isGuarded: boolean
  /** throws PoolError, in the name of `call`, if a block, or memory of the pool, cannot be used now */
  checkUse(call: string, record: number): void
}

/** The blocks that one stream caches, in their stacks. */
export class StreamTotals {
  /** units */
  cached = 0
  /** the stacks in use, in the order of their classes */
  readonly stacks: Stack[] = []

  constructor(
    /** of the stream */
    readonly slot: number,
    /** while at least this many units are cached, no more can be live than at the peak; see live-peak.ts */
    public leastCached: number,
    /** units that may be cached */
    public most: number,
  ) {}
}

/** The cached blocks of one class of a stream, linked from the top one downwards. */
export class Stack {
  /**
   * the other stream's stack that last gave this stream a block of the class; this stack itself before the first time
   */
  giver: Stack = this
  /** units of the last block that went to the heap for want of a place */
  lastFreed = 0

  constructor(
    /** in an empty stack the block that lies under every stack */
    public top: Block,
    readonly sizeClass: number,
    /** most blocks; none while caching the class does not pay, see `StreamCaches.noteMiss` and `setTight` */
    public places: number,
    readonly totals: StreamTotals,
  ) {}
}

export class Block implements Allocation {
  /** the outermost wrapper that handed it out; one comparison tells null, five tell which class an object has */
  wrapper: BufferOwner | null = null
  stream: Stream
  /** generation × 8 + state, as in a record; the state is `unused` while the block is neither live nor cached */
  tag = 0
  units = -1
  /** bytes beyond the request, the present one or the last */
  slack = 0
  /**
   * while cached: the last mark of its stream before its free; any later mark covers the free. A float64 from the
   * start
   */
  mark = Number.NaN
  /**
   * while cached: the block under it, and its place in the stack from 1; 0 for the block that lies under every stack
   */
  below: Block | null = null
  height = 0
  /** the stack that holds it, or will hold it once its stream frees it; tells its stream and class */
  stack: Stack | null = null

  constructor(
    readonly pool: BlockOwner,
    readonly record: number,
  ) {
    this.stream = pool.defaultStream
  }

  get owner(): BufferOwner {
    return this.wrapper ?? this.pool
  }

  get state(): State {
    return (this.tag & Tag.stateMask) as State
  }

  set state(state: State) {
    this.tag = (this.tag & ~Tag.stateMask) | state
  }

  /** the slot of the stream that it was allocated on, or that caches it */
  get slot(): number {
    return this.stack!.totals.slot
  }

  get requestedBytes(): number {
    return this.units * UNIT_BYTES - this.slack
  }

  addressOf(_record: number, tag: number, call: string): number {
    if (!this.isLive(this.record, tag)) this.pool.refuseStale(call)
    if (this.pool.isGuarded) this.pool.checkUse(call, this.record)
    return this.pool.addressOfRecord(this.record)
  }

  requestedBytesOf(_record: number, tag: number, call: string): number {
    if (!this.isLive(this.record, tag)) this.pool.refuseStale(call)
    return this.requestedBytes
  }

  isLive(_record: number, tag: number): boolean {
    return (this.tag & ~1) === tag
  }

  recordUse(_record: number, tag: number, stream: Stream): void {
    if (!this.isLive(this.record, tag)) this.pool.refuseStale('recordUse')
    this.pool.announceUse(this, stream)
  }

  free(buffer: DeviceBuffer, stream?: Stream): void {
    const { wrapper } = this
    if (wrapper === null) this.pool.releaseBlock(this, buffer.tag, stream)
    else wrapper.release(buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.wrapper = owner
    return this
  }
}

/** The last mark of a stream before a free with this stamp. A later mark covers the free. */
export function markBefore(stamp: number): number {
  return stamp - 1
}

/** The stamp of a free after this mark: the number of the next mark, which covers the free. */
export function stampAfter(mark: number): number {
  return mark + 1
}

/**
 * Bytes of a block beyond the request. For `bytes` below 2^30 it is a small integer to V8, even if `bytes` is a
 * float64.
 */
export function slackOf({ units }: Block, bytes: number): number {
  return units * UNIT_BYTES - (bytes < 2 ** 30 ? bytes | 0 : bytes)
}
