// The memory of a model of PyTorch's allocator: how much it has reserved, and where its segments lie.

import type { MemoryWatcher } from '../placements/placements.js'
import { type Block, BlockPools, type UsedRange } from './policy-blocks.js'

/** The address of segments that no recording places: above every address of a GPU. */
const FIRST_SYNTHETIC_BASE = 2 ** 52

/** Base of both models. */
export abstract class PolicyMemory {
  reservedBytes = 0
  peakReservedBytes = 0
  watcher: MemoryWatcher | null = null
  protected readonly pools = new BlockPools()
  private nextSyntheticBase = FIRST_SYNTHETIC_BASE

  protected countReserved(bytes: number): void {
    this.reservedBytes += bytes
    this.peakReservedBytes = Math.max(this.peakReservedBytes, this.reservedBytes)
  }

  /** An address for a segment of `bytes`. */
  protected syntheticBase(bytes: number): number {
    const base = this.nextSyntheticBase
    this.nextSyntheticBase += bytes
    return base
  }

  /** Cuts `block` into blocks in use, by rising address, and free ones between them; returns those in use. */
  protected cutUsed(block: Block, used: readonly UsedRange[]): Block[] {
    const { pool } = block
    let rest = block
    const blocks = used.map(({ address, bytes }) => {
      if (address > rest.address) {
        const before = rest
        rest = before.cut(address - before.address)
        pool.insert(before)
      }
      const taken = rest
      if (bytes < taken.bytes) rest = taken.cut(bytes)
      return taken
    })
    if (blocks.at(-1) !== rest) pool.insert(rest)
    return blocks
  }
}
