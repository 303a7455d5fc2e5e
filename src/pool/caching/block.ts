// A block that a heap has handed out: somebody's, or kept for a stream in the stream caches. From `StreamCaches.handOut` to
// `StreamCaches.handBack` it says what its record says at other times: the tag, the stream, and the stamp, as the mark before it. The
// cached path reads and writes plain objects of one shape, because a field of such an object is one load, and an element of a typed
// array eight (docs/decisions/0011-cached-blocks-are-objects.md). There is one for each record, made when it is first handed out.

import type { State } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'

const STATE_MASK = 7

/** What a block asks of its pool. */
export interface BlockOwner extends BufferSource {
  readonly defaultStream: Stream
  /** the device address of a block */
  addressOfRecord(record: number): number
  /** another stream uses a live block until it is freed */
  announceUse(block: Block, stream: Stream): void
  refuseStale(call: string): never
}

/** What one stream has in its stacks. */
export class Share {
  /** units */
  cached = 0
  /** whether many blocks of small sizes, and of large ones, were cached when room for one was looked for last */
  manySmall = false
  manyLarge = false
  /** those in use, in the order of their classes */
  readonly stacks: Stack[] = []

  constructor(
    /** the stream's */
    readonly slot: number,
    /** as long as that much is cached, no more can be live than ever before */
    public watched: number,
  ) {}
}

/** The cached blocks of one class of a stream: the one on top, which leads to the others. */
export class Stack {
  /** that of another stream, from which this one's was given a block last; itself for none */
  giver: Stack = this

  constructor(
    /** that of the pool's empty blocks when there is none */
    public top: Block,
    readonly sizeClass: number,
    /** most blocks */
    readonly places: number,
    readonly share: Share,
  ) {}
}

export class Block implements Allocation {
  /** the outermost wrapper that handed it out; whether there is one is told by one comparison, who an object is by five */
  wrapper: BufferOwner | null = null
  stream: Stream
  /** generation × 8 + state, as in a record; while nobody has the block its state is `unused` */
  tag = 0
  units = -1
  /** bytes beyond what was asked for, now or last */
  slack = 0
  /** while cached: the last mark of its stream before its free, a later one of which covers it; a float64 from the start */
  mark = Number.NaN
  /** while cached: the block under it, and how many blocks the stack has up to this one; 0 for what is under every stack */
  below: Block | null = null
  height = 0
  /** where it is cached, or comes to be when its stream frees it: tells its stream and class */
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
    return (this.tag & STATE_MASK) as State
  }

  set state(state: State) {
    this.tag = (this.tag & ~STATE_MASK) | state
  }

  /** the slot of the stream that it was allocated on, or that caches it */
  get slot(): number {
    return this.stack!.share.slot
  }

  get requestedBytes(): number {
    return this.units * UNIT_BYTES - this.slack
  }

  addressOf(_record: number, tag: number, call: string): number {
    if (!this.isLive(this.record, tag)) this.pool.refuseStale(call)
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
    if (this.wrapper === null) this.pool.release(buffer, stream)
    else this.wrapper.release(buffer, stream)
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

/** Bytes of a block that are not asked for: a small integer for V8 where it can be, whatever V8 takes `bytes` for. */
export function slackOf({ units }: Block, bytes: number): number {
  return units * UNIT_BYTES - (bytes < 2 ** 30 ? bytes | 0 : bytes)
}
