import type { Stream } from '../order/stream.js'
import { publishReserved, publishWaits } from './channels.js'
import type { Pool } from './pool.js'

/** A change of the memory that a pool has of the device. */
export interface ReservedChange {
  /** bytes that the pool took from the device, or gave back to it */
  readonly bytes: number
  /** bytes that it has now */
  readonly reservedBytes: number
}

/** Tells a program when its pool grows or shrinks, or makes streams wait. */
export class ReservedWatch {
  private reservedBytes = 0
  private waits = 0

  constructor(
    private readonly onGrow: ((change: ReservedChange) => void) | undefined,
    private readonly onTrim: ((change: ReservedChange) => void) | undefined,
  ) {}

  /**
   * Looks at the bytes that the pool has after a call, and at the waits that it has submitted for `stream`. The
   * program's callbacks run when that call has returned.
   */
  look(pool: Pool, reservedBytes: number, waits: number, stream: Stream): void {
    if (waits !== this.waits) {
      publishWaits(pool, stream, waits - this.waits)
      this.waits = waits
    }
    const bytes = reservedBytes - this.reservedBytes
    if (bytes === 0) return
    this.reservedBytes = reservedBytes
    publishReserved(pool, bytes, reservedBytes)
    const listener = bytes > 0 ? this.onGrow : this.onTrim
    if (listener !== undefined) queueMicrotask(() => listener({ bytes: Math.abs(bytes), reservedBytes }))
  }
}
