import { checkByteCount } from '../../base/bytes.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { overLimit } from '../out-of-memory.js'
import type { Pool, PoolStats } from '../pool.js'
import { Wrapper } from './wrapper.js'

/** `upstream` with a bound on the bytes handed out at a time, as asked for. Throws RangeError for a bad bound. */
export function limited(upstream: Pool, limitBytes: number): LimitedPool {
  if (limitBytes !== Infinity) checkByteCount(limitBytes, 'limited: limitBytes')
  return new LimitedPool(upstream, limitBytes)
}

/** Made by `limited`. */
export class LimitedPool extends Wrapper {
  /** handed out now, as asked for */
  handedOutBytes = 0

  constructor(
    upstream: Pool,
    /** most bytes that may be held through it */
    readonly limitBytes: number,
  ) {
    super(upstream)
  }

  /** As of `Pool`. Throws OutOfMemoryError if the limit would be exceeded. */
  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    if (this.exceeds(bytes)) throw overLimit(this.upstream, bytes, this.handedOutBytes, this.limitBytes)
    return super.allocate(bytes, stream, alignment)
  }

  /** As of `Pool`. Returns null if the limit would be exceeded. */
  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    return this.exceeds(bytes) ? null : super.tryAllocate(bytes, stream, alignment)
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const bytes = buffer.allocation.requestedBytesOf(buffer.record, buffer.tag, 'free')
    super.release(buffer, stream)
    this.handedOutBytes -= bytes
  }

  /** The counters of the upstream pool, with `limitBytes` of this wrapper. */
  override stats(): PoolStats {
    return { ...super.stats(), limitBytes: this.limitBytes }
  }

  protected override adopt(buffer: DeviceBuffer): DeviceBuffer {
    this.handedOutBytes += buffer.byteLength
    return super.adopt(buffer)
  }

  private exceeds(bytes: number): boolean {
    checkByteCount(bytes, 'bytes')
    return this.handedOutBytes + bytes > this.limitBytes
  }
}
