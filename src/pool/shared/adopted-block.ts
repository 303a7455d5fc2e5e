// A live block of a shared pool that this thread adopted, and whose record is on another thread's page: its free sends it back
// there. It has less to tell than a block of this thread's own cache, and such blocks come and go by the million.

import { State } from '../../heap/records.js'
import type { Stream } from '../../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'

/** What an adopted block asks of its pool. */
export interface AdoptedOwner extends BufferSource {
  /** the device address of a block */
  addressOfRecord(record: number): number
  /** bytes that were asked for */
  requestedBytesOfRecord(record: number): number
  /** another stream uses a live block until it is freed */
  announceUse(block: AdoptedBlock, stream: Stream): void
  releaseAdopted(buffer: DeviceBuffer, stream?: Stream): void
  refuseStale(call: string): never
}

export class AdoptedBlock implements Allocation {
  /** the outermost wrapper that handed it out */
  wrapper: BufferOwner | null = null
  /** the buffer's tag with the lowest bit set: the release of a block of the thread's own takes it for none of its own */
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
    if (this.wrapper === null) this.pool.releaseAdopted(buffer, stream)
    else this.wrapper.release(buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.wrapper = owner
    return this
  }
}
