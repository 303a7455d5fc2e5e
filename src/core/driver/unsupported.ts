import { CudaError, PoolError } from '../base/errors.js'
import { RESULT } from './constants.js'

const CODES: readonly number[] = [RESULT.CUDA_ERROR_NOT_SUPPORTED, RESULT.CUDA_ERROR_NOT_PERMITTED]

/** Whether the error says that the driver does not support the call here. */
export function isUnsupported(error: unknown): error is CudaError {
  return error instanceof CudaError && CODES.includes(error.result)
}

/**
 * A driver may list a feature in its attributes and refuse it when it is used: on some platforms, on virtual GPUs, or
 * if the system forbids it. Turns such a refusal into a PoolError with `message`, which names an alternative. Returns
 * other errors unchanged.
 */
export function asUnsupported(error: unknown, message: string): unknown {
  if (!isUnsupported(error)) return error
  return new PoolError(`${message} (${error.message})`, 'ERR_NOT_SUPPORTED', { cause: error })
}
