// Errors that end a context. Both drivers turn result codes into errors here (native/bound-library.ts and
// simulated/call-interceptor.ts). CUDA calls such an error sticky: after it, each call returns the same code.

import { CudaError, DeviceLostError } from '../base/errors.js'
import { FATAL_RESULTS } from './constants.js'

/** Makes errors of result codes, and remembers the first sticky error of each context, which says the cause. */
export class StickyErrors {
  private readonly lost = new Map<number, DeviceLostError>()

  /** Throws DeviceLostError if `context` is lost. Drivers call it before each call. */
  guard(context: number): void {
    if (this.lost.size === 0) return
    const error = this.lost.get(context)
    if (error !== undefined) throw error
  }

  /** The error for a refused call; a sticky one is remembered. */
  refuse(
    context: number,
    call: string,
    result: number,
    resultName: string,
    detail = '',
    options?: ErrorOptions,
  ): CudaError {
    const error = new CudaError(call, result, resultName, detail, options)
    if (FATAL_RESULTS.includes(result) && !this.lost.has(context)) this.lost.set(context, new DeviceLostError(error))
    return error
  }
}
