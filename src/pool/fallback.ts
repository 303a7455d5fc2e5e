import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from './buffer.js'
import type { Pool, PoolStats } from './pool.js'
import { checkIsPool, Wrapper } from './wrapper.js'

/** `upstream`, and when it has no room, `fallback`: for example `device.createPlainPool()`, the driver's own allocation. */
export function withFallback(upstream: Pool, fallback: Pool): FallbackPool {
  return new FallbackPool(upstream, fallback)
}

export class FallbackPool extends Wrapper {
  /** allocations that the fallback served */
  fallbacks = 0
  /** what the fallback handed out; both may draw on one pool, so the memory does not tell */
  private readonly fallen = new WeakSet<DeviceBuffer>()

  constructor(
    upstream: Pool,
    readonly fallback: Pool,
  ) {
    super(upstream)
    checkIsPool(fallback, 'withFallback: fallback')
  }

  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    const buffer = this.upstream.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return this.adopt(buffer)
    return this.note(this.fallback.allocate(bytes, stream, alignment))
  }

  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    const buffer = super.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return buffer
    const other = this.fallback.tryAllocate(bytes, stream, alignment)
    return other === null ? null : this.note(other)
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const upstream = this.fallen.has(buffer) ? this.fallback : this.upstream
    upstream.release(buffer, stream)
  }

  /**
   * Both pools together; a peak is the sum of both peaks, which may not have been at the same time. Where both draw on
   * one pool, that one is counted twice.
   */
  override stats(): PoolStats {
    const [mine, other] = [super.stats(), this.fallback.stats()]
    const sums = Object.entries(mine).map(([counter, value]) => [counter, value + other[counter as keyof PoolStats]])
    const largestFreeBytes = Math.max(mine.largestFreeBytes, other.largestFreeBytes)
    return { ...(Object.fromEntries(sums) as PoolStats), largestFreeBytes }
  }

  private note(buffer: DeviceBuffer): DeviceBuffer {
    this.fallbacks++
    this.fallen.add(buffer)
    return this.adopt(buffer)
  }
}
