// The two heaps of a pool, and the stamps that their free blocks wait for. All of it is numbers, so that threads can
// share it.

import { keyOfSlot, slotOfKey } from '../../../heap/key.js'
import { freeParts, mendLent, partsOf, rehouseInView } from '../../../heap/lent-parts.js'
import { rebuild } from '../../../heap/rebuild.js'
import type { RecordTable } from '../../../heap/records.js'
import { SegregatedFit } from '../../../heap/segregated-fit.js'
import { CLASSES, classFloorUnits, classOf } from '../../../heap/size-classes.js'
import { MOST_STREAMS } from '../../../order/clocks.js'
import type { Region } from '../../../threads/region.js'
import {
  FIRST_VIEW_RANGE,
  type Heaps,
  HOME_RANGE,
  type MappedUses,
  SMALL_CLASSES,
  SMALL_UNITS,
} from '../../backing/backing.js'
import { GranuleLastUses, ViewUses } from '../../backing/pieces/last-uses.js'
import { policy } from '../../policy.js'
import type { BlockCache } from '../block-cache.js'
import type { PoolParts } from './parts.js'

/** Room of a fixed size, in memory that threads share. */
interface FixedRoom {
  readonly region: Region
  readonly ranges: number
  /** the granules of the home range, and their size; 0 for memory that is not mapped piece by piece */
  readonly granules: number
  readonly granuleUnits: number
}

/**
 * Marks tell the age of a last use, so that memory can go to other streams and back to the device, and so that the
 * host need not wait for younger work. As long as no request asks how far the streams have come, the number of large
 * blocks given back between two marks doubles with each mark, up to this multiple.
 */
const MOST_DOUBLED = 8

/** The most views that a pool may have. */
export const MOST_VIEWS = 4096

export class FreeMemory implements Heaps {
  readonly records: RecordTable
  readonly small: SegregatedFit
  readonly large: SegregatedFit
  readonly isShared: boolean
  /** by stream slot: the latest stamp that a block waits for */
  readonly awaited: Float64Array
  /** by stream slot: the stamp up to which its blocks were settled last; blocks in the heaps wait for later stamps */
  private readonly settled: Float64Array
  /** null for memory that is not mapped piece by piece */
  private uses: MappedUses | null = null
  /** how many large blocks were given back, how many before the last marks, and how many between those and the next */
  private readonly frees: Float64Array
  private readonly caches: BlockCache
  private readonly seen: Float64Array

  constructor(
    { records, caches, seen }: Pick<PoolParts, 'records' | 'caches' | 'seen'>,
    fixed: FixedRoom | null = null,
  ) {
    this.records = records
    this.caches = caches
    this.seen = seen
    this.isShared = fixed !== null
    const room = fixed === null ? null : { region: fixed.region, keys: MOST_STREAMS + 1, ranges: fixed.ranges }
    this.small = new SegregatedFit(records, room)
    this.large = new SegregatedFit(records, room)
    this.awaited = fixed?.region.float64(MOST_STREAMS) ?? new Float64Array(MOST_STREAMS)
    this.settled = fixed?.region.float64(MOST_STREAMS) ?? new Float64Array(MOST_STREAMS)
    this.frees = fixed?.region.float64(3) ?? new Float64Array(3)
    if (this.frees[2] === 0) this.frees[2] = policy.freesPerMark
    if (fixed !== null && fixed.granules > 0) {
      this.uses = this.makeUses(fixed.granules, fixed.granuleUnits, fixed.region)
    }
  }

  mappedUses(granules: number, granuleUnits: number): MappedUses {
    this.uses ??= this.makeUses(granules, granuleUnits, null)
    return this.uses
  }

  /** Whether the heap for small blocks has its memory from the heap for large ones; see slabs.ts. */
  get hasSlabs(): boolean {
    return this.uses !== null
  }

  /** The heap that blocks of a size come from, while there is room in it. */
  heapFor(units: number): SegregatedFit {
    return units < SMALL_UNITS ? this.small : this.large
  }

  /** The heap that a block lies in. When room was short, it is not the heap for the block's size. */
  heapOf(record: number): SegregatedFit {
    return this.small.firstRecords.has(this.records.rangeOf(record)) ? this.small : this.large
  }

  /**
   * Gives a block back to its heap, to be used again after `stamp` of the stream slot, without the driver; returns
   * the heap.
   */
  giveToHeap(record: number, slot: number, stamp: number): SegregatedFit {
    // `seen` may go back: when two threads learn of a stream, the thread that knows less may write last.
    const settled = stamp <= this.seen[slot] || stamp <= this.settled[slot]
    if (!settled) this.await(slot, stamp)
    const heap = this.giveBack(record, settled ? 0 : keyOfSlot(slot), settled ? 0 : stamp)
    if (heap === this.large) this.frees[0]++
    return heap
  }

  /**
   * Frees a block, or its parts, after `stamp` of `key`, and notes the last use of the memory under it; returns the
   * heap.
   */
  giveBack(record: number, key: number, stamp: number): SegregatedFit {
    const { records, uses } = this
    const range = records.rangeOf(record)
    if (uses === null || range < HOME_RANGE) {
      const heap = uses === null ? this.heapOf(record) : this.small
      heap.free(record, key, stamp)
      return heap
    }
    if (range === HOME_RANGE) {
      uses.granules.noteFree(records, record, key, stamp)
      this.large.free(record, key, stamp)
    } else {
      uses.views.noteFree(range - FIRST_VIEW_RANGE, key, stamp)
      for (const part of partsOf(records, record)) uses.granules.noteFree(records, part, key, stamp)
      freeParts(this.large, record, key, stamp)
    }
    return this.large
  }

  /** Gives every cached block of one heap back to it, of at least about `leastUnits`; returns their number. */
  drain(heap: SegregatedFit, leastUnits = 1): number {
    const [first, end] = heap === this.small ? [0, SMALL_CLASSES] : [SMALL_CLASSES, CLASSES]
    const drained = this.caches.drainAll(Math.max(first, classOf(leastUnits)), end)
    for (const record of drained) {
      this.giveToHeap(record, slotOfKey(this.records.keyOf(record)), this.records.stampOf(record))
    }
    return drained.length
  }

  /** Moves a taken block to a fresh record, because its own has no generation left. */
  rehouse(record: number): number {
    const { records } = this
    if (records.rangeOf(record) >= FIRST_VIEW_RANGE && this.hasSlabs) return rehouseInView(records, record)
    return this.heapOf(record).rehouse(record)
  }

  /** Repairs everything after a thread died while it changed the heaps; see core/heap/rebuild.ts. */
  rebuild(): void {
    const { small, large, uses, records } = this
    if (uses === null) {
      rebuild([small, large])
      return
    }
    const blocks = mendLent(small, large)
    rebuild([small, large], blocks)
    uses.views.blocks.fill(0)
    for (const block of blocks) uses.views.blocks[records.rangeOf(block) - FIRST_VIEW_RANGE]++
  }

  /** A block waits for `stamp` of a stream slot. */
  await(slot: number, stamp: number): void {
    this.caches.includeSlot(slot)
    if (stamp > this.awaited[slot]) this.awaited[slot] = stamp
  }

  /** Frees a slot's blocks from stamps that the host has seen complete; returns the number of blocks. */
  settle(slot: number): number {
    const stamp = this.seen[slot]
    if (this.awaited[slot] === 0 || stamp === this.settled[slot]) return 0
    const key = keyOfSlot(slot)
    const settled = this.small.settle(key, stamp) + this.large.settle(key, stamp)
    this.settled[slot] = stamp
    return settled
  }

  /** Free units that may still depend on work. */
  get pendingUnits(): number {
    return [this.small, this.large].reduce((sum, heap) => sum + heap.freeUnits - heap.unitsByKey[0], 0)
  }

  /** The floor of the largest free block's class. */
  get largestFreeUnits(): number {
    let largest = 0
    for (const heap of [this.small, this.large]) {
      for (let key = 0; key < heap.keyLimit; key++) largest = Math.max(largest, heap.largestClass(key))
    }
    return classFloorUnits(largest)
  }

  /** Whether enough large blocks were given back since the last marks to place new ones. */
  get wantsMarks(): boolean {
    return this.frees[0] - this.frees[1] >= this.frees[2]
  }

  /** Notes that marks are placed now, because a request asked for completed work or because `wantsMarks`. */
  noteMarks(isAsked: boolean): void {
    this.frees[1] = this.frees[0]
    const { freesPerMark } = policy
    this.frees[2] = isAsked ? freesPerMark : Math.min(this.frees[2] * 2, freesPerMark * MOST_DOUBLED)
  }

  private makeUses(granules: number, granuleUnits: number, region: Region | null): MappedUses {
    return {
      granules: new GranuleLastUses(granules, granuleUnits, this.seen, region),
      views: new ViewUses(MOST_VIEWS, this.seen, region),
    }
  }
}
