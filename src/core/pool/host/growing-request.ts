// Growth of a host pool whose program can wait. Another thread gives the new memory its pages, which is much of the
// work, and the pool then pins it and makes a segment of it.

import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import type { LineOptions } from '../../order/wait-options.js'
import { type PinnedMemory, prepareFor } from '../backing/pinned-segments.js'
import type { AllocateOptions } from '../long-form.js'
import type { PoolStats } from '../pool.js'

interface GrowingPool<B> {
  readonly closed: boolean
  readonly memory: PinnedMemory
  stats(): PoolStats
  tryAllocate(bytes: ByteSize, options: AllocateOptions): B | null
  whenAvailable(bytes: ByteSize, options: LineOptions): Promise<void>
}

/** A request of `allocateSoon`. It prepares memory once, if no idle memory serves it. */
export class GrowingRequest<B> {
  private prepared: Uint8Array | null = null
  private hasPrepared = false
  private signal: AbortSignal | undefined

  constructor(
    private readonly pool: GrowingPool<B>,
    /** the memory that a share is of */
    private readonly whole: { readonly totalBytes: number },
  ) {}

  tryAllocate(bytes: ByteSize, options: AllocateOptions): B | null {
    if (this.mustPrepare(bytes)) return null
    const { prepared, pool } = this
    this.prepared = null
    return pool.memory.growWith(prepared, () => {
      this.signal?.throwIfAborted()
      return pool.tryAllocate(bytes, options)
    })
  }

  async whenAvailable(bytes: ByteSize, options: LineOptions): Promise<void> {
    if (!this.mustPrepare(bytes)) return await this.pool.whenAvailable(bytes, options)
    this.hasPrepared = true
    this.signal = options.signal
    // A greater alignment may need more memory, and the pool then pins other memory in this thread.
    this.prepared = await prepareFor(this.pool, bytesOf(bytes, 'bytes', this.whole))
  }

  private mustPrepare(bytes: ByteSize): boolean {
    if (this.hasPrepared || this.pool.closed) return false
    return this.pool.stats().largestFreeBytes < bytesOf(bytes, 'bytes', this.whole)
  }
}
