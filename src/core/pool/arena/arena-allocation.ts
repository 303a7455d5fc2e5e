import { PoolError } from '../../base/errors.js'
import type { Span } from '../../heap/bump.js'
import type { Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'
import { freeSlowly } from '../slow-calls.js'
import type { RegionMemory } from './arena-memory.js'

/** The part of an arena that its buffers call. */
export interface ArenaOwner extends BufferSource {
  /** the device address of a live entry */
  addressOfEntry(entry: number): number
  requestedBytesOfEntry(entry: number): number
  isFreed(entry: number): boolean
  /** `stream` uses memory of the arena until the memory is given back */
  announceUse(stream: Stream): void
  refuseStale(call: string): never
}

/**
 * The allocation of all buffers of one stream between two rewinds or resets. A buffer's tag is its entry in the
 * stack.
 */
export class ArenaAllocation implements Allocation {
  readonly record = -1
  /** the same allocation for another owner */
  private sibling: ArenaAllocation | null = null

  constructor(
    readonly pool: ArenaOwner,
    readonly owner: BufferOwner,
    readonly stream: Stream,
    readonly span: Span,
    /** the memory, if it is of another pool */
    protected readonly region: RegionMemory | null,
  ) {}

  isLive(_record: number, entry: number): boolean {
    return entry <= this.span.last && !this.pool.isFreed(entry)
  }

  addressOf(_record: number, entry: number, call: string): number {
    if (!this.isLive(0, entry)) this.pool.refuseStale(call)
    return this.pool.addressOfEntry(entry)
  }

  requestedBytesOf(_record: number, entry: number, call: string): number {
    if (!this.isLive(0, entry)) this.pool.refuseStale(call)
    return this.pool.requestedBytesOfEntry(entry)
  }

  recordUse(_record: number, entry: number, stream: Stream): void {
    if (!this.isLive(0, entry)) this.pool.refuseStale('recordUse')
    this.pool.announceUse(stream)
  }

  free(buffer: DeviceBuffer, stream?: Stream): void {
    freeSlowly(this.owner, buffer, stream)
  }

  ownedBy(owner: BufferOwner): ArenaAllocation {
    if (this.sibling?.owner !== owner) {
      this.sibling = allocationOf(this.pool, owner, this.stream, this.span, this.region)
    }
    return this.sibling
  }
}

/** The same in memory of another pool, or for captured work, where uses are checked. */
class CheckedAllocation extends ArenaAllocation {
  /** null for memory that is no scratch of captured work */
  private readonly capture = this.stream.capture

  override addressOf(record: number, entry: number, call: string): number {
    const address = super.addressOf(record, entry, call)
    this.region?.checkUsable(call)
    return address
  }

  override recordUse(record: number, entry: number, stream: Stream): void {
    if (this.isLive(record, entry)) this.checkCaptured(stream, 'recordUse')
    super.recordUse(record, entry, stream)
  }

  noteUse(stream: Stream, call: string): void {
    this.region?.buffer.noteUse(stream, call)
    this.checkCaptured(stream, call)
  }

  private checkCaptured(stream: Stream, call: string): void {
    if (this.capture === null || this.capture === stream.capture) return
    throw new PoolError(
      `${call}: the buffer is scratch of a graph that is being captured, and this stream is not part of that capture; ` +
        'copy results to an output of the group (group.allocateOutput), and use that after a launch',
      'ERR_STREAM_CAPTURED',
    )
  }
}

export function allocationOf(...of: ConstructorParameters<typeof ArenaAllocation>): ArenaAllocation {
  const [, , stream, , region] = of
  return region === null && stream.capture === null ? new ArenaAllocation(...of) : new CheckedAllocation(...of)
}
