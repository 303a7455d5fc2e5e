import type { Clocks } from '../order/clocks.js'
import type { Stream } from '../order/stream.js'

interface DeferredBlock {
  readonly record: number
  /** the stream it was freed on, and the stamp there */
  readonly slot: number
  readonly stamp: number
  readonly bytes: number
  /** what must complete besides, as pairs of slot and stamp */
  readonly uses: readonly (readonly [slot: number, stamp: number])[]
}

/** Blocks that other streams than their own use: once freed they wait here until the host has seen those uses complete. */
export class Deferred {
  /** bytes waiting */
  bytes = 0
  private readonly announced = new Map<number, Set<Stream>>()
  private blocks: DeferredBlock[] = []

  constructor(private readonly clocks: Clocks) {}

  /** A stream uses a live block. */
  announce(record: number, stream: Stream): void {
    const streams = this.announced.get(record) ?? new Set()
    this.announced.set(record, streams.add(stream))
  }

  /** A block with announced uses was freed; returns what it waits for on other streams, as pairs of slot and stamp. */
  add(record: number, slot: number, stamp: number, bytes: number): DeferredBlock['uses'] {
    const uses = [...(this.announced.get(record) ?? [])].map((stream): [number, number] =>
      stream.slot >= 0 ? [stream.slot, this.clocks.marked[stream.slot] + 1] : [stream.lastSlot, stream.lastStamp],
    )
    this.announced.delete(record)
    this.blocks.push({ record, slot, stamp, bytes, uses })
    this.bytes += bytes
    return uses
  }

  /** Takes out the blocks whose uses on other streams have completed. */
  takeSettled(): DeferredBlock[] {
    if (this.blocks.length === 0) return []
    const isSettled = (block: DeferredBlock) =>
      block.uses.every(([slot, stamp]) => this.clocks.completed[slot] >= stamp)
    const settled = this.blocks.filter(isSettled)
    if (settled.length > 0) this.blocks = this.blocks.filter(block => !isSettled(block))
    for (const block of settled) this.bytes -= block.bytes
    return settled
  }
}
