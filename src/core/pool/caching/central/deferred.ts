import { keyOfSlot } from '../../../heap/key.js'
import { type Clocks, MOST_STREAMS } from '../../../order/clocks.js'
import type { Stream } from '../../../order/stream.js'
import type { PoolParts } from './parts.js'

/** Work of a stream, of this or another device, that must complete. */
export interface Use {
  readonly clocks: Clocks
  readonly slot: number
  readonly stamp: number
}

/** A stream as a user of blocks. `covering` names the mark that covers all of its work so far. */
export type User = Pick<Stream, 'clocks' | 'covering'>

interface DeferredBlock {
  readonly record: number
  /** the stream it was freed on, and the stamp there */
  readonly slot: number
  readonly stamp: number
  readonly bytes: number
  /** other work that must complete */
  readonly uses: readonly Use[]
}

/**
 * Blocks with announced uses on other streams than their own. Once freed they wait here until those uses come before
 * all that their own stream does from now on: the host has seen them complete, or the stream was made to wait for
 * them.
 */
export class Deferred {
  /** bytes waiting */
  bytes = 0
  /** by record: the stamp until which a stream uses the block; Infinity means until the free */
  private readonly announced = new Map<number, Map<User, number>>()
  private blocks: DeferredBlock[] = []
  /** by other device and its stream slot: the latest stamp that a block waits for */
  private readonly awaitedPeers = new Map<Clocks, Float64Array>()
  private readonly clocks: Clocks
  private readonly seen: Float64Array

  constructor(
    { clocks, seen }: Pick<PoolParts, 'clocks' | 'seen'>,
    /** false: uses count as complete only once the host has seen that */
    private readonly streamOrdered: boolean,
  ) {
    this.clocks = clocks
    this.seen = seen
  }

  /** A stream uses a live block until `stamp`. */
  announce(record: number, user: User, stamp: number): void {
    const uses = this.announced.get(record) ?? new Map<User, number>()
    uses.set(user, Math.max(stamp, uses.get(user) ?? 0))
    this.announced.set(record, uses)
  }

  /** The live blocks that a stream uses until they are freed. */
  announcedTo(user: User): number[] {
    return [...this.announced].filter(([, uses]) => uses.get(user) === Infinity).map(([record]) => record)
  }

  /**
   * Whether the announced uses of a live block, about to be freed on `slot`, come before `stamp` of that slot; if so,
   * forgets them. The slot's known order holds for its next mark only. A past mark may be of a closed stream, which
   * never waited for the work that the next stream of the slot has waited for.
   */
  forgetCompleted(record: number, slot: number, stamp: number): boolean {
    const uses = this.usesOf(record)
    const isCovered =
      stamp > this.clocks.marked[slot] ? this.isCovered(uses, slot) : uses.every(use => this.isSeen(use))
    if (isCovered) this.announced.delete(record)
    return isCovered
  }

  /** Whether uses of a live block were announced. */
  isAnnounced(record: number): boolean {
    return this.announced.has(record)
  }

  /** The announced work of other devices, on live and on waiting blocks. */
  workOfPeers(): Use[] {
    const uses = [...this.announced.keys()].flatMap(record => this.usesOf(record))
    return [...uses, ...this.blocks.flatMap(block => block.uses)].filter(({ clocks }) => clocks !== this.clocks)
  }

  /** Takes in a freed block with announced uses. First calls `onUse` for each use on a stream of this device. */
  add(record: number, slot: number, stamp: number, bytes: number, onUse: (slot: number, stamp: number) => void): void {
    const uses = this.usesOf(record)
    for (const use of uses) if (use.clocks === this.clocks) onUse(use.slot, use.stamp)
    this.addAfter({ record, slot, stamp, bytes, uses })
    this.announced.delete(record)
  }

  /** Takes in a block that waits for uses which were not announced here. */
  addAfter(block: DeferredBlock): void {
    this.awaitPeers(block.uses)
    this.blocks.push(block)
    this.bytes += block.bytes
  }

  /** The announced uses of a block; forgets them. */
  takeUses(record: number): Use[] {
    const uses = this.usesOf(record)
    this.announced.delete(record)
    return uses
  }

  /**
   * Asks how far the streams of other devices have come, or waits for them on the host; false if no block waits for
   * any.
   */
  pollPeers(wait: boolean): boolean {
    if (this.awaitedPeers.size === 0) return false
    let asked = false
    for (const [clocks, stamps] of this.awaitedPeers) {
      for (let slot = 0; slot < clocks.slotLimit; slot++) {
        if (stamps[slot] <= clocks.completed[slot]) continue
        clocks.catchUp(slot, stamps[slot], wait)
        asked = true
      }
      let isComplete = true
      for (let slot = 0; slot < clocks.slotLimit; slot++) if (stamps[slot] > clocks.completed[slot]) isComplete = false
      if (isComplete) this.awaitedPeers.delete(clocks)
    }
    return asked
  }

  /** Waits on the host for all announced work of other devices, including work on live blocks. */
  finishPeers(): void {
    for (const record of this.announced.keys()) this.awaitPeers(this.usesOf(record))
    this.pollPeers(true)
  }

  /** All work is complete: no block waits, and uses are announced of live blocks only. */
  restart(live: ReadonlySet<number>): void {
    this.blocks = []
    this.bytes = 0
    for (const record of this.announced.keys()) if (!live.has(record)) this.announced.delete(record)
  }

  /** True when no block waits. */
  get empty(): boolean {
    return this.blocks.length === 0
  }

  /** Takes out the blocks whose uses on other streams are covered; each may be used again after its stamp. */
  takeSettled(): DeferredBlock[] {
    if (this.empty) return []
    const settled = this.blocks.filter(block => this.isCovered(block.uses, block.slot))
    if (settled.length > 0) this.blocks = this.blocks.filter(block => !settled.includes(block))
    for (const block of settled) this.bytes -= block.bytes
    return settled.map(block => ({ ...block, stamp: this.stampNow(block) }))
  }

  /**
   * Whether a waiting block of those sizes would be free if the host had seen all stamps up to `settled`, by key,
   * complete.
   */
  wouldFree(leastBytes: number, endBytes: number, settled: Float64Array): boolean {
    return this.blocks.some(
      ({ bytes, slot, stamp, uses }) =>
        bytes >= leastBytes &&
        bytes < endBytes &&
        stamp <= settled[keyOfSlot(slot)] &&
        uses.every(
          use => this.isSeen(use) || (use.clocks === this.clocks && use.stamp <= settled[keyOfSlot(use.slot)]),
        ),
    )
  }

  /** Bytes waiting that were freed on a slot. */
  bytesOf(slot: number): number {
    return this.blocks.reduce((sum, block) => sum + (block.slot === slot ? block.bytes : 0), 0)
  }

  /** The smallest waiting block of at least `leastBytes` and less than `endBytes` that is suitable; null for none. */
  smallest(leastBytes: number, endBytes: number, isSuitable: (block: DeferredBlock) => boolean): DeferredBlock | null {
    let best: DeferredBlock | null = null
    for (const block of this.blocks) {
      if (block.bytes < leastBytes || block.bytes >= endBytes) continue
      if ((best === null || block.bytes < best.bytes) && isSuitable(block)) best = block
    }
    return best
  }

  /** Takes out one block; the caller has made its stream wait for the uses. */
  remove(block: DeferredBlock): void {
    this.blocks = this.blocks.filter(other => other !== block)
    this.bytes -= block.bytes
  }

  /** The announced uses of a block, as marks that cover them. */
  private usesOf(record: number): Use[] {
    return [...(this.announced.get(record) ?? [])].map(([user, until]) => {
      const [slot, stamp] = user.covering
      return { clocks: user.clocks, slot, stamp: Math.min(stamp, until) }
    })
  }

  /**
   * Whether the uses are complete, or come before the next mark of a slot, if this thread can mark the slot's stream.
   */
  private isCovered(uses: DeferredBlock['uses'], later: number): boolean {
    const { known, slots } = this.clocks
    const isOrdered = this.streamOrdered && slots.isReachable(later)
    return uses.every(
      use =>
        this.isSeen(use) ||
        (isOrdered && use.clocks === this.clocks && known[later * MOST_STREAMS + use.slot] >= use.stamp),
    )
  }

  private isSeen({ clocks, slot, stamp }: Use): boolean {
    return (clocks === this.clocks ? this.seen : clocks.completed)[slot] >= stamp
  }

  /**
   * The stamp after which the block may be used. Waits for the uses may have followed the free, so a later mark has
   * to cover both.
   */
  private stampNow({ slot, stamp, uses }: DeferredBlock): number {
    if (uses.every(use => this.isSeen(use))) return stamp
    return this.clocks.coveringSoon(slot) // must not block: a pool server holds its pool's lock here
  }

  private awaitPeers(uses: readonly Use[]): void {
    for (const { clocks, slot, stamp } of uses) {
      if (clocks === this.clocks || clocks.completed[slot] >= stamp) continue
      const stamps = this.awaitedPeers.get(clocks) ?? new Float64Array(MOST_STREAMS)
      stamps[slot] = Math.max(stamp, stamps[slot])
      this.awaitedPeers.set(clocks, stamps)
    }
  }
}
