import type { Clocks } from './clocks.js'
import { Stream, streamOf } from './stream.js'

/**
 * This thread's object for the open stream that another thread has in a slot. Null if that thread has closed it, or
 * no other thread can use it.
 */
export function borrowed(clocks: Clocks, slot: number): Stream | null {
  if (!clocks.isOpen(slot) || !clocks.slots.isReachable(slot)) return null
  return Stream.borrow(clocks, { device: clocks.identity, slot, generation: clocks.slots.generationOf(slot) })
}

/**
 * This thread's object for the stream of a slot and generation. If that stream is closed, or captured elsewhere, its
 * work is waited for on the host, and the result is null, even if another stream has the slot by now.
 */
export function streamIn(clocks: Clocks, slot: number, generation: number): Stream | null {
  const stream = streamOf(clocks, slot) ?? borrowed(clocks, slot)
  if (stream?.isShareable && stream.generation === generation) return stream
  // Another stream gets the slot only after the work of the former one has completed.
  if (clocks.slots.generationOf(slot) === generation) clocks.watcher.waitForAll(slot)
  return null
}
