// The tables of a DeviceHeap in device memory, read as the host sees them: a word for each superblock, which says what it
// is and how many of its blocks are free, and sets of superblocks, one for each class with room and one for the idle ones.

import { bytesOfClass, CLASSES, COUNT_BYTES, DEVICE_HEAP, SUPERBLOCK_BYTES } from './device-layout.js'

/** What a superblock is: the upper bits of its word. */
export const enum State {
  Idle = 0,
  Small = 1,
  Run = 2,
}

/** Where a small one is listed: nowhere, among those with room, or in a slot that blocks are taken from. */
export const enum Place {
  Loose = 0,
  Listed = 1,
  Attached = 2,
}

/** The word of an idle superblock: no tag, and no free blocks. */
const BIAS = 2 ** 31

export interface SuperblockWord {
  readonly state: State
  /** of a small one */
  readonly sizeClass: number
  readonly place: Place
  readonly freeBlocks: number
  /** of a run, its superblocks */
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

/** Lower and upper half of the word of an idle superblock, of a small one that is loose or listed, of a run. */
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

/** Where the tables of a heap with room for `reserved` superblocks lie, in bytes from its structure. */
export class HeapTables {
  private readonly setWords: number
  private readonly setBytes: number

  constructor(private readonly reserved: number) {
    this.setWords = Math.ceil(reserved / 64)
    this.setBytes = 8 * (this.setWords + Math.ceil(this.setWords / 64))
  }

  wordAt(superblock: number): number {
    return DEVICE_HEAP.byteLength + 8 * superblock
  }

  /** The 32 bits of a set (CLASSES is the idle ones) that have the one of a superblock, at `superblock % 32`. */
  bitsAt(set: number, superblock: number): number {
    return DEVICE_HEAP.byteLength + 8 * this.reserved + set * this.setBytes + 4 * Math.floor(superblock / 32)
  }

  /** The same of a set's summary, with a bit for each 64 superblocks, at `superblock / 64 % 32`. */
  summaryAt(set: number, superblock: number): number {
    return this.bitsAt(set, 0) + 8 * this.setWords + 4 * Math.floor(superblock / 64 / 32)
  }

  countAt(set: number): number {
    return DEVICE_HEAP.counts + COUNT_BYTES * set
  }
}

export const IDLE_SET = CLASSES
