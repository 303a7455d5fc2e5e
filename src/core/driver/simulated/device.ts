// Physical memory of simulated devices and of the host: amounts. Addresses are in memory/address-space.ts.

import { Random } from '../../base/random.js'
import { Contents } from './memory/contents.js'

/** Physical memory of a device or of the host: its capacity, its bytes in use, and the contents of fresh memory. */
export class PhysicalMemory {
  usedBytes = 0
  private readonly garbage: Random

  constructor(
    /** for messages */
    readonly name: string,
    readonly capacityBytes: number,
    seed: number,
  ) {
    this.garbage = new Random(seed)
  }

  /**
   * Takes `bytes` of physical memory; null if there is not enough. CUDA promises nothing about fresh memory. Here it
   * holds a repeated word, different for each call, so that code which relies on zeros or on old contents fails.
   */
  take(bytes: number): Contents | null {
    if (this.usedBytes + bytes > this.capacityBytes) return null
    this.usedBytes += bytes
    return new Contents(bytes, (this.garbage.next() | 1) >>> 0)
  }

  /** Returns `bytes` of physical memory. */
  give(bytes: number): void {
    this.usedBytes -= bytes
  }
}

/** A device: physical memory with an ordinal. */
export class SimulatedDevice extends PhysicalMemory {
  constructor(
    readonly ordinal: number,
    capacityBytes: number,
    seed: number,
  ) {
    super(`device ${ordinal}`, capacityBytes, seed ^ (0x9e3779b9 + ordinal))
  }
}
