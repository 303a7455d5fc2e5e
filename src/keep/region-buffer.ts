// The memory of a region as a buffer. Once the region is committed, no process writes it any more: calls that would are
// refused by name, before the driver refuses them.

import { PoolError } from '../core/base/errors.js'
import { shownName } from '../core/base/shown-text.js'
import { DeviceArray, type TypedArrayConstructor, type TypedArrayOf } from '../core/pool/array.js'
import type { GrowableAllocation } from '../core/pool/mapped/growable-allocation.js'
import { MappedBuffer } from '../core/pool/mapped/mapped-buffer.js'

/** Calls that write to a buffer, unless it is their source, and those that hand it out to be written. */
const WRITES: ReadonlySet<string> = new Set([
  'write',
  'writeSync',
  'fill',
  'copyFrom',
  'copyFromSync',
  'copyTo',
  'createArenaPool',
])

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
    if (argument !== 'sourceOffset') this.checkMayWrite(call)
    return super.rangeOf(call, byteOffset, byteLength, argument)
  }

  /** @internal */
  override addressFor(call: string): number {
    if (call === 'createArenaPool') this.checkMayWrite(call)
    return super.addressFor(call)
  }

  /** A read-only typed array of `count` elements from the start on; by default of the whole region. */
  override array<C extends TypedArrayConstructor>(type: C, count?: number): DeviceArray<TypedArrayOf<C>> {
    const most = Math.floor(this.byteLength / type?.BYTES_PER_ELEMENT)
    return DeviceArray.over(this, type, 0, count ?? most, 'array')
  }

  /** Throws PoolError: closing the region unmaps its memory. */
  override free(): void {
    throw new PoolError(`free: the memory belongs to region ${shownName(this.region)}; close the region instead`)
  }

  /** Does nothing: the memory belongs to its region. */
  override [Symbol.dispose](): void {}

  private checkMayWrite(call: string): void {
    if (!this.sealed || !WRITES.has(call)) return
    const remedy = 'for new contents fill another version of it'
    throw new PoolError(`${call}: region ${shownName(this.region)} is read-only; ${remedy}`)
  }
}
