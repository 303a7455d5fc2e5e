import { Random } from '../../base/random.js'
import { Contents } from './memory/contents.js'

/** Physical memory of a device or of the host: how much there is, how much is taken, what a fresh piece of it holds. */
export class PhysicalMemory {
  usedBytes = 0
  private readonly garbage: Random

  constructor(
    /** for people */
    readonly name: string,
    readonly capacityBytes: number,
    seed: number,
  ) {
    this.garbage = new Random(seed)
  }

  /**
   * Takes `bytes` of physical memory; null when there is not enough. CUDA promises nothing about fresh memory: here it
   * holds one word, repeated, another one each time, so that code which counts on zeros or on old contents fails.
   */
  take(bytes: number): Contents | null {
    if (this.usedBytes + bytes > this.capacityBytes) return null
    this.usedBytes += bytes
    return new Contents(bytes, (this.garbage.next() | 1) >>> 0)
  }

  give(bytes: number): void {
    this.usedBytes -= bytes
  }
}

export class SimulatedDevice extends PhysicalMemory {
  constructor(
    readonly ordinal: number,
    capacityBytes: number,
    seed: number,
  ) {
    super(`device ${ordinal}`, capacityBytes, seed ^ (0x9e3779b9 + ordinal))
  }
}
