// How many blocks each view has, and the last use of memory through it. A view must not be unmapped while the GPU may
// use an address in it. Threads share these numbers: any thread may free a block, but only one unmaps.

import { Region } from '../../../base/region.js'
import { slotOfKey } from '../../../heap/key.js'

/** As a key: the last uses were on several streams. */
const SEVERAL = -1

export class ViewUses {
  /** blocks that are handed out, or wait for work, by view */
  readonly blocks: Int32Array
  /** the key of the last use, by view; 0 for none */
  private readonly keys: Int32Array
  /** the stamp of the last use, by view */
  private readonly stamps: Float64Array

  /** Lies in `region`, which must be zeroed, so that threads can share it; with null, in memory of its own. */
  constructor(
    readonly most: number,
    /** the latest stamp that the host has seen complete, by stream slot */
    private readonly seen: Float64Array,
    region: Region | null,
  ) {
    const room = region ?? new Region(new ArrayBuffer(most * 16 + 64))
    this.blocks = room.int32(most)
    this.keys = room.int32(most)
    this.stamps = room.float64(most)
  }

  /** Notes that a block of a view is about to be free again, for reuse after `stamp` of `key`. */
  noteFree(view: number, key: number, stamp: number): void {
    this.blocks[view]--
    if (key === 0) return
    const known = this.keys[view]
    if (known === key) this.stamps[view] = Math.max(stamp, this.stamps[view])
    else if (this.isSettled(view)) {
      this.stamps[view] = stamp
      this.keys[view] = key
    } else this.keys[view] = SEVERAL
  }

  /** Whether the host has seen the last use complete; false if the last uses were on several streams. */
  isSettled(view: number): boolean {
    const key = this.keys[view]
    return key === 0 || (key !== SEVERAL && this.seen[slotOfKey(key)] >= this.stamps[view])
  }

  /** A view was unmapped; its number may be used for another. */
  forget(view: number): void {
    this.keys[view] = 0
    this.stamps[view] = 0
  }
}
