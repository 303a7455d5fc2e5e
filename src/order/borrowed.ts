import type { Clocks } from './clocks.js'
import { Stream, streamOf } from './stream.js'

/**
 * The stream of a slot that another thread has open, for this one; null when none is open there, or only in that
 * thread.
 */
export function borrowed(clocks: Clocks, slot: number): Stream | null {
  if (!clocks.isOpen(slot) || !clocks.slots.isReachable(slot)) return null
  return Stream.borrow(clocks, { device: clocks.identity, slot, generation: clocks.slots.generationOf(slot) })
}

/**
 * The stream that had a slot in a generation, for this thread. Where it is closed or captured elsewhere its work is
 * waited for, and the answer is null, whichever stream has the slot now.
 */
export function streamIn(clocks: Clocks, slot: number, generation: number): Stream | null {
  const stream = streamOf(clocks, slot) ?? borrowed(clocks, slot)
  if (stream?.isShareable && stream.generation === generation) return stream
  // Another stream gets a slot only when the work of the last one has completed.
  if (clocks.slots.generationOf(slot) === generation) clocks.waitForAll(slot)
  return null
}
