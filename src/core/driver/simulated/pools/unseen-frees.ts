// The free blocks of a pool whose frees the host has not seen complete, by the streams of these frees. A look at them
// passes over streams that have completed nothing since the last look, however many blocks they have.

import type { StreamQueue } from '../streams/stream-queue.js'

/** A free block; `stream` and `position` are those of its free, and null once the host has seen it complete. */
interface FreedBlock {
  readonly stream: StreamQueue | null
  readonly position: number
}

interface StreamFrees<Block> {
  readonly blocks: Set<Block>
  /** what the stream had completed at the last look; -1 with a block that came later */
  lookedAt: number
}

export class UnseenFrees<Block extends FreedBlock> {
  private readonly streams = new Map<StreamQueue, StreamFrees<Block>>()

  /** Adds a block; one without a stream is left out. */
  add(block: Block): void {
    if (block.stream === null) return
    const frees = this.streams.get(block.stream) ?? { blocks: new Set(), lookedAt: -1 }
    this.streams.set(block.stream, frees)
    frees.blocks.add(block)
    frees.lookedAt = -1
  }

  delete(block: Block): void {
    if (block.stream === null) return
    const frees = this.streams.get(block.stream)
    if (frees?.blocks.delete(block) && frees.blocks.size === 0) this.streams.delete(block.stream)
  }

  /** Calls `see` for each block whose free has completed. It removes the block, and others as it pleases. */
  eachCompleted(see: (block: Block) => void): void {
    for (const [stream, frees] of this.streams) {
      if (frees.lookedAt === stream.completed) continue
      frees.lookedAt = stream.completed
      for (const block of frees.blocks) if (block.position <= stream.completed) see(block)
    }
  }
}
