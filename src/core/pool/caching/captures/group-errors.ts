// Errors of graph groups, in pools of one thread and in those that threads share.

import { PoolError } from '../../../base/errors.js'
import { type OrderedStream, streamName } from '../../../order/ordered-stream.js'
import type { Use } from '../central/deferred.js'

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

/** The error for work that may run beside a use: a launch of a graph, or 0 for any other use. */
export function unordered(work: string, stream: OrderedStream, { clocks, slot }: Use, graph: number): PoolError {
  const other = graph === 0 ? 'a use of the same memory' : `graph ${graph}`
  return new PoolError(
    `${work} on ${streamName(stream.handle)} may run beside ${other} on ${streamName(clocks.handles[slot])}; ` +
      "let the stream wait first (stream.wait(event)), or make the group with whenUnordered 'wait'",
    'ERR_STREAM_ORDER',
  )
}

/** The error for a stream of another device, in a group that threads share. */
export function elsewhere(call: string): PoolError {
  return new PoolError(
    `${call}: threads that share a group do not know the order of another device; copy the contents to a buffer of ` +
      'the pool, or make the group in a pool of one thread',
    'ERR_OTHER_DEVICE',
  )
}

/** The error for a per-thread default stream, in a group that threads share. */
export function perThread(call: string): PoolError {
  return new PoolError(
    `${call}: threads that share a group cannot wait for the per-thread default stream of another; use a stream of ` +
      'device.createStream()',
    'ERR_STREAM_ORDER',
  )
}
