import type { Admission } from '../../../heap/free-run.js'
import type { RecordTable } from '../../../heap/records.js'
import type { Capture } from '../../../order/capture.js'
import type { Stream } from '../../../order/stream.js'
import type { BlockCache } from '../block-cache.js'
import type { Use } from '../central/deferred.js'
import { type ArenaSource, CaptureArena } from './capture-arena.js'
import type { GroupMemory, PinningArena } from './group-memory.js'

/** The arena of a capture whose blocks lie in the memory of a group. */
export class GroupArena extends CaptureArena implements PinningArena {
  /** whether its graph counts among those of the group */
  private hasGraph = false

  constructor(
    capture: Capture,
    records: RecordTable,
    caches: BlockCache,
    source: ArenaSource,
    private readonly group: GroupMemory,
  ) {
    super(capture, records, caches, source)
  }

  end(hasGraph: boolean): void {
    this.hasGraph = hasGraph
    for (const record of this.owned) this.group.pin(record)
  }

  /** Frees a block. Later captures may use it at once. */
  override free(record: number, uses: readonly Use[]): void {
    this.owned.delete(record)
    this.group.free(record, uses, !this.capture.ended)
  }

  override release(streams: readonly Stream[]): void {
    if (this.uses === null && this.hasGraph) this.group.graphs--
    super.release(streams)
  }

  override get empty(): boolean {
    return this.uses !== null && this.owned.size === 0
  }

  protected override take(units: number, alignUnits: number, slot: number, admission: Admission): number {
    return this.group.take(units, alignUnits, slot, this.capture.marked[slot] + 1, admission)
  }

  protected override freeAfter(record: number, key: number, stamp: number): void {
    this.owned.delete(record)
    this.group.freeAfter(record, key, stamp)
  }
}
