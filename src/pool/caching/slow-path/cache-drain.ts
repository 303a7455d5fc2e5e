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

  /** Gives back every cached block of one heap, of at least about `leastUnits`; returns their number. */
  drain(heap: SegregatedFit, leastUnits = 1): number {
    const [first, end] = this.classesOf(heap)
    const drained = this.caches.drainAll(Math.max(first, classOf(leastUnits)), end)
    for (const record of drained) this.giveBack(record, slotOfKey(this.records.keyOf(record)))
    return drained.length
  }

  private giveBack(record: number, slot: number): void {
    this.memory.giveToHeap(record, slot, this.records.stampOf(record))
  }

  /** The classes of a heap's blocks: the first class, and the end behind the last class. */
  private classesOf(heap: SegregatedFit): [first: number, end: number] {
    return heap === this.memory.small ? [0, SMALL_CLASSES] : [SMALL_CLASSES, CLASSES]
  }
}
