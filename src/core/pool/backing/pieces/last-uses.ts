// The last uses of memory, by granule of an address range, and by view. Memory must not be unmapped while the GPU may
// use it. Threads share these numbers: any thread may free a block, but only one unmaps.

import { assert } from '../../../base/assert.js'
import { slotOfKey } from '../../../heap/key.js'
import type { RecordTable } from '../../../heap/records.js'
import type { Region } from '../../../threads/region.js'

/** As a key: uses of several streams, so only the heap's dependencies tell when the memory is idle. */
export const SEVERAL = -1

abstract class LastUses {
  /** the key of the last use, by index; 0 for none; memory with an index beyond the end was never used */
  keys: Int32Array
  /** the stamp of the last use, by index */
  stamps: Float64Array

  /**
   * Lies in `region`, which must be zeroed, so that threads can share it; with null, in memory of its own, which has
   * room for `first` and grows up to `most`.
   */
  constructor(
    readonly most: number,
    first: number,
    /** the latest stamp that the host has seen complete, by stream slot */
    private readonly seen: Float64Array,
    protected readonly region: Region | null,
  ) {
    const room = region === null ? Math.min(most, first) : most
    this.keys = region?.int32(room) ?? new Int32Array(room)
    this.stamps = region?.float64(room) ?? new Float64Array(room)
  }

  /** Whether the host has seen the last use complete; false for uses of several streams. */
  isSettled(index: number): boolean {
    if (index >= this.keys.length) return true
    const key = this.keys[index]
    return key === 0 || (key !== SEVERAL && this.seen[slotOfKey(key)] >= this.stamps[index])
  }

  /** Notes a use that may not be the only one. */
  protected note(index: number, key: number, stamp: number): void {
    const { keys, stamps } = this
    if (keys[index] === key) stamps[index] = Math.max(stamp, stamps[index])
    else if (this.isSettled(index)) {
      stamps[index] = stamp
      keys[index] = key
    } else keys[index] = SEVERAL
  }

  /** Makes room for the indices below `above`. A call may be cut short: stamps come first, as a key leads to one. */
  protected grow(above: number): void {
    const room = Math.min(Math.max(above, this.keys.length * 2), this.most)
    const stamps = new Float64Array(room)
    stamps.set(this.stamps)
    this.stamps = stamps
    const keys = new Int32Array(room)
    keys.set(this.keys)
    this.keys = keys
  }
}

/** An address range has room for many times the device's memory. */
const FIRST_GRANULES = 512

/** Each granule has a last use of its own: when blocks merge, a use per block would make all look as young as one. */
export class GranuleLastUses extends LastUses {
  /** from units to granules: shifts cost less than divisions */
  private readonly shift: number
  private readonly unitsMask: number

  constructor(
    granules: number,
    /** a power of two */
    granuleUnits: number,
    seen: Float64Array,
    region: Region | null,
  ) {
    super(granules, FIRST_GRANULES, seen, region)
    this.unitsMask = granuleUnits - 1
    this.shift = 32 - Math.clz32(this.unitsMask)
    assert(granuleUnits === 2 ** this.shift, 'a granule is a power of two')
  }

  /** Notes that a block is about to return to its heap, for reuse after `stamp` of `key`. */
  noteFree(records: RecordTable, record: number, key: number, stamp: number): void {
    const { shift, unitsMask } = this
    const start = records.offsetOf(record)
    const end = start + records.unitsOf(record)
    // The block's first and last granule may contain other blocks, too. For all others this is the last use.
    const covered = (start + unitsMask) >>> shift
    const last = end >>> shift
    const above = (end + unitsMask) >>> shift
    if (above > this.keys.length) this.grow(above)
    const { keys, stamps } = this
    if ((start & unitsMask) !== 0) this.note(covered - 1, key, stamp)
    for (let granule = covered; granule < last; granule++) {
      keys[granule] = key
      stamps[granule] = stamp
    }
    if ((end & unitsMask) !== 0) this.note(last, key, stamp)
  }
}

/** Most pools have few views. */
const FIRST_VIEWS = 64

/** The blocks of each view, and the last use of memory through it. */
export class ViewUses extends LastUses {
  /** blocks that are handed out, or wait for work, by view */
  blocks: Int32Array

  constructor(most: number, seen: Float64Array, region: Region | null) {
    super(most, FIRST_VIEWS, seen, region)
    this.blocks = region?.int32(most) ?? new Int32Array(this.keys.length)
  }

  /** Has room for a view that is about to be mapped. */
  fit(view: number): void {
    if (view < this.blocks.length) return
    this.grow(view + 1)
    const blocks = new Int32Array(this.keys.length)
    blocks.set(this.blocks)
    this.blocks = blocks // last: it says that all have room
  }

  /** Notes that a block of a view is about to be free again, for reuse after `stamp` of `key`. */
  noteFree(view: number, key: number, stamp: number): void {
    this.blocks[view]--
    if (key !== 0) this.note(view, key, stamp)
  }

  /** A view was unmapped; its number may be used for another. */
  forget(view: number): void {
    this.keys[view] = 0
    this.stamps[view] = 0
  }
}
