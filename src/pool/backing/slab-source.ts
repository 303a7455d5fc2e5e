import type { Context } from '../../driver/context.js'
import type { SegmentSource } from './segment-source.js'

/** The alignment that the driver promises. */
const DRIVER_ALIGNMENT = 256

/** Segments of a whole number of blocks of one size, up to a number of blocks in all. */
export interface SlabPlan {
  readonly segments: 'slabs'
  readonly blockBytes: number
  /** of each block, in bytes: a power of two that divides `blockBytes` */
  readonly alignment: number
  /** blocks in each slab; the last slab may have fewer */
  readonly count: number
  /** blocks of all slabs together */
  readonly maxCount: number
}

/** Slabs of device memory, by cuMemAlloc. */
export class SlabSource implements SegmentSource {
  readonly kind = 'segments'
  readonly stepBytes: number
  readonly totalBytes = Infinity
  private obtainedBytes = 0
  /** the driver's allocation, by the address of the first block */
  private readonly slabs = new Map<number, { readonly ptr: number; readonly bytes: number }>()

  constructor(
    private readonly context: Context,
    private readonly plan: SlabPlan,
  ) {
    this.stepBytes = plan.blockBytes
  }

  get leastBytes(): number {
    const { blockBytes, count, maxCount } = this.plan
    return Math.min(count * blockBytes, maxCount * blockBytes - this.obtainedBytes)
  }

  /** The driver usually aligns better than it promises, so extra bytes are taken only if it did not. */
  obtain(bytes: number): number {
    const { alignment } = this.plan
    let ptr = this.context.activate().cuMemAlloc(bytes)
    if (ptr % alignment !== 0) {
      const misaligned = ptr
      this.context.discard(driver => driver.cuMemFree(misaligned))
      ptr = this.context.activate().cuMemAlloc(bytes + alignment - DRIVER_ALIGNMENT)
    }
    const address = Math.ceil(ptr / alignment) * alignment
    this.slabs.set(address, { ptr, bytes })
    this.obtainedBytes += bytes
    return address
  }

  giveBack(address: number): void {
    const { ptr, bytes } = this.slabs.get(address)!
    this.context.activate().cuMemFree(ptr)
    this.slabs.delete(address)
    this.obtainedBytes -= bytes
  }
}
