import type { Clocks } from '../order/clocks.js'
import { Stream } from '../order/stream.js'

/** The stream of a slot that another thread has open, for this one; null when none is open there, or only in that thread. */
export function borrowed(clocks: Clocks, slot: number): Stream | null {
  if (!clocks.isOpen(slot) || !clocks.slots.isReachable(slot)) return null
  return Stream.borrow(clocks, { device: clocks.identity, slot, generation: clocks.slots.generationOf(slot) })
}
