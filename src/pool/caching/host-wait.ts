// The last step of a miss: waiting on the host. Of the marks that freed blocks depend on it waits for a few that are enough
// for the request, none older and no more than it takes, so that the rest of the work goes on unnoticed.

import { findAdmitted, findAdmittedRun } from '../../heap/cross-key.js'
import type { Admission } from '../../heap/free-run.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { type Clocks, type Mark, MOST_STREAMS } from '../../order/clocks.js'
import { SMALL_UNITS } from '../backing/backing.js'
import type { CentralHeap } from './central-heap.js'
import { ANYBODY, type Miss } from './miss.js'
import type { PoolConfig } from './options.js'
import type { Waiting } from './waiting.js'

/** By key: only blocks that depend on nothing are admitted. */
export const NONE: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity, 0, 1)

export class HostWait {
  constructor(
    private readonly central: CentralHeap,
    private readonly clocks: Clocks,
    /** by slot: the latest stamp that the host has seen complete */
    private readonly seen: Float64Array,
    private readonly config: PoolConfig,
  ) {}

  /**
   * Waits for the work that would give room for the request, as little and as old as possible, or for the oldest that freed
   * blocks depend on, and frees blocks of what has completed then; false when nothing is left to wait for. Up to `mostBytes`
   * may be reserved. Without polling it waits for all of a stream, since which mark is the oldest depends on what has completed.
   */
  *waitFor(miss: Miss, mostBytes = Infinity): Waiting<boolean> {
    const { clocks, central } = this
    central.placeMarks()
    const awaited = central.awaitedSlots()
    if (this.config.deterministic && awaited.length > 0) {
      if (!awaited.some(slot => this.waitForAll(slot))) return false
    } else {
      const marks = awaited.flatMap(slot => clocks.watched(slot)).sort((a, b) => a.number - b.number)
      if (marks.length === 0) {
        const waited = central.deferred.pollPeers(true)
        return central.settle() > 0 || waited // by an answer that came since
      }
      const newBytes = this.newBytes(mostBytes)
      const chosen = leastOf(marks, some => this.wouldHelp(some, miss, newBytes))
      yield chosen
      for (const mark of chosen) clocks.waitFor(mark.slot, mark.stamp) // of two, the first may have told of the second
    }
    central.settle()
    return true
  }

  /** Waits for all work of a stream; returns whether the pool knows more since. */
  private waitForAll(slot: number): boolean {
    const before = this.seen[slot]
    this.clocks.waitForAll(slot)
    return this.seen[slot] > before
  }

  /** Whether the request could be served once all is complete, even if `lessBytes` of what may still be reserved are taken by another one. */
  couldServe(miss: Miss, lessBytes: number): boolean {
    const marks = this.central.awaitedSlots().flatMap(slot => this.clocks.watched(slot))
    return this.wouldHelp(marks, miss, Math.max(0, this.newBytes(Infinity) - lessBytes))
  }

  /** Whether the request could be served once the host had seen some marks complete. */
  private wouldHelp(marks: readonly Mark[], { heap, units, alignUnits, slot }: Miss, newBytes: number): boolean {
    const { central } = this
    const settled: Admission = new Float64Array(MOST_STREAMS + 1)
    settled[0] = Infinity
    settled.set(this.seen, 1)
    for (const { vectorTime } of marks) {
      for (let other = 0; other < vectorTime.length; other++)
        settled[other + 1] = Math.max(settled[other + 1], vectorTime[other])
    }
    const known = slot === ANYBODY ? NONE : central.crossStream.look(slot)
    const admission = known.map((stamp, key) => Math.max(stamp, settled[key]))
    const end = heap === central.small ? SMALL_UNITS : Infinity
    return (
      findAdmitted(heap, units, alignUnits, admission) !== 0 ||
      findAdmittedRun(heap, units, alignUnits, admission) !== null ||
      central.deferred.wouldFree((units + alignUnits - 1) * UNIT_BYTES, end * UNIT_BYTES, settled) ||
      central.backing.couldGrow(heap, units, alignUnits, admission, settled, newBytes)
    )
  }

  /** What may still be reserved, as far as limit and device go. */
  private newBytes(mostBytes: number): number {
    const { limitBytes, reservedBytes } = this.central.backing
    const { freeBytes } = this.clocks.context.activate().cuMemGetInfo()
    const most = Math.min(limitBytes, mostBytes) - reservedBytes
    return Math.max(0, Math.min(most, freeBytes - this.config.leaveFreeBytes))
  }
}

/** Of marks in order of age, a few that are enough, with none older or more than it takes; the oldest one where all are not enough. */
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
    const crossStream = chosen.filter(other => other !== mark)
    if (isEnough(crossStream)) chosen = crossStream
  }
  return chosen.length === 0 ? oldest : chosen
}
