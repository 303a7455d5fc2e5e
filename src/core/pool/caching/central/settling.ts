// When freed blocks stop depending on work: marks on the streams, the driver's answers, and waits of the host. The host
// waits for the fewest and oldest marks that make room for a request. Younger work goes on undisturbed.

import { findAdmitted, findAdmittedRun } from '../../../heap/cross-key.js'
import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import type { Mark } from '../../../order/clocks.js'
import { type Backing, SMALL_UNITS } from '../../backing/backing.js'
import type { CrossStreamReuse } from './cross-stream.js'
import type { Deferred } from './deferred.js'
import type { FreeMemory } from './free-memory.js'
import { type Miss, OfPool, type PoolParts, type Waiting } from './parts.js'

export class Settling extends OfPool {
  constructor(
    parts: PoolParts,
    private readonly memory: FreeMemory,
    private readonly deferred: Deferred,
    private readonly crossStream: CrossStreamReuse,
    private readonly backing: Backing,
  ) {
    super(parts)
  }

  /**
   * Places a mark on each stream that has frees which no mark covers yet. `isAsked` if a request needs completed work.
   */
  placeMarks(isAsked: boolean): void {
    const { clocks } = this
    const { awaited } = this.memory
    this.memory.noteMarks(isAsked)
    if (this.config.deterministic) return
    for (let slot = 0; slot < this.caches.slotLimit; slot++) {
      if (awaited[slot] > clocks.marked[slot] && clocks.isOpen(slot)) clocks.watcher.mark(slot)
    }
  }

  /** Whether blocks wait for work of other streams. A stream may use at once what it freed itself. */
  mayHelp(slot: number): boolean {
    const { awaited } = this.memory
    for (let other = 0; other < this.caches.slotLimit; other++) {
      if (other !== slot && awaited[other] > this.seen[other]) return true
    }
    return !this.deferred.empty
  }

  /** Asks the driver which work has completed and settles the blocks that waited for it; returns their number. */
  settle(): number {
    this.poll() // about all streams before any block is settled: an answer may tell of other streams, too
    return this.settleKnown()
  }

  /** Asks how far the streams have come that blocks wait for; false if the pool learns nothing new. */
  poll(): boolean {
    const { clocks, seen } = this
    const { awaited } = this.memory
    this.placeMarks(true)
    let learnt = false
    const end = this.config.deterministic ? 0 : this.caches.slotLimit
    for (let slot = 0; slot < end; slot++) if (awaited[slot] > seen[slot] && clocks.watcher.poll(slot)) learnt = true
    return this.deferred.pollPeers(false) || learnt
  }

  /** Settles the blocks that waited for work known to have completed, without the driver; returns their number. */
  settleKnown(): number {
    let settled = 0
    for (let slot = 0; slot < this.caches.slotLimit; slot++) settled += this.memory.settle(slot)
    if (this.deferred.empty) return settled
    for (const block of this.deferred.takeSettled()) {
      this.memory.giveToHeap(block.record, block.slot, block.stamp)
      settled++
    }
    return settled
  }

  /**
   * Waits for the fewest and oldest marks that would make room for the request. If all marks together would not, it
   * waits for the oldest one. The caller settles the blocks that waited for completed work. Returns false when no
   * mark is left to wait for. Up to `mostBytes` may be reserved. A deterministic pool waits for all work of a stream,
   * because the oldest open mark depends on the device's speed.
   */
  *waitForRoom(miss: Miss, mostBytes = Infinity): Waiting<boolean> {
    const { clocks } = this
    this.placeMarks(true)
    const awaited = this.awaitedSlots()
    if (this.config.deterministic && awaited.length > 0) {
      if (!awaited.some(slot => this.waitForAll(slot))) return false
    } else {
      const marks = awaited.flatMap(slot => clocks.watcher.watched(slot)).sort((a, b) => a.number - b.number)
      if (marks.length === 0) {
        const waited = this.deferred.pollPeers(true)
        return this.settle() > 0 || waited // an answer may have come since
      }
      const newBytes = this.newBytes(mostBytes)
      const chosen = leastOf(marks, some => this.wouldHelp(some, miss, newBytes))
      yield chosen
      // the first wait may have shown later marks complete
      for (const mark of chosen) clocks.watcher.waitFor(mark.slot, mark.stamp)
    }
    return true
  }

  /** The slots of streams that blocks wait for. */
  private awaitedSlots(): number[] {
    return Array.from({ length: this.caches.slotLimit }, (_, slot) => slot).filter(
      slot => this.memory.awaited[slot] > this.seen[slot],
    )
  }

  /** Waits for all work of a stream; returns whether the pool knows more now. */
  private waitForAll(slot: number): boolean {
    const { seen, clocks } = this
    const before = seen[slot]
    clocks.watcher.waitForAll(slot)
    return seen[slot] > before
  }

  /**
   * Whether the request could be served once all work is complete, even if another request takes `lessBytes` of new
   * memory.
   */
  couldServe(miss: Miss, lessBytes: number): boolean {
    const marks = this.awaitedSlots().flatMap(slot => this.clocks.watcher.watched(slot))
    return this.wouldHelp(marks, miss, Math.max(0, this.newBytes(Infinity) - lessBytes))
  }

  /** Whether the request could be served once the host has seen some marks complete. */
  private wouldHelp(marks: readonly Mark[], { heap, units, alignUnits, slot }: Miss, newBytes: number): boolean {
    const { memory, seen } = this
    const { slotLimit } = this.clocks
    const settled: Admission = new Float64Array(slotLimit + 1)
    settled[0] = Infinity
    settled.set(seen.subarray(0, slotLimit), keyOfSlot(0))
    for (const { vectorTime } of marks) {
      for (let index = 0; index < vectorTime.length; index += 2) {
        const key = keyOfSlot(vectorTime[index])
        settled[key] = Math.max(settled[key], vectorTime[index + 1])
      }
    }
    const known = this.crossStream.admissionFor(slot)
    const admission = settled.map((stamp, key) => Math.max(stamp, known[key]))
    const end = heap === memory.small ? SMALL_UNITS : Infinity
    return (
      findAdmitted(heap, units, alignUnits, admission) !== 0 ||
      findAdmittedRun(heap, units, alignUnits, admission) !== null ||
      this.deferred.wouldFree((units + alignUnits - 1) * UNIT_BYTES, end * UNIT_BYTES, settled) ||
      this.backing.couldGrow(heap, units, alignUnits, admission, settled, newBytes)
    )
  }

  /** Bytes that limit and device still let the pool reserve. */
  private newBytes(mostBytes: number): number {
    const { backing, clocks, config } = this
    const { freeBytes } = clocks.context.activate().cuMemGetInfo()
    const most = Math.min(backing.maxPoolBytes, mostBytes) - backing.reservedBytes
    return Math.max(0, Math.min(most, freeBytes - config.leaveFreeBytes))
  }
}

/**
 * Chooses few and old marks that are enough, out of `marks` in order of age: no mark after the first that completes
 * them, and no mark that the chosen ones do not need. Returns the oldest mark if all marks are not enough.
 */
function leastOf(marks: readonly Mark[], isEnough: (some: readonly Mark[]) => boolean): readonly Mark[] {
  const oldest = marks.slice(0, 1)
  if (!isEnough(marks)) return oldest
  let [tooFew, count] = [0, marks.length]
  while (count - tooFew > 1) {
    const middle = (tooFew + count) >> 1
    if (isEnough(marks.slice(0, middle))) count = middle
    else tooFew = middle
  }
  const newest = new Map(marks.slice(0, count).map(mark => [mark.slot, mark]))
  let chosen = [...newest.values()]
  for (const mark of newest.values()) {
    const fewer = chosen.filter(other => other !== mark)
    if (isEnough(fewer)) chosen = fewer
  }
  return chosen.length === 0 ? oldest : chosen
}
