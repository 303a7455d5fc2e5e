// Freed memory that is held back for a while, so that a write to it is noticed. When too much is held, or memory runs
// out, blocks are inspected and released, oldest first. A block larger than the whole quarantine is released before
// all others: at the next allocation, at no cost to the other blocks.

import type { DebugError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import type { DebugAllocation } from './debug-allocation.js'
import { firstChange, Pattern } from './fill-patterns.js'

interface Quarantined {
  readonly allocation: DebugAllocation
  readonly blockBytes: number
  /** the bytes from the block's start that hold the pattern of freed memory */
  readonly filledBytes: number
  /** the slot of the stream that freed it, and the stamp of the free */
  readonly slot: number
  readonly stamp: number
  readonly stream: Stream
}

export class Quarantine {
  /** bytes of all quarantined blocks, redzones included */
  bytes = 0
  private readonly blocks = new Set<Quarantined>()

  constructor(
    /** a stream for work that comes after all of the given stream, which may take no work now */
    private readonly inspectorFor: (stream: Stream) => Stream,
    private readonly letGo: (block: Quarantined) => void,
  ) {}

  /** Adds a block that is filled with the pattern of freed memory. */
  add(block: Quarantined): void {
    this.blocks.add(block)
    this.bytes += block.blockBytes
  }

  /**
   * Releases blocks until at most `bytes` are left; returns whether any was released. Throws the fault of a damaged
   * block, after releasing it.
   */
  shrinkTo(bytes: number, call: string): boolean {
    if (this.bytes <= bytes) return false
    const isTooLarge = (block: Quarantined) => block.blockBytes > bytes
    const blocks = [...this.blocks]
    for (const block of [...blocks.filter(isTooLarge), ...blocks.filter(block => !isTooLarge(block))]) {
      if (this.bytes <= bytes) break
      const fault = this.inspect(block, call)
      this.remove(block)
      this.letGo(block)
      if (fault !== null) throw fault
    }
    return true
  }

  /** The faults in the blocks that are left. */
  faults(call: string): DebugError[] {
    return [...this.blocks].map(block => this.inspect(block, call)).filter(fault => fault !== null)
  }

  clear(): void {
    for (const block of this.blocks) this.remove(block)
  }

  private inspect({ allocation, filledBytes, stream }: Quarantined, call: string): DebugError | null {
    const { frontBytes, ptr } = allocation
    const changed = firstChange(ptr - frontBytes, filledBytes, Pattern.freed, this.inspectorFor(stream))
    return changed === -1 ? null : allocation.damage('writeAfterFree', call, changed - frontBytes)
  }

  private remove(block: Quarantined): void {
    this.blocks.delete(block)
    this.bytes -= block.blockBytes
  }
}
