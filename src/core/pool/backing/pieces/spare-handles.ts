// Memory of pools that fell asleep, for the pool that wakes next. Released memory keeps the device busy, so a way
// through the driver is slow even if other copies hide its calls (docs/internals/driver-facts.md).

import type { Context } from '../../../driver/context.js'
import { relaxed } from '../../../order/relaxed.js'

interface Spare {
  readonly bytes: number
  readonly handle: number
}

export class SpareHandles {
  private readonly spares: Spare[] = []

  constructor(private readonly context: Context) {}

  get isEmpty(): boolean {
    return this.spares.length === 0
  }

  /** Keeps a handle, which nothing is mapped by. */
  put({ bytes, handle }: Spare): void {
    this.spares.push({ bytes, handle })
  }

  /**
   * A handle of exactly `bytes`. Without one, gives at least that many bytes back to the device, or all, and returns 0.
   * If the caller then creates memory, no more is taken than before. Throws the driver's error.
   */
  take(bytes: number): number {
    const index = this.spares.findIndex(spare => spare.bytes === bytes)
    if (index !== -1) return this.spares.splice(index, 1)[0].handle
    this.release(bytes)
    return 0
  }

  /** Gives back at least `leastBytes`, or all. Can be repeated after a refusal. */
  release(leastBytes = Infinity): void {
    for (let left = leastBytes; left > 0 && !this.isEmpty; ) {
      const { bytes, handle } = this.spares[this.spares.length - 1]
      this.context.giveBack(driver => relaxed(driver, () => driver.cuMemRelease(handle)))
      this.spares.pop()
      left -= bytes
    }
  }

  /** As `release` of all. After a refusal the next call tries again, or the close of the device, which leaves none. */
  discard(): void {
    if (!this.isEmpty) this.context.discard(() => this.release())
  }
}
