// A timeout may cut a call short in the middle of an unmapping. The driver may have done it then, and refuses to do it
// again.

import { CudaError } from '../../../base/errors.js'

/** Runs `unmap`. If an earlier run for `mapping` was cut short, a refusal means that it had succeeded. */
export function unmapOnce(mapping: { isLeaving: boolean }, unmap: () => void): void {
  const wasCut = mapping.isLeaving
  mapping.isLeaving = true
  try {
    unmap()
  } catch (error) {
    if (!(error instanceof CudaError)) throw error
    if (!wasCut) {
      mapping.isLeaving = false
      throw error
    }
  }
  mapping.isLeaving = false
}
