// The last events of a recording that does not end, in memory of a fixed size: a new event takes the place of the
// oldest one. The blocks that were live before the oldest event are kept beside them, so that the trace is whole.

import { DEFAULT_POOL, NameTable } from '../columns/event-columns.js'
import { StackTable } from '../stack-table.js'
import { Action, type Trace } from '../trace.js'
import { type FinalBlock, TraceBuilder, type TraceOrigin } from '../trace-builder.js'

/** Has the methods of TraceBuilder that a recorder calls. */
export class EventRing {
  readonly stacks = new StackTable()
  readonly pools = new NameTable(DEFAULT_POOL)
  /** how many events were added, also those that are gone */
  events = 0
  private readonly action: Uint8Array
  private readonly address: Float64Array
  private readonly bytes: Float64Array
  private readonly stream: Float64Array
  private readonly timeUs: Float64Array
  private readonly stack: Int32Array
  /** numbers of `pools`; few recordings have private pools */
  private pool: Uint32Array | null = null
  /** NaN if unknown */
  private readonly granted: Float64Array
  /** texts and no numbers, since a server may have a tag for each request */
  private readonly tags: string[] = []
  /** the blocks that were live before the oldest event, by address */
  private readonly before = new Map<number, FinalBlock>()

  /** Keeps the last `size` events. */
  constructor(private readonly size: number) {
    this.action = new Uint8Array(size)
    this.address = new Float64Array(size)
    this.bytes = new Float64Array(size)
    this.stream = new Float64Array(size)
    this.timeUs = new Float64Array(size)
    this.stack = new Int32Array(size)
    this.granted = new Float64Array(size)
  }

  /** As of TraceBuilder. */
  add(action: number, address: number, bytes: number, stream: number, timeUs: number, stack = 0): number {
    const at = this.events % this.size
    if (this.events >= this.size) this.forget(at)
    this.action[at] = action
    this.address[at] = address
    this.bytes[at] = bytes
    this.stream[at] = stream
    this.timeUs[at] = timeUs
    this.stack[at] = stack
    this.granted[at] = Number.NaN
    this.tags[at] = ''
    if (this.pool !== null) this.pool[at] = 0
    return this.events++
  }

  /** As of TraceBuilder, for the event added last. */
  noteGranted(event: number, bytes: number): void {
    this.granted[event % this.size] = bytes
  }

  /** As of TraceBuilder, for the event added last. */
  notePool(event: number, pool: number): void {
    this.pool ??= new Uint32Array(this.size)
    this.pool[event % this.size] = pool
  }

  /** As of TraceBuilder, for the event added last. */
  noteTag(event: number, tag: string): void {
    this.tags[event % this.size] = tag
  }

  /** The trace of the events that are left. Those that are gone count as dropped. */
  build(origin: TraceOrigin): Trace {
    const builder = new TraceBuilder(this.stacks, this.pools)
    const dropped = Math.max(0, this.events - this.size)
    for (let event = dropped; event < this.events; event++) {
      const at = event % this.size
      const [address, bytes, stream] = [this.address[at], this.bytes[at], this.stream[at]]
      const added = builder.add(this.action[at], address, bytes, stream, this.timeUs[at], this.stack[at])
      if (!Number.isNaN(this.granted[at])) builder.noteGranted(added, this.granted[at])
      builder.noteTag(added, this.tags[at])
      builder.notePool(added, this.poolAt(at))
    }
    return builder.build({ ...origin, dropped, before: [...this.before.values()] })
  }

  /** Lets the oldest event go. A free is complete at once, so a block that is being freed may count as live. */
  private forget(at: number): void {
    const address = this.address[at]
    if (this.action[at] === Action.freeCompleted) this.before.delete(address)
    if (this.action[at] !== Action.alloc) return
    const [bytes, stream, stack, grantedBytes] = [this.bytes[at], this.stream[at], this.stack[at], this.granted[at]]
    const [tag, pool] = [this.tags[at], this.poolAt(at)]
    this.before.set(address, { address, bytes, grantedBytes, stream, stack, tag, pool, pending: false })
  }

  private poolAt(at: number): number {
    return this.pool === null ? 0 : this.pool[at]
  }
}
