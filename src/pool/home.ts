import type { Context } from '../driver/context.js'
import type { Stream } from '../order/stream.js'

/** What a buffer asks of the pool that its memory comes from, whichever wrappers stand in between. */
export interface BufferHome {
  readonly context: Context
  /** the device address of a live block; throws PoolError for a stale handle, in the name of `call` */
  addressOf(record: number, tag: number, call: string): number
  /** bytes asked for; throws as `addressOf` does */
  requestedBytesOf(record: number, tag: number, call: string): number
  isLive(record: number, tag: number): boolean
  recordUse(record: number, tag: number, stream: Stream): void
}
