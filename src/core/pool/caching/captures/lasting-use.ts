// Uses of a group's memory that last: work that is submitted later, until the next launch, belongs to them.

import { relaxed } from '../../../order/relaxed.js'
import type { Use } from '../central/deferred.js'

/** The stamp of a use that lasts until the next launch, and of a launch that is under way. */
export const UNTIL_NEXT = Infinity

/** A use whose stamp is a mark, or the next one. */
export function covered(use: Use): Use {
  return use.stamp === UNTIL_NEXT ? { ...use, stamp: use.clocks.covering(use.slot) } : use
}

/** Whether the host sees a use complete, asking the driver: for a mark, or about all work of the stream. */
export function isDone(use: Use): boolean {
  const { clocks, slot, stamp } = covered(use)
  if (clocks.completed[slot] >= stamp) return true
  if (use.stamp === UNTIL_NEXT && clocks.isOpen(slot)) return isIdle(use)
  clocks.catchUp(slot, stamp, false)
  return clocks.completed[slot] >= stamp
}

/** Whether an open stream, also another thread's, has no work under way. */
function isIdle({ clocks, slot }: Use): boolean {
  const driver = clocks.context.activate()
  return clocks.submit('query', slot, handle => relaxed(driver, () => driver.cuStreamQuery(handle)))
}
