import { untilDone } from '../../order/polling.js'
import { type AccessChange, type AccessLocation, changeEach, type PoolAccess } from '../access.js'
import { DeviceArray, type TypedArrayConstructor, type TypedArrayOf } from '../array.js'
import { DeviceBuffer } from '../buffer.js'
import type { GrowableAllocation } from './growable-allocation.js'

/** A DeviceBuffer with addresses and memory of its own, outside of all pools. */
export abstract class MappedBuffer extends DeviceBuffer {
  /**
   * the buffer's own allocation, for its addresses and memory
   * @internal
   */
  declare readonly allocation: GrowableAllocation

  constructor(allocation: GrowableAllocation) {
    super(allocation, 0)
  }

  /** Memory is mapped in multiples of this many bytes. */
  get granularityBytes(): number {
    return this.allocation.range.granuleBytes
  }

  /** Bytes of device memory that it has: at least its length, and memory that was cut off and not given back yet. */
  get mappedBytes(): number {
    return this.allocation.range.heldBytes
  }

  /**
   * Lets another device read and write the buffer, also memory mapped later, or no longer; like `setAccess` of a
   * pool. Throws TypeError for a bad location or access, and PoolError if the device cannot have access.
   */
  setAccess(location: AccessLocation, access: PoolAccess): void
  setAccess(changes: readonly AccessChange[]): void
  setAccess(what: AccessLocation | readonly AccessChange[], access?: PoolAccess): void {
    changeEach(what, access, (location, one) => this.allocation.changeAccess(location, one))
  }

  /** Resolves when all memory that was cut off is given back; does not block Node. */
  async settled(): Promise<void> {
    await untilDone(() => this.allocation.settle())
  }

  /** Blocks until all memory that was cut off is given back. Throws PoolError while a sleep or wake copies it. */
  settleSync(): void {
    this.allocation.settleSync()
  }

  /**
   * A typed array of `count` elements from the start on; by default as many as fit. The array keeps its length and
   * stays valid while the buffer grows. The buffer cannot shrink below it until the array is freed or disposed, which
   * does not free the buffer. Throws RangeError if `count` elements do not fit.
   */
  array<C extends TypedArrayConstructor>(type: C, count?: number): DeviceArray<TypedArrayOf<C>> {
    const most = Math.floor(this.byteLength / type?.BYTES_PER_ELEMENT)
    return DeviceArray.allocate(
      { allocate: bytes => this.allocation.view(bytes) },
      type,
      count ?? most,
      this.stream,
      'array',
    )
  }

  /** Asserts that length, views and memory agree. */
  check(): void {
    this.allocation.check()
  }
}
