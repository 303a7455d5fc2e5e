import type { Context } from '../../driver/context.js'
import type { SegmentSource } from './segment-source.js'

/** What the driver itself gives. */
const DRIVER_ALIGNMENT = 256

/** Segments that hold a whole number of blocks of one size, and in all no more than so many. */
export interface SlabPlan {
  readonly segments: 'slabs'
  readonly blockBytes: number
  /** a power of two that `blockBytes` is a multiple of */
  readonly alignment: number
  /** blocks of a slab; the last one has what is left */
  readonly count: number
  readonly maxCount: number
}

export class SlabSource implements SegmentSource {
  readonly kind = 'segments'
  readonly stepBytes: number
  readonly totalBytes = Infinity
  private obtainedBytes = 0
  /** by address: what the driver gave */
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

  /** The driver mostly aligns better than it promises, so that slack is taken only where it did not. */
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
