// The buffers that a wrapper counts and that its pools may drop without a free: by an arena's reset or rewind, or by
// a close. A wrapper around one pool that only a close empties keeps no list, so that its allocations cost the same.

import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'

export class HandedOut {
  /** the requested bytes of each live buffer; null if only a close drops buffers, and then all of them */
  private readonly bytesOf: Map<DeviceBuffer, number> | null
  private readonly sources: readonly Pool[]
  private seen: number

  constructor(
    upstream: Pool,
    /** a buffer was dropped */
    private readonly onDrop: (bytes: number, buffer: DeviceBuffer) => void,
    /** all buffers were dropped; called instead of `onDrop` where the buffers are not listed */
    private readonly onClose: () => void,
  ) {
    this.sources = upstream.sources
    this.bytesOf = this.sources.length > 1 || this.sources.some(pool => pool.mayReset) ? new Map() : null
    this.seen = this.drops()
  }

  /** Whether the buffers are listed. */
  get isListed(): boolean {
    return this.bytesOf !== null
  }

  /** Lists a buffer that was handed out, if buffers are listed. */
  add(buffer: DeviceBuffer, bytes: number): void {
    this.bytesOf?.set(buffer, bytes)
  }

  /** A buffer was freed. */
  delete(buffer: DeviceBuffer): void {
    this.bytesOf?.delete(buffer)
  }

  /** Tells the wrapper of the buffers that were dropped since the last call. */
  settle(): void {
    const drops = this.drops()
    if (drops === this.seen) return
    this.seen = drops
    if (this.bytesOf === null) {
      this.onClose()
      return
    }
    for (const [buffer, bytes] of this.bytesOf) {
      if (!buffer.freed) continue
      this.bytesOf.delete(buffer)
      this.onDrop(bytes, buffer)
    }
  }

  private drops(): number {
    let drops = 0
    for (const source of this.sources) drops += source.drops
    return drops
  }
}
