import type { Context } from '../../driver/context.js'
import { relaxed } from '../../order/relaxed.js'
import { isOutOfMemory } from '../backing/backing.js'

/** The alignment that the driver guarantees. */
const DRIVER_ALIGNMENT = 256

interface Slab {
  readonly ptr: number
  readonly bytes: number
}

/** Driver allocations cut into blocks of one size, which are numbered across all of them. */
export class Slabs {
  /** by number of the block */
  addresses: Float64Array = new Float64Array(0)
  reservedBytes = 0
  private readonly slabs: Slab[] = []
  /** slabs whose blocks have numbers; fewer than all after a call was cut short */
  private numbered = 0

  constructor(
    private readonly context: Context,
    private readonly blockBytes: number,
    /** a power of two that divides `blockBytes` */
    private readonly alignment: number,
  ) {}

  /** Adds a slab of `count` blocks; false when the device has no room for it. */
  add(count: number): boolean {
    let ptr: number
    try {
      while (this.slabs.length > this.numbered) this.giveBackLast()
      ptr = this.obtainAligned(count * this.blockBytes)
    } catch (error) {
      if (isOutOfMemory(error)) return false
      throw error
    }
    const addresses = new Float64Array(this.addresses.length + count)
    addresses.set(this.addresses)
    for (let index = 0; index < count; index++) addresses[this.addresses.length + index] = ptr + index * this.blockBytes
    this.addresses = addresses
    this.numbered = this.slabs.length
    return true
  }

  /** Gives all slabs back; no work may be pending. After a failure, a second call continues. */
  close(): void {
    while (this.slabs.length > 0) this.giveBackLast()
  }

  /** The driver usually aligns better than it guarantees. Extra bytes are taken only if it did not. */
  private obtainAligned(bytes: number): number {
    const ptr = this.obtain(bytes)
    if (ptr % this.alignment === 0) return ptr
    this.giveBackLast()
    return Math.ceil(this.obtain(bytes + this.alignment - DRIVER_ALIGNMENT) / this.alignment) * this.alignment
  }

  private obtain(bytes: number): number {
    const driver = this.context.activate()
    const ptr = relaxed(driver, () => driver.cuMemAlloc(bytes))
    this.slabs.push({ ptr, bytes })
    this.reservedBytes += bytes
    return ptr
  }

  private giveBackLast(): void {
    const slab = this.slabs[this.slabs.length - 1]
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuMemFree(slab.ptr))
    this.slabs.pop()
    this.reservedBytes -= slab.bytes
  }
}
