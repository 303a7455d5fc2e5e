// The offsets of fields in the structures of cuda/cuda_mempool.cuh, in bytes. The host reads the counters of a
// running kernel by these. The header asserts the same numbers when it is compiled, and a test compares the two
// texts.

import { OutOfRangeError } from '../core/base/argument-errors.js'

/** offsets in DevicePool and DeviceArena; all fields have 64 bits */
export const DEVICE_POOL = {
  base: 0,
  limit: 8,
  reserved: 16,
  failures: 24,
  peak: 32,
  offset: 128,
  byteLength: 136,
} as const

/** offsets in DeviceHeap; stripes, counts and slots are arrays */
export const DEVICE_HEAP = {
  base: 0,
  reserved: 8,
  slotMask: 12,
  limit: 16,
  peak: 20,
  highest: 24,
  claimed: 28,
  doubleFrees: 32,
  invalidFrees: 40,
  slotted: 48,
  stripes: 128,
  idleCount: 2_176,
  counts: 2_208,
  slots: 3_264,
  byteLength: 19_712,
} as const

/** offsets in each element of the array `stripes` */
export const STRIPE = { allocations: 0, failures: 8, returned: 16, byteLength: 128 } as const

/** bytes from one element of the array `counts` to the next */
export const COUNT_BYTES = 32

export const SUPERBLOCK_BYTES = 65_536
/** of a superblock's bitmap; the bitmaps lie before superblock 0, in reverse order */
export const BITMAP_BYTES = 512
export const CLASSES = 32
export const LARGEST_BLOCK = 8_192
export const SLOTS = 128
export const STRIPES = 16
/** of a superblock's record: its word, and the first bits of its bitmap */
export const RECORD_BYTES = 16
/** records within which those of neighbours lie apart */
export const GROUP = 512
/** superblocks of a large heap: twice as many as slots can keep */
export const LARGE = 2 * CLASSES * SLOTS
/** superblocks that a large heap counts as idle together */
export const BATCH = 8

/** Records of a table for `superblocks`. */
export function recordsFor(superblocks: number): number {
  return Math.ceil(superblocks / GROUP) * GROUP
}

/** Bytes of a block of a class: steps of 16 up to 64, then four classes an octave. */
export function bytesOfClass(sizeClass: number): number {
  if (sizeClass < 4) return 16 * (sizeClass + 1)
  return 16 * (5 + (sizeClass % 4)) * 2 ** Math.floor(sizeClass / 4 - 1)
}

/** The places and sizes of a heap's parts, as the kernel heap_initialise takes them. */
export interface HeapGeometry {
  /** bytes from the heap's structure, at the region's start, to superblock 0 */
  readonly superblocksAt: number
  /** superblocks that the reserved bytes have room for */
  readonly reserved: number
  /** one less than the number of superblocks of a class that are allocated from at a time, which is a power of two */
  readonly slotMask: number
}

/**
 * The heap that fits into `reservedBytes` from an address that is a multiple of 64 KiB: its structure and tables
 * first, then as many superblocks as there is room for. `reserved` is 0 if there is no room.
 */
export function heapGeometry(reservedBytes: number): HeapGeometry {
  let reserved = Math.max(0, Math.floor(reservedBytes / SUPERBLOCK_BYTES) - 1)
  while (reserved > 0 && superblocksAt(reserved) + reserved * SUPERBLOCK_BYTES > reservedBytes) reserved--
  // In a small heap, superblocks of one class that are allocated from but not yet full take at most an eighth.
  let slots = 1
  while (slots < SLOTS && slots * 16 <= reserved) slots *= 2
  return { superblocksAt: superblocksAt(reserved), reserved, slotMask: slots - 1 }
}

/** Superblocks that fit into the first `bytes` of the region: the highest `limit` once those bytes are mapped. */
export function superblocksWithin(geometry: HeapGeometry, bytes: number): number {
  const room = Math.floor((bytes - geometry.superblocksAt) / SUPERBLOCK_BYTES)
  return Math.max(0, Math.min(room, geometry.reserved))
}

/**
 * The tables: a record for each superblock; then a set of bits with a summary for each class and for the idle
 * superblocks; then the bitmaps.
 */
function superblocksAt(reserved: number): number {
  const words = Math.ceil(reserved / 64)
  const sets = 8 * (CLASSES + 1) * (words + Math.ceil(words / 64))
  const tables = RECORD_BYTES * recordsFor(reserved) + sets + BITMAP_BYTES * reserved
  return Math.ceil((DEVICE_HEAP.byteLength + tables) / SUPERBLOCK_BYTES) * SUPERBLOCK_BYTES
}

/** Counters of a device arena. */
export interface BumpStats {
  /** bytes handed out */
  readonly takenBytes: number
  /** most bytes taken at a time, also before a reset */
  readonly peakBytes: number
  /** bytes that it may hand out */
  readonly maxPoolBytes: number
  /** calls of `allocate` that returned nullptr */
  readonly failures: number
}

/** Reads a copy of a DevicePool or DeviceArena. Throws RangeError for a copy that is too short. */
export function bumpStats(copy: Uint8Array): BumpStats {
  const field = fieldsOf(copy, DEVICE_POOL.byteLength)
  const maxPoolBytes = field(DEVICE_POOL.limit)
  const takenBytes = Math.min(field(DEVICE_POOL.offset), maxPoolBytes)
  const peakBytes = Math.max(takenBytes, field(DEVICE_POOL.peak))
  return { takenBytes, peakBytes, maxPoolBytes, failures: field(DEVICE_POOL.failures) }
}

/** Reads 64 bits as a number. A sum that was lowered before it was raised may be below zero. */
export function fieldsOf(copy: Uint8Array, byteLength: number): (at: number) => number {
  if (copy.byteLength < byteLength)
    throw new OutOfRangeError(`the copy must have ${byteLength} bytes, not ${copy.byteLength}`)
  const view = new DataView(copy.buffer, copy.byteOffset, copy.byteLength)
  return at => view.getUint32(at, true) + view.getInt32(at + 4, true) * 2 ** 32
}
