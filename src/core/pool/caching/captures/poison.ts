// The fill of idle scratch before a launch, which shows graphs that rely on contents of an earlier launch.

import type { OrderedStream } from '../../../order/ordered-stream.js'

/** NaN for every float type. */
const POISON = 0xff

/** Fills scratch in the order of a stream. */
export function fillWithPoison(stream: OrderedStream, ptr: number, bytes: number): void {
  const driver = stream.context.activate()
  stream.submit('launch', handle => driver.cuMemsetD8Async(ptr, POISON, bytes, handle))
}
