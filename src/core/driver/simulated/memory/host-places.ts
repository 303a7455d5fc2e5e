// Where host memory lies: on which NUMA node a program has placed it. A real system keeps that for each page, and this
// for each array buffer. calls.ts uses it.

const ANY_NODE = -1

export class HostPlaces {
  private readonly nodes = new WeakMap<ArrayBufferLike, number>()

  /** `node` is -1 for any. */
  place({ buffer }: ArrayBufferView, node: number): void {
    this.nodes.set(buffer, node)
  }

  /** The node of the memory; -1 if it may lie on any. */
  nodeOf({ buffer }: ArrayBufferView): number {
    return this.nodes.get(buffer) ?? ANY_NODE
  }

  /** Fills memory with zeros in a later turn, as another thread would. */
  async fill(host: ArrayBufferView): Promise<void> {
    await new Promise<void>(resolve => setImmediate(resolve))
    new Uint8Array(host.buffer, host.byteOffset, host.byteLength).fill(0)
  }
}
