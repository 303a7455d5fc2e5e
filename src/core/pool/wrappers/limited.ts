import { type ByteSize, bytesOfSize } from '../../base/byte-size.js'
import { checkByteCount } from '../../base/bytes.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { overLimit } from '../out-of-memory.js'
import type { Pool, PoolStats } from '../pool.js'
import { HandedOut } from './handed-out.js'
import { Wrapper } from './wrapper.js'

/**
 * Wraps `upstream` with a limit on the requested bytes of live buffers. Throws RangeError unless `limitBytes` is a
 * size or Infinity.
 */
export function limited(upstream: Pool, limitBytes: ByteSize): LimitedPool {
  return new LimitedPool(upstream, checkedLimit(limitBytes))
}

function checkedLimit(limitBytes: ByteSize): number {
  const bytes = bytesOfSize(limitBytes, 'limited: limitBytes')
  if (bytes !== Infinity) checkByteCount(bytes, 'limited: limitBytes')
  return bytes
}

/** A pool with a limit on the bytes handed out; beyond it, allocations fail as out of memory. Made by `limited()`. */
export class LimitedPool extends Wrapper {
  private currentBytes = 0
  private readonly handedOut: HandedOut

  constructor(
    upstream: Pool,
    private limit: number,
  ) {
    super(upstream)
    this.handedOut = new HandedOut(
      upstream,
      bytes => {
        this.currentBytes -= bytes
      },
      () => {
        this.currentBytes = 0
      },
    )
  }

  /**
   * The most requested bytes that may be live at a time. It can be set at any time; below what is live, nothing is
   * allocated until enough was freed. Throws like `limited` for a bad value.
   */
  get limitBytes(): number {
    return this.limit
  }

  /** Changes the limit. */
  set limitBytes(limit: ByteSize) {
    this.limit = checkedLimit(limit)
  }

  /** Requested bytes of the live buffers. */
  get handedOutBytes(): number {
    this.handedOut.settle()
    return this.currentBytes
  }

  /** As of `Pool`. Throws OutOfMemoryError if the limit would be exceeded. */
  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    if (this.exceeds(bytes)) throw overLimit(this.upstream, bytes, this.handedOutBytes, this.limitBytes)
    return this.note(this.upstream.allocate(bytes, stream, alignment), bytes)
  }

  /** As of `Pool`. Returns null if the limit would be exceeded. */
  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    const buffer = this.exceeds(bytes) ? null : this.upstream.tryAllocate(bytes, stream, alignment)
    return buffer === null ? null : this.note(buffer, bytes)
  }

  /**
   * Repeats the inherited body, as `note` does.
   * @internal
   */
  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const bytes = buffer.allocation.requestedBytesOf(buffer.record, buffer.tag, 'free')
    try {
      this.upstream.release(buffer, stream)
    } catch (error) {
      if (buffer.freed) this.noteGone(buffer, bytes)
      throw error
    }
    this.noteGone(buffer, bytes)
  }

  protected override noteGone(buffer: DeviceBuffer, bytes: number): void {
    this.currentBytes -= bytes
    this.handedOut.delete(buffer)
  }

  /** The upstream's counters, with this pool's limit. */
  override stats(): PoolStats {
    return { ...super.stats(), limitBytes: this.limitBytes }
  }

  /** Repeats the body of `adopt`, so that its call sites know this class only (docs/v8.md). */
  private note(buffer: DeviceBuffer, bytes: number): DeviceBuffer {
    this.currentBytes += bytes
    if (this.handedOut.isListed) this.handedOut.add(buffer, bytes)
    buffer.allocation = buffer.allocation.ownedBy(this)
    return buffer
  }

  private exceeds(bytes: number): boolean {
    if (typeof bytes === 'number') {
      if (!(bytes > this.limit - this.currentBytes)) return false // the upstream refuses bad sizes
      if (!(bytes > this.limit - this.handedOutBytes)) return false
    }
    checkByteCount(bytes, 'bytes')
    return true
  }
}
