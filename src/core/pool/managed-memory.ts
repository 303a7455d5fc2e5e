// Checks and translations for calls that tell the driver how managed memory is used. `DeviceBuffer` has the calls. The
// driver works on whole pages, and buffers share pages. So advice and discards leave out the pages at both ends that
// are a buffer's in part.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { describe, KiB } from '../base/bytes.js'
import { CudaError, PoolError } from '../base/errors.js'
import {
  CU_DEVICE_CPU,
  CU_MEM_ADVISE_SET_ACCESSED_BY,
  CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
  CU_MEM_ADVISE_SET_READ_MOSTLY,
  CU_MEM_ADVISE_UNSET_ACCESSED_BY,
  CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
  CU_MEM_ADVISE_UNSET_READ_MOSTLY,
  RESULT,
} from '../driver/constants.js'
import { Context, unreachable } from '../driver/context.js'
import type { AccessLocation } from './access.js'

/**
 * How managed memory will be used:
 * - 'readMostly': each device and the host get copies to read; a write takes the others away.
 * - 'preferredLocation': it stays at a location, where the reader can reach it there.
 * - 'accessedBy': a location keeps it mapped, wherever it lies.
 */
export type MemoryAdvice = 'readMostly' | 'preferredLocation' | 'accessedBy'

/** The largest page of a host; most have 4 KiB. */
const PAGE_BYTES = 64 * KiB

/** The driver's numbers for giving an advice, and for taking it back. */
const ADVICE: Readonly<Record<MemoryAdvice, readonly [set: number, unset: number]>> = {
  readMostly: [CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_READ_MOSTLY],
  preferredLocation: [CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION],
  accessedBy: [CU_MEM_ADVISE_SET_ACCESSED_BY, CU_MEM_ADVISE_UNSET_ACCESSED_BY],
}

interface MemoryOfPool {
  readonly isManaged?: boolean
  readonly context: Context
}

/** Throws PoolError, in the name of `call`, for memory of another kind, or of a device that takes no advice. */
export function checkManaged(call: string, { isManaged, context }: MemoryOfPool): void {
  if (isManaged !== true) {
    throw new PoolError(
      `${call}: the buffer is no managed memory; allocate it from createPool({ backing: 'managed' })`,
      'ERR_NOT_SUPPORTED',
    )
  }
  checkConcurrent(call, context)
}

/** The driver's number of a location. Throws TypeError for other values, and PoolError for a device without access. */
export function numberOf(call: string, location: AccessLocation, owner: Context): number {
  if (location === 'host') return CU_DEVICE_CPU
  const { context } = (location ?? {}) as { readonly context?: unknown }
  if (!(context instanceof Context)) {
    throw new WrongTypeError(`${call}: location must be a device or 'host', not ${describe(location)}`)
  }
  if (!context.sharesAddresses(owner)) throw unreachable(`${call}: location`, owner, context)
  checkConcurrent(call, context)
  return context.device
}

/** The driver's number of an advice, to give it or to take it back. */
export function adviceNumber(call: 'advise' | 'unadvise', advice: MemoryAdvice): number {
  if (typeof advice === 'string' && Object.hasOwn(ADVICE, advice)) return ADVICE[advice][call === 'advise' ? 0 : 1]
  const message = `${call}: advice must be one of '${Object.keys(ADVICE).join("', '")}', not ${describe(advice)}`
  throw typeof advice === 'string' ? new OutOfRangeError(message) : new WrongTypeError(message)
}

/** The pages that lie within a range: the address of the first one, and their bytes, which may be 0. */
export function wholePages(address: number, bytes: number): { readonly start: number; readonly bytes: number } {
  const start = Math.ceil(address / PAGE_BYTES) * PAGE_BYTES
  const end = Math.floor((address + bytes) / PAGE_BYTES) * PAGE_BYTES
  return { start, bytes: Math.max(0, end - start) }
}

/** The error of a discard: PoolError if the driver is too old for it, else the error itself. */
export function explainedDiscard(error: unknown): unknown {
  if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_NOT_FOUND) return error
  const message = 'discard: the driver does not discard memory, which needs driver 13.0; leave the call out'
  return new PoolError(message, 'ERR_NOT_SUPPORTED', { cause: error })
}

/** The error for a discard in a stream that the driver takes none in. */
export function discardInDefaultStream(): PoolError {
  return new PoolError(
    'discard: the driver discards in no default stream; allocate the buffer on one of device.createStream()',
    'ERR_NOT_SUPPORTED',
  )
}

function checkConcurrent(call: string, context: Context): void {
  if (context.attribute('CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS') === 1) return
  throw new PoolError(
    `${call}: device ${context.ordinal} has no concurrent access to managed memory, so that the driver moves all of it at each launch; leave the call out`,
    'ERR_NOT_SUPPORTED',
  )
}
