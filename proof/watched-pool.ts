// Pools that tell the oracle of memory which the library itself takes and gives back, for buffers that spill and for
// contents that sleep.

import { UNIT_BYTES } from '../src/core/heap/size-classes.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { Wrapper } from '../src/core/pool/wrappers/wrapper.js'
import type { DeviceBuffer, HostBuffer, HostPool, Stream } from '../src/index.js'
import type { ObservedDriver } from './observed-driver.js'

/** A caching pool whose grants and frees the oracle sees. */
export class WatchedPool extends Wrapper {
  /** buffers handed out so far, and those that are held */
  allocations = 0
  liveBuffers = 0

  constructor(
    private readonly pool: CachingPool,
    private readonly driver: ObservedDriver,
  ) {
    super(pool)
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const { oracle } = this.driver
    const ptr = this.pool.addressOfRecord(buffer.record)
    oracle.free(ptr)
    try {
      super.release(buffer, stream)
    } finally {
      if (buffer.freed) this.liveBuffers--
      else oracle.takeBack(ptr)
    }
  }

  protected override adopt(buffer: DeviceBuffer): DeviceBuffer {
    const { stream, record } = buffer
    const ptr = this.pool.addressOfRecord(record)
    const end = ptr + this.pool.records.unitsOf(record) * UNIT_BYTES
    // Another device may be current. Making this one current is a call that the program may refuse.
    this.driver.oracle.grant(ptr, end, this.driver.queueOf(stream.handle, stream.context.handle), this.pool)
    this.allocations++
    this.liveBuffers++
    return super.adopt(buffer)
  }
}

/** Lets the oracle see all grants and frees of a host pool. */
export function watchHost(host: HostPool, driver: ObservedDriver): HostPool {
  const { tryAllocate, allocate } = host
  const watch = (buffer: HostBuffer): HostBuffer => {
    const ptr = driver.hostAddress(buffer.bytes)
    driver.oracle.grant(ptr, ptr + buffer.byteLength, null, host)
    const { free } = buffer
    buffer.free = () => {
      driver.oracle.free(ptr)
      free.call(buffer)
    }
    return buffer
  }
  host.allocate = (...request) => watch(allocate.apply(host, request))
  host.tryAllocate = (...request) => {
    const buffer = tryAllocate.apply(host, request)
    return buffer === null ? null : watch(buffer)
  }
  return host
}
