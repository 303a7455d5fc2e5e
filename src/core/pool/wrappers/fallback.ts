import { WrongTypeError } from '../../base/argument-errors.js'
import type { ByteSize } from '../../base/byte-size.js'
import { disposeOf } from '../../base/disposal.js'
import { OutOfMemoryError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import type { AccessLocation, PoolAccess } from '../access.js'
import type { DeviceBuffer } from '../buffer.js'
import type { AllocateOptions } from '../long-form.js'
import { type Pool, type PoolStats, sumOfStats } from '../pool.js'
import type { TransferredBuffer } from '../transferred-buffer.js'
import { PeerOverflow } from './peer-overflow.js'
import { checkIsPool, Wrapper } from './wrapper.js'

/**
 * Wraps `upstream` so that `second` serves an allocation when the upstream has no room. The second pool may be
 * `device.createPlainPool()`, the driver's own allocation, or a pool of another device. Streams of this device use
 * the other device's memory like any other, and kernels reach it over the link between both. Throws PoolError if the
 * other device cannot give this one access, TypeError unless they are two pools.
 */
export function fallback(upstream: Pool, second: Pool): FallbackPool {
  return new FallbackPool(upstream, second)
}

function neverFits(error: unknown): boolean {
  return error instanceof OutOfMemoryError && error.remedy === 'askForLess'
}

/** A pool with a second pool for allocations that the first has no room for. Made by `fallback()`. */
export class FallbackPool extends Wrapper implements Disposable {
  private served = 0
  /** the buffers from the fallback; both pools may wrap the same pool, so the memory does not tell them apart */
  private readonly fallen = new WeakSet<DeviceBuffer>()
  /** `fallback`, or an adapter that lends it to the streams of this device */
  private readonly overflow: Pool

  constructor(
    upstream: Pool,
    /** the pool that serves when the upstream has no room */
    readonly fallback: Pool,
  ) {
    super(upstream)
    checkIsPool(fallback, 'fallback: second')
    if (fallback === upstream) {
      throw new WrongTypeError('fallback: second is the pool itself, which has no room then; pass another pool')
    }
    const isBeside = fallback.context === upstream.context
    this.overflow = isBeside ? fallback : new PeerOverflow(fallback, upstream.defaultStream)
  }

  /** How many allocations the fallback served. */
  get fallbacks(): number {
    return this.served
  }

  /** As of `Pool`, by the fallback if the first pool runs out. */
  override allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    const buffer = this.upstream.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return this.adopt(buffer)
    try {
      return this.note(this.overflow.allocate(bytes, stream, alignment))
    } catch (error) {
      if (!neverFits(error)) throw error
      try {
        return this.adopt(this.upstream.allocate(bytes, stream, alignment)) // its error says whether it may fit later
      } catch (first) {
        throw neverFits(first) ? error : first
      }
    }
  }

  /** As of `Pool`, by the fallback if the first pool runs out. */
  override tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    const buffer = super.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return buffer
    const other = this.overflow.tryAllocate(bytes, stream, alignment)
    return other === null ? null : this.note(other)
  }

  /** @internal */
  override mayServe(bytes: number): boolean {
    const first = roomIn(this.upstream, bytes)
    if (first === true) return true
    const second = roomIn(this.overflow, bytes)
    if (first !== false && second !== false && second !== true) throw second // neither can ever serve it
    return second === true
  }

  /** @internal */
  override release(buffer: DeviceBuffer, stream?: Stream): void {
    this.sourceOf(buffer).release(buffer, stream)
  }

  /** @internal */
  override handOver(buffer: DeviceBuffer): TransferredBuffer {
    return this.sourceOf(buffer).handOver(buffer)
  }

  /** @internal */
  override get sources(): readonly Pool[] {
    return [...this.upstream.sources, ...this.fallback.sources]
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    super.changeAccess(location, access)
    this.overflow.changeAccess(location, access)
  }

  /**
   * Closes the streams that a fallback on another device needed; closing that device closes them, too. Both pools
   * stay open, and live buffers stay live. A second close does nothing.
   */
  close(): void {
    if (this.overflow instanceof PeerOverflow) this.overflow.close()
  }

  /** Closes what the wrapper itself has made; both pools stay open. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /**
   * The sums of the counters of all pools behind this one, each once. A peak is the sum of their peaks, which may have
   * been at different times.
   */
  override stats(): PoolStats {
    return sumOfStats([...new Set(this.sources)].map(pool => pool.stats()))
  }

  private sourceOf(buffer: DeviceBuffer): Pool {
    return this.fallen.has(buffer) ? this.overflow : this.upstream
  }

  private note(buffer: DeviceBuffer): DeviceBuffer {
    this.served++
    this.fallen.add(buffer)
    return this.adopt(buffer)
  }
}

/** Whether a pool has room; the error if it never has. */
function roomIn(pool: Pool, bytes: number): boolean | OutOfMemoryError {
  try {
    return pool.mayServe(bytes)
  } catch (error) {
    if (error instanceof OutOfMemoryError) return error
    throw error
  }
}
