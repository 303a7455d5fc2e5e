import { PoolError } from '../../base/errors.js'
import type { Extent } from '../sleep/host-copies.js'
import type { MappedRange, SleepingMemory, Work } from '../sleep/sleeper.js'
import type { GrowableAllocation } from './growable-allocation.js'

/** The record of the buffer itself. */
const WHOLE = 0

/** The memory of a growable buffer that sleeps: one extent, from the start of its addresses. */
export class GrowableMemory implements SleepingMemory {
  readonly kind = 'buffer'

  constructor(private readonly allocation: GrowableAllocation) {}

  get clocks() {
    return this.allocation.clocks
  }

  check(call: 'sleep' | 'wake'): void {
    this.allocation.checkLive(WHOLE, call)
    if (call === 'sleep' && this.allocation.range.watch.isObserved) {
      throw new PoolError('sleep: an observer has segments registered; stop it first, by what observeSegments returned')
    }
    if (call === 'sleep' && this.allocation.isCaptured) {
      throw new PoolError('sleep: work that is being captured uses the buffer; end the capture first')
    }
  }

  /** Nothing to do: each use asks the sleeper, and a free ends it. */
  guard(): void {}

  workOfPeers(): Work[] {
    const work = this.allocation.usesUntilNow().map(([clocks, slot, stamp]) => ({ clocks, slot, stamp }))
    return work.filter(({ clocks }) => clocks !== this.clocks)
  }

  finishPeers(): void {
    for (const peer of this.allocation.range.access.peers) peer.finishWork('sleep')
  }

  extents(): Extent[] {
    const { byteLength, range } = this.allocation
    return byteLength === 0 ? [] : [{ ptr: range.base, bytes: byteLength, version: 0 }]
  }

  unmap(): void {
    this.allocation.range.shrinkTo(0)
  }

  get reservedBytes(): number {
    return this.allocation.range.heldBytes
  }

  get asleepBytes(): number {
    const { byteLength, range } = this.allocation
    return Math.ceil(byteLength / range.granuleBytes) * range.granuleBytes
  }

  create(): void {
    this.allocation.range.growTo(this.allocation.byteLength)
  }

  map(): MappedRange[] {
    return [{ ptr: this.allocation.range.base, bytes: this.asleepBytes }]
  }

  get hasPeers(): boolean {
    return this.allocation.range.access.peers.length > 0
  }
}
