// While any thread captures in global mode, the driver refuses calls that might break a capture (an allocation, a
// query of an event) from every thread, and the capture with it. Ours break none: whatever they touch is no part of a
// capture. So they run in relaxed mode: while a capture that we know of is open, and around each call that is refused
// otherwise.

import { CudaError, DeviceLostError } from '../base/errors.js'
import { CU_STREAM_CAPTURE_MODE_RELAXED } from '../driver/constants.js'
import type { Driver } from '../driver/driver.js'

interface ThreadMode {
  /** how many want it relaxed */
  depth: number
  /** what it was before */
  before: number
}

const NATIVE = {} // libcuda is one in a thread, however often it is opened
const modes = new WeakMap<object, ThreadMode>()

/** Lets this thread make calls that might break a capture. */
export function enterRelaxed(driver: Driver): void {
  const mode = modeOf(driver)
  if (mode.depth === 0) mode.before = driver.cuThreadExchangeStreamCaptureMode(CU_STREAM_CAPTURE_MODE_RELAXED)
  mode.depth++
}

/** Ends what `enterRelaxed` began. */
export function leaveRelaxed(driver: Driver): void {
  const mode = modeOf(driver)
  if (--mode.depth > 0) return
  try {
    driver.cuThreadExchangeStreamCaptureMode(mode.before)
  } catch (error) {
    // A thread that stays relaxed breaks nothing.
    if (!(error instanceof CudaError) && !(error instanceof DeviceLostError)) throw error
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
  const key = driver.simulated ? driver : NATIVE
  let mode = modes.get(key)
  if (mode === undefined) {
    mode = { depth: 0, before: 0 }
    modes.set(key, mode)
  }
  return mode
}
