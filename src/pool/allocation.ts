import type { Context } from '../driver/context.js'
import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from './buffer.js'
import type { TransferredBuffer } from './transferred-buffer.js'

/** Whom a buffer is given back to: the pool, or outermost wrapper, that handed it out. */
export interface BufferOwner {
  release(buffer: DeviceBuffer, stream?: Stream): void
}

/** The pool that memory comes from, whichever wrappers stand in between. */
export interface BufferSource extends BufferOwner {
  readonly context: Context
  /** true where blocks can be used and freed on a stream that is being captured */
  readonly servesCaptures?: boolean
  /** whether work of `context` can use the memory: that of its own device, and of others that were given access */
  reachableFrom(context: Context): boolean
  /** gives a live block up for another thread; of pools that threads share */
  transfer?(buffer: DeviceBuffer): TransferredBuffer
}

/**
 * What a pool knows of a buffer: the buffer itself is this and a tag, and no larger, since its size is most of what it
 * costs. Buffers may have a allocation in common, and a allocation may be the next buffer's when one is freed.
 */
export interface Allocation {
  readonly owner: BufferOwner
  /** the stream of the allocation */
  readonly stream: Stream
  readonly pool: BufferSource
  /** what the pool knows the memory by, if that is not the tag */
  readonly record: number
  /** the device address of a live block; throws PoolError for a stale handle, in the name of `call` */
  addressOf(record: number, tag: number, call: string): number
  /** bytes asked for; throws as `addressOf` does */
  requestedBytesOf(record: number, tag: number, call: string): number
  isLive(record: number, tag: number): boolean
  /** `stream`, which may be of another device, uses the block until it is freed */
  recordUse(record: number, tag: number, stream: Stream): void
  /** told before work on an open `stream` is submitted that uses a live block: of pools that look for mistakes */
  noteUse?(stream: Stream, call: string): void
  /**
   * Gives the buffer back to its owner. Each class repeats this body, so that its call sites stay monomorphic. Classes whose pools
   * are slow anyway call `freeSlowly`.
   */
  free(buffer: DeviceBuffer, stream?: Stream): void
  /** the allocation of the same buffer with another owner */
  ownedBy(owner: BufferOwner): Allocation
}
