import { Random } from '../../base/random.js'
import { Contents } from './contents.js'

/** The physical memory of one device: how much there is, how much is taken, and what a fresh piece of it holds. */
export class SimulatedDevice {
  usedBytes = 0
  private readonly garbage: Random

  constructor(
    readonly ordinal: number,
    readonly capacityBytes: number,
    seed: number,
  ) {
    this.garbage = new Random(seed ^ (0x9e3779b9 + ordinal))
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
