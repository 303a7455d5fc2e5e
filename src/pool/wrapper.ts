import type { Context } from '../driver/context.js'
import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from './buffer.js'
import { Pool, type PoolStats } from './pool.js'

/** A pool around another one, `upstream`: same shape, some behaviour added. Buffers are freed through the outermost wrapper. */
export abstract class Wrapper extends Pool {
  constructor(readonly upstream: Pool) {
    super()
  }

  get context(): Context {
    return this.upstream.context
  }

  allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    return this.adopt(this.upstream.allocate(bytes, stream, alignment))
  }

  tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    const buffer = this.upstream.tryAllocate(bytes, stream, alignment)
    return buffer === null ? null : this.adopt(buffer)
  }

  release(buffer: DeviceBuffer, stream?: Stream): void {
    this.upstream.release(buffer, stream)
  }

  stats(): PoolStats {
    return this.upstream.stats()
  }

  /** From now on the buffer is this wrapper's to free. */
  protected adopt(buffer: DeviceBuffer): DeviceBuffer {
    buffer.pool = this
    return buffer
  }
}
