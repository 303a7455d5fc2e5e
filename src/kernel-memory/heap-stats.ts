// The counters of a DeviceHeap, read from a copy of its structure and its records. Kernels count what they allocate.
// What is live follows from the words of the superblocks, so that a free counts nothing.

import {
  bytesOfClass,
  DEVICE_HEAP,
  fieldsOf,
  RECORD_BYTES,
  recordsFor,
  STRIPE,
  STRIPES,
  SUPERBLOCK_BYTES,
} from './device-layout.js'
import { capacityOfClass, HeapTables, State, superblockWord } from './heap-tables.js'

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
  /** most bytes of superblocks in use at once, with those that were kept for the next blocks */
  readonly peakUsedBytes: number
  /** bytes of all superblocks */
  readonly maxPoolBytes: number
}

/** Bytes of the structure and the records of a heap with room for `reserved` superblocks. */
export function statsBytes(reserved: number): number {
  return DEVICE_HEAP.byteLength + RECORD_BYTES * recordsFor(reserved)
}

/**
 * Reads a copy of a DeviceHeap with its records. While kernels run, the parts of a copy are of slightly different
 * moments; the counts are exact when no kernel runs. Throws RangeError for a copy that is too short.
 */
export function heapStats(copy: Uint8Array): HeapStats {
  const field = fieldsOf(copy, DEVICE_HEAP.byteLength)
  const u32 = (at: number) => new DataView(copy.buffer, copy.byteOffset + at, 4).getUint32(0, true)
  fieldsOf(copy, statsBytes(u32(DEVICE_HEAP.reserved)))
  let [allocations, failures] = [0, 0]
  for (let stripe = 0; stripe < STRIPES; stripe++) {
    const at = DEVICE_HEAP.stripes + stripe * STRIPE.byteLength
    allocations += field(at + STRIPE.allocations)
    failures += field(at + STRIPE.failures)
  }
  const { blocks, bytes, superblocks } = liveIn(copy)
  return {
    allocations,
    frees: Math.max(0, allocations - blocks),
    failures,
    doubleFrees: field(DEVICE_HEAP.doubleFrees),
    invalidFrees: field(DEVICE_HEAP.invalidFrees),
    liveBlocks: blocks,
    liveBytes: bytes,
    usedBytes: superblocks * SUPERBLOCK_BYTES,
    peakUsedBytes: u32(DEVICE_HEAP.peak) * SUPERBLOCK_BYTES,
    maxPoolBytes: u32(DEVICE_HEAP.limit) * SUPERBLOCK_BYTES,
  }
}

/** The blocks that the words of all superblocks tell of, and the superblocks that have any. */
function liveIn(copy: Uint8Array): { blocks: number; bytes: number; superblocks: number } {
  const view = new DataView(copy.buffer, copy.byteOffset, copy.byteLength)
  const highest = view.getUint32(DEVICE_HEAP.highest, true)
  let [blocks, bytes, superblocks] = [0, 0, 0]
  for (let superblock = 0; superblock < highest; superblock++) {
    const at = HeapTables.wordAt(superblock)
    const { state, sizeClass, freeBlocks, length } = superblockWord(
      view.getUint32(at, true),
      view.getUint32(at + 4, true),
    )
    if (state === State.Run) {
      blocks++
      bytes += length * SUPERBLOCK_BYTES
      superblocks += length
    } else if (state === State.Small) {
      // A thread that takes blocks may lower the number below 0 for a moment.
      const taken = Math.min(capacityOfClass(sizeClass), capacityOfClass(sizeClass) - freeBlocks)
      blocks += taken
      bytes += taken * bytesOfClass(sizeClass)
      if (taken > 0) superblocks++
    }
  }
  return { blocks, bytes, superblocks }
}
