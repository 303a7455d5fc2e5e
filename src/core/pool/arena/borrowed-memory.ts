// The memory of an arena that another library has allocated, and frees. Nothing tells whether there is memory at the
// address: the driver knows only that of its own functions.

import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { describe } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { MemoryAccess } from '../backing/memory-access.js'
import { type PoolSegment, SegmentWatch } from '../backing/segment-watch.js'
import type { ArenaMemory } from './arena-memory.js'
import { type BorrowedRange, checkMost } from './arena-options.js'

export class BorrowedMemory implements ArenaMemory {
  readonly base: number
  readonly committedBytes: number
  reservedBytes: number
  readonly isRegistrable = false // its owner knows
  readonly access: MemoryAccess
  readonly watch = new SegmentWatch()

  /** Throws TypeError or RangeError for a range that cannot be memory. */
  constructor(context: Context, over: BorrowedRange) {
    if (typeof over !== 'object' || over === null) {
      throw new WrongTypeError(`createArenaPool: over must be { ptr, byteLength }, not ${describe(over)}`)
    }
    const { ptr, byteLength } = over
    checkWhole('ptr', ptr)
    checkWhole('byteLength', byteLength)
    if (ptr <= 0 || ptr % UNIT_BYTES !== 0) {
      throw new OutOfRangeError(
        `createArenaPool: over.ptr must be an address that is a multiple of ${UNIT_BYTES}, not ${ptr}; align it, and shorten byteLength by as much`,
      )
    }
    if (byteLength < UNIT_BYTES || !Number.isSafeInteger(ptr + byteLength)) {
      throw new OutOfRangeError(
        `createArenaPool: over.byteLength must be from ${UNIT_BYTES} to the length of the memory, not ${byteLength}`,
      )
    }
    checkMost(byteLength)
    this.base = ptr
    this.committedBytes = Math.floor(byteLength / UNIT_BYTES) * UNIT_BYTES
    this.reservedBytes = this.committedBytes
    this.access = new BorrowedAccess(context)
  }

  segments(): PoolSegment[] {
    return [{ ptr: this.base, bytes: this.committedBytes }]
  }

  growTo(): boolean {
    return false
  }

  close(): void {
    if (this.reservedBytes > 0) this.watch.leaving(this.base)
    this.reservedBytes = 0
  }
}

/** Only its own device is known to reach the memory. */
class BorrowedAccess implements MemoryAccess {
  readonly peers: readonly Context[] = []

  constructor(private readonly owner: Context) {}

  change(): void {
    throw new PoolError(
      "setAccess: the arena stands on memory that is no pool's; copy with copyFrom, or use an arena of its own memory",
    )
  }

  reaches(context: Context): boolean {
    return context.sharesDevice(this.owner)
  }
}

function checkWhole(name: 'ptr' | 'byteLength', value: unknown): void {
  if (typeof value !== 'number') {
    const remedy = typeof value === 'bigint' ? `; pass Number(${name})` : ''
    throw new WrongTypeError(`createArenaPool: over.${name} must be a number, not ${describe(value)}${remedy}`)
  }
  if (Number.isSafeInteger(value)) return
  throw new OutOfRangeError(
    `createArenaPool: over.${name} must be a whole number below 2^53, not ${value}; pass what the library's allocation returned`,
  )
}
