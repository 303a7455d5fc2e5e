// The stream of a launch, or of a collective, without the option `stream`. CUDA's own answer, the default stream, is a
// race where the buffers have another: they are written and freed in the order of theirs.

import { PoolError } from '../base/errors.js'
import { streamName } from '../order/ordered-stream.js'
import type { Stream } from '../order/stream.js'

/** Memory whose work is ordered by streams. */
export interface StreamOrdered {
  /** the stream of its allocation, on which a launch without `stream` runs */
  readonly stream?: Stream
  /** Work submitted to `stream` before the free uses the memory, too. */
  recordUse?(stream: Stream): void
}

type Value = StreamOrdered | Uint8Array | number | bigint | boolean

/**
 * The stream of the buffers among the arguments; of several, the first that comes after the work on all others. The
 * memory of the others then waits for the launch. Without buffers, `defaultStream`. Throws PoolError if the order of
 * the buffers' streams is not known, or if a capture is under way and none of them is captured.
 */
export function launchStream(defaultStream: Stream, values: readonly Value[], call = 'launch'): Stream {
  let stream: Stream | undefined
  let hasSeveral = false
  for (let index = 0; index < values.length; index++) {
    const other = streamOf(values[index])
    if (other === undefined) continue
    if (stream === undefined) stream = other
    else if (other !== stream) hasSeveral = true
  }
  if (stream === undefined) stream = defaultStream
  else if (hasSeveral || stream.clocks !== defaultStream.clocks || stream.closed)
    stream = lastOf(values, defaultStream, call)
  if (defaultStream.clocks.captures.size > 0 && stream.capture === null) {
    throw new PoolError(
      `${call}: a stream is being captured, and ${streamName(stream.handle)}, where this would run, is not; pass stream`,
      'ERR_STREAM_CAPTURED',
    )
  }
  return stream
}

/** Of the buffers' streams, or the default stream if all are closed, one that comes after the work on all others. */
function lastOf(values: readonly Value[], defaultStream: Stream, call: string): Stream {
  const { clocks } = defaultStream
  const streams = [...new Set(values.map(streamOf).filter(stream => stream !== undefined))]
  const open = streams.filter(stream => !stream.closed && stream.clocks === clocks)
  const able = clocks.captures.size > 0 ? open.filter(stream => stream.capture !== null) : open
  const last = (open.length === 0 ? [defaultStream] : able).find(stream =>
    streams.every(each => stream.comesAfter(each) || stream.canFollow(each)),
  )
  if (last === undefined) {
    const deviceOf = (stream: Stream) => (stream.clocks === clocks ? '' : ` of device ${stream.context.ordinal}`)
    const names = streams.map(each => `${streamName(each.closed ? null : each.handle)}${deviceOf(each)}`).join(', ')
    throw new PoolError(
      `${call}: the buffers are of ${names}, and their order is not known; pass stream, and let it wait for the others (stream.wait(event))`,
      'ERR_STREAM_ORDER',
    )
  }
  for (const stream of streams) if (!last.comesAfter(stream)) last.follow(stream)
  if (last.capture === null) announce(values, last)
  return last
}

/** Memory of other streams waits for the launch when it is freed. A graph keeps memory in another way. */
function announce(values: readonly Value[], stream: Stream): void {
  for (const value of values) {
    const other = streamOf(value)
    if (other !== undefined && other !== stream && other.clocks === stream.clocks)
      (value as StreamOrdered).recordUse?.(stream)
  }
}

function streamOf(value: Value): Stream | undefined {
  return typeof value === 'object' && 'stream' in value ? value.stream : undefined
}
