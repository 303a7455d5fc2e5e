// The turns of Node's event loop that the library waits for, under the control of a program: calls that go on later
// wait until the program says, go on in the same order each time, and never once the program has ended.

import { syncBuiltinESMExports } from 'node:module'
import timers from 'node:timers/promises'

const { setImmediate, setTimeout } = timers
/** calls that wait for the next turn; null while no program runs */
let waiting: (() => void)[] | null = null

function nextTurn<T>(value: T): Promise<T> {
  return new Promise(resolve => waiting!.push(() => resolve(value)))
}

timers.setImmediate = (value, options) => (waiting === null ? setImmediate(value, options) : nextTurn(value!))
timers.setTimeout = (delay, value, options) => (waiting === null ? setTimeout(delay, value, options) : nextTurn(value!))
syncBuiltinESMExports()

/** From now on the program says when the library goes on. Calls of an earlier program never go on. */
export function takeTurns(): void {
  waiting = []
}

export function endTurns(): void {
  waiting = null
}

/** All calls go on, until each waits again or has ended. */
export async function turn(): Promise<void> {
  for (const goOn of waiting!.splice(0)) goOn()
  await setImmediate()
}
