import { CudaError, DeviceLostError } from './errors.js'

/** Whether the driver refused a call, or the device is lost; other errors are a program's or ours. */
export function isDriverError(error: unknown): error is CudaError | DeviceLostError {
  return error instanceof CudaError || error instanceof DeviceLostError
}
