import { checkByteCount, formatBytes } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from './buffer.js'
import type { Pool, PoolStats } from './pool.js'
import { Wrapper } from './wrapper.js'

/** `upstream` with a bound on the bytes handed out at a time, as asked for. Throws RangeError for a bad bound. */
export function limited(upstream: Pool, limitBytes: number): LimitedPool {
  if (limitBytes !== Infinity) checkByteCount(limitBytes, 'limited: limitBytes')
  return new LimitedPool(upstream, limitBytes)
}

export class LimitedPool extends Wrapper {
  private handedOutBytes = 0

  constructor(
    upstream: Pool,
    readonly limitBytes: number,
  ) {
    super(upstream)
  }

  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    if (this.exceeds(bytes)) throw this.outOfMemory(bytes)
    const buffer = super.allocate(bytes, stream, alignment)
    this.handedOutBytes += bytes
    return buffer
  }

  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    if (this.exceeds(bytes)) return null
    const buffer = super.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) this.handedOutBytes += bytes
    return buffer
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const bytes = buffer.home.requestedBytesOf(buffer.record, buffer.tag, 'free')
    super.release(buffer, stream)
    this.handedOutBytes -= bytes
  }

  override stats(): PoolStats {
    return { ...super.stats(), limitBytes: this.limitBytes }
  }

  private exceeds(bytes: number): boolean {
    checkByteCount(bytes, 'bytes')
    return this.handedOutBytes + bytes > this.limitBytes
  }

  private outOfMemory(bytes: number): OutOfMemoryError {
    const { liveBytes, pendingBytes, reservedBytes, largestFreeBytes } = super.stats()
    const { handedOutBytes, limitBytes } = this
    return new OutOfMemoryError(
      `no room for ${formatBytes(bytes)} within the limit of ${formatBytes(limitBytes)}, of which ${formatBytes(handedOutBytes)} are handed out; free some or raise the limit`,
      {
        requestedBytes: bytes,
        liveBytes,
        pendingBytes,
        reservedBytes,
        largestFreeBytes,
        limitBytes,
        deviceFreeBytes: this.context.activate().cuMemGetInfo().freeBytes,
      },
    )
  }
}
