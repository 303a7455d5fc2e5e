import type { Admission } from '../../../heap/free-run.js'
import type { RecordTable } from '../../../heap/records.js'
import type { Capture } from '../../../order/capture.js'
import type { Stream } from '../../../order/stream.js'
import type { BlockCache } from '../block-cache.js'
import type { Use } from '../central/deferred.js'
import { finish } from '../central/parts.js'
import { type ArenaSource, CaptureArena } from './capture-arena.js'
import type { GroupCaptures } from './group-captures.js'
import type { GroupMemory } from './group-memory.js'

/** The arena of a capture whose blocks lie in the memory of a group. */
export class GroupArena extends CaptureArena {
  constructor(
    capture: Capture,
    records: RecordTable,
    caches: BlockCache,
    source: ArenaSource,
    private readonly captures: GroupCaptures,
    private readonly memory: GroupMemory,
  ) {
    super(capture, records, caches, source)
  }

  /** Frees a block, which the capture does not get again. */
  override free(record: number, uses: readonly Use[]): void {
    this.owned.delete(record)
    this.noteUses(uses)
    this.memory.free(record)
  }

  /** The next launch of the group waits for uses of its memory. */
  override noteUses(uses: readonly Use[]): void {
    for (const use of uses) this.memory.order.add(use)
  }

  override release(streams: readonly Stream[]): void {
    super.release(streams)
    this.memory.forget(this.capture.number)
  }

  override get empty(): boolean {
    return this.uses !== null && this.owned.size === 0
  }

  protected override take(units: number, alignUnits: number, slot: number, admission: Admission): number {
    const stamp = this.capture.marked[slot] + 1
    return finish(this.memory.take({ units, alignUnits, slot, stamp, admission, use: this.captures.nextUse }))
  }

  protected override freeAfter(record: number, key: number, stamp: number): void {
    this.owned.delete(record)
    this.memory.freeAfter(record, key, stamp)
  }
}
