// `allocateMany`: a buffer for each size of a list, or none. The list is read before there is memory, so a bad entry
// costs nothing. What was served before an error is freed by the way of a `using` block.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../base/byte-size.js'
import { describe, formatBytes } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import { thrownText } from '../base/thrown.js'
import type { Stream } from '../order/stream.js'
import { type AllocateOptions, isOptions } from './long-form.js'

/** Longer lists are a mistake: their buffers alone would take 100 MB of host memory. */
const MOST_SIZES = 2 ** 20

/** A free is tried so often: a driver may refuse one call, and a pool in debug mode then reports the buffer once. */
const MOST_FREES = 3

interface HandedOut extends Disposable {
  readonly freed: boolean
  free(): void
}

interface ServingPool<B> {
  /** the pools that buffers come from; a host pool is its own */
  readonly sources?: readonly unknown[]
  allocate(bytes: number, place: Stream | AllocateOptions | undefined): B
  tryAllocate(bytes: number, place: Stream | AllocateOptions | undefined): B | null
}

/** The arguments of `allocateMany` and `tryAllocateMany`. A share such as '10%' is of `whole`. */
interface SizesRequest {
  readonly sizes: readonly ByteSize[]
  readonly place: Stream | AllocateOptions | undefined
  readonly whole: { readonly totalBytes: number }
}

/** Called as `pool.allocateMany(sizes, stream)`. */
export function allocateMany<B extends HandedOut>(pool: ServingPool<B>, { sizes, place, whole }: SizesRequest): B[] {
  const wanted = bytesOfEach('allocateMany', sizes, whole)
  const where = readOnce(place)
  const buffers: B[] = []
  try {
    for (const bytes of wanted) buffers.push(pool.allocate(bytes, where))
  } catch (error) {
    freeAll(buffers)
    throw error instanceof OutOfMemoryError
      ? ofAllSizes(error, wanted, buffers.length, mostBytesOf(pool, error))
      : error
  }
  return buffers
}

/** Called as `pool.tryAllocateMany(sizes, stream)`. */
export function tryAllocateMany<B extends HandedOut>(
  pool: ServingPool<B>,
  { sizes, place, whole }: SizesRequest,
): B[] | null {
  const wanted = bytesOfEach('tryAllocateMany', sizes, whole)
  const where = readOnce(place)
  const buffers: B[] = []
  try {
    for (const bytes of wanted) {
      const buffer = pool.tryAllocate(bytes, where)
      if (buffer === null) break
      buffers.push(buffer)
    }
  } catch (error) {
    freeAll(buffers)
    throw error
  }
  if (buffers.length === wanted.length) return buffers
  freeAll(buffers)
  return null
}

/** A getter among the options might answer differently for each size. */
function readOnce(place: Stream | AllocateOptions | undefined): Stream | AllocateOptions | undefined {
  return isOptions(place) ? { ...place } : place
}

function bytesOfEach(call: string, sizes: unknown, whole: SizesRequest['whole']): number[] {
  const count = countOf(call, sizes)
  const wanted = new Array<number>(count)
  for (let index = 0; index < count; index++) {
    const size = sizeAt(call, sizes as readonly unknown[], index)
    const isPlainCount = typeof size === 'number' && Number.isSafeInteger(size) && size > 0
    wanted[index] = isPlainCount ? size : bytesOf(size, `${call}: sizes[${index}]`, whole)
  }
  return wanted
}

function countOf(call: string, sizes: unknown): number {
  let count: number
  try {
    if (!Array.isArray(sizes)) throw new TypeError(`not ${describe(sizes)}`)
    count = sizes.length
  } catch (error) {
    const message = `${call}: sizes must be an array of sizes such as [4096, '1MiB'], ${thrownText(error)}`
    throw new WrongTypeError(message, { cause: error })
  }
  if (count >= 1 && count <= MOST_SIZES) return count
  throw new OutOfRangeError(`${call}: sizes must have 1 to ${MOST_SIZES} sizes, not ${describe(count)}`)
}

function sizeAt(call: string, sizes: readonly unknown[], index: number): unknown {
  try {
    return sizes[index]
  } catch (error) {
    throw new WrongTypeError(`${call}: sizes[${index}] cannot be read: ${thrownText(error)}`, { cause: error })
  }
}

/** Frees what was served before the list ended, the last one first. What cannot be freed stays live, with a warning. */
function freeAll(buffers: readonly HandedOut[]): void {
  for (const buffer of buffers.toReversed()) {
    for (let tries = 1; tries < MOST_FREES && !buffer.freed; tries++) {
      try {
        buffer.free()
      } catch {} // the error that ended the list is thrown, and not this one
    }
    buffer[Symbol.dispose]()
  }
}

/** The error of one size as that of all. The sizes that were served before it are free again, and not live. */
function ofAllSizes(
  error: OutOfMemoryError,
  wanted: readonly number[],
  served: number,
  mostBytes: number,
): OutOfMemoryError {
  const requestedBytes = sumOf(wanted)
  const servedBytes = sumOf(wanted.slice(0, served))
  const liveBytes = Math.max(0, error.figures.liveBytes - servedBytes)
  const after = requestedBytes - servedBytes - wanted[served]
  const whole = `allocateMany: no room for all of ${formatBytes(requestedBytes)} in ${wanted.length} sizes`
  const where = `sizes[${served}] found none, with ${formatBytes(after)} still to come`
  return new OutOfMemoryError(
    `${whole}, so none is allocated; ${where}: ${error.message}`,
    { ...error.figures, requestedBytes, liveBytes },
    error.streams,
    requestedBytes > mostBytes ? 'askForLess' : error.remedy,
    error.processes,
  )
}

/** The most that a pool can ever serve. The limit in an error is of the last of several pools. */
function mostBytesOf({ sources = [] }: ServingPool<unknown>, { figures }: OutOfMemoryError): number {
  return sources.length > 1 ? Infinity : figures.maxPoolBytes
}

function sumOf(sizes: readonly number[]): number {
  return sizes.reduce((sum, bytes) => sum + bytes, 0)
}
