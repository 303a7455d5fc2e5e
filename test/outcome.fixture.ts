import { CudaError, DeviceLostError } from '../src/base/errors.js'

/** What a call throws: null for nothing, for a lost device the fault that it names. */
export async function outcome(call: () => unknown): Promise<unknown> {
  try {
    await call()
    return null
  } catch (error) {
    const first = error instanceof DeviceLostError ? error.first : error
    return first instanceof CudaError ? [(error as Error).name, first.call, first.codeName] : String(error)
  }
}
