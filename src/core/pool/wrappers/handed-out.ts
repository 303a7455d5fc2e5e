// The buffers of a wrapper that its pools may drop without a free: by an arena's reset or rewind, or by a close. A
// wrapper around one pool that only a close empties keeps no list, so that its allocations cost the same.

import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'

export class HandedOut<Noted> {
  /** what the wrapper notes of each live buffer; null if only a close drops buffers, and then all of them */
  private readonly noted: Map<DeviceBuffer, Noted> | null
  private readonly sources: readonly Pool[]
  private seen: number

  constructor(
    upstream: Pool,
    /** a buffer was dropped */
    private readonly onDrop: (noted: Noted) => void,
    /** all buffers were dropped; called instead of `onDrop` where the buffers are not listed */
    private readonly onClose: () => void,
  ) {
    this.sources = upstream.sources
    this.noted = this.sources.length > 1 || this.sources.some(pool => pool.mayReset) ? new Map() : null
    this.seen = this.drops()
  }

  /** Whether the buffers are listed. Those that are not have records of one pool, from 0 on. */
  get isListed(): boolean {
    return this.noted !== null
  }

  /** Lists a buffer that was handed out, if buffers are listed. */
  add(buffer: DeviceBuffer, noted: Noted): void {
    this.noted?.set(buffer, noted)
  }

  /** What was noted of a listed buffer. */
  get(buffer: DeviceBuffer): Noted | undefined {
    return this.noted?.get(buffer)
  }

  /** A buffer was freed. */
  delete(buffer: DeviceBuffer): void {
    this.noted?.delete(buffer)
  }

  /** Tells the wrapper of the buffers that were dropped since the last call. */
  settle(): void {
    const drops = this.drops()
    if (drops === this.seen) return
    this.seen = drops
    if (this.noted === null) {
      this.onClose()
      return
    }
    for (const [buffer, noted] of this.noted) {
      if (!buffer.freed) continue
      this.noted.delete(buffer)
      this.onDrop(noted)
    }
  }

  private drops(): number {
    let drops = 0
    for (const source of this.sources) drops += source.drops
    return drops
  }
}
