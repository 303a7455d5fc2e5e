// Freed memory that nobody gets yet, so that a write to it is noticed. It is let go, the oldest first, when there is too much of
// it or memory runs out, and only after it was found as it was left. A block larger than all that is kept goes first: it is
// looked at before the next allocation, and costs the others nothing.

import type { DebugError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import type { DebugAllocation } from './debug-allocation.js'
import { firstChange, Pattern } from './patterns.js'

export interface Quarantined {
  readonly allocation: DebugAllocation
  readonly blockBytes: number
  /** from its start on, that hold the pattern of freed memory */
  readonly filledBytes: number
  /** where it was freed, and the stamp there */
  readonly slot: number
  readonly stamp: number
  readonly stream: Stream
}

export class Quarantine {
  /** of whole blocks */
  bytes = 0
  private readonly blocks = new Set<Quarantined>()

  constructor(
    /** a stream for work that comes after all of another one, which may take none now */
    private readonly inspectorFor: (stream: Stream) => Stream,
    private readonly letGo: (block: Quarantined) => void,
  ) {}

  /** Takes a block in that is filled with the pattern of freed memory. */
  add(block: Quarantined): void {
    this.blocks.add(block)
    this.bytes += block.blockBytes
  }

  /** Lets blocks go until at most `bytes` are left; returns whether any went. Throws what it finds, once for each block. */
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

  /** What is wrong with what is left. */
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
