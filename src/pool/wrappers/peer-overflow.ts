// A pool of one device, lent to the streams of another one. A pool gives out memory in the order of streams of its own
// device, so each stream that borrows has a companion there, on which its buffers are allocated and freed: the stream waits
// for the companion when a buffer is given out, and the companion for the stream when it comes back. The pool then gives a
// block to the same stream again at once, and to others when the companion, and so the borrowing stream, is done with it.
// Nothing waits on the host.

import { CudaError, DeviceLostError, PoolError } from '../../base/errors.js'
import { checkIsStream, checkStreamOf, Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { freeSlowly } from '../slow-free.js'
import { Wrapper } from './wrapper.js'

/** A buffer of the lending pool, as the borrowing stream sees it. */
class LentAllocation implements Allocation {
  readonly pool: BufferSource
  readonly record: number

  constructor(
    public owner: BufferOwner,
    readonly stream: Stream,
    /** what the lending pool handed out, on the companion */
    readonly lent: DeviceBuffer,
  ) {
    this.pool = lent.allocation.pool
    this.record = lent.record
  }

  addressOf(record: number, tag: number, call: string): number {
    return this.lent.allocation.addressOf(record, tag, call)
  }

  requestedBytesOf(record: number, tag: number, call: string): number {
    return this.lent.allocation.requestedBytesOf(record, tag, call)
  }

  isLive(record: number, tag: number): boolean {
    return this.lent.allocation.isLive(record, tag)
  }

  recordUse(record: number, tag: number, stream: Stream): void {
    this.lent.allocation.recordUse(record, tag, stream)
  }

  noteUse(stream: Stream, call: string): void {
    this.lent.allocation.noteUse?.(stream, call)
  }

  free(buffer: DeviceBuffer, stream?: Stream): void {
    freeSlowly(this.owner, buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.owner = owner
    return this
  }
}

/** Made by `withFallback` around a fallback on another device, to which the borrowing device is given access. */
export class PeerOverflow extends Wrapper {
  /** by borrowing stream: a stream of the lending device */
  private readonly companions = new Map<Stream, Stream>()
  /** could neither be lent nor given back, since the driver refused both */
  private readonly unlent: DeviceBuffer[] = []
  private closed = false

  constructor(
    upstream: Pool,
    /** the default one of the device that borrows */
    private readonly borrower: Stream,
  ) {
    super(upstream)
    upstream.setAccess(borrower, 'readWrite')
  }

  override get defaultStream(): Stream {
    return this.borrower
  }

  override allocate(bytes: number, stream: Stream = this.borrower, alignment?: number): DeviceBuffer {
    return this.lend(this.upstream.allocate(bytes, this.lender(stream), alignment), stream)
  }

  override tryAllocate(bytes: number, stream: Stream = this.borrower, alignment?: number): DeviceBuffer | null {
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
      // Without a companion the pool looks itself when the stream is done.
      lent.allocation.recordUse(lent.record, lent.tag, stream)
      this.upstream.release(lent)
    } else {
      const companion = this.companionOf(stream)
      stream.clocks.orderPeer(...stream.covering, companion)
      this.upstream.release(lent, companion === lent.stream ? undefined : companion)
    }
  }

  /** Closes the companions; buffers that are still held can be freed afterwards, too. A second close does nothing. */
  close(): void {
    this.closed = true
    this.returnUnlent()
    this.closeCompanions(() => true)
  }

  /** The stream to allocate on for `stream`. */
  private lender(stream: Stream): Stream {
    if (this.closed) throw new PoolError('allocate: the pool is closed; create another')
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
        // The first error tells more, and the next call tries again.
        if (!(second instanceof CudaError) && !(second instanceof DeviceLostError)) throw second
      }
      throw error
    }
    return new DeviceBuffer(new LentAllocation(this, stream, lent), lent.tag)
  }

  private returnUnlent(): void {
    for (let lent = this.unlent.at(-1); lent !== undefined; lent = this.unlent.at(-1)) {
      if (!lent.freed) this.upstream.release(lent)
      this.unlent.pop()
    }
  }

  /** That of an open stream; those of streams closed meanwhile are closed when a new one is needed. */
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
