import type { Context } from '../../driver/context.js'
import { PlainAccess } from './memory-access.js'
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

interface Slab {
  readonly ptr: number
  readonly bytes: number
  readonly padding: number
}

/** Slabs of device memory, by cuMemAlloc. */
export class SlabSource implements SegmentSource {
  readonly kind = 'segments'
  readonly granuleBytes: number
  readonly totalBytes = Infinity
  readonly isWorthGathering = false // all blocks are alike
  /** bytes that alignment costs */
  paddingBytes = 0
  readonly access: PlainAccess
  private obtainedBytes = 0
  /** the driver's allocation, by the address of the first block */
  private readonly slabs = new Map<number, Slab>()

  constructor(
    private readonly context: Context,
    private readonly plan: SlabPlan,
  ) {
    this.granuleBytes = plan.blockBytes
    this.access = new PlainAccess(context)
  }

  get leastBytes(): number {
    const { blockBytes, count, maxCount } = this.plan
    return Math.min(count * blockBytes, maxCount * blockBytes - this.obtainedBytes)
  }

  /** The driver usually aligns better than it promises, so extra bytes are taken only if it did not. */
  obtain(bytes: number): number {
    const { alignment } = this.plan
    let padding = 0
    let ptr = this.context.activate().cuMemAlloc(bytes)
    if (ptr % alignment !== 0) {
      const misaligned = ptr
      this.context.discard(driver => driver.cuMemFree(misaligned))
      padding = alignment - DRIVER_ALIGNMENT
      ptr = this.context.activate().cuMemAlloc(bytes + padding)
    }
    const address = Math.ceil(ptr / alignment) * alignment
    this.slabs.set(address, { ptr, bytes, padding })
    this.obtainedBytes += bytes
    this.paddingBytes += padding
    return address
  }

  /** Gives the slabs back that are not among these. */
  retain(kept: ReadonlySet<number>): void {
    this.obtainedBytes = this.paddingBytes = 0
    for (const [address, { ptr, bytes, padding }] of this.slabs) {
      if (kept.has(address)) {
        this.obtainedBytes += bytes
        this.paddingBytes += padding
      } else {
        this.slabs.delete(address)
        this.context.discard(driver => driver.cuMemFree(ptr))
      }
    }
  }

  giveBack(address: number): void {
    const { ptr, bytes, padding } = this.slabs.get(address)!
    this.context.activate().cuMemFree(ptr)
    this.slabs.delete(address)
    this.obtainedBytes -= bytes
    this.paddingBytes -= padding
  }
}
