import { CudaError, PoolError } from '../base/errors.js'
import { RESULT } from '../driver/constants.js'

const CODES: readonly number[] = [RESULT.CUDA_ERROR_NOT_SUPPORTED, RESULT.CUDA_ERROR_NOT_PERMITTED]

/** Whether the driver says that it never does what was asked for here. */
export function isUnsupported(error: unknown): error is CudaError {
  return error instanceof CudaError && CODES.includes(error.code)
}

/**
 * A driver may offer a feature by its attributes and refuse it when it is used: on some platforms, virtual GPUs, or where
 * the system forbids it. Such a refusal as a PoolError that says what is missing and what to use instead; any other error
 * as it is.
 */
export function asUnsupported(error: unknown, message: string): unknown {
  if (!isUnsupported(error)) return error
  return new PoolError(`${message} (${error.message})`, { cause: error })
}
