// The memory of a collective: its addresses, elements and stream, checked before NCCL hears of them.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import { type Context, unreachable } from '../core/driver/context.js'
import { launchStream } from '../core/kernel/launch-stream.js'
import { streamName } from '../core/order/ordered-stream.js'
import { checkStreamOf, type Stream } from '../core/order/stream.js'
import { DeviceArray } from '../core/pool/array.js'
import { DeviceBuffer } from '../core/pool/buffer.js'
import { keepAwake } from './captured-memory.js'
import { type CollectiveMemory, type CollectiveOptions, typeOf } from './communicator-options.js'
import type { NcclType } from './constants.js'

/** The element types of NCCL by the class of a typed array. Arrays of 16-bit integers also hold small floats. */
const TYPE_OF_ARRAY: Readonly<Record<string, NcclType | undefined>> = {
  Int8Array: 'int8',
  Uint8Array: 'uint8',
  Uint8ClampedArray: 'uint8',
  Int32Array: 'int32',
  Uint32Array: 'uint32',
  BigInt64Array: 'int64',
  BigUint64Array: 'uint64',
  Float16Array: 'float16',
  Float32Array: 'float32',
  Float64Array: 'float64',
}

/** Memory of one rank in a collective. */
export interface MemoryUse {
  /** the name of the argument */
  readonly argument: 'send' | 'receive'
  readonly memory: CollectiveMemory
  /** how often the count of elements it has */
  readonly shares: number
}

/** A checked collective, as NCCL gets it. */
export interface Plan {
  /** addresses, in the order of the uses */
  readonly addresses: readonly number[]
  readonly count: number
  readonly type: number
  readonly stream: Stream
  readonly memories: readonly CollectiveMemory[]
  /** whether the stream was captured */
  readonly isCaptured: boolean
}

/**
 * Checks a collective with one or two `uses`, and tells their pools of it. `inPlace` says where in the second use, in
 * counts, the first may lie, or the other way round; null: nowhere. Throws TypeError, RangeError or PoolError.
 */
export function planCollective(
  call: string,
  defaultStream: Stream,
  uses: readonly MemoryUse[],
  options: CollectiveOptions,
  inPlace: { readonly first: number; readonly second: number } | null,
): Plan {
  for (const use of uses) checkMemory(call, use, defaultStream.context)
  const { type, bytes } = typeOf(call, options.type ?? typeOfUses(call, uses))
  const count = countOf(call, uses, bytes, options.count)
  const addresses = uses.map(use => addressOf(call, use, count, bytes))
  if (uses.length === 2) checkApart(call, uses, addresses, count * bytes, inPlace)
  const memories = uses.map(({ memory }) => memory)
  const { stream = launchStream(defaultStream, memories, call) } = options
  checkStreamOf(call, stream, defaultStream.clocks)
  stream.checkUsable(call)
  for (const use of uses) checkOrder(call, use, stream)
  for (const memory of memories) announceUse(call, memory, stream)
  return { addresses, count, type, stream, memories, isCaptured: stream.capture !== null }
}

/** Throws PoolError if memory or the stream of a plan have changed since. */
export function checkPlan(call: string, { memories, stream, isCaptured }: Plan): void {
  stream.checkUsable(call)
  for (const memory of memories) memory.addressFor(call)
  if (isCaptured === (stream.capture !== null)) return
  throw new PoolError(
    `${call}: a capture of its stream began or ended within the group; do that before or after`,
    'ERR_STREAM_CAPTURED',
  )
}

function checkMemory(call: string, { argument, memory }: MemoryUse, context: Context): void {
  if (memory instanceof DeviceBuffer || memory instanceof DeviceArray) {
    memory.addressFor(call)
    if (memory.reachableFrom(context)) return
    throw unreachable(`${call}: ${argument}`, context, memory.context)
  }
  throw new WrongTypeError(
    `${call}: ${argument} must be a DeviceBuffer or a DeviceArray, such as pool.allocateArray(Float32Array, 4), not ${describe(memory)}`,
  )
}

/** The element type of the arrays among the uses. */
function typeOfUses(call: string, uses: readonly MemoryUse[]): NcclType {
  const names = new Set(uses.flatMap(({ memory }) => (memory instanceof DeviceArray ? memory.elementClass.name : [])))
  const [name] = names
  if (names.size > 1) {
    throw new WrongTypeError(`${call}: send and receive have elements of two types, ${[...names].join(' and ')}`)
  }
  const type = name === undefined ? undefined : TYPE_OF_ARRAY[name]
  if (type !== undefined) return type
  const what = name === undefined ? 'a buffer does not tell its type' : `an ${name} may hold small floats or integers`
  throw new WrongTypeError(`${call}: type is missing, and ${what}; pass one such as { type: 'float32' }`)
}

/** The elements that one share has. Without `given` both uses must agree. */
function countOf(call: string, uses: readonly MemoryUse[], bytes: number, given: number | undefined): number {
  let most = Infinity
  let areEqual = true
  for (const { memory, shares } of uses) {
    const count = memory.byteLength / bytes / shares
    areEqual &&= most === Infinity || count === most
    most = Math.min(most, count)
  }
  if (given === undefined && areEqual && Number.isInteger(most) && most > 0) return most
  if (given !== undefined && Number.isInteger(given) && given > 0 && given <= most) return given
  throw wrongCount(call, uses, bytes, given, Math.floor(most))
}

function wrongCount(
  call: string,
  uses: readonly MemoryUse[],
  bytes: number,
  given: number | undefined,
  most: number,
): OutOfRangeError {
  if (given !== undefined) {
    const sizes = uses.map(({ argument, memory }) => `${argument} has ${memory.byteLength} bytes`).join(', ')
    return new OutOfRangeError(
      `${call}: count must be a whole number from 1 to ${most}, not ${describe(given)}: ${sizes}`,
    )
  }
  const wanted = uses.map(({ argument, memory, shares }) => {
    const elements = memory.byteLength / bytes
    return `${argument} has ${Number.isInteger(elements) ? elements : elements.toFixed(2)} elements${shares === 1 ? '' : ` for ${shares} ranks`}`
  })
  return new OutOfRangeError(
    `${call}: ${wanted.join(', ')}, which do not match; pass count, or memory of matching sizes`,
  )
}

/** The address of memory for `shares` times the elements. NCCL cannot use memory that begins within one. */
function addressOf(call: string, { argument, memory, shares }: MemoryUse, count: number, bytes: number): number {
  const address = memory.rangeOf(call, 0, shares * count * bytes, argument)
  if (address % bytes === 0) return address
  throw new OutOfRangeError(
    `${call}: ${argument} begins ${address % bytes} bytes behind a multiple of ${bytes}, the bytes of an element; ` +
      'begin at a multiple',
  )
}

/** Refuses memory that overlaps otherwise than NCCL allows. */
function checkApart(
  call: string,
  [one, two]: readonly MemoryUse[],
  [first, second]: readonly number[],
  shareBytes: number,
  inPlace: { readonly first: number; readonly second: number } | null,
): void {
  if (!one.memory.context.sharesDevice(two.memory.context)) return
  if (first + one.shares * shareBytes <= second || second + two.shares * shareBytes <= first) return
  if (inPlace !== null && first + inPlace.first * shareBytes === second + inPlace.second * shareBytes) return
  const remedy = inPlace === null ? 'receive into other memory' : 'use the very same memory, or memory apart'
  throw new OutOfRangeError(`${call}: send overlaps receive in a way that NCCL does not define; ${remedy}`)
}

/** Refuses memory that work of the stream may use before it is written. */
function checkOrder(call: string, { argument, memory }: MemoryUse, stream: Stream): void {
  const earlier = memory.stream
  if (earlier === stream || !stream.mayComeBefore(earlier) || stream.canFollow(earlier)) return
  const [late, early] = [stream, earlier].map(({ handle, closed }) => streamName(closed ? null : handle))
  throw new PoolError(
    `${call}: the work on ${late} may come before work on ${early}, the stream of ${argument}; let it wait first (stream.wait(event))`,
    'ERR_STREAM_ORDER',
  )
}

/** The memory's pool learns of the use, as of a copy's. */
function announceUse(call: string, memory: CollectiveMemory, stream: Stream): void {
  const earlier = memory.stream
  if (earlier !== stream) {
    if (stream.mayComeBefore(earlier)) stream.follow(earlier)
    if (stream.capture === null) memory.recordUse(stream)
  }
  if (stream.capture !== null) keepAwake(memory, stream.capture)
  memory.noteUse(stream, call)
}
