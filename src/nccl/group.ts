// Calls of several ranks in one thread that NCCL begins together. Each would wait for the others otherwise, and the
// thread with it. They are checked as the program makes them, and NCCL hears of them at the end: a mistake among them
// leaves nothing half done.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import { isUnwantedPromise } from '../core/base/thrown.js'
import { checkPlan, type Plan } from './collective-memory.js'
import { NCCL_RESULT } from './constants.js'
import { errorOf, type JoinedRank } from './joined-rank.js'
import type { Nccl } from './nccl.js'

/** A checked call, which NCCL has not heard of. */
interface GroupedCall {
  readonly call: string
  readonly rank: JoinedRank
  readonly plan: Plan
  readonly work: (stream: number) => number
}

/** The calls of the group that is open in this thread; null without one */
let open: GroupedCall[] | null = null

/** Whether a group is open in this thread. */
export function isGrouping(): boolean {
  return open !== null
}

/** Takes a call into the open group. */
export function addToGroup(call: GroupedCall): void {
  open!.push(call)
}

/** Runs `work`, and then begins all calls that it made. A group within a group is a part of it. */
export function runGroup(work: () => void): void {
  if (typeof work !== 'function') {
    throw new WrongTypeError(`group: work must be a function that makes the calls, not ${describe(work)}`)
  }
  const isInner = open !== null
  const calls: GroupedCall[] = open ?? []
  const { length } = calls
  open = calls
  try {
    const result: unknown = work()
    if (result !== undefined && isUnwantedPromise(result)) {
      throw new WrongTypeError(
        'group: work must not be async, since all its calls begin together; await before the group',
      )
    }
  } catch (error) {
    calls.length = length // the outer group may go on without the inner one
    throw error
  } finally {
    if (!isInner) open = null
  }
  if (!isInner && calls.length > 0) begin(calls)
}

function begin(calls: readonly GroupedCall[]): void {
  checkCaptures(calls)
  const [first] = calls
  for (const each of calls) checkStill(each, first)
  const { nccl, context } = first.rank
  context.activate()
  const { results, ended } = inOneGroup(nccl, calls, submitNow)
  for (let i = 0; i < calls.length; i++) {
    if (isRefusal(results[i])) throw calls[i].rank.refused(calls[i].call, results[i])
  }
  if (ended === NCCL_RESULT.ncclSuccess) return
  for (const { rank, call } of calls) rank.stateFor(call)
  throw errorOf(nccl, first.rank.handle, first.call, ended, 'the group has not begun; abort its communicators')
}

function submitNow({ call, plan, work }: GroupedCall): number {
  return plan.stream.submit(call, work)
}

/**
 * Makes a call of NCCL for each item, in one group. The result has an ncclResult_t of each, and that of the group. The
 * group ends also if one throws: an open one would take in all later calls of the thread.
 */
export function inOneGroup<T>(nccl: Nccl, items: readonly T[], call: (item: T) => number) {
  const started = nccl.ncclGroupStart()
  if (isRefusal(started)) return { results: items.map(() => started), ended: started }
  let ended: number
  const results: number[] = []
  try {
    for (const item of items) results.push(call(item))
  } finally {
    ended = nccl.ncclGroupEnd()
  }
  return { results, ended }
}

/** Whether a result says neither success nor that the call goes on. */
export function isRefusal(result: number): boolean {
  return result !== NCCL_RESULT.ncclSuccess && result !== NCCL_RESULT.ncclInProgress
}

/** The program may have ended things within the group, behind the call that needs them. */
function checkStill({ call, rank, plan }: GroupedCall, first: GroupedCall): void {
  rank.checkNotOver(call)
  checkPlan(call, plan)
  if (rank.nccl === first.rank.nccl) return
  throw new PoolError(
    'group: the devices are of two drivers, whose ranks cannot meet; use a group for each driver',
    'ERR_OTHER_DEVICE',
  )
}

/** Launches of graphs that belong to several devices of one thread wait for each other, and the thread with them. */
function checkCaptures(calls: readonly GroupedCall[]): void {
  if (!calls.some(({ plan }) => plan.stream.capture !== null)) return
  const captured = new Set(calls.filter(({ plan }) => plan.stream.capture !== null).map(({ rank }) => rank.context))
  if (captured.size < 2) return
  throw new PoolError(
    'group: streams of several devices are captured, and their graphs would wait for each other in this thread; ' +
      'capture with one device a process, or do not capture collectives',
    'ERR_STREAM_CAPTURED',
  )
}
