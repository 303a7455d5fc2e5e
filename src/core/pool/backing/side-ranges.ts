// Ranges of addresses beside the home range of a pool, each with memory behind its beginning. A range grows in place,
// so that no block in it ends where other memory begins. Its bytes are the pool's: they count for its limits, its
// devices have access, and its observer hears of them. Blocks find their address by a range number that no view has.

import type { Context } from '../../driver/context.js'
import { relaxed } from '../../order/relaxed.js'
import { FIRST_VIEW_RANGE, isOutOfMemory } from './backing.js'
import { GrowableRange } from './growable-range.js'
import type { MappedAccess } from './mapped-access.js'
import type { HomeRange } from './pieces/home-range.js'
import type { SpareHandles } from './pieces/spare-handles.js'
import type { Views } from './pieces/views.js'
import type { PoolSegment, SegmentWatch } from './segment-watch.js'

/** The memory of the pool that the ranges lie beside. */
interface Neighbours {
  readonly home: HomeRange
  readonly views: Views
  /** the device address of unit 0, by range number */
  readonly bases: number[]
  readonly access: MappedAccess
  readonly watch: SegmentWatch
  /** bytes that the pool may still take from the device */
  newBytes(): number
  /** whether copies may be under way: cuMemUnmap would not wait for them */
  isCopied(): boolean
}

export class SideRange extends GrowableRange {
  /** bytes that a wake maps again */
  asleepBytes = 0

  constructor(
    context: Context,
    granuleBytes: number,
    capacityBytes: number,
    { access, watch }: Neighbours,
    /** of the view whose number it has */
    readonly view: number,
  ) {
    super(context, granuleBytes, capacityBytes, access, watch)
  }

  /** the range number of its blocks */
  get number(): number {
    return FIRST_VIEW_RANGE + this.view
  }
}

export class SideRanges {
  private readonly ranges: SideRange[] = []

  constructor(
    private readonly context: Context,
    readonly granuleBytes: number,
    private readonly beside: Neighbours,
  ) {}

  /** Reserves addresses. Throws the driver's error. */
  add(capacityBytes: number): SideRange {
    const { context, granuleBytes, beside } = this
    const view = beside.views.takeNumber()
    try {
      const range = new SideRange(context, granuleBytes, capacityBytes, beside, view)
      this.ranges.push(range)
      beside.bases[range.number] = range.base
      return range
    } catch (error) {
      beside.views.giveBackNumber(view)
      throw error
    }
  }

  /**
   * Maps memory behind the first `bytes` of a range. False if limit or device do not allow it. Throws the driver's
   * error; the range is as before then.
   */
  grow(range: SideRange, bytes: number): boolean {
    if (bytes > range.capacityBytes || bytes - range.heldBytes > this.beside.newBytes()) return false
    try {
      relaxed(this.context.activate(), () => range.growTo(bytes)) // some stream is captured
      return true
    } catch (error) {
      if (isOutOfMemory(error)) return false
      throw error
    } finally {
      this.count()
    }
  }

  /** Unmaps whole pieces beyond `bytes`, which no work may use; none while copies may be under way. */
  shrink(range: SideRange, bytes: number): void {
    if (!this.beside.isCopied()) this.unmap(range, bytes)
  }

  private unmap(range: SideRange, bytes: number): void {
    try {
      relaxed(this.context.activate(), () => range.shrinkTo(bytes))
    } finally {
      this.count()
    }
  }

  /** Gives memory and addresses of a range back; no work may use them. Can be repeated after a refusal. */
  remove(range: SideRange): void {
    try {
      relaxed(this.context.activate(), () => range.close())
    } finally {
      this.count()
    }
    this.ranges.splice(this.ranges.indexOf(range), 1)
    this.beside.bases[range.number] = Number.NaN
    this.beside.views.giveBackNumber(range.view)
  }

  /** Gives all memory back, and keeps the addresses, for `growAgain`. Can be repeated after a refusal. */
  suspend(): void {
    for (const range of this.ranges) {
      range.asleepBytes = Math.max(range.asleepBytes, range.mappedBytes)
      this.unmap(range, 0)
    }
  }

  /** bytes that `growAgain` takes from the device */
  get suspendedBytes(): number {
    return this.ranges.reduce((sum, range) => sum + Math.max(0, range.asleepBytes - range.heldBytes), 0)
  }

  /**
   * Maps memory again that `suspend` has given back, `spares` first. Throws the driver's error; call `suspend` then.
   */
  growAgain(spares: SpareHandles | null): void {
    try {
      for (const range of this.ranges) {
        if (spares !== null && range.asleepBytes > range.heldBytes) spares.release(range.asleepBytes - range.heldBytes)
        relaxed(this.context.activate(), () => range.growTo(range.asleepBytes))
      }
      for (const range of this.ranges) range.asleepBytes = 0
    } finally {
      this.count()
    }
  }

  /** The memory of each range, from its first address on. */
  *mapped(): Generator<PoolSegment> {
    for (const { base, mappedBytes } of this.ranges) if (mappedBytes > 0) yield { ptr: base, bytes: mappedBytes }
  }

  segments(): PoolSegment[] {
    return this.ranges.flatMap(range => range.segments())
  }

  /** The range number for an address; null for another address. */
  numberAt(ptr: number): number | null {
    return this.ranges.find(({ base, capacityBytes }) => ptr >= base && ptr < base + capacityBytes)?.number ?? null
  }

  /** Sets one device's access to all memory. */
  applyAccess(device: number, flags: number): void {
    for (const range of this.ranges) range.applyAccess(device, flags)
  }

  /** Gives everything back; no work may be pending. */
  close(): void {
    while (this.ranges.length > 0) this.remove(this.ranges[this.ranges.length - 1])
  }

  check(): void {
    for (const range of this.ranges) range.check()
  }

  private count(): void {
    const { home } = this.beside
    home.besideBytes = this.ranges.reduce((sum, range) => sum + range.heldBytes, 0)
    home.notePeak()
  }
}
