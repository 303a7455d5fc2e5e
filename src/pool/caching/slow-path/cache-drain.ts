// Gives cached blocks back to their heaps, where they merge with their neighbours.

import { slotOfKey } from '../../../heap/key.js'
import type { RecordTable } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { CLASSES, classOf } from '../../../heap/size-classes.js'
import { SMALL_CLASSES } from '../../backing/backing.js'
import type { BlockCache } from '../block-cache.js'
import type { FreeMemory } from '../free-memory.js'

export class CacheDrain {
  constructor(
    private readonly records: RecordTable,
    private readonly caches: BlockCache,
    private readonly memory: FreeMemory,
  ) {}

  /**
   * Gives back the smallest small block larger than `units` that the stream caches; false if it caches none that
   * large.
   */
  breakLarger(units: number, slot: number): boolean {
    const record = this.caches.takeLarger(slot, classOf(units), SMALL_CLASSES)
    if (record === 0) return false
    this.giveBack(record, slot)
    return true
  }

  /**
   * Gives back a few of the stream's many blocks, which make room for `units` in the heap; false if few are cached or
   * none help.
   */
  makeRoom(heap: SegregatedFit, units: number, slot: number): boolean {
    const { eviction } = this.caches
    if (eviction === undefined) return false
    const [first, end] = this.classesOf(heap)
    const records = eviction.takeRoom(slot, units, first, end)
    for (const record of records) this.giveBack(record, slot)
    return records.length > 0
  }

  /** Gives back every cached block of one heap, of at least about `leastUnits`; returns their number. */
  drain(heap: SegregatedFit, leastUnits = 1): number {
    const [first, end] = this.classesOf(heap)
    const drained = this.caches.drainAll(Math.max(first, classOf(leastUnits)), end)
    for (const record of drained) this.giveBack(record, slotOfKey(this.records.keyOf(record)))
    return drained.length
  }

  /** Gives back every large block that a stream caches. */
  drainLargeOf(slot: number): void {
    const records = this.caches.drain?.(slot, SMALL_CLASSES, CLASSES)
    if (records !== undefined) for (const record of records) this.giveBack(record, slot)
  }

  /** Whether some stream caches too many blocks of a heap to lose all of them to a single request. */
  cachesMany(heap: SegregatedFit): boolean {
    const { eviction, slotLimit } = this.caches
    if (eviction === undefined) return false
    const [first, end] = this.classesOf(heap)
    for (let slot = 0; slot < slotLimit; slot++) if (eviction.cachesMany(slot, first, end)) return true
    return false
  }

  private giveBack(record: number, slot: number): void {
    this.memory.giveToHeap(record, slot, this.records.stampOf(record))
  }

  /** The classes of a heap's blocks: the first class, and the end behind the last class. */
  private classesOf(heap: SegregatedFit): [first: number, end: number] {
    return heap === this.memory.small ? [0, SMALL_CLASSES] : [SMALL_CLASSES, CLASSES]
  }
}
