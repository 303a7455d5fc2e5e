// The last use of each granule of a range of addresses. Each remembers its own, since blocks that merge would make all their
// granules look as young as the youngest.

import { Region } from '../../base/region.js'
import { slotOfKey } from '../../heap/key.js'
import type { RecordTable } from '../../heap/records.js'

/** As a key: blocks of several streams lay on the granule, so only the heap's own dependencies tell when it is idle. */
export const SEVERAL = 255

export class GranuleUses {
  /** by granule: the key of the last use, 0 for none that matters */
  readonly keys: Int32Array
  /** the stamp that goes with it */
  readonly stamps: Float64Array

  /** In `region`, which whoever made it has cleared, several threads can share it. */
  constructor(
    granules: number,
    private readonly granuleUnits: number,
    /** by stream slot: the latest stamp that the host has seen complete */
    private readonly seen: Float64Array,
    region: Region | null,
  ) {
    const room = region ?? new Region(new ArrayBuffer(granules * 12 + 64))
    this.keys = room.int32(granules)
    this.stamps = room.float64(granules)
  }

  /** A block is about to go back to its heap, to be used again after `stamp` of `key`. */
  noteFree(records: RecordTable, record: number, key: number, stamp: number): void {
    const { keys, stamps, granuleUnits } = this
    const start = records.offsetOf(record)
    const end = start + records.unitsOf(record)
    // The first and the last granule that the block lies on may have other blocks, too; of the others it was the last use.
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
