// The memory of an arena: one segment, a range of addresses that memory is mapped into from its start on, or a buffer
// of another pool; borrowed-memory.ts has that of other libraries. Growing a range never changes an address.

import { OutOfRangeError } from '../../base/argument-errors.js'
import { PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { relaxed } from '../../order/relaxed.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceArray } from '../array.js'
import { isOutOfMemory } from '../backing/backing.js'
import { GrowableRange } from '../backing/growable-range.js'
import type { MemoryAccess } from '../backing/memory-access.js'
import { checkRegistrable, RegistrableSegments } from '../backing/registrable-segments.js'
import { deviceSegments, type SegmentSource } from '../backing/segment-source.js'
import { type PoolSegment, SegmentWatch } from '../backing/segment-watch.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import { type DeviceBuffer, wholeBuffer } from '../buffer.js'
import { noRoomToBegin } from '../out-of-memory.js'
import { type ArenaConfig, checkMost } from './arena-options.js'

export interface ArenaMemory {
  /** the address of its first byte */
  readonly base: number
  /** usable bytes from the base on */
  readonly committedBytes: number
  /** bytes taken from the device: more than committed after a failed growth that could not be undone */
  readonly reservedBytes: number
  /** whether libraries such as NCCL can register it */
  readonly isRegistrable: boolean
  /** the devices that reach it */
  readonly access: MemoryAccess
  /** tells of new segments and of those that go */
  readonly watch: SegmentWatch
  /** All memory that buffers can lie on. */
  segments(): PoolSegment[]
  /** Commits at least `bytes`; false when the device has no room for them. Throws CudaError for any other failure. */
  growTo(bytes: number): boolean
  /** Gives all memory back; no work may be pending. After a failure, a second call continues. */
  close(): void
}

/**
 * Memory for an arena of `bytes` that may grow to `maxPoolBytes`. Throws OutOfMemoryError if the device has no room for
 * `bytes`, in the name of `call`, and PoolError if it has no virtual memory to grow with, or none to register.
 */
export function openArenaMemory(call: string, context: Context, options: ArenaConfig): ArenaMemory {
  const { bytes, maxPoolBytes, backing } = options
  if (backing === 'registrable') checkRegistrable(context)
  const obstacle = maxPoolBytes === bytes ? null : virtualMemoryObstacle(context)
  if (obstacle !== null) {
    throw new PoolError(
      `createArenaPool: growing to maxPoolBytes needs virtual memory, which cannot be used here: ${obstacle}; leave maxPoolBytes out and give bytes all that the arena will need`,
      'ERR_NOT_SUPPORTED',
    )
  }
  try {
    if (backing === 'registrable') {
      const source = new RegistrableSegments(context)
      return new FixedMemory(context, source, Math.ceil(bytes / source.granuleBytes) * source.granuleBytes)
    }
    if (maxPoolBytes === bytes) return new FixedMemory(context, deviceSegments(context), bytes)
    const memory = new GrowingMemory(context, maxPoolBytes)
    let grown = false
    try {
      grown = memory.growTo(bytes)
    } finally {
      if (!grown) context.discard(() => memory.close())
    }
    if (grown) return memory
  } catch (error) {
    if (!isOutOfMemory(error)) throw error
  }
  throw noRoomToBegin(call, bytes, context)
}

/** One segment of a source. Throws CudaError, also when memory runs out. */
class FixedMemory implements ArenaMemory {
  readonly base: number
  reservedBytes: number
  readonly access: MemoryAccess
  readonly isRegistrable: boolean
  readonly watch = new SegmentWatch()

  constructor(
    context: Context,
    private readonly source: SegmentSource,
    readonly committedBytes: number,
  ) {
    this.base = relaxed(context.activate(), () => source.obtain(committedBytes))
    this.reservedBytes = committedBytes
    this.access = source.access
    this.isRegistrable = source.kind === 'registrable'
  }

  segments(): PoolSegment[] {
    return [{ ptr: this.base, bytes: this.committedBytes }]
  }

  growTo(bytes: number): boolean {
    return bytes <= this.committedBytes
  }

  close(): void {
    if (this.reservedBytes > 0) {
      this.watch.leaving(this.base)
      this.source.giveBack(this.base)
      this.reservedBytes = 0
    }
    this.source.releaseRest?.()
  }
}

/** A range that grows by one piece at a time, of any size: an arena never gives a part of its memory back. */
class PieceAGrowth extends GrowableRange {
  protected override pieceBytes(): number {
    return Infinity
  }
}

/** Addresses for `mostBytes`, with memory behind the part that was needed so far. */
class GrowingMemory implements ArenaMemory {
  readonly base: number
  committedBytes = 0
  readonly isRegistrable = false
  readonly access: MemoryAccess
  readonly watch: SegmentWatch
  private readonly range: GrowableRange
  private closed = false

  constructor(context: Context, mostBytes: number) {
    const granuleBytes = context.activate().cuMemGetAllocationGranularity(context.device)
    this.range = new PieceAGrowth(context, granuleBytes, Math.ceil(mostBytes / granuleBytes) * granuleBytes)
    this.base = this.range.base
    this.access = this.range.access
    this.watch = this.range.watch
  }

  get reservedBytes(): number {
    return this.range.heldBytes
  }

  growTo(bytes: number): boolean {
    if (bytes > this.range.capacityBytes) return false
    try {
      this.range.growTo(bytes)
    } catch (error) {
      if (isOutOfMemory(error)) return false
      throw error
    }
    this.committedBytes = this.range.mappedBytes
    return true
  }

  segments(): PoolSegment[] {
    return this.range.segments()
  }

  close(): void {
    if (this.closed) return
    this.range.close()
    this.closed = true
  }
}

/**
 * A buffer that stays its holder's. Its pool learns which streams use it, so that the memory waits for their work even
 * if the buffer is freed too early.
 */
export class RegionMemory implements ArenaMemory {
  readonly buffer: DeviceBuffer
  readonly base: number
  readonly committedBytes: number
  reservedBytes: number
  readonly isRegistrable = false // its pool's segments may be
  readonly access: MemoryAccess
  readonly watch = new SegmentWatch()
  private readonly users = new Set<Stream>()

  /** Throws TypeError, RangeError or PoolError for a buffer that no arena of the device can stand on. */
  constructor(clocks: Clocks, region: DeviceBuffer | DeviceArray) {
    const buffer = wholeBuffer('createArenaPool', region, 'region')
    this.buffer = buffer
    this.access = new RegionAccess(buffer)
    this.base = buffer.addressFor('createArenaPool')
    if (buffer.stream.clocks !== clocks || !buffer.reachableFrom(clocks.context)) {
      throw new PoolError(
        'createArenaPool: the region belongs to another device; pass a buffer of this',
        'ERR_OTHER_DEVICE',
      )
    }
    const { byteLength } = buffer
    this.committedBytes = Math.floor(byteLength / UNIT_BYTES) * UNIT_BYTES
    if (byteLength < UNIT_BYTES) {
      throw new OutOfRangeError(`createArenaPool: the region must have ${UNIT_BYTES} bytes at least, not ${byteLength}`)
    }
    checkMost(byteLength)
    this.reservedBytes = this.committedBytes
  }

  /** Refuses, in the name of `call`, a buffer that has lost its memory, or whose pool sleeps. */
  checkUsable(call: string): void {
    const { buffer } = this
    if (buffer.freed || buffer.byteLength < this.committedBytes) {
      const fact = `the region of the arena was ${buffer.freed ? 'freed' : 'made shorter'}`
      throw new PoolError(`${call}: ${fact}; close the arena before its region`)
    }
    buffer.addressFor(call)
  }

  /** `stream` is about to use memory of the arena. A closed stream has announced itself before, if it allocated. */
  announce(stream: Stream): void {
    if (stream.capture !== null) this.buffer.recordUse(stream)
    else if (stream !== this.buffer.stream && !stream.closed && !this.users.has(stream)) {
      this.buffer.recordUse(stream)
      this.users.add(stream)
    }
  }

  segments(): PoolSegment[] {
    return [{ ptr: this.base, bytes: this.committedBytes }]
  }

  growTo(): boolean {
    return false
  }

  close(): void {
    this.reservedBytes = 0
  }
}

/** The access of the pool that the buffer comes from. */
class RegionAccess implements MemoryAccess {
  readonly peers: readonly Context[] = []

  constructor(private readonly buffer: DeviceBuffer) {}

  change(): void {
    throw new PoolError('setAccess: the arena stands on a buffer of another pool; set the access of that pool')
  }

  reaches(context: Context): boolean {
    return this.buffer.reachableFrom(context)
  }
}
