import { CudaError, DeviceLostError } from '../src/core/base/errors.js'

/** The error of a call, or null; for a lost device, the fault that its error names. */
export async function outcome(call: () => unknown): Promise<unknown> {
  try {
    await call()
    return null
  } catch (error) {
    const first = error instanceof DeviceLostError ? error.first : error
    return first instanceof CudaError ? [(error as Error).name, first.call, first.resultName] : String(error)
  }
}
