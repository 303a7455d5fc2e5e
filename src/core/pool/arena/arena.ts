// The base of arenas of one thread and of several: a stack of this thread's buffers (core/heap/bump.ts), and the parts
// of buffers and errors. Each kind has an `allocate` of its own: a common
// one would meet both kinds in a process, which costs arenas of one thread a third of an allocation's time.

import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { disposeOf } from '../../base/disposal.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { Bump } from '../../heap/bump.js'
import { MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { ClosablePool } from '../closable-pool.js'
import { beyondDevice, shortageOf } from '../out-of-memory.js'
import { type ArenaAllocation, type ArenaOwner, allocationOf } from './arena-allocation.js'
import type { RegionMemory } from './arena-memory.js'
import type { Epochs } from './epochs.js'

const DEVICE_FULL = 'the device itself is full: free memory, here or elsewhere'

export abstract class Arena extends ClosablePool implements ArenaOwner {
  protected readonly bump: Bump
  protected abstract readonly epochs: Epochs
  /** the address of unit 0 */
  protected readonly base: number
  protected readonly firstUnit: number
  protected readonly lastUnit: number
  /** the allocation of the last buffer or reset: its stream was checked, and only needs to be open */
  protected allocation: ArenaAllocation
  /** the present epoch of `epochs`, as far as this thread knows */
  protected epoch: number

  /** An arena of `bytes` from `address` on. Nothing fits into the stack until its limit is raised. */
  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    address: number,
    bytes: number,
    epoch: number,
    /** the memory, if it is of another pool */
    protected readonly region: RegionMemory | null,
  ) {
    super(clocks, defaultStream)
    // Units are numbered so that a unit's number is aligned exactly as its address is.
    this.firstUnit = ((address % MOST_ALIGNMENT_BYTES) / UNIT_BYTES) | 0
    this.base = address - this.firstUnit * UNIT_BYTES
    this.lastUnit = (this.firstUnit + bytes / UNIT_BYTES) | 0
    this.bump = new Bump(this.firstUnit, this.firstUnit)
    this.allocation = allocationOf(this, this, defaultStream, this.bump.span, region)
    this.epoch = epoch
  }

  /** The most bytes that it can have. It is fixed: setting it throws PoolError. */
  get maxPoolBytes(): number {
    return (this.lastUnit - this.firstUnit) * UNIT_BYTES
  }

  /** Throws PoolError. */
  set maxPoolBytes(_limit: unknown) {
    throw new PoolError('maxPoolBytes: the limit of an arena is fixed; make it with another bytes or maxPoolBytes')
  }

  /** The first unit behind all buffers. */
  protected abstract get topUnit(): number

  /** The first unit without memory behind it. */
  protected get committedUnit(): number {
    return this.lastUnit
  }

  /** Bytes not allocated, growth included: the largest possible allocation now. */
  get availableBytes(): number {
    return this.isAccepting ? (this.lastUnit - this.topUnit) * UNIT_BYTES : 0
  }

  /** `close()` at the end of a `using` block. Buffers of an arena need no free, so nothing is warned of. */
  override [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** @internal */
  override mayServe(bytes: number): boolean {
    this.checkOpen('whenAvailable')
    if (bytes > this.maxPoolBytes) throw this.outOfMemory(bytes, 1)
    return bytes <= this.availableBytes
  }

  /** @internal */
  override get mayReset(): boolean {
    return true
  }

  /** @internal */
  addressOfEntry(entry: number): number {
    return this.base + this.bump.startOf(entry) * UNIT_BYTES
  }

  /** @internal */
  requestedBytesOfEntry(entry: number): number {
    return this.bump.requestedBytesOf(entry)
  }

  /** @internal */
  isFreed(entry: number): boolean {
    return this.bump.isFreed(entry)
  }

  /** @internal */
  abstract announceUse(stream: Stream): void

  /** @internal */
  abstract reachableFrom(context: Context): boolean

  /** The allocation of the next buffers for `stream`. */
  protected follow(stream: Stream): ArenaAllocation {
    const { allocation, bump } = this
    if (allocation.stream === stream && allocation.span === bump.span) return allocation
    this.allocation = allocationOf(this, this, stream, bump.span, this.region)
    return this.allocation
  }

  /** The first unit behind a new block. */
  protected endOf(units: number, alignUnits: number): number {
    return Math.ceil(this.topUnit / alignUnits) * alignUnits + units
  }

  protected refuse(bytes: number, alignment: number, orThrow: boolean): null {
    if (orThrow) throw this.outOfMemory(bytes, alignment)
    return null
  }

  private outOfMemory(bytes: number, alignment: number): OutOfMemoryError {
    const { freeBytes, totalBytes } = this.context.activate().cuMemGetInfo()
    const beyond = beyondDevice(0, bytes, totalBytes)
    const obstacle = this.obstacle(unitsOf(bytes), alignUnitsOf(alignment))
    const remedy = beyond ?? `${obstacle}, or fall back: fallback(arena, device.createPlainPool())`
    const full = beyond === null && obstacle === DEVICE_FULL ? this.context : null
    return shortageOf(bytes, this.stats(), Math.min(this.maxPoolBytes, totalBytes), freeBytes, remedy, full)
  }

  private obstacle(units: number, alignUnits: number): string {
    const limit = formatBytes(this.maxPoolBytes)
    if (units * UNIT_BYTES > this.maxPoolBytes) return `the arena has ${limit} in all: make it larger`
    if (this.committedUnit < this.lastUnit && this.endOf(units, alignUnits) <= this.lastUnit) return DEVICE_FULL
    return `the arena has ${formatBytes(this.availableBytes)} of ${limit} left: reset it, make it larger`
  }
}

/** Units of a size that the fast path does not serve: a large one, or an invalid one, which throws. */
export function unitsOf(bytes: number): number {
  checkByteCount(bytes, 'bytes')
  return Math.min(MAX_UNITS, Math.ceil(bytes / UNIT_BYTES))
}

export function alignUnitsOf(alignment: number): number {
  return Math.max(1, alignment / UNIT_BYTES)
}
