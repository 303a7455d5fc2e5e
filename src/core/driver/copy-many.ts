// Several copies between host and device: one call of a driver that takes batches, a call for each elsewhere. A batch
// saves calls, whose time counts where copies are small.

import { KiB } from '../base/bytes.js'
import { CudaError } from '../base/errors.js'
import {
  CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
  CU_STREAM_LEGACY,
  CU_STREAM_LEGACY_DEFAULT,
  RESULT,
} from './constants.js'
import { type BatchedCopy, type CopyDirection, type Driver, MOST_BATCHED_COPIES } from './driver.js'
import { isUnsupported } from './unsupported.js'

const FIRST_VERSION_WITH_BATCHES = 12_080
/**
 * The driver reads so much pageable memory at the call of a copy ("API synchronization behavior" of CUDA's driver API).
 * Of 65 MiB in a batch, driver 580 read some later, although told not to.
 */
const MOST_STAGED_BYTES = 64 * KiB

/** The copies of one call, and how their sources may be read. */
export interface Copies {
  readonly copies: readonly BatchedCopy[]
  readonly direction: CopyDirection
  /** a CUmemcpySrcAccessOrder */
  readonly sourceOrder: number
}

/**
 * Submits copies to a stream that is not captured. They may run in any order. After a refusal, some of them may have
 * been submitted. Without batches, pageable memory is read at the call, and registered memory when its copy runs.
 */
export function copyMany(driver: Driver, { copies, direction, sourceOrder }: Copies, stream: number): void {
  const mostBytes = sourceOrder === CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? MOST_STAGED_BYTES : Infinity
  const small = copies.filter(({ host }) => host.byteLength <= mostBytes)
  const isBatched =
    small.length > 1 && takesBatches(driver, stream) && tryBatches(driver, small, direction, sourceOrder, stream)
  const rest = isBatched ? copies.filter(({ host }) => host.byteLength > mostBytes) : copies
  for (const { host, ptr } of rest) {
    if (direction === 'toHost') driver.cuMemcpyDtoHAsync(host, ptr, stream)
    else driver.cuMemcpyHtoDAsync(ptr, host, stream)
  }
}

/** False if the driver has no batches, and has submitted none. */
function tryBatches(
  driver: Driver,
  copies: readonly BatchedCopy[],
  direction: CopyDirection,
  sourceOrder: number,
  stream: number,
): boolean {
  try {
    for (let from = 0; from < copies.length; from += MOST_BATCHED_COPIES) {
      const batch = copies.length <= MOST_BATCHED_COPIES ? copies : copies.slice(from, from + MOST_BATCHED_COPIES)
      driver.cuMemcpyBatchAsync(batch, direction, sourceOrder, stream)
    }
    return true
  } catch (error) {
    if (isMissing(error)) return false
    throw error
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
