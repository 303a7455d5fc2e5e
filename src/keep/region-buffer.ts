// The memory of a region as a buffer. Once the region is committed, no process writes it any more: calls that would are
// refused by name, before the driver refuses them.

import { PoolError } from '../core/base/errors.js'
import type { GrowableAllocation } from '../core/pool/mapped/growable-allocation.js'
import { MappedBuffer } from '../core/pool/mapped/mapped-buffer.js'

/** Calls that write to a buffer, unless it is their source. */
const WRITES: ReadonlySet<string> = new Set(['write', 'writeSync', 'fill', 'copyFrom', 'copyFromSync', 'copyTo'])

/** The device memory of a region: read-only in all processes, and freed by closing the region. */
export class RegionBuffer extends MappedBuffer {
  /** whether the region is committed */
  private sealed = false

  /** @internal */
  constructor(
    allocation: GrowableAllocation,
    private readonly region: string,
  ) {
    super(allocation)
  }

  /**
   * From now on the buffer is read-only.
   * @internal
   */
  seal(): void {
    this.sealed = true
  }

  /**
   * Unmaps the memory once the work submitted until now is complete.
   * @internal
   */
  unmap(): void {
    if (!this.freed) this.allocation.release(this)
  }

  /** @internal */
  override rangeOf(call: string, byteOffset: number, byteLength: number, argument?: string): number {
    if (this.sealed && WRITES.has(call) && argument !== 'sourceOffset') {
      throw new PoolError(`${call}: region ${this.region} is read-only; for new contents fill another version of it`)
    }
    return super.rangeOf(call, byteOffset, byteLength, argument)
  }

  /** Throws PoolError: closing the region unmaps its memory. */
  override free(): void {
    throw new PoolError(`free: the memory belongs to region ${this.region}; close the region instead`)
  }

  /** Does nothing: the memory belongs to its region. */
  override [Symbol.dispose](): void {}
}
