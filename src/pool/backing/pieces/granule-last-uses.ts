// The last use of each granule of an address range. Each granule has its own: when blocks merge, a use per block
// would make all their granules look as young as the youngest.

import { Region } from '../../../base/region.js'
import { slotOfKey } from '../../../heap/key.js'
import type { RecordTable } from '../../../heap/records.js'

/** As a key: blocks of several streams lay on the granule, so only the heap's dependencies tell when it is idle. */
export const SEVERAL = -1

export class GranuleLastUses {
  /** the key of the last use, by granule; 0 for none */
  readonly keys: Int32Array
  /** the stamp of the last use, by granule */
  readonly stamps: Float64Array

  /** Lies in `region`, which must be zeroed, so that threads can share it; with null, in memory of its own. */
  constructor(
    granules: number,
    private readonly granuleUnits: number,
    /** the latest stamp that the host has seen complete, by stream slot */
    private readonly seen: Float64Array,
    region: Region | null,
  ) {
    const room = region ?? new Region(new ArrayBuffer(granules * 12 + 64))
    this.keys = room.int32(granules)
    this.stamps = room.float64(granules)
  }

  /** Notes that a block is about to return to its heap, for reuse after `stamp` of `key`. */
  noteFree(records: RecordTable, record: number, key: number, stamp: number): void {
    const { keys, stamps, granuleUnits } = this
    const start = records.offsetOf(record)
    const end = start + records.unitsOf(record)
    // The block's first and last granule may contain other blocks, too. For all others this is the last use.
    const covered = Math.ceil(start / granuleUnits)
    const last = Math.floor(end / granuleUnits)
    if (covered * granuleUnits !== start) this.noteShared(covered - 1, key, stamp)
    for (let granule = covered; granule < last; granule++) {
      keys[granule] = key
      stamps[granule] = stamp
    }
    if (last * granuleUnits !== end) this.noteShared(last, key, stamp)
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
    const key = this.keys[granule]
    return key === 0 || (key !== SEVERAL && this.seen[slotOfKey(key)] >= this.stamps[granule])
  }
}
