// Several copies between registered host memory and the device: one call of a driver that takes batches, a call for
// each elsewhere. A batch saves the time of calls, which counts for copies below some 256 KiB.

import { CudaError } from '../base/errors.js'
import { CU_STREAM_LEGACY, CU_STREAM_LEGACY_DEFAULT, RESULT } from './constants.js'
import { type BatchedCopy, type CopyDirection, type Driver, MOST_BATCHED_COPIES } from './driver.js'
import { isUnsupported } from './unsupported.js'

const FIRST_VERSION_WITH_BATCHES = 12_080

/**
 * Submits copies to a stream that is not captured. They may run in any order, and read their sources then. After a
 * refusal, some of them may have been submitted.
 */
export function copyMany(
  driver: Driver,
  copies: readonly BatchedCopy[],
  direction: CopyDirection,
  stream: number,
): void {
  if (copies.length > 1 && takesBatches(driver, stream)) {
    try {
      for (let from = 0; from < copies.length; from += MOST_BATCHED_COPIES) {
        const batch = copies.length <= MOST_BATCHED_COPIES ? copies : copies.slice(from, from + MOST_BATCHED_COPIES)
        driver.cuMemcpyBatchAsync(batch, direction, stream)
      }
      return
    } catch (error) {
      if (!isMissing(error)) throw error
    }
  }
  for (const { host, ptr } of copies) {
    if (direction === 'toHost') driver.cuMemcpyDtoHAsync(host, ptr, stream)
    else driver.cuMemcpyHtoDAsync(ptr, host, stream)
  }
}

function takesBatches(driver: Driver, stream: number): boolean {
  if (stream === CU_STREAM_LEGACY_DEFAULT || stream === CU_STREAM_LEGACY) return false
  return driver.cuDriverGetVersion() >= FIRST_VERSION_WITH_BATCHES
}

/** A new driver need not have all features: on virtual GPUs, for example. */
function isMissing(error: unknown): boolean {
  return isUnsupported(error) || (error instanceof CudaError && error.result === RESULT.CUDA_ERROR_NOT_FOUND)
}
