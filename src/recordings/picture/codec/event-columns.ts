// The events of a picture as columns of small numbers: gaps of time, and how far back each freed block is.

import { Action, BEFORE, NEVER } from '../../trace/trace.js'
import type { Picture } from '../picture.js'
import { damaged, sized } from './byte-planes.js'

/** Actions whose times are columns of their own, and all others: gaps before one kind of event are alike. */
export const TIMED = [Action.alloc, Action.freeRequested, Action.freeCompleted, Action.snapshot] as const
const timedAs = (action: number) => Math.min(action, TIMED.length - 1)

/** The time from each event to the one before, by the event's kind. */
export function gapsByAction(action: Uint8Array, timeUs: Float64Array): Float64Array[] {
  const gaps = TIMED.map(() => new Float64Array(action.length))
  const used = TIMED.map(() => 0)
  for (let event = 0, before = 0; event < action.length; event++) {
    const kind = timedAs(action[event])
    gaps[kind][used[kind]++] = timeUs[event] - before
    before = timeUs[event]
  }
  return gaps.map((column, kind) => column.subarray(0, used[kind]))
}

/** The inverse of `gapsByAction`. */
export function timesOf(action: Uint8Array, gaps: readonly Float64Array[]): Float64Array {
  const timeUs = new Float64Array(action.length)
  const used = gaps.map(() => 0)
  for (let event = 0, now = 0; event < action.length; event++) {
    const kind = timedAs(action[event])
    now += gaps[kind][used[kind]++]
    timeUs[event] = now
  }
  gaps.forEach((column, kind) => {
    sized(column, used[kind], 'times')
  })
  return timeUs
}

/** For each free how many blocks ago its block was allocated. */
export function freeDistances({ events, action, block, blocks }: Picture): Int32Array {
  const distances = new Int32Array(events)
  let [next, frees] = [blocks.initial, 0]
  for (let event = 0; event < events; event++) {
    if (action[event] === Action.alloc) next++
    else if (action[event] === Action.freeRequested) distances[frees++] = next - block[event]
  }
  return distances.subarray(0, frees)
}

/** The inverse of `freeDistances`, with the events of each block. */
export function linked(action: Uint8Array, distances: Int32Array, count: number, gone: Uint8Array) {
  const block = new Int32Array(action.length).fill(-1)
  const allocatedAt = new Int32Array(count).fill(BEFORE)
  const freeRequestedAt = new Int32Array(count).fill(NEVER)
  let [next, frees] = [gone.length, 0]
  gone.forEach((isGone, i) => {
    if (isGone === 1) freeRequestedAt[i] = BEFORE
  })
  for (let event = 0; event < action.length; event++) {
    if (action[event] === Action.alloc) {
      if (next === count) throw damaged('allocations')
      allocatedAt[next] = event
      block[event] = next++
    } else if (action[event] === Action.freeRequested) {
      const freed = next - distances[frees++]
      if (!(freed >= 0 && freed < next) || freeRequestedAt[freed] !== NEVER) throw damaged('frees')
      freeRequestedAt[freed] = event
      block[event] = freed
    } else if (action[event] > Action.snapshot) throw damaged('kinds of events')
  }
  if (next !== count || frees !== distances.length) throw damaged('blocks')
  return { block, allocatedAt, freeRequestedAt }
}
