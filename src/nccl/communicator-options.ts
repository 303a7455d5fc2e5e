// The options of communicators and of their calls, and the checks of them.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { type ByteSize, bytesOf } from '../core/base/byte-size.js'
import { describe } from '../core/base/bytes.js'
import { checkOptionNames, isPlain } from '../core/base/option-names.js'
import { isUint8Array } from '../core/base/typed-arrays.js'
import type { Stream } from '../core/order/stream.js'
import { signalOf, type WaitOptions } from '../core/order/wait-options.js'
import type { DeviceArray } from '../core/pool/array.js'
import type { DeviceBuffer } from '../core/pool/buffer.js'
import { NCCL_OPS, NCCL_TYPES, type NcclOp, type NcclType, UNIQUE_ID_BYTES } from './constants.js'

/** Memory that a collective reads or writes. */
export type CollectiveMemory = DeviceBuffer | DeviceArray

/** How long a communicator waits for the other ranks unless the program says otherwise. */
const TIMEOUT_MS = 60_000
/** The limit of Node's timers. */
const MOST_TIMEOUT_MS = 2 ** 31 - 1

/** Options of all ways to make a communicator. */
export interface CommunicatorOptions extends WaitOptions {
  /**
   * most milliseconds to wait for the other ranks (60,000). That of a join also holds for later waits of its
   * communicator; the first message between two ranks has no limit
   */
  readonly timeoutMs?: number
}

/** Options of `Communicator.join`. */
export interface JoinOptions extends CommunicatorOptions {
  /** the result of `uniqueId` on one rank; all ranks pass the same */
  readonly id: Uint8Array
  /** the number of this rank, from 0; each rank has another */
  readonly rank: number
  /** how many ranks there are */
  readonly ranks: number
}

/** The place of a rank in its world. */
export type Place = Pick<JoinOptions, 'id' | 'rank' | 'ranks'>

/** Options of the calls that combine or move memory of the ranks. */
export interface CollectiveOptions {
  /** the stream of the work (that of the memory, as for `kernel.launch`) */
  readonly stream?: Stream | undefined
  /** type of the elements (that of the arrays); needed for buffers, and for float16 and bfloat16 in a Uint16Array */
  readonly type?: NcclType | undefined
  /** elements that each rank gives, or in `reduceScatter` gets (all that the memory has) */
  readonly count?: number | undefined
}

/** Options of the calls that combine elements of all ranks. */
export interface ReduceOptions extends CollectiveOptions {
  /** how the elements are combined ('sum') */
  readonly op?: NcclOp | undefined
}

/** Options of `broadcast`. */
export interface RootOptions extends CollectiveOptions {
  /** the rank that has the elements */
  readonly root: number
}

/** Options of `reduce`. */
export interface ReduceToOptions extends ReduceOptions {
  /** the rank that gets the result */
  readonly root: number
}

/** Options of `send`. */
export interface SendOptions extends CollectiveOptions {
  /** the rank that receives */
  readonly to: number
}

/** Options of `receive`. */
export interface ReceiveOptions extends CollectiveOptions {
  /** the rank that sends */
  readonly from: number
}

/** Options of `createSymmetricArena`. */
export interface SymmetricArenaOptions {
  /** memory of each rank, the same on all; rounded up to whole granules of the device */
  readonly bytes: ByteSize
  /** whether `compareOffsets()` asks the other ranks; without it that call does nothing (false) */
  readonly debug?: boolean
}

/**
 * The most milliseconds to wait, `usualMs` unless the options say otherwise, and the signal, of options whose other
 * names are `names`.
 */
export function waitOf(
  call: string,
  options: CommunicatorOptions,
  names: readonly string[] = [],
  usualMs: number = TIMEOUT_MS,
) {
  const signal = signalOf(call, options, ['timeoutMs', ...names])
  const { timeoutMs = usualMs } = options
  if (!(Number.isInteger(timeoutMs) && timeoutMs > 0 && timeoutMs <= MOST_TIMEOUT_MS)) {
    throw new OutOfRangeError(
      `${call}: timeoutMs must be a whole number from 1 to ${MOST_TIMEOUT_MS}, not ${describe(timeoutMs)}`,
    )
  }
  return { signal, timeoutMs }
}

/** The place of a rank, read once. Throws TypeError or RangeError for a bad id, rank or number of ranks. */
export function placeOf(call: string, { id, rank, ranks }: JoinOptions): Place {
  if (!isUint8Array(id)) {
    throw new WrongTypeError(
      `${call}: id must be the Uint8Array that uniqueId(device) returned, not ${describe(id)}; fork passes it with serialization: 'advanced'`,
    )
  }
  if (id.byteLength !== UNIQUE_ID_BYTES) {
    throw new OutOfRangeError(
      `${call}: id must have ${UNIQUE_ID_BYTES} bytes, not ${id.byteLength}; send all that uniqueId(device) returned`,
    )
  }
  if (!(Number.isInteger(ranks) && ranks > 0 && ranks < 2 ** 31)) {
    throw new OutOfRangeError(`${call}: ranks must be a whole number from 1 on, not ${describe(ranks)}`)
  }
  checkRank(call, 'rank', rank, ranks)
  return { id: Uint8Array.from(id), rank, ranks }
}

/** Throws RangeError unless `rank` is the number of one of `ranks` ranks. */
export function checkRank(call: string, argument: string, rank: unknown, ranks: number): asserts rank is number {
  if (Number.isInteger(rank) && (rank as number) >= 0 && (rank as number) < ranks) return
  throw new OutOfRangeError(
    `${call}: ${argument} must be a whole number from 0 to ${ranks - 1}, since there are ${ranks} ranks, not ${describe(rank)}`,
  )
}

const OF_ALL = ['stream', 'type', 'count']
/** The options of the calls, by call. */
const COLLECTIVE_NAMES = {
  allReduce: ['op', ...OF_ALL],
  reduce: ['op', 'root', ...OF_ALL],
  reduceScatter: ['op', ...OF_ALL],
  allGather: OF_ALL,
  broadcast: ['root', ...OF_ALL],
  allToAll: OF_ALL,
  send: ['to', ...OF_ALL],
  receive: ['from', ...OF_ALL],
} as const satisfies Readonly<Record<string, readonly string[]>>

/** Throws TypeError for options that the call does not have. Each collective calls it, so it looks before it lists. */
export function checkCollectiveNames(call: keyof typeof COLLECTIVE_NAMES, options: CollectiveOptions): void {
  const names: readonly string[] = COLLECTIVE_NAMES[call]
  let areKnown = isPlain(options)
  for (const name in options) areKnown &&= names.includes(name)
  if (!areKnown) checkOptionNames(call, options, names)
}

/** NCCL's number of a reduction. */
export function opOf(call: string, op: NcclOp = 'sum'): number {
  if (typeof op === 'string' && Object.hasOwn(NCCL_OPS, op)) return NCCL_OPS[op]
  throw new OutOfRangeError(`${call}: op must be one of ${Object.keys(NCCL_OPS).join(', ')}, not ${describe(op)}`)
}

/** NCCL's number of an element type, and its bytes. */
export function typeOf(call: string, type: NcclType): { readonly type: number; readonly bytes: number } {
  if (typeof type === 'string' && Object.hasOwn(NCCL_TYPES, type)) return NCCL_TYPES[type]
  throw new OutOfRangeError(`${call}: type must be one of ${Object.keys(NCCL_TYPES).join(', ')}, not ${describe(type)}`)
}

/** The bytes of a symmetric arena. */
export function arenaBytesOf(call: string, options: SymmetricArenaOptions): number {
  checkOptionNames(call, options, ['bytes', 'debug'])
  return bytesOf(options.bytes, `${call}: bytes`, null)
}
