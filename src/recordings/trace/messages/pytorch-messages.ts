// PyTorch's messages about an out of memory, in all wordings since version 1.0 and of all its kinds of devices. The
// capitals stand for sizes: A was asked, T is the total, U in use, F free, I idle, R reserved, L the limit.
//
//   1.0   … Tried to allocate A (GPU 0; T total capacity; U already allocated; F free; I cached)
//   1.4   … F free; R reserved in total by PyTorch)
//   1.8   … F free; L allowed; R reserved in total by PyTorch)
//   2.1   … GPU 0 has a total capacity of T of which F is free. Process 7 has P memory in use. … Of the allocated
//         memory U is allocated by PyTorch, and I is reserved by PyTorch but unallocated.
//   2.4   … is allocated by PyTorch, with V allocated in private pools (e.g., CUDA Graphs), and I is reserved …
//   2.12  Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested
//         size: A
//   2.15  … but unallocated. This allocation exceeds the expandable-segment reserve of S for …
//
// Cached memory is idle; reserved memory is idle or in use. V is idle memory, and a part of U. S is the most that one
// expandable segment can hold.

import type { OutOfMemoryMessage, ProcessMemory } from './out-of-memory-message.js'
import { exactSize, isPossible, minus, type RoundedSize, roundedSize, SIZE } from './rounded-size.js'

const STARTS = /triedtoallocate|allocationwaspreemptivelyrejected/gi
/** The end of the other start: throw_on_cudamalloc_oom refuses a request above per_process_memory_fraction. */
const REJECTED = /rejected$/i
/** Squeezed letters of the longest message, with dozens of processes. */
const MOST_LETTERS = 6000
/** Before the start: the kind of device, and the start of a message of another wording. */
const LETTERS_BEFORE = 200
const ONE_EXBIBYTE = exactSize(2 ** 60)

const KINDS = ['CUDA', 'HIP', 'XPU', 'NPU', 'MLU', 'MUSA', 'DPCPP', 'CNRT']
const BEFORE = /outofmemory(?:error)?[.:]*$/i
const BACKEND = new RegExp(`(${KINDS.join('|')})outofmemory[.:]*$`, 'i')
const END = /reservedintotalbypytorch\)?|reservedbypytorchbutunallocated\.?|cached\)|1ebmemory\.?/i

/** A pattern of squeezed text around a size; a number begins where no digit is before it. */
const around = (before: string, after: string) => new RegExp(`${before}(?<!\\d)${SIZE}${after}`, 'i')
const ASKED = around('^', '')
const DEVICE = /^[^;]{0,600}?(?:\([a-z]{2,5}(\d{1,4});|(?:gpu|npu|xpu|mlu)(\d{1,4})hasatotalcapac)/i
const TOTAL = [around('totalcapaci?tyof', ''), around('', 'totalcapacity')]
const FREE = [around('ofwhich', 'isfree'), around('', 'free[;,]')]
const IN_USE = [around('allocatedmemory', 'isallocatedbypytorch'), around('', 'alreadyallocated')]
const PRIVATE = [around('with', 'allocatedinprivatepools')]
const IDLE = [around('', 'isreservedbypytorchbutunallocated'), around('', 'cached\\)')]
const RESERVED = [around('', 'reservedintotalbypytorch')]
const ALLOWED = [around('', 'allowed;')]
const REQUESTED = [around('requestedsize:', '')]
const SEGMENT = [around('exceedstheexpandable-segmentreserveof', '')]
/** Behind the usual end. */
const LETTERS_BEHIND = 200
const PROCESS = new RegExp(`(?:process(\\d{1,10})|thisprocess)has(?<!\\d)${SIZE}memoryinuse`, 'gi')

/** The number of messages at the end of a log that are read, beside the first one. */
const MOST_MESSAGES = 1000

/** The messages of a squeezed text in their order; of very many the first one and the last ones. */
export function pytorchMessages(text: string): OutOfMemoryMessage[] {
  const starts: number[] = []
  const ends: number[] = []
  for (const { 0: found, index } of text.matchAll(STARTS)) {
    starts.push(index)
    ends.push(index + found.length)
  }
  const read = starts.flatMap((_, i) => (i === 0 || i >= starts.length - MOST_MESSAGES ? [i] : []))
  return read.flatMap(i => {
    const [start, from] = [starts[i], ends[i]]
    const rest = text.slice(from, Math.min(from + MOST_LETTERS, starts[i + 1] ?? text.length))
    const before = text.slice(Math.max(0, start - LETTERS_BEFORE), start)
    const message = messageOf(before, rest, REJECTED.test(text.slice(start, from)))
    return message === null ? [] : [message]
  })
}

/** The message between `before` and what follows its start; null for one of another allocator. */
function messageOf(before: string, rest: string, isRejected: boolean): OutOfMemoryMessage | null {
  const end = END.exec(rest)
  const endsAt = end === null ? rest.length : end.index + end[0].length
  const body = rest.slice(0, endsAt)
  const device = DEVICE.exec(body)
  if (device === null && !BEFORE.test(before)) return null
  if (/maxallowed:[^)]{1,40}\)\.$/i.test(before)) return null
  const sizeOf = (patterns: readonly RegExp[]) => firstSize(body, patterns)
  const inUse = sizeOf(IN_USE)
  const reserved = sizeOf(RESERVED)
  const number = device?.[1] ?? device?.[2]
  return {
    allocator: 'PyTorch',
    backend: BACKEND.exec(before)?.[1].toUpperCase() ?? 'CUDA',
    device: number === undefined ? null : Number(number),
    asked: /^morethan1eb/i.test(body) ? ONE_EXBIBYTE : sizeOf(isRejected ? REQUESTED : [ASKED]),
    total: sizeOf(TOTAL),
    free: sizeOf(FREE),
    inUse,
    idle: sizeOf(IDLE) ?? (inUse === null || reserved === null ? null : withinRounding(minus(reserved, inUse))),
    waiting: null,
    privatePools: sizeOf(PRIVATE),
    allowed: knownOrNull(sizeOf(ALLOWED)),
    segment: firstSize(rest.slice(endsAt, endsAt + LETTERS_BEHIND), SEGMENT),
    isRejected,
    processes: processesOf(body),
    isCut: end === null && !isRejected,
  }
}

function firstSize(body: string, patterns: readonly RegExp[]): RoundedSize | null {
  for (const pattern of patterns) {
    const found = pattern.exec(body)
    if (found !== null) return roundedSize(found[1], found[2])
  }
  return null
}

function processesOf(body: string): ProcessMemory[] {
  return [...body.matchAll(PROCESS)].flatMap(([, process, amount, unit]) => {
    const size = roundedSize(amount, unit)
    // On Windows the driver does not tell, and PyTorch prints 2^64 - 1 bytes.
    if (!isPossible(size)) return []
    return [{ process: process === undefined ? null : Number(process), size }]
  })
}

/** A difference that only rounding brings below 0, as 0. */
function withinRounding({ bytes, least, most }: RoundedSize): RoundedSize {
  return most < 0 ? { bytes, least, most } : { bytes: Math.max(0, bytes), least: Math.max(0, least), most }
}

/** PyTorch prints 2^64 - 1 bytes where a program has no limit. */
function knownOrNull(size: RoundedSize | null): RoundedSize | null {
  return size !== null && size.bytes >= 2 ** 63 && Number.isFinite(size.bytes) ? null : size
}
