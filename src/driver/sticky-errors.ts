import { CudaError, DeviceLostError } from '../base/errors.js'
import { FATAL_RESULTS } from './constants.js'

/**
 * Turns result codes into errors and remembers, per context, the first fault that killed it: after such a fault the
 * driver answers every call with the same code, and only the first one says what happened.
 */
export class StickyErrors {
  private readonly lost = new Map<number, DeviceLostError>()

  /** Throws when `context` is lost; to be called before each driver call. */
  guard(context: number): void {
    if (this.lost.size === 0) return
    const error = this.lost.get(context)
    if (error !== undefined) throw error
  }

  /** The error for a refused call, remembered when it is one that kills the context. */
  refuse(context: number, call: string, code: number, codeName: string, detail = ''): CudaError {
    const error = new CudaError(call, code, codeName, detail)
    if (FATAL_RESULTS.includes(code) && !this.lost.has(context)) this.lost.set(context, new DeviceLostError(error))
    return error
  }
}
