// Lends the pool of one device to streams of another device. A pool hands out memory in the order of its own device's
// streams. So each borrowing stream has a companion on the lending device, on which its buffers are allocated and
// freed. The stream waits for the companion when a buffer is handed out, and the companion for the stream when it is
// freed. The pool can then reuse a block at once for the same borrowing stream. Other streams get it when the
// companion, and so the borrowing stream, is done. Nothing waits on the host.

import type { ByteSize } from '../../base/byte-size.js'
import { CudaError, DeviceLostError } from '../../base/errors.js'
import { checkIsStream, checkStreamOf, Stream } from '../../order/stream.js'
import { DeviceBuffer } from '../buffer.js'
import { closedError } from '../closable-pool.js'
import { type AllocateOptions, allocateLong, isOptions } from '../long-form.js'
import type { Pool } from '../pool.js'
import { RecordAllocation } from '../record-allocation.js'
import { Wrapper } from './wrapper.js'

/** A buffer of the lending pool, as the borrowing stream sees it. */
class LentAllocation extends RecordAllocation {
  constructor(
    stream: Stream,
    /** the buffer of the lending pool, on the companion */
    readonly lent: DeviceBuffer,
  ) {
    super(lent.allocation.pool, lent.record, stream, lent.allocation)
  }

  noteUse(stream: Stream, call: string): void {
    this.lent.allocation.noteUse?.(stream, call)
  }
}

/** Made by `fallback()` around a pool of another device. Gives the borrowing device access. */
export class PeerOverflow extends Wrapper {
  /** the companion on the lending device, by borrowing stream */
  private readonly companions = new Map<Stream, Stream>()
  /** buffers that the driver let the adapter neither lend nor give back */
  private readonly unlent: DeviceBuffer[] = []
  private closed = false

  constructor(
    upstream: Pool,
    /** the default stream of the borrowing device */
    private readonly borrower: Stream,
  ) {
    super(upstream)
    upstream.setAccess(borrower, 'readWrite')
  }

  override get defaultStream(): Stream {
    return this.borrower
  }

  override allocate(
    bytes: ByteSize,
    stream: Stream | AllocateOptions = this.borrower,
    alignment?: number,
  ): DeviceBuffer {
    if (isOptions(stream)) return allocateLong(this, bytes, stream, alignment, false)!
    return this.lend(this.upstream.allocate(bytes, this.lender(stream), alignment), stream)
  }

  override tryAllocate(
    bytes: ByteSize,
    stream: Stream | AllocateOptions = this.borrower,
    alignment?: number,
  ): DeviceBuffer | null {
    if (isOptions(stream)) return allocateLong(this, bytes, stream, alignment, true)
    const buffer = this.upstream.tryAllocate(bytes, this.lender(stream), alignment)
    return buffer === null ? null : this.lend(buffer, stream)
  }

  override release(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    const { lent } = buffer.allocation as LentAllocation
    checkIsStream('free', stream)
    if (stream.clocks !== this.borrower.clocks) {
      this.upstream.release(lent, stream)
      return
    }
    stream.checkUncaptured('free')
    if (this.closed || stream.closed) {
      // Without a companion the pool itself finds out when the stream is done.
      lent.allocation.recordUse(lent.record, lent.tag, stream)
      this.upstream.release(lent)
    } else {
      const companion = this.companionOf(stream)
      stream.clocks.orderPeer(...stream.covering, companion)
      this.upstream.release(lent, companion === lent.stream ? undefined : companion)
    }
  }

  /** Closes the companions. Live buffers can still be freed. A second close does nothing. */
  close(): void {
    this.closed = true
    this.returnUnlent()
    this.closeCompanions(() => true)
  }

  /** The companion to allocate on for `stream`. */
  private lender(stream: Stream): Stream {
    if (this.closed) throw closedError('allocate')
    checkStreamOf('allocate', stream, this.borrower.clocks)
    stream.checkOpen('allocate')
    this.returnUnlent()
    return this.companionOf(stream)
  }

  private lend(lent: DeviceBuffer, stream: Stream): DeviceBuffer {
    try {
      lent.stream.clocks.orderPeer(...lent.stream.covering, stream)
    } catch (error) {
      this.unlent.push(lent)
      try {
        this.returnUnlent()
      } catch (second) {
        // The first error says more, and the next call tries again.
        if (!(second instanceof CudaError) && !(second instanceof DeviceLostError)) throw second
      }
      throw error
    }
    return new DeviceBuffer(new LentAllocation(stream, lent).ownedBy(this), lent.tag)
  }

  private returnUnlent(): void {
    for (let lent = this.unlent.at(-1); lent !== undefined; lent = this.unlent.at(-1)) {
      if (!lent.freed) this.upstream.release(lent)
      this.unlent.pop()
    }
  }

  /** The companion of an open stream. Before it makes a new one, it closes those of closed streams. */
  private companionOf(stream: Stream): Stream {
    const known = this.companions.get(stream)
    if (known !== undefined) return known
    this.closeCompanions(other => other.closed)
    const companion = Stream.create(this.upstream.defaultStream.clocks)
    this.companions.set(stream, companion)
    return companion
  }

  private closeCompanions(which: (stream: Stream) => boolean): void {
    for (const [stream, companion] of this.companions) {
      if (!which(stream)) continue
      companion.close()
      this.companions.delete(stream)
    }
  }
}
