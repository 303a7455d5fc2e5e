import type { Stream } from '../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from './allocation.js'
import type { DeviceBuffer } from './buffer.js'
import { freeSlowly } from './slow-calls.js'

/** A pool that finds a buffer by record and tag. The methods are those of Allocation. */
export interface RecordPool extends BufferSource {
  addressOf(record: number, tag: number, call: string): number
  requestedBytesOf(record: number, tag: number, call: string): number
  isLive(record: number, tag: number): boolean
  recordUse(record: number, tag: number, stream: Stream): void
}

/** The allocation of a buffer whose pool keeps all other state in tables. */
export class RecordAllocation implements Allocation {
  owner: BufferOwner

  constructor(
    readonly pool: RecordPool,
    readonly record: number,
    public stream: Stream,
  ) {
    this.owner = pool
  }

  addressOf(record: number, tag: number, call: string): number {
    return this.pool.addressOf(record, tag, call)
  }

  requestedBytesOf(record: number, tag: number, call: string): number {
    return this.pool.requestedBytesOf(record, tag, call)
  }

  isLive(record: number, tag: number): boolean {
    return this.pool.isLive(record, tag)
  }

  recordUse(record: number, tag: number, stream: Stream): void {
    this.pool.recordUse(record, tag, stream)
  }

  free(buffer: DeviceBuffer, stream?: Stream): void {
    freeSlowly(this.owner, buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.owner = owner
    return this
  }
}
