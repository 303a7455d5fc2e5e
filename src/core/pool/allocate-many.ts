// `allocateMany`: a buffer for each size of a list, or none. `uploadMany`: an array on the device for each typed array.
// The list is read before there is memory, so a bad entry costs nothing. What was served before an error is freed by
// the way of a `using` block.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../base/byte-size.js'
import { describe, formatBytes } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import { isDriverError, thrownText } from '../base/thrown.js'
import type { Stream } from '../order/stream.js'
import { DeviceArray, type TypedArray, typeOf } from './array.js'
import type { DeviceBuffer } from './buffer.js'
import { type AllocateOptions, isOptions } from './long-form.js'

/** Longer lists are a mistake: their buffers alone would take 100 MB of host memory. */
const MOST_ENTRIES = 2 ** 20

/** The lists of these calls, as errors tell of them. */
const SIZES = { name: 'sizes', form: "sizes such as [4096, '1MiB']" }
const SOURCES = { name: 'sources', form: 'typed arrays such as [new Float32Array(8)]' }

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
  return allocateAll(pool, 'allocateMany', bytesOfEach('allocateMany', sizes, whole), readOnce(place))
}

/** Called as `pool.uploadMany(sources, stream)`. */
export function uploadMany<T extends TypedArray>(
  pool: ServingPool<DeviceBuffer>,
  sources: readonly T[],
  place: Stream | AllocateOptions | undefined,
): DeviceArray[] {
  const call = 'uploadMany'
  const count = countOf(call, sources, SOURCES)
  const arrays = Array.from({ length: count }, (_, index) => entryAt(call, sources, SOURCES, index) as T)
  const types = arrays.map((array, index) => typeOf(`${call}: sources[${index}]`, array))
  const sizes = arrays.map(({ byteLength }) => byteLength)
  const buffers = allocateAll(pool, call, sizes, readOnce(place))
  try {
    write(call, buffers, arrays, sizes)
    return buffers.map((buffer, index) => DeviceArray.ofWhole(buffer, types[index]))
  } catch (error) {
    freeAll(buffers)
    throw error
  }
}

/** Copies each array to its buffer. All are checked first, since callbacks of pools may have done anything to them. */
function write(
  call: string,
  buffers: readonly DeviceBuffer[],
  arrays: readonly TypedArray[],
  sizes: readonly number[],
): void {
  const addresses = buffers.map((buffer, index) => {
    const { byteLength } = arrays[index]
    if (byteLength === sizes[index]) return buffer.rangeOf(call, 0, byteLength)
    const change = `${sizes[index]} to ${byteLength} bytes`
    throw new OutOfRangeError(`${call}: sources[${index}] has changed from ${change} meanwhile; leave it as it is`)
  })
  const [driver] = buffers.map(buffer => buffer.driverFor(call))
  const [{ stream }] = buffers
  try {
    stream.submit(call, handle => {
      for (const [index, array] of arrays.entries()) driver.cuMemcpyHtoDAsync(addresses[index], array, handle)
    })
  } catch (error) {
    if (isDriverError(error)) untilIdle(stream)
    throw error
  }
}

/** Some copies may run, and a pool that is not stream-ordered takes freed memory for idle. */
function untilIdle(stream: Stream): void {
  try {
    stream.synchronize()
  } catch (error) {
    if (!isDriverError(error)) throw error
  }
}

function allocateAll<B extends HandedOut>(
  pool: ServingPool<B>,
  call: string,
  wanted: readonly number[],
  where: Stream | AllocateOptions | undefined,
): B[] {
  const buffers: B[] = []
  try {
    for (const bytes of wanted) buffers.push(pool.allocate(bytes, where))
  } catch (error) {
    freeAll(buffers)
    throw error instanceof OutOfMemoryError
      ? ofAllSizes(error, call, wanted, buffers.length, mostBytesOf(pool, error))
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
  const count = countOf(call, sizes, SIZES)
  const wanted = new Array<number>(count)
  for (let index = 0; index < count; index++) {
    const size = entryAt(call, sizes as readonly unknown[], SIZES, index)
    const isPlainCount = typeof size === 'number' && Number.isSafeInteger(size) && size > 0
    wanted[index] = isPlainCount ? size : bytesOf(size, `${call}: sizes[${index}]`, whole)
  }
  return wanted
}

function countOf(call: string, list: unknown, { name, form }: typeof SIZES): number {
  let count: number
  try {
    if (!Array.isArray(list)) throw new TypeError(`not ${describe(list)}`)
    count = list.length
  } catch (error) {
    throw new WrongTypeError(`${call}: ${name} must be an array of ${form}, ${thrownText(error)}`, { cause: error })
  }
  if (count >= 1 && count <= MOST_ENTRIES) return count
  throw new OutOfRangeError(`${call}: ${name} must have 1 to ${MOST_ENTRIES} ${name}, not ${describe(count)}`)
}

function entryAt(call: string, list: readonly unknown[], { name }: typeof SIZES, index: number): unknown {
  try {
    return list[index]
  } catch (error) {
    throw new WrongTypeError(`${call}: ${name}[${index}] cannot be read: ${thrownText(error)}`, { cause: error })
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
  call: string,
  wanted: readonly number[],
  served: number,
  mostBytes: number,
): OutOfMemoryError {
  const requestedBytes = sumOf(wanted)
  const servedBytes = sumOf(wanted.slice(0, served))
  const liveBytes = Math.max(0, error.figures.liveBytes - servedBytes)
  const after = requestedBytes - servedBytes - wanted[served]
  const { name } = call === 'uploadMany' ? SOURCES : SIZES
  const whole = `${call}: no room for all of ${formatBytes(requestedBytes)} in ${wanted.length} ${name}`
  const where = `${name}[${served}] found none, with ${formatBytes(after)} still to come`
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
