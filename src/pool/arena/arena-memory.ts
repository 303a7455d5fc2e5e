// The memory of an arena: one driver allocation, or a range of addresses that memory is mapped into from its start
// on. Growing such a range never changes an address.

import { PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { relaxed } from '../../order/relaxed.js'
import { changePlainAccess, type PoolAccess } from '../access.js'
import { isOutOfMemory } from '../backing/backing.js'
import { GrowableRange } from '../backing/growable-range.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import { noRoomToBegin } from '../out-of-memory.js'

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
 * Memory for an arena of `bytes` that may grow to `maxBytes`. Throws OutOfMemoryError if the device has no room for
 * `bytes`, PoolError if it has no virtual memory to grow with.
 */
export function openArenaMemory(context: Context, bytes: number, maxBytes: number): ArenaMemory {
  const obstacle = maxBytes === bytes ? null : virtualMemoryObstacle(context)
  if (obstacle !== null) {
    throw new PoolError(
      `createArenaPool: growing to maxBytes needs virtual memory, which cannot be used here: ${obstacle}; leave maxBytes out and give bytes all that the arena will need`,
    )
  }
  try {
    if (maxBytes === bytes) return new FixedMemory(context, bytes)
    const memory = new GrowingMemory(context, maxBytes)
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
