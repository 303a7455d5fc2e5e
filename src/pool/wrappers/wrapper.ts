import { describe } from '../../base/bytes.js'
import type { Context } from '../../driver/context.js'
import type { Stream } from '../../order/stream.js'
import type { AccessLocation, PoolAccess } from '../access.js'
import type { DeviceBuffer } from '../buffer.js'
import { Pool, type PoolStats } from '../pool.js'

/**
 * A pool around another one, `upstream`: same shape, some behaviour added. Buffers are freed through the outermost wrapper;
 * what leaves the upstream otherwise, by address or with its pool, a wrapper that counts does not notice.
 */
export abstract class Wrapper extends Pool {
  constructor(
    /** the pool that it wraps */
    readonly upstream: Pool,
  ) {
    super()
    checkIsPool(upstream, 'upstream')
  }

  get context(): Context {
    return this.upstream.context
  }

  get defaultStream(): Stream {
    return this.upstream.defaultStream
  }

  allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    return this.adopt(this.upstream.allocate(bytes, stream, alignment))
  }

  tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    const buffer = this.upstream.tryAllocate(bytes, stream, alignment)
    return buffer === null ? null : this.adopt(buffer)
  }

  /** Throws with the buffer as it was, or has freed it: what is counted is changed after it. */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    this.upstream.release(buffer, stream)
  }

  stats(): PoolStats {
    return this.upstream.stats()
  }

  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.upstream.changeAccess(location, access)
  }

  /** From now on the buffer is this wrapper's to free. Every buffer that it hands out comes through here. */
  protected adopt(buffer: DeviceBuffer): DeviceBuffer {
    buffer.allocation = buffer.allocation.ownedBy(this)
    return buffer
  }
}

/** Throws TypeError for what is no pool, naming the argument. */
export function checkIsPool(pool: Pool, argument: string): void {
  if (pool instanceof Pool) return
  throw new TypeError(`${argument} must be a pool, such as device.createPool() makes, not ${describe(pool)}`)
}
