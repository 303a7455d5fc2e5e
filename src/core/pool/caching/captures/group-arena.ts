import type { Admission } from '../../../heap/free-run.js'
import type { RecordTable } from '../../../heap/records.js'
import type { Capture } from '../../../order/capture.js'
import type { Stream } from '../../../order/stream.js'
import type { BlockCache } from '../block-cache.js'
import type { Use } from '../central/deferred.js'
import { type ArenaSource, CaptureArena } from './capture-arena.js'
import type { GroupMemory } from './group-memory.js'

/** The arena of a capture whose blocks lie in the memory of a group. */
export class GroupArena extends CaptureArena {
  /** freed outputs, which the graph still writes */
  private readonly spent: number[] = []

  constructor(
    capture: Capture,
    records: RecordTable,
    caches: BlockCache,
    source: ArenaSource,
    private readonly group: GroupMemory,
  ) {
    super(capture, records, caches, source)
  }

  /** The live blocks. */
  held(): Iterable<number> {
    return this.owned
  }

  /**
   * Frees a block. Later captures may use scratch at once, and an output of its own once the graph that writes it is
   * closed.
   */
  override free(record: number, uses: readonly Use[]): void {
    const { group } = this
    this.owned.delete(record)
    this.noteUses(uses)
    if (!group.isOutput(record)) group.freeScratch(record, !this.capture.ended)
    else if (this.uses === null) group.setAside(record, this.spent)
    else group.freeOutput(record)
  }

  /** The next launch of the group waits for uses of its memory. */
  override noteUses(uses: readonly Use[]): void {
    for (const use of uses) this.group.order.add(use)
  }

  override release(streams: readonly Stream[]): void {
    super.release(streams)
    this.group.forget(this.capture)
    if (!this.lost) for (const record of this.spent.splice(0)) this.group.freeOutput(record)
  }

  override get empty(): boolean {
    return this.uses !== null && this.owned.size === 0
  }

  protected override take(units: number, alignUnits: number, slot: number, admission: Admission): number {
    return this.group.take(units, alignUnits, slot, this.capture.marked[slot] + 1, admission)
  }

  protected override freeAfter(record: number, key: number, stamp: number): void {
    if (this.group.isOutput(record)) this.free(record, [])
    else {
      this.owned.delete(record)
      this.group.freeAfter(record, key, stamp)
    }
  }
}
