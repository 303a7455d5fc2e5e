// Calls that the driver or the program itself refuses because the program asks for it: any other error is a failure.

import { CudaError, PoolError } from '../src/core/base/errors.js'
import { RESULT } from '../src/core/driver/constants.js'
import type { FaultRule } from '../src/entries/simulated.js'

const CODE = RESULT.CUDA_ERROR_UNKNOWN

export function refusalOf({ call, nth }: { call: FaultRule['call']; nth: number }): FaultRule {
  return { call, nth, code: CODE }
}

/** A callback of the program throws. */
export class Thrown extends Error {}

/** Where nearly all streams are open, the library has none left for itself. */
export function isPlanned(error: unknown): boolean {
  const isCrowded = error instanceof PoolError && /streams are open on this device/.test(error.message)
  return isCrowded || error instanceof Thrown || (error instanceof CudaError && error.result === CODE)
}

/** Runs an operation, which may be refused a call; returns false if it was. */
export function surviveRefusal(operation: () => void): boolean {
  try {
    operation()
    return true
  } catch (error) {
    if (!isPlanned(error)) throw error
    return false
  }
}
