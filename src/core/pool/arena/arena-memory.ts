// The memory of an arena: one driver allocation, a range of addresses that memory is mapped into from its start on, or
// a buffer of another pool. Growing a range never changes an address.

import { OutOfRangeError } from '../../base/argument-errors.js'
import { formatBytes, GiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { relaxed } from '../../order/relaxed.js'
import type { Stream } from '../../order/stream.js'
import { changePlainAccess, type PoolAccess } from '../access.js'
import type { DeviceArray } from '../array.js'
import { isOutOfMemory } from '../backing/backing.js'
import { GrowableRange } from '../backing/growable-range.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import { type DeviceBuffer, wholeBuffer } from '../buffer.js'
import { noRoomToBegin } from '../out-of-memory.js'

const MOST_BYTES = 511 * GiB // 2^31 units, less the largest number of the first unit

export interface ArenaMemory {
  /** the address of its first byte */
  readonly base: number
  /** usable bytes from the base on */
  readonly committedBytes: number
  /** bytes taken from the device: more than committed after a failed growth that could not be undone */
  readonly reservedBytes: number
  /** Commits at least `bytes`; false when the device has no room for them. Throws CudaError for any other failure. */
  growTo(bytes: number): boolean
  /** Changes the access of another device; throws PoolError if the driver cannot. */
  changeAccess(peer: Context, access: PoolAccess): void
  /** Whether work of `context` can use the memory. */
  reachableFrom(context: Context): boolean
  /** the contexts of other devices whose work may use it */
  readonly peers: readonly Context[]
  /** Gives all memory back; no work may be pending. After a failure, a second call continues. */
  close(): void
}

/**
 * Memory for an arena of `bytes` that may grow to `maxPoolBytes`. Throws OutOfMemoryError if the device has no room for
 * `bytes`, PoolError if it has no virtual memory to grow with.
 */
export function openArenaMemory(context: Context, bytes: number, maxPoolBytes: number): ArenaMemory {
  const obstacle = maxPoolBytes === bytes ? null : virtualMemoryObstacle(context)
  if (obstacle !== null) {
    throw new PoolError(
      `createArenaPool: growing to maxPoolBytes needs virtual memory, which cannot be used here: ${obstacle}; leave maxPoolBytes out and give bytes all that the arena will need`,
      'ERR_NOT_SUPPORTED',
    )
  }
  try {
    if (maxPoolBytes === bytes) return new FixedMemory(context, bytes)
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
  throw noRoomToBegin('createArenaPool', bytes, context)
}

export function checkMost(bytes: number): void {
  if (bytes <= MOST_BYTES) return
  throw new OutOfRangeError(`an arena has at most ${formatBytes(MOST_BYTES)}, not ${formatBytes(bytes)}`)
}

/** One cuMemAlloc. Throws CudaError, also when memory runs out. */
class FixedMemory implements ArenaMemory {
  readonly base: number
  reservedBytes: number

  constructor(
    private readonly context: Context,
    readonly committedBytes: number,
  ) {
    const driver = context.activate()
    this.base = relaxed(driver, () => driver.cuMemAlloc(committedBytes))
    this.reservedBytes = committedBytes
  }

  growTo(bytes: number): boolean {
    return bytes <= this.committedBytes
  }

  changeAccess(peer: Context, access: PoolAccess): void {
    changePlainAccess(this.context, peer, access)
  }

  reachableFrom(context: Context): boolean {
    return context.hasPeerAccess(this.context)
  }

  get peers(): readonly Context[] {
    return this.context.peers
  }

  close(): void {
    if (this.reservedBytes === 0) return
    this.context.activate().cuMemFree(this.base)
    this.reservedBytes = 0
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
  private readonly range: GrowableRange
  private closed = false

  constructor(context: Context, mostBytes: number) {
    const granuleBytes = context.activate().cuMemGetAllocationGranularity(context.device)
    this.range = new PieceAGrowth(context, granuleBytes, Math.ceil(mostBytes / granuleBytes) * granuleBytes)
    this.base = this.range.base
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

  changeAccess(peer: Context, access: PoolAccess): void {
    this.range.access.change(peer, access)
  }

  reachableFrom(context: Context): boolean {
    return this.range.access.reaches(context)
  }

  get peers(): readonly Context[] {
    return this.range.access.peers
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
  readonly peers: readonly Context[] = []
  private readonly users = new Set<Stream>()

  /** Throws TypeError, RangeError or PoolError for a buffer that no arena of the device can stand on. */
  constructor(clocks: Clocks, region: DeviceBuffer | DeviceArray) {
    const buffer = wholeBuffer('createArenaPool', region, 'region')
    this.buffer = buffer
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
    if (stream === this.buffer.stream || stream.closed || this.users.has(stream)) return
    this.buffer.recordUse(stream)
    this.users.add(stream)
  }

  growTo(): boolean {
    return false
  }

  changeAccess(): void {
    throw new PoolError('setAccess: the arena stands on a buffer of another pool; set the access of that pool')
  }

  reachableFrom(context: Context): boolean {
    return this.buffer.reachableFrom(context)
  }

  close(): void {
    this.reservedBytes = 0
  }
}
