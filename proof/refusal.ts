// Calls that the driver refuses because the program asks for it: any other error is a failure.

import { CudaError } from '../src/base/errors.js'
import { RESULT } from '../src/driver/constants.js'
import type { FaultRule } from '../src/driver/simulated/index.js'

const CODE = RESULT.CUDA_ERROR_UNKNOWN

export function refusalOf({ call, nth }: { call: FaultRule['call']; nth: number }): FaultRule {
  return { call, nth, code: CODE }
}

/** Runs an operation, which may be refused a call. */
export function surviveRefusal(operation: () => void): void {
  try {
    operation()
  } catch (error) {
    if (!(error instanceof CudaError) || error.code !== CODE) throw error
  }
}
