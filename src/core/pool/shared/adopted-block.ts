// A live block of a shared pool that this thread adopted, and whose record is on another thread's page. Its free
// sends it back to that thread. The object is smaller than a cached block's, since a program may have millions of
// them.

import { State } from '../../heap/records.js'
import type { Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'

/** The part of the pool that an adopted block calls. */
export interface AdoptedOwner extends BufferSource {
  /** the device address of a block */
  addressOfRecord(record: number): number
  /** bytes requested */
  requestedBytesOfRecord(record: number): number
  /** another stream uses a live block until it is freed */
  announceUse(block: AdoptedBlock, stream: Stream): void
  /** takes back the block of a buffer with this tag; of a wrapped pool's buffer the wrapper calls `release` */
  releaseAdopted(block: AdoptedBlock, tag: number, stream?: Stream): void
  refuseStale(call: string): never
}

export class AdoptedBlock implements Allocation {
  /** the outermost wrapper that handed it out */
  wrapper: BufferOwner | null = null
  /** the buffer's tag with the lowest bit set, so that `release` of an own block never accepts it; 0 when stale */
  tag = 0
  /** `live`, or `shared` once other streams use it */
  state = State.live

  constructor(
    readonly pool: AdoptedOwner,
    readonly record: number,
    public stream: Stream,
  ) {}

  get owner(): BufferOwner {
    return this.wrapper ?? this.pool
  }

  addressOf(_record: number, tag: number, call: string): number {
    if (!this.isLive(this.record, tag)) this.pool.refuseStale(call)
    return this.pool.addressOfRecord(this.record)
  }

  requestedBytesOf(_record: number, tag: number, call: string): number {
    if (!this.isLive(this.record, tag)) this.pool.refuseStale(call)
    return this.pool.requestedBytesOfRecord(this.record)
  }

  isLive(_record: number, tag: number): boolean {
    return (tag | 1) === this.tag
  }

  recordUse(_record: number, tag: number, stream: Stream): void {
    if (!this.isLive(this.record, tag)) this.pool.refuseStale('recordUse')
    this.pool.announceUse(this, stream)
  }

  free(buffer: DeviceBuffer, stream?: Stream): void {
    if (this.wrapper === null) this.pool.releaseAdopted(this, buffer.tag, stream)
    else this.wrapper.release(buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.wrapper = owner
    return this
  }
}
