// The arena of one thread as scratch of a graph group: its memory above a height is lent to captures of the group. They
// take it in turn, and the order of the group keeps their launches apart. So epochs stand still until the group is
// closed, and the next one begins behind the latest launch.

import { PoolError } from '../../base/errors.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Capture } from '../../order/capture.js'
import type { Clocks } from '../../order/clocks.js'
import { checkStreamOf, type Stream } from '../../order/stream.js'
import type { ArenaScratch, LentMemory, ScratchArena } from '../caching/captures/arena-scratch.js'
import { Arena } from './arena.js'

export abstract class LendableArena extends Arena implements ScratchArena {
  /** the scratch of a group that the arena is; null for an ordinary arena */
  protected scratch: ArenaScratch | null = null
  /** resets, rewinds and ends of captures */
  protected dropped = 0

  abstract mark(): object

  /**
   * Captures use the memory only as scratch of their group.
   * @internal
   */
  get servesCaptures(): boolean {
    return this.scratch !== null
  }

  /**
   * The number of the group that a capture belongs to; 0 for none.
   * @internal
   */
  groupOf(capture: Capture): number {
    return this.scratch?.captures({ capture }) === true ? this.scratch.group.number : 0
  }

  /** @internal */
  checkLendable(call: string, clocks: Clocks): void {
    this.checkOpen(call)
    if (clocks !== this.clocks) {
      throw new PoolError(`${call}: the arena belongs to another device; pass one of this`, 'ERR_OTHER_DEVICE')
    }
    if (this.scratch?.isOver === true) this.endLoan()
    if (this.scratch !== null) {
      const remedy = 'close that group first, or pass another arena'
      throw new PoolError(`${call}: the arena is the scratch of another graph group; ${remedy}`, 'ERR_POOL_IN_USE')
    }
    this.region?.checkUsable(call)
    if (this.region !== null && this.region.buffer.allocation.pool.servesCaptures !== true) {
      const fact = 'the arena stands on a buffer of a pool that keeps no memory for graphs'
      throw new PoolError(`${call}: ${fact}; pass an arena of its own memory, or on a buffer of a caching pool`)
    }
  }

  /** @internal */
  lend(scratch: ArenaScratch): LentMemory {
    const { bump, epochs, epoch } = this
    const lent = { entry: bump.last, ptr: this.base + bump.top * UNIT_BYTES, uses: epochs.usesIn(epoch) }
    bump.limit = this.firstUnit // from here on every allocation is checked
    this.follow(this.defaultStream) // so that no allocation for captured work is one from before
    this.scratch = scratch
    return lent
  }

  /** @internal */
  dropCaptured(entry: number): number {
    const { bump } = this
    bump.limit = this.firstUnit
    const units = bump.top
    bump.dropTo(entry)
    this.follow(this.defaultStream)
    this.dropped++
    return (units - bump.top) * UNIT_BYTES
  }

  /** The arena is an ordinary one again. Its free memory comes after the launches of the group. */
  protected endLoan(): void {
    const { scratch, epochs } = this
    if (scratch === null) return
    scratch.lost = true
    const { launch } = scratch
    if (launch !== null) {
      const next = (this.epoch + 1) | 0
      epochs.endAt(this.epoch, launch.slot, launch.stamp)
      epochs.begun(next)
      this.epoch = next
    }
    this.scratch = null
  }

  /** While the arena is scratch of a group, only streams that the group captures can be used, and to allocate alone. */
  protected override checkStream(call: string, stream: Stream): void {
    if (this.scratch?.isOver === true) this.endLoan()
    if (this.scratch === null) {
      super.checkStream(call, stream)
      return
    }
    this.checkOpen(call)
    checkStreamOf(call, stream, this.clocks)
    if (call === 'allocate' && this.scratch.captures(stream)) return
    const remedy =
      call === 'allocate' ? 'name a stream that the group captures, or close the group first' : 'close the group first'
    throw new PoolError(
      `${call}: the arena is the scratch of a graph group, and serves its captures alone; ${remedy}`,
      'ERR_POOL_IN_USE',
    )
  }
}
