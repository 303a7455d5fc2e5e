import { untilDone } from '../../order/polling.js'
import { type AccessChange, type AccessLocation, changeEach, type PoolAccess } from '../access.js'
import { DeviceArray, type TypedArrayConstructor, type TypedArrayOf } from '../array.js'
import { DeviceBuffer } from '../buffer.js'
import type { GrowableAllocation } from './growable-allocation.js'

/** A DeviceBuffer with addresses and memory that belong to it alone, and to no pool. */
export abstract class MappedBuffer extends DeviceBuffer {
  /** @internal */
  declare readonly allocation: GrowableAllocation

  constructor(allocation: GrowableAllocation) {
    super(allocation, 0)
  }

  /** Memory is mapped in multiples of this. */
  get granularityBytes(): number {
    return this.allocation.range.granuleBytes
  }

  /** Device memory that it has: at least its length, and what has not been given back yet. */
  get mappedBytes(): number {
    return this.allocation.range.heldBytes
  }

  /**
   * Lets another device read and write the buffer, what is mapped later included, or no longer; as `setAccess` of a pool.
   * Throws TypeError for what is no location or access, PoolError for what cannot be.
   */
  setAccess(location: AccessLocation, access: PoolAccess): void
  setAccess(changes: readonly AccessChange[]): void
  setAccess(what: AccessLocation | readonly AccessChange[], access?: PoolAccess): void {
    changeEach(what, access, (location, one) => this.allocation.changeAccess(location, one))
  }

  /** Resolves when all memory that was let go is given back, without blocking Node. */
  async settled(): Promise<void> {
    await untilDone(() => this.allocation.settle())
  }

  /** Blocks until all memory that was let go is given back. */
  settleSync(): void {
    this.allocation.settleSync()
  }

  /**
   * Typed elements from the beginning on, all that fit when `count` is left out. Of a buffer that grows the array keeps
   * its length and stays valid; the buffer cannot shrink below it until it is freed or disposed, which leaves the buffer be.
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

  /** Asserts that length, views and memory tell one story. */
  check(): void {
    this.allocation.check()
  }
}
