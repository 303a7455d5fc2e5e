// Calls of several ranks in one thread that NCCL begins together. Each would wait for the others otherwise, and the
// thread with it. They are checked as the program makes them, and NCCL hears of them at the end: a mistake among them
// leaves nothing half done.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import type { Stream } from '../core/order/stream.js'
import { NCCL_RESULT } from './constants.js'
import { errorOf, type JoinedRank } from './joined-rank.js'
import type { Nccl } from './nccl.js'

/** A checked call, which NCCL has not heard of. */
interface GroupedCall {
  readonly call: string
  readonly rank: JoinedRank
  readonly timeoutMs: number
  readonly stream: Stream
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
  open = calls
  try {
    const result: unknown = work()
    if (typeof (result as PromiseLike<unknown> | undefined)?.then === 'function') {
      throw new WrongTypeError(
        'group: work must not be async, since all its calls begin together; await before the group',
      )
    }
  } finally {
    if (!isInner) open = null
  }
  if (!isInner && calls.length > 0) begin(calls)
}

/**
 * Runs \`work\`, which makes calls of NCCL, in a group of NCCL's. The group ends even if \`work\` throws: all later calls
 * of the thread would wait in it otherwise. Returns the first ncclResult_t of its start and its end that is not
 * success; \`work\` does not run in a group that has not started.
 */
export function inGroup(nccl: Nccl, work: () => void): number {
  const started = nccl.ncclGroupStart()
  if (started !== NCCL_RESULT.ncclSuccess) return started
  let ended: number = started
  try {
    work()
  } finally {
    ended = nccl.ncclGroupEnd()
  }
  return ended
}

function begin(calls: readonly GroupedCall[]): void {
  checkCaptures(calls)
  for (const { stream, call } of calls) stream.checkUsable(call)
  const [first] = calls
  const { nccl, context } = first.rank
  const refused: [GroupedCall, number][] = []
  context.activate()
  const ended = inGroup(nccl, () => {
    for (const each of calls) {
      const result = each.stream.submit(each.call, each.work)
      if (result !== NCCL_RESULT.ncclSuccess && result !== NCCL_RESULT.ncclInProgress) refused.push([each, result])
    }
  })
  for (const [{ rank, call }, result] of refused) throw rank.refused(call, result)
  if (ended === NCCL_RESULT.ncclSuccess) return
  const last = new Map(calls.map(each => [each.rank, each]))
  for (const { rank, call, timeoutMs } of last.values()) rank.settleNow(call, rank.ask(), timeoutMs)
  if (ended !== NCCL_RESULT.ncclInProgress) check(first, ended)
}

function check({ rank, call }: GroupedCall, result: number): void {
  if (result !== NCCL_RESULT.ncclSuccess) {
    throw errorOf(rank.nccl, rank.handle, call, result, 'the group has not begun; abort its communicators')
  }
}

/** Launches of graphs that belong to several devices of one thread wait for each other, and the thread with them. */
function checkCaptures(calls: readonly GroupedCall[]): void {
  const captured = new Set(calls.filter(({ stream }) => stream.capture !== null).map(({ rank }) => rank.context))
  if (captured.size < 2) return
  throw new PoolError(
    'group: streams of several devices are captured, and their graphs would wait for each other in this thread; ' +
      'capture with one device a process, or do not capture collectives',
    'ERR_STREAM_CAPTURED',
  )
}
