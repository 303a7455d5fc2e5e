// The tables of a DeviceHeap in device memory, for the host. Each superblock has a record: a word with its state and
// its number of free blocks, and the first bits of its bitmap. Each class has a set of its superblocks with room, and
// there is a set of the idle superblocks.

import {
  BITMAP_BYTES,
  bytesOfClass,
  CLASSES,
  COUNT_BYTES,
  DEVICE_HEAP,
  GROUP,
  RECORD_BYTES,
  recordsFor,
  SUPERBLOCK_BYTES,
} from './device-layout.js'

/** The state of a superblock: the upper bits of its word. */
export const enum State {
  Idle = 0,
  Small = 1,
  Run = 2,
}

/**
 * The place of a superblock of small blocks: in no set, in the set of those with room, or in a slot that blocks are
 * allocated from.
 */
export const enum Place {
  Loose = 0,
  Listed = 1,
  Attached = 2,
}

/** Lower half of the word of an idle superblock: no tag, and no free blocks. */
const BIAS = 2 ** 31

/** The fields of a superblock's word. */
interface SuperblockWord {
  readonly state: State
  /** of a superblock of small blocks */
  readonly sizeClass: number
  readonly place: Place
  readonly freeBlocks: number
  /** superblocks of a run */
  readonly length: number
}

export function superblockWord(low: number, high: number): SuperblockWord {
  return {
    state: high >>> 30,
    sizeClass: high & 31,
    place: (high >>> 5) & 3,
    freeBlocks: low - BIAS,
    length: high & 0x3fffffff,
  }
}

/** Lower and upper half of the word of an idle superblock. */
export function idleWord(): [low: number, high: number] {
  return [BIAS, 0]
}

export function smallWord(sizeClass: number, place: Place.Loose | Place.Listed, free: number): [number, number] {
  return [BIAS + free, ((State.Small << 30) | (place << 5) | sizeClass) >>> 0]
}

export function runWord(length: number): [number, number] {
  return [BIAS, ((State.Run << 30) | length) >>> 0]
}

export function capacityOfClass(sizeClass: number): number {
  return Math.floor(SUPERBLOCK_BYTES / bytesOfClass(sizeClass))
}

/** The offsets of the tables of a heap with room for `reserved` superblocks, in bytes from its structure. */
export class HeapTables {
  private readonly setWords: number
  private readonly setBytes: number
  private readonly setsAt: number

  constructor(reserved: number) {
    this.setsAt = DEVICE_HEAP.byteLength + RECORD_BYTES * recordsFor(reserved)
    this.setWords = Math.ceil(reserved / 64)
    this.setBytes = 8 * (this.setWords + Math.ceil(this.setWords / 64))
  }

  /** Within a group, records of neighbours lie four records apart. */
  static wordAt(superblock: number): number {
    const within = superblock % GROUP
    const place = 4 * (within % (GROUP / 4)) + Math.floor(within / (GROUP / 4))
    return DEVICE_HEAP.byteLength + RECORD_BYTES * (superblock - within + place)
  }

  /**
   * A byte of a superblock's bitmap, if superblock 0 lies at `superblocksAt`. The first 8 bytes are in its record, and
   * the others before superblock 0.
   */
  static mapByteAt(superblock: number, index: number, superblocksAt: number): number {
    if (index < 8) return HeapTables.wordAt(superblock) + 8 + index
    return superblocksAt - (superblock + 1) * BITMAP_BYTES + index
  }

  /**
   * The 32 bits of a set that include the bit of a superblock, at `superblock % 32`. Set CLASSES is the idle
   * superblocks.
   */
  bitsAt(set: number, superblock: number): number {
    return this.setsAt + set * this.setBytes + 4 * Math.floor(superblock / 32)
  }

  /** The same in the set's summary, with a bit for each 64 superblocks, at `superblock / 64 % 32`. */
  summaryAt(set: number, superblock: number): number {
    return this.bitsAt(set, 0) + 8 * this.setWords + 4 * Math.floor(superblock / 64 / 32)
  }

  /** The number of words with members. */
  countAt(set: number): number {
    return DEVICE_HEAP.counts + COUNT_BYTES * set
  }
}

export const IDLE_SET = CLASSES
