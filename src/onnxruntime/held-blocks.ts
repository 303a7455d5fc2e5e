// The blocks that ONNX Runtime holds, by address.

/** Memory that ONNX Runtime holds. */
export interface Block<P> {
  /** the name of the work that asked for it */
  readonly name: string
  /** null for ordinary memory */
  readonly pool: P | null
  readonly byteLength: number
  free(): void
}

/**
 * Two lists, searched from their ends. A run frees what it took last, so its blocks are found within a few steps. A
 * map takes longer: V8 calls C++ for the hash of a number beyond 2^31, and between two runs the processor's caches
 * lose that code.
 */
export class HeldBlocks<P> {
  private readonly addresses: number[] = []
  /** of the same length, and in the same order */
  readonly blocks: Block<P>[] = []
  /** held blocks of closed pools whose addresses later blocks have */
  private readonly lost: [address: number, block: Block<P>][] = []

  add(address: number, block: Block<P>): void {
    this.addresses.push(address)
    this.blocks.push(block)
  }

  /**
   * Adds a block that a session keeps between runs. Where a block of a closed pool is held at that address, the next
   * free of it is for that one, whichever session it comes from: no session loses a block before all have freed theirs.
   */
  addLasting(address: number, block: Block<P>): void {
    const lost = this.removeLast(address)
    if (lost !== null) this.lost.push([address, lost])
    this.add(address, block)
  }

  /** The block at that address, which is held no longer; null for an address that is not held. */
  remove(address: number): Block<P> | null {
    if (this.lost.length === 0) return this.removeLast(address)
    const at = this.lost.findIndex(([lost]) => lost === address)
    return at === -1 ? this.removeLast(address) : this.lost.splice(at, 1)[0][1]
  }

  private removeLast(address: number): Block<P> | null {
    let at = this.addresses.length - 1
    while (at >= 0 && this.addresses[at] !== address) at--
    if (at === -1) return null
    const block = this.blocks[at]
    const lastAddress = this.addresses.pop()!
    const lastBlock = this.blocks.pop()!
    if (at < this.blocks.length) {
      this.addresses[at] = lastAddress
      this.blocks[at] = lastBlock
    }
    return block
  }
}
