import { WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { describe } from '../../base/bytes.js'
import type { Context } from '../../driver/context.js'
import type { Stream } from '../../order/stream.js'
import type { AccessLocation, PoolAccess } from '../access.js'
import type { DeviceBuffer } from '../buffer.js'
import { HostPool } from '../host/host-pool.js'
import type { AllocateOptions } from '../long-form.js'
import { Pool, type PoolStats } from '../pool.js'
import type { TransferredBuffer } from '../transferred-buffer.js'

/**
 * A pool around another pool, `upstream`, that adds some behaviour. The outermost wrapper frees the buffers. A
 * wrapper that counts does not see buffers that are freed by address.
 */
export abstract class Wrapper extends Pool {
  constructor(
    /** the wrapped pool */
    readonly upstream: Pool,
  ) {
    super()
    checkIsPool(upstream, 'upstream')
  }

  /** @internal */
  get context(): Context {
    return this.upstream.context
  }

  get defaultStream(): Stream {
    return this.upstream.defaultStream
  }

  allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    return this.adopt(this.upstream.allocate(bytes, stream, alignment))
  }

  tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    const buffer = this.upstream.tryAllocate(bytes, stream, alignment)
    return buffer === null ? null : this.adopt(buffer)
  }

  /** @internal */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    const bytes = buffer.allocation.requestedBytesOf(buffer.record, buffer.tag, 'free')
    try {
      this.upstream.release(buffer, stream)
    } catch (error) {
      if (buffer.freed) this.noteGone(buffer, bytes) // the error is an observer's
      throw error
    }
    this.noteGone(buffer, bytes)
  }

  /** @internal */
  override handOver(buffer: DeviceBuffer): TransferredBuffer {
    const bytes = buffer.allocation.requestedBytesOf(buffer.record, buffer.tag, 'transfer')
    const transferred = this.upstream.handOver(buffer)
    this.noteGone(buffer, bytes)
    return transferred
  }

  /** Called once a buffer of `bytes` was freed or went to another thread. */
  protected noteGone(_buffer: DeviceBuffer, _bytes: number): void {}

  /** @internal */
  override get sources(): readonly Pool[] {
    return this.upstream.sources
  }

  /** @internal */
  override mayServe(bytes: number): boolean {
    return this.upstream.mayServe(bytes)
  }

  /** @internal */
  override get mostPollMs(): number | undefined {
    return this.upstream.mostPollMs
  }

  /** The upstream's counters, unless the wrapper counts itself. */
  stats(): PoolStats {
    return this.upstream.stats()
  }

  /** The wrapper's name, and the line of the pool that it wraps. */
  override toString(): string {
    return `${this.constructor.name} around ${this.upstream}`
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.upstream.changeAccess(location, access)
  }

  /** The size of a request in bytes; throws TypeError or RangeError for a bad one. */
  protected bytesOf(size: ByteSize): number {
    return bytesOf(size, 'bytes', this.context)
  }

  /** Makes this wrapper the owner of a buffer that `allocate` and `tryAllocate` hand out. */
  protected adopt(buffer: DeviceBuffer): DeviceBuffer {
    buffer.allocation = buffer.allocation.ownedBy(this)
    return buffer
  }
}

/** Throws TypeError, naming the argument, if `pool` is no pool of device memory. */
export function checkIsPool(pool: Pool, argument: string): void {
  if (pool instanceof Pool) return
  if ((pool as unknown) instanceof HostPool) {
    const remedy = 'limit it by maxPoolBytes of createHostPool, and see its stats()'
    throw new WrongTypeError(
      `${argument} must be a pool of device memory, not a host pool, which has no wrappers; ${remedy}`,
    )
  }
  throw new WrongTypeError(`${argument} must be a pool, such as device.createPool() makes, not ${describe(pool)}`)
}
