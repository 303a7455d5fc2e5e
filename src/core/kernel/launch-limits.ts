// The device's limits for launches, asked once. Launches are checked against them, so that a refusal names the limit.

import { OutOfRangeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import type { Context } from '../driver/context.js'

/** One size, or up to three: x, y and z. */
export type Extent = number | readonly [number, number?, number?]

export type Extents = [x: number, y: number, z: number]

const AXES = ['x', 'y', 'z'] as const

const known = new WeakMap<Context, LaunchLimits>()

export class LaunchLimits {
  readonly grid: Readonly<Extents>
  readonly block: Readonly<Extents>
  readonly blockThreads: number
  /**
   * shared memory of a block in bytes: the part that every kernel may have, and the most that the driver allows when
   * asked
   */
  readonly sharedBytes: number
  readonly mostSharedBytes: number
  readonly multiprocessors: number
  readonly cooperative: boolean

  static of(context: Context): LaunchLimits {
    const limits = known.get(context) ?? new LaunchLimits(context)
    known.set(context, limits)
    return limits
  }

  private constructor(context: Context) {
    this.grid = [
      context.attribute('CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X'),
      context.attribute('CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y'),
      context.attribute('CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z'),
    ]
    this.block = [
      context.attribute('CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X'),
      context.attribute('CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y'),
      context.attribute('CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z'),
    ]
    this.blockThreads = context.attribute('CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK')
    this.sharedBytes = context.attribute('CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK')
    this.mostSharedBytes = context.attribute('CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN')
    this.multiprocessors = context.attribute('CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT')
    this.cooperative = context.attribute('CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH') !== 0
  }

  /**
   * Writes the sizes of a grid to `target`. Throws RangeError unless each size is an integer from 1 to the device's
   * limit.
   */
  setGrid(target: Extents, grid: Extent, call: string): void {
    setExtents(target, grid, this.grid, call, 'grid')
  }

  /** The same for a block, whose threads have a limit in all, too. */
  setBlock(target: Extents, block: Extent, call: string): void {
    setExtents(target, block, this.block, call, 'block')
    const threads = target[0] * target[1] * target[2]
    if (threads <= this.blockThreads) return
    throw new OutOfRangeError(
      `${call}: block has ${threads} threads; a block of this device has at most ${this.blockThreads}`,
    )
  }
}

function setExtents(target: Extents, extent: Extent, most: Readonly<Extents>, call: string, argument: string): void {
  if (typeof extent === 'number') {
    target[0] = extent
    target[1] = 1
    target[2] = 1
  } else {
    if (!Array.isArray(extent) || extent.length > 3) {
      throw new OutOfRangeError(
        `${call}: ${argument} must be a size or up to three, [x, y, z], not ${describe(extent)}`,
      )
    }
    target[0] = extent[0]
    target[1] = extent[1] ?? 1
    target[2] = extent[2] ?? 1
  }
  for (let axis = 0; axis < 3; axis++) {
    const size = target[axis]
    if (Number.isInteger(size) && size >= 1 && size <= most[axis]) continue
    const where = axis === 0 && typeof extent === 'number' ? argument : `${argument} ${AXES[axis]}`
    throw new OutOfRangeError(
      `${call}: ${where} must be a whole number from 1 to ${most[axis]}, the device's limit, not ${describe(size)}`,
    )
  }
}
