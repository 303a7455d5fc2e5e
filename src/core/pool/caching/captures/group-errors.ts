// Errors of graph groups, in pools of one thread and in those that threads share.

import { PoolError } from '../../../base/errors.js'

/** The error for a call on a group that is closed. */
export function closedGroup(call: string): PoolError {
  return new PoolError(`${call}: the graph group is closed; create another`, 'ERR_POOL_CLOSED')
}

/** The error for a capture beside another one of its group. */
export function secondCapture(call: string): PoolError {
  return new PoolError(
    `${call}: another capture of the group is under way, whose memory this one would get; end that one first`,
    'ERR_STREAM_CAPTURED',
  )
}

/** The error for the use of a buffer that is held between scratch by a capture that made no graph. */
export function spoiltError(call: string): PoolError {
  return new PoolError(
    `${call}: the capture that allocated the buffer made no graph, and other graphs of its group may write there; ` +
      'free it, and capture again',
    'ERR_BUFFER_FREED',
  )
}
