// Calls that are cut short while their thread lives on: by the timeout of a vm script, or by a full stack.

import { createContext, Script } from 'node:vm'
import type { Random } from '../src/core/base/random.js'

const context = createContext({ call: () => {} })
const script = new Script('call()')

/** Runs an endless call until the timeout stops it, at any moment, without its `finally` blocks. */
function stopInTime(call: () => void, timeout: number): void {
  context['call'] = call
  try {
    script.runInContext(context, { timeout })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error
  }
}

/** Runs a call on a stack that is too small for it, and on one that is a little larger each time, until it fits. */
function dive(call: () => void): boolean {
  try {
    if (dive(call)) return true
    call()
    return true
  } catch (error) {
    if ((error as Error).message.includes('Maximum call stack size')) return false
    throw error
  }
}

/** Repeats a call until a timeout or a full stack cuts it short. */
export function cutShort(call: () => void, random: Random): void {
  if (random.below(2) === 0) dive(call)
  else {
    const endless = () => {
      for (;;) call()
    }
    stopInTime(endless, 1 + random.below(3))
  }
}
