// The simulated drivers that this thread has opened and shares: it answers the calls of other threads, whatever it waits for itself.

import { checkDeepStack } from '../base/stack.js'

interface Served {
  /** Answers all who wait now. Returns how many calls that were. */
  drain(): number
}

const served: Served[] = []

export function addServed(driver: Served): void {
  served.push(driver)
}

/**
 * Answers what other threads ask of simulated drivers that this thread shares; to be called every millisecond or so by
 * whatever keeps its event loop waiting. Costs nothing where none is shared. Returns how many calls it answered. Throws
 * RangeError where the stack has no room for them.
 */
export function serveWaiting(): number {
  if (served.length > 0) checkDeepStack() // a call that is taken must be answered
  let answers = 0
  for (const driver of served) answers += driver.drain()
  return answers
}

/** Whether this thread shares a simulated driver. */
export function servesOthers(): boolean {
  return served.length > 0
}
