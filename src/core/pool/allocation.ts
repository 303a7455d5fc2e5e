import type { Context } from '../driver/context.js'
import type { Capture } from '../order/capture.js'
import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from './buffer.js'
import type { LabelStore } from './labels.js'
import type { TransferredBuffer } from './transferred-buffer.js'

/** Calls that look at an address, and neither use the memory nor pass the address on to work. */
const LOOKS: ReadonlySet<string> = new Set(['free', 'label', 'toString', 'toJSON'])

/** Whether `call` only looks at the address of a buffer: memory that sleeps allows it, and a capture learns nothing. */
export function looksOnly(call: string): boolean {
  return LOOKS.has(call)
}

/** The pool or outermost wrapper that handed a buffer out, and takes it back. */
export interface BufferOwner {
  /**
   * Takes a live buffer back, as `buffer.free(stream)` does. Throws PoolError for a stale buffer.
   * @internal
   */
  release(buffer: DeviceBuffer, stream?: Stream): void
  /**
   * Gives up a live buffer for another thread, as `buffer.transfer()` does. Only pools have it.
   * @internal
   */
  handOver?(buffer: DeviceBuffer): TransferredBuffer
}

/** The pool that memory comes from, behind all wrappers. */
export interface BufferSource extends BufferOwner {
  readonly context: Context
  /** true if blocks can be used and freed on a stream that is being captured */
  readonly servesCaptures?: boolean
  /** the number of the graph group whose memory a capture under way takes; 0 for memory of its own */
  groupOf?(capture: Capture): number
  /** whether work of `context` can use the memory: its own device, and devices that were given access */
  reachableFrom(context: Context): boolean
  /** whether the driver moves the memory between host and devices, and takes advice about that */
  readonly isManaged?: boolean
  /** labels that several threads see; only pools that threads share have it */
  readonly labels?: LabelStore
}

/**
 * The state that a pool keeps for a buffer. A buffer is only an allocation and a tag, since its size is most of its
 * cost. Several buffers may share an allocation, and the next buffer may reuse the allocation of a freed one.
 */
export interface Allocation {
  readonly owner: BufferOwner
  /** the stream of the allocation */
  readonly stream: Stream
  readonly pool: BufferSource
  /** identifies the memory in the pool; -1 if the tag alone does */
  readonly record: number
  /** the device address of a live block; throws PoolError for a stale handle, in the name of `call` */
  addressOf(record: number, tag: number, call: string): number
  /** bytes requested; throws as `addressOf` does */
  requestedBytesOf(record: number, tag: number, call: string): number
  isLive(record: number, tag: number): boolean
  /** `stream`, which may be of another device, uses the block until it is freed */
  recordUse(record: number, tag: number, stream: Stream): void
  /** called before work that uses a live block is submitted to `stream`; throws PoolError if it must not be */
  noteUse?(stream: Stream, call: string): void
  /**
   * Gives the buffer back to its owner. Classes of fast pools repeat this body, so that their call sites stay
   * monomorphic; those of slow pools extend `SlowAllocation`.
   */
  free(buffer: DeviceBuffer, stream?: Stream): void
  /** the allocation of the same buffer with another owner */
  ownedBy(owner: BufferOwner): Allocation
}
