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
  /** by record: until which stamp of its clock a stream uses the block, Infinity for the one that covers the free */
  private readonly announced = new Map<number, Map<Stream, number>>()
  private blocks: DeferredBlock[] = []

  constructor(private readonly clocks: Clocks) {}

  /** A stream uses a live block until `stamp`. */
  announce(record: number, stream: Stream, stamp: number): void {
    const uses = this.announced.get(record) ?? new Map<Stream, number>()
    uses.set(stream, Math.max(stamp, uses.get(stream) ?? 0))
    this.announced.set(record, uses)
  }

  /** Whether the announced uses of a live block are known complete, as of now; they are forgotten then. */
  forgetCompleted(record: number): boolean {
    return this.isComplete(this.usesOf(record)) && this.announced.delete(record)
  }

  /** A block with announced uses was freed; returns what it waits for on other streams, as pairs of slot and stamp. */
  add(record: number, slot: number, stamp: number, bytes: number): DeferredBlock['uses'] {
    const uses = this.usesOf(record)
    this.announced.delete(record)
    this.blocks.push({ record, slot, stamp, bytes, uses })
    this.bytes += bytes
    return uses
  }

  /** Takes out the blocks whose uses on other streams have completed. */
  takeSettled(): DeferredBlock[] {
    if (this.blocks.length === 0) return []
    const settled = this.blocks.filter(block => this.isComplete(block.uses))
    if (settled.length > 0) this.blocks = this.blocks.filter(block => !this.isComplete(block.uses))
    for (const block of settled) this.bytes -= block.bytes
    return settled
  }

  /** What must complete before a block announced to streams is used again. */
  private usesOf(record: number): [slot: number, stamp: number][] {
    return [...(this.announced.get(record) ?? [])].map(([stream, stamp]) =>
      stream.slot >= 0
        ? [stream.slot, Math.min(stamp, this.clocks.marked[stream.slot] + 1)]
        : [stream.lastSlot, Math.min(stamp, stream.lastStamp)],
    )
  }

  private isComplete(uses: DeferredBlock['uses']): boolean {
    return uses.every(([slot, stamp]) => this.clocks.completed[slot] >= stamp)
  }
}
