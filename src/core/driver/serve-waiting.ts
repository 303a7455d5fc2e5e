// The simulated drivers that this thread shares with other threads. simulated/remote/served-driver.ts registers them
// here; waiting loops of order/ and device/ call `serveWaiting`, so that two threads that wait for each other make
// progress.

import { checkDeepStack } from '../base/stack.js'

interface Served {
  /** Answers all pending calls. Returns their number. */
  drain(): number
}

const served: Served[] = []

/** Adds a driver to those that `serveWaiting` answers for. */
export function addServed(driver: Served): void {
  served.push(driver)
}

/**
 * Answers pending calls of other threads to the simulated drivers that this thread shares. Code that blocks the event
 * loop calls it about every millisecond. It costs nothing if no driver is shared. Returns the number of answered
 * calls. Throws RangeError if the call stack has too little room.
 */
export function serveWaiting(): number {
  if (served.length > 0) checkDeepStack() // a call that was received must be answered
  let answers = 0
  for (const driver of served) answers += driver.drain()
  return answers
}

/** Whether this thread shares a simulated driver. */
export function servesOthers(): boolean {
  return served.length > 0
}
