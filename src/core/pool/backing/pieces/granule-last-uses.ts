// The last use of each granule of an address range. Each granule has its own: when blocks merge, a use per block
// would make all their granules look as young as the youngest.

import { assert } from '../../../base/assert.js'
import type { Region } from '../../../base/region.js'
import { slotOfKey } from '../../../heap/key.js'
import type { RecordTable } from '../../../heap/records.js'

/** As a key: blocks of several streams lay on the granule, so only the heap's dependencies tell when it is idle. */
export const SEVERAL = -1

/** Room at first, outside of a region. An address range has room for many times the device's memory. */
const FIRST_GRANULES = 512

export class GranuleLastUses {
  /** the key of the last use, by granule; 0 for none; a granule beyond the end was never used */
  keys: Int32Array
  /** the stamp of the last use, by granule */
  stamps: Float64Array
  /** from units to granules: shifts cost less than divisions */
  private readonly shift: number
  private readonly unitsMask: number

  /**
   * Lies in `region`, which must be zeroed, so that threads can share it; with null, in memory of its own, which grows
   * up to `granules`.
   */
  constructor(
    private readonly granules: number,
    /** a power of two */
    granuleUnits: number,
    /** the latest stamp that the host has seen complete, by stream slot */
    private readonly seen: Float64Array,
    region: Region | null,
  ) {
    this.unitsMask = granuleUnits - 1
    this.shift = 32 - Math.clz32(this.unitsMask)
    assert(granuleUnits === 2 ** this.shift, 'a granule is a power of two')
    const first = region === null ? Math.min(granules, FIRST_GRANULES) : granules
    this.keys = region?.int32(first) ?? new Int32Array(first)
    this.stamps = region?.float64(first) ?? new Float64Array(first)
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
    if ((start & unitsMask) !== 0) this.noteShared(covered - 1, key, stamp)
    for (let granule = covered; granule < last; granule++) {
      keys[granule] = key
      stamps[granule] = stamp
    }
    if ((end & unitsMask) !== 0) this.noteShared(last, key, stamp)
  }

  private noteShared(granule: number, key: number, stamp: number): void {
    const { keys, stamps } = this
    if (keys[granule] === key) stamps[granule] = Math.max(stamp, stamps[granule])
    else if (this.isSettled(granule)) {
      stamps[granule] = stamp
      keys[granule] = key
    } else keys[granule] = SEVERAL
  }

  /** Whether the host has seen the last use complete. */
  isSettled(granule: number): boolean {
    if (granule >= this.keys.length) return true
    const key = this.keys[granule]
    return key === 0 || (key !== SEVERAL && this.seen[slotOfKey(key)] >= this.stamps[granule])
  }

  /** Makes room for the granules below `above`. A call may be cut short: stamps come first, as a key leads to one. */
  private grow(above: number): void {
    const room = Math.min(Math.max(above, this.keys.length * 2), this.granules)
    const stamps = new Float64Array(room)
    stamps.set(this.stamps)
    this.stamps = stamps
    const keys = new Int32Array(room)
    keys.set(this.keys)
    this.keys = keys
  }
}
