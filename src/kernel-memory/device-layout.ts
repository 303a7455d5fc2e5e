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

/** offsets in DeviceHeap; tallies, counts and slots are arrays */
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
  runTaken: 48,
  runReturned: 56,
  tallies: 128,
  counts: 10_368,
  slots: 11_424,
  byteLength: 27_904,
} as const

/**
 * offsets in each element of the array `tallies`; `allocations` and `frees` have an element for each class, and one
 * for runs
 */
export const TALLIES = { allocations: 0, frees: 264, failures: 528, byteLength: 640 } as const

/** bytes from one element of the array `counts` to the next */
export const COUNT_BYTES = 32

export const SUPERBLOCK_BYTES = 65_536
/** of a superblock's bitmap; the bitmaps lie before superblock 0, in reverse order */
export const BITMAP_BYTES = 512
export const CLASSES = 32
export const LARGEST_BLOCK = 8_192
export const SLOTS = 128
export const STRIPES = 16

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
 * The tables: a word for each superblock; then a set of bits with a summary for each class and for the idle
 * superblocks; then the bitmaps.
 */
function superblocksAt(reserved: number): number {
  const words = Math.ceil(reserved / 64)
  const tables = 8 * (reserved + (CLASSES + 1) * (words + Math.ceil(words / 64))) + BITMAP_BYTES * reserved
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

/** Counters of a device heap, since it was made or reset. */
export interface HeapStats {
  /** blocks handed out so far */
  readonly allocations: number
  /** blocks freed so far */
  readonly frees: number
  /** calls of `allocate` that returned nullptr */
  readonly failures: number
  /** ignored frees of blocks that were free already */
  readonly doubleFrees: number
  /** ignored frees of other addresses */
  readonly invalidFrees: number
  /** blocks handed out and not freed */
  readonly liveBlocks: number
  /** sizes are rounded up to their class, or to whole superblocks */
  readonly liveBytes: number
  /** bytes of the superblocks that hold live blocks */
  readonly usedBytes: number
  /** most bytes of superblocks in use at once */
  readonly peakUsedBytes: number
  /** bytes of all superblocks */
  readonly maxPoolBytes: number
}

/**
 * Reads a copy of a DeviceHeap. While kernels run, the parts of a copy are of slightly different moments; the sums
 * are exact when no kernel runs. Throws RangeError for a copy that is too short.
 */
export function heapStats(copy: Uint8Array): HeapStats {
  const field = fieldsOf(copy, DEVICE_HEAP.byteLength)
  const view = new DataView(copy.buffer, copy.byteOffset, copy.byteLength)
  let [allocations, frees, failures, liveBytes] = [0, 0, 0, 0]
  for (let stripe = 0; stripe < STRIPES; stripe++) {
    const at = DEVICE_HEAP.tallies + stripe * TALLIES.byteLength
    failures += field(at + TALLIES.failures)
    for (let sizeClass = 0; sizeClass <= CLASSES; sizeClass++) {
      const taken = field(at + TALLIES.allocations + 8 * sizeClass)
      const returned = field(at + TALLIES.frees + 8 * sizeClass)
      allocations += taken
      frees += returned
      if (sizeClass < CLASSES) liveBytes += (taken - returned) * bytesOfClass(sizeClass)
    }
  }
  const runs = field(DEVICE_HEAP.runTaken) - field(DEVICE_HEAP.runReturned)
  const limit = view.getUint32(DEVICE_HEAP.limit, true)
  const idle = view.getInt32(DEVICE_HEAP.counts + CLASSES * COUNT_BYTES, true)
  return {
    allocations,
    frees,
    failures,
    doubleFrees: field(DEVICE_HEAP.doubleFrees),
    invalidFrees: field(DEVICE_HEAP.invalidFrees),
    liveBlocks: allocations - frees,
    liveBytes: liveBytes + runs * SUPERBLOCK_BYTES,
    usedBytes: Math.max(0, Math.min(limit, limit - idle)) * SUPERBLOCK_BYTES,
    peakUsedBytes: view.getUint32(DEVICE_HEAP.peak, true) * SUPERBLOCK_BYTES,
    maxPoolBytes: limit * SUPERBLOCK_BYTES,
  }
}

/** Reads 64 bits as a number. A sum that was lowered before it was raised may be below zero. */
function fieldsOf(copy: Uint8Array, byteLength: number): (at: number) => number {
  if (copy.byteLength < byteLength)
    throw new OutOfRangeError(`the copy must have ${byteLength} bytes, not ${copy.byteLength}`)
  const view = new DataView(copy.buffer, copy.byteOffset, copy.byteLength)
  return at => view.getUint32(at, true) + view.getInt32(at + 4, true) * 2 ** 32
}
