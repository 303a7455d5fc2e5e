import type { Stream } from '../../order/stream.js'
import type { AccessLocation, PoolAccess } from '../access.js'
import type { DeviceBuffer } from '../buffer.js'
import type { Pool, PoolStats } from '../pool.js'
import { PeerOverflow } from './peer-overflow.js'
import { checkIsPool, Wrapper } from './wrapper.js'

/**
 * `upstream`, and when it has no room, `fallback`: for example `device.createPlainPool()`, the driver's own allocation, or a
 * pool of another device, which must be able to give this one access (PoolError otherwise). Its memory then goes to streams
 * of this device like any other; kernels of this device reach it over the link between the two.
 */
export function withFallback(upstream: Pool, fallback: Pool): FallbackPool {
  return new FallbackPool(upstream, fallback)
}

/** Made by `withFallback`. */
export class FallbackPool extends Wrapper implements Disposable {
  /** allocations that the fallback served */
  fallbacks = 0
  /** what the fallback handed out; both may draw on one pool, so the memory does not tell */
  private readonly fallen = new WeakSet<DeviceBuffer>()
  /** `fallback`, or what makes it one for the streams of another device */
  private readonly overflow: Pool

  constructor(
    upstream: Pool,
    /** the pool that serves requests without room in the first pool */
    readonly fallback: Pool,
  ) {
    super(upstream)
    checkIsPool(fallback, 'withFallback: fallback')
    const isBeside = fallback.context === upstream.context
    this.overflow = isBeside ? fallback : new PeerOverflow(fallback, upstream.defaultStream)
  }

  /** As of `Pool`, by the fallback if the first pool runs out. */
  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    const buffer = this.upstream.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return this.adopt(buffer)
    return this.note(this.overflow.allocate(bytes, stream, alignment))
  }

  /** As of `Pool`, by the fallback if the first pool runs out. */
  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    const buffer = super.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return buffer
    const other = this.overflow.tryAllocate(bytes, stream, alignment)
    return other === null ? null : this.note(other)
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const upstream = this.fallen.has(buffer) ? this.overflow : this.upstream
    upstream.release(buffer, stream)
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    super.changeAccess(location, access)
    this.overflow.changeAccess(location, access)
  }

  /**
   * Closes the streams that a fallback on another device needed. Both pools stay open, and what is held stays so and can be
   * freed. Closing that device does it, too.
   */
  close(): void {
    if (this.overflow instanceof PeerOverflow) this.overflow.close()
  }

  /** Closes what the wrapper itself has made; both pools stay open. */
  [Symbol.dispose](): void {
    this.close()
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
