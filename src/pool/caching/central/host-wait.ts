// The last step of a miss: a wait of the host. Freed blocks depend on marks; the host waits for the fewest and oldest
// marks that make room for the request. Younger work goes on undisturbed.

import { findAdmitted, findAdmittedRun } from '../../../heap/cross-key.js'
import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { type Mark, MOST_STREAMS } from '../../../order/clocks.js'
import { SMALL_UNITS } from '../../backing/backing.js'
import { ANY_STREAM, type Miss, type PoolParts, type Waiting } from './miss.js'

/** By key: only blocks that depend on no work are admitted. */
export const NO_STREAM: Admission = new Float64Array(MOST_STREAMS + 1).fill(Infinity, 0, 1)

export class HostWait {
  constructor(private readonly parts: PoolParts) {}

  /**
   * Waits for the fewest and oldest marks that would make room for the request. If all marks together would not, it
   * waits for the oldest one. The caller settles the blocks that waited for completed work. Returns false when no
   * mark is left to wait for. Up to `mostBytes` may be reserved. A deterministic pool waits for all work of a stream,
   * because the oldest open mark depends on the device's speed.
   */
  *waitFor(miss: Miss, mostBytes = Infinity): Waiting<boolean> {
    const { clocks, settling, deferred, config } = this.parts
    settling.placeMarks(true)
    const awaited = settling.awaitedSlots()
    if (config.deterministic && awaited.length > 0) {
      if (!awaited.some(slot => this.waitForAll(slot))) return false
    } else {
      const marks = awaited.flatMap(slot => clocks.watched(slot)).sort((a, b) => a.number - b.number)
      if (marks.length === 0) {
        const waited = deferred.pollPeers(true)
        return settling.settle() > 0 || waited // an answer may have come since
      }
      const newBytes = this.newBytes(mostBytes)
      const chosen = leastOf(marks, some => this.wouldHelp(some, miss, newBytes))
      yield chosen
      // the first wait may have shown later marks complete
      for (const mark of chosen) clocks.waitFor(mark.slot, mark.stamp)
    }
    return true
  }

  /** Waits for all work of a stream; returns whether the pool knows more now. */
  private waitForAll(slot: number): boolean {
    const { seen, clocks } = this.parts
    const before = seen[slot]
    clocks.waitForAll(slot)
    return seen[slot] > before
  }

  /**
   * Whether the request could be served once all work is complete, even if another request takes `lessBytes` of new
   * memory.
   */
  couldServe(miss: Miss, lessBytes: number): boolean {
    const { settling, clocks } = this.parts
    const marks = settling.awaitedSlots().flatMap(slot => clocks.watched(slot))
    return this.wouldHelp(marks, miss, Math.max(0, this.newBytes(Infinity) - lessBytes))
  }

  /** Whether the request could be served once the host has seen some marks complete. */
  private wouldHelp(marks: readonly Mark[], { heap, units, alignUnits, slot }: Miss, newBytes: number): boolean {
    const { memory, seen, crossStream, deferred, backing } = this.parts
    const { slotLimit } = this.parts.clocks
    const settled: Admission = new Float64Array(slotLimit + 1)
    settled[0] = Infinity
    settled.set(seen.subarray(0, slotLimit), keyOfSlot(0))
    for (const { vectorTime } of marks) {
      for (let index = 0; index < vectorTime.length; index += 2) {
        const key = keyOfSlot(vectorTime[index])
        settled[key] = Math.max(settled[key], vectorTime[index + 1])
      }
    }
    const known = slot === ANY_STREAM ? NO_STREAM : crossStream.look(slot)
    const admission = settled.map((stamp, key) => Math.max(stamp, known[key]))
    const end = heap === memory.small ? SMALL_UNITS : Infinity
    return (
      findAdmitted(heap, units, alignUnits, admission) !== 0 ||
      findAdmittedRun(heap, units, alignUnits, admission) !== null ||
      deferred.wouldFree((units + alignUnits - 1) * UNIT_BYTES, end * UNIT_BYTES, settled) ||
      backing.couldGrow(heap, units, alignUnits, admission, settled, newBytes)
    )
  }

  /** Bytes that limit and device still let the pool reserve. */
  private newBytes(mostBytes: number): number {
    const { backing, clocks, config } = this.parts
    const { freeBytes } = clocks.context.activate().cuMemGetInfo()
    const most = Math.min(backing.limitBytes, mostBytes) - backing.reservedBytes
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
