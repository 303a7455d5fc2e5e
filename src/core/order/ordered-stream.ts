import { CU_STREAM_LEGACY_DEFAULT } from '../driver/constants.js'
import type { Context } from '../driver/context.js'

/**
 * The part of `Stream` that clocks, captures and graphs use. `Stream` imports those, so they refer to this interface
 * instead of the class.
 */
export interface OrderedStream {
  /** @internal */
  readonly context: Context
  /**
   * notes that the stream was made to wait for work of another device
   * @internal
   */
  readonly clocks: { notePeerWait(): void }
  /** the driver's handle */
  readonly handle: number
  /** made by this library and destroyed by `close`; false for an adopted stream */
  readonly owned: boolean
  /**
   * index into the clocks, -1 while the stream is closed or captured
   * @internal
   */
  readonly slot: number
  /**
   * the latest slot, while `slot` is -1
   * @internal
   */
  readonly lastSlot: number
  readonly closed: boolean
  /** Whether everything submitted so far has completed. Throws PoolError for a closed or captured stream. */
  query(): boolean
  /**
   * of the legacy default stream: the capture that any work for it would break
   * @internal
   */
  blockedBy: object | null
  /**
   * Calls the driver for the stream, which no other thread ends or captures meanwhile. Throws PoolError where one
   * already has.
   * @internal
   */
  submit<R>(call: string, work: (handle: number) => R): R
  /**
   * The next work of the stream comes after something that other streams know nothing of yet.
   * @internal
   */
  noteWork(): void
  /**
   * Throws PoolError, in the name of `call`, if the stream is closed or captured.
   * @internal
   */
  checkOpen(call: string): void
  /**
   * Throws PoolError, in the name of `call`, if the stream takes no work; a captured stream does.
   * @internal
   */
  checkUsable(call: string): void
  /**
   * Takes the stream out of its slot until `resume`.
   * @internal
   */
  suspend(): void
  /**
   * Ends `suspend`; a stream that was not suspended stays as it is.
   * @internal
   */
  resume(): void
  close(): void
}

/** The name of a stream in messages, by its handle; null stands for a closed stream. */
export function streamName(handle: number | null): string {
  if (handle === null) return 'a closed stream'
  return handle <= CU_STREAM_LEGACY_DEFAULT ? 'the default stream' : `stream 0x${handle.toString(16)}`
}
