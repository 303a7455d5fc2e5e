// While any thread captures in global mode, the driver refuses calls that might break a capture, such as an
// allocation or the query of an event. It refuses them from every thread, and breaks the capture. The calls of this
// library touch nothing that a capture uses, so they run in relaxed mode: throughout a capture that this library
// knows of, and around each single call that would be refused otherwise.

import { isDriverError } from '../base/thrown.js'
import { CU_STREAM_CAPTURE_MODE_RELAXED } from '../driver/constants.js'
import type { Driver } from '../driver/driver.js'

interface ThreadMode {
  /** how many calls of `enterRelaxed` are not ended yet */
  depth: number
  /** the thread's mode before the first of them */
  before: number
}

/** One mode a thread for libcuda, however often it is opened. */
const native: ThreadMode = { depth: 0, before: 0 }
const simulated = new WeakMap<Driver, ThreadMode>()

/** Lets this thread make calls that might break a capture, until `leaveRelaxed`. */
export function enterRelaxed(driver: Driver): void {
  const mode = modeOf(driver)
  if (mode.depth === 0) mode.before = driver.cuThreadExchangeStreamCaptureMode(CU_STREAM_CAPTURE_MODE_RELAXED)
  mode.depth++
}

/** Undoes `enterRelaxed`. */
export function leaveRelaxed(driver: Driver): void {
  const mode = modeOf(driver)
  if (--mode.depth > 0) return
  try {
    driver.cuThreadExchangeStreamCaptureMode(mode.before)
  } catch (error) {
    // A thread that stays relaxed breaks nothing.
    if (!isDriverError(error)) throw error
  }
}

/** Runs `work` in relaxed mode. */
export function relaxed<R>(driver: Driver, work: () => R): R {
  enterRelaxed(driver)
  try {
    return work()
  } finally {
    leaveRelaxed(driver)
  }
}

function modeOf(driver: Driver): ThreadMode {
  if (!driver.simulated) return native
  let mode = simulated.get(driver)
  if (mode === undefined) {
    mode = { depth: 0, before: 0 }
    simulated.set(driver, mode)
  }
  return mode
}
