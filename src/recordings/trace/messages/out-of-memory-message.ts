// The sizes in an out-of-memory message, of any allocator, and the verdict. One sum decides: the free memory of the
// device and the idle memory of the allocator, against the request.

import { TiB } from '../../../core/base/bytes.js'
import type { Verdict } from '../failures/out-of-memory.js'
import { exceeds, isPossible, minus, plus, type RoundedSize } from './rounded-size.js'

/** Thirty times the memory of the largest GPUs. */
export const MOST_DEVICE_BYTES = 8 * TiB

/** A program on the device. */
export interface ProcessMemory {
  /** its number; null for the program that wrote the message */
  readonly process: number | null
  readonly size: RoundedSize
}

/** A message; a size is null if the message does not have it. */
export interface OutOfMemoryMessage {
  /** the allocator, such as PyTorch */
  readonly allocator: string
  /** the kind of device, such as CUDA or HIP */
  readonly backend: string
  /** the device's number; null if the message does not have it */
  readonly device: number | null
  readonly asked: RoundedSize | null
  /** of the whole device */
  readonly total: RoundedSize | null
  /** free on the device */
  readonly free: RoundedSize | null
  /** held by the program, as the allocator rounded it; with the idle memory of private pools */
  readonly inUse: RoundedSize | null
  /** reserved, but not in use */
  readonly idle: RoundedSize | null
  /** of `idle`, by a summary in the same log: freed, but in use by another stream; null if unknown */
  readonly waiting: RoundedSize | null
  /** of `inUse`: idle memory of private pools, such as those of CUDA graphs, which serves no other request */
  readonly privatePools: RoundedSize | null
  /** the most that the program may reserve by a limit of its own */
  readonly allowed: RoundedSize | null
  /** the most that one expandable segment can hold, if the message says that the request is larger */
  readonly segment: RoundedSize | null
  /** whether PyTorch refused by `throw_on_cudamalloc_oom`, before it gave idle memory back */
  readonly isRejected: boolean
  readonly processes: readonly ProcessMemory[]
  /** whether the message ends before its usual end */
  readonly isCut: boolean
}

/** A size that cannot be, or two sizes that cannot both be true. */
export type Contradiction =
  | { readonly kind: 'impossible'; readonly what: string; readonly isNegative: boolean }
  | { readonly kind: 'above'; readonly what: string; readonly size: RoundedSize; readonly other: string }

/** The verdict on a message, and its sums; a sum is null if the message lacks a part of it. */
export interface MessageAnswer {
  readonly verdict: Verdict
  /** why the verdict is unknown; null for other verdicts */
  readonly unknown: 'contradiction' | 'rounding' | 'missing' | null
  /** free and idle together, without the memory that waits for another stream */
  readonly room: RoundedSize | null
  /** what the program's own limit leaves beside the memory in use; null without a limit */
  readonly withinLimit: RoundedSize | null
  readonly reserved: RoundedSize | null
  /** the shortfall of the request: of the device, or of the own limit if that is the verdict */
  readonly missing: RoundedSize | null
  /** whether the device alone had room for the request */
  readonly deviceHadRoom: boolean
  /** of the program itself, but not of its allocator: context and libraries */
  readonly outside: RoundedSize | null
  /** neither free nor reserved by the allocator: other programs, contexts, libraries */
  readonly elsewhere: RoundedSize | null
  readonly contradictions: readonly Contradiction[]
}

export function answerOf(message: OutOfMemoryMessage): MessageAnswer {
  const { asked, free, total, inUse, idle, waiting, allowed } = message
  const reserved = inUse === null || idle === null ? null : plus(inUse, idle)
  const all = free === null || idle === null ? null : plus(free, idle)
  const room = all === null || waiting === null ? all : minus(all, waiting)
  const own = message.processes.find(({ process }) => process === null)
  const contradictions = contradictionsOf(message, reserved)
  const mostAllowed = allowed === null || inUse === null ? null : minus(allowed, inUse)
  const facts = {
    room,
    withinLimit: mostAllowed,
    reserved,
    deviceHadRoom: asked !== null && free !== null && exceeds(asked, free) === 'no',
    outside: own === undefined || reserved === null ? null : minus(own.size, reserved),
    elsewhere: total === null || free === null || reserved === null ? null : minus(total, plus(free, reserved)),
    contradictions,
  }
  if (contradictions.length > 0) return { ...facts, verdict: 'unknown', unknown: 'contradiction', missing: null }
  if (message.isRejected) return { ...facts, verdict: 'ownLimit', unknown: null, missing: null }
  if (asked === null) return { ...facts, verdict: 'unknown', unknown: 'missing', missing: null }
  // Without the free or idle memory, the whole device is the bound.
  const most = all ?? (total === null || inUse === null ? null : minus(total, inUse))
  const ofDevice = most === null ? null : exceeds(asked, most)
  const isOfNone = most === null && asked.least > MOST_DEVICE_BYTES
  if (isOfNone) return { ...facts, verdict: 'tooLittle', unknown: null, missing: null }
  if (ofDevice === 'yes') return { ...facts, verdict: 'tooLittle', unknown: null, missing: minus(asked, room ?? most!) }
  const ofLimit = mostAllowed === null ? 'no' : exceeds(asked, mostAllowed)
  if (ofLimit === 'yes') return { ...facts, verdict: 'ownLimit', unknown: null, missing: minus(asked, mostAllowed!) }
  if (message.segment !== null) return { ...facts, verdict: 'segmentTooSmall', unknown: null, missing: null }
  if (room === null) return { ...facts, verdict: 'unknown', unknown: 'missing', missing: null }
  const ofRoom = exceeds(asked, room)
  if (ofRoom === 'yes') return { ...facts, verdict: 'waiting', unknown: null, missing: minus(asked, room) }
  const isSure = ofRoom === 'no' && ofLimit === 'no'
  if (!isSure) return { ...facts, verdict: 'unknown', unknown: 'rounding', missing: null }
  return { ...facts, verdict: 'fragmentation', unknown: null, missing: null }
}

function contradictionsOf(message: OutOfMemoryMessage, reserved: RoundedSize | null): Contradiction[] {
  const { total, free, inUse, idle, privatePools, allowed, asked } = message
  const sizes: readonly [what: string, size: RoundedSize | null][] = [
    ['the request', asked],
    ["the device's total", total],
    ['the free memory', free],
    ['the memory in use', inUse],
    ['the idle memory', idle],
    ['the private pools', privatePools],
    ['the limit', allowed],
  ]
  const impossible = sizes.flatMap(([what, size]): Contradiction[] =>
    size === null || isPossible(size) || isHuge(what, size)
      ? []
      : [{ kind: 'impossible', what, isNegative: size.bytes < 0 }],
  )
  if (impossible.length > 0) return impossible
  const all = free === null || reserved === null ? null : plus(free, reserved)
  const above = (what: string, size: RoundedSize | null, other: string, limit: RoundedSize | null): Contradiction[] =>
    size !== null && limit !== null && exceeds(size, limit) === 'yes' ? [{ kind: 'above', what, size, other }] : []
  const [first] = [
    ...above('the memory in use', inUse, "the device's total", total),
    ...above('the free memory', free, "the device's total", total),
    ...above('the reserved memory', reserved, "the device's total", total),
    ...above('free and reserved memory together', all, "the device's total", total),
    ...above('the private pools', privatePools, 'the memory in use', inUse),
  ]
  return first === undefined ? [] : [first]
}

/** A program may ask for any size. */
function isHuge(what: string, { bytes }: RoundedSize): boolean {
  return what === 'the request' && bytes >= 0 && Number.isFinite(bytes)
}
