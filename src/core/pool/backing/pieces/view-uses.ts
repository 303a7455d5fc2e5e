// How many blocks each view has, and the last use of memory through it. A view must not be unmapped while the GPU may
// use an address in it. Threads share these numbers: any thread may free a block, but only one unmaps.

import type { Region } from '../../../base/region.js'
import { slotOfKey } from '../../../heap/key.js'

/** As a key: the last uses were on several streams. */
const SEVERAL = -1

/** Room at first, outside of a region: most pools have few views. */
const FIRST_VIEWS = 64

export class ViewUses {
  /** blocks that are handed out, or wait for work, by view */
  blocks: Int32Array
  /** the key of the last use, by view; 0 for none */
  private keys: Int32Array
  /** the stamp of the last use, by view */
  private stamps: Float64Array

  /**
   * Lies in `region`, which must be zeroed, so that threads can share it; with null, in memory of its own, which grows
   * up to `most` views.
   */
  constructor(
    readonly most: number,
    /** the latest stamp that the host has seen complete, by stream slot */
    private readonly seen: Float64Array,
    region: Region | null,
  ) {
    const first = region === null ? Math.min(most, FIRST_VIEWS) : most
    this.blocks = region?.int32(first) ?? new Int32Array(first)
    this.keys = region?.int32(first) ?? new Int32Array(first)
    this.stamps = region?.float64(first) ?? new Float64Array(first)
  }

  /** Has room for a view that is about to be mapped. */
  fit(view: number): void {
    if (view < this.blocks.length) return
    const room = Math.min(Math.max(view + 1, this.blocks.length * 2), this.most)
    const [blocks, keys, stamps] = [new Int32Array(room), new Int32Array(room), new Float64Array(room)]
    blocks.set(this.blocks)
    keys.set(this.keys)
    stamps.set(this.stamps)
    this.stamps = stamps
    this.keys = keys
    this.blocks = blocks // last: it says that all have room
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
