import type { RecordTable } from '../../../heap/records.js'
import { GroupMemory, type GroupSource } from './group-memory.js'

/**
 * Blocks that a block pool keeps for a graph group of another pool: those that a capture has freed serve the next one.
 * They go back when the group is closed.
 */
export class GuestMemory extends GroupMemory {
  constructor(
    /** the group's memory in its own pool */
    private readonly host: GroupMemory,
    records: RecordTable,
    source: GroupSource,
  ) {
    super(host.order, records, source, Infinity, false)
  }

  override begin(): number {
    super.begin()
    this.capturing = this.host.capturing
    return this.capturing
  }

  override get isEnding(): boolean {
    const { closed, lost } = this.host
    return closed || (lost && this.graphs === 0)
  }

  override giveBack(): number {
    this.closed = this.isEnding
    return super.giveBack()
  }

  /** Blocks of a closed group go back before its launches are complete: the pool waits for these. */
  protected override isUnused(): boolean {
    return this.closed || super.isUnused()
  }
}
