import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { checkIsStream, type Stream } from '../order/stream.js'
import type { Allocation, BufferOwner, BufferSource } from './allocation.js'
import type { DeviceBuffer } from './buffer.js'
import { freeSlowly } from './slow-calls.js'

/**
 * The base of allocations off the hot path: it knows its owner. Classes of fast pools repeat `free`
 * (docs/internals/v8.md).
 */
export abstract class SlowAllocation implements Allocation {
  abstract owner: BufferOwner
  abstract readonly pool: BufferSource
  abstract readonly record: number
  abstract readonly stream: Stream

  abstract addressOf(record: number, tag: number, call: string): number
  abstract requestedBytesOf(record: number, tag: number, call: string): number
  abstract isLive(record: number, tag: number): boolean
  abstract recordUse(record: number, tag: number, stream: Stream): void

  free(buffer: DeviceBuffer, stream?: Stream): void {
    freeSlowly(this.owner, buffer, stream)
  }

  ownedBy(owner: BufferOwner): this {
    this.owner = owner
    return this
  }
}

/** Throws TypeError for wrong arguments of a program's `noteUse`. */
export function checkNote(stream: Stream, call: string): void {
  checkIsStream('noteUse', stream)
  if (typeof call !== 'string') throw new WrongTypeError(`noteUse: call must be a text, not ${describe(call)}`)
}

/** What knows the state of buffers by record and tag: a pool, or another allocation. */
export type RecordState = Pick<Allocation, 'addressOf' | 'requestedBytesOf' | 'isLive' | 'recordUse'>

/** A pool that finds a buffer by record and tag. */
export interface RecordPool extends BufferSource, RecordState {}

/** The allocation of a buffer whose state something else keeps. */
export class RecordAllocation extends SlowAllocation {
  owner: BufferOwner

  constructor(
    readonly pool: BufferSource,
    readonly record: number,
    readonly stream: Stream,
    private readonly state: RecordState,
  ) {
    super()
    this.owner = pool
  }

  addressOf(record: number, tag: number, call: string): number {
    return this.state.addressOf(record, tag, call)
  }

  requestedBytesOf(record: number, tag: number, call: string): number {
    return this.state.requestedBytesOf(record, tag, call)
  }

  isLive(record: number, tag: number): boolean {
    return this.state.isLive(record, tag)
  }

  recordUse(record: number, tag: number, stream: Stream): void {
    this.state.recordUse(record, tag, stream)
  }
}
