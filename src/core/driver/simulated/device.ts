// Physical memory of simulated devices and of the host: amounts. Addresses are in memory/address-space.ts.

import { Random } from '../../base/random.js'
import { Contents } from './memory/contents.js'

/** Counts the bytes of one memory that are in use. */
export interface Ledger {
  readonly usedBytes: number
  /** False if so many bytes are not free. */
  take(bytes: number): boolean
  give(bytes: number): void
}

/** Memory of this driver only. */
class OwnLedger implements Ledger {
  usedBytes = 0

  constructor(private readonly capacityBytes: number) {}

  take(bytes: number): boolean {
    if (this.usedBytes + bytes > this.capacityBytes) return false
    this.usedBytes += bytes
    return true
  }

  give(bytes: number): void {
    this.usedBytes -= bytes
  }
}

/** Physical memory of a device or of the host: its capacity, its bytes in use, and the contents of fresh memory. */
export class PhysicalMemory {
  private readonly garbage: Random

  constructor(
    /** for messages */
    readonly name: string,
    readonly capacityBytes: number,
    seed: number,
    private readonly ledger: Ledger = new OwnLedger(capacityBytes),
  ) {
    this.garbage = new Random(seed)
  }

  get usedBytes(): number {
    return this.ledger.usedBytes
  }

  /**
   * Takes `bytes` of physical memory; null if there is not enough. CUDA promises nothing about fresh memory. Here it
   * holds a repeated word, different for each call, so that code which relies on zeros or on old contents fails.
   */
  take(bytes: number): Contents | null {
    if (!this.ledger.take(bytes)) return null
    return new Contents(bytes, (this.garbage.next() | 1) >>> 0)
  }

  /** Returns `bytes` of physical memory. */
  give(bytes: number): void {
    this.ledger.give(bytes)
  }
}

/** A device: physical memory with an ordinal. */
export class SimulatedDevice extends PhysicalMemory {
  constructor(
    readonly ordinal: number,
    capacityBytes: number,
    seed: number,
    ledger?: Ledger,
  ) {
    super(`device ${ordinal}`, capacityBytes, seed ^ (0x9e3779b9 + ordinal), ledger)
  }
}
