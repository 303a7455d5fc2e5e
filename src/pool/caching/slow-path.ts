// What is tried for a request that the stream caches and the heap could not serve, one step after another: a cached block of
// another stream; a larger cached block; blocks of other streams that are known to be safe; what has completed meanwhile; the
// slot caches given back; idle memory moved and new memory; room in the heap of the other sizes; making the stream wait for
// another one's block; waiting on the host. No step that a former one makes needless is taken.

import { MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { CU_STREAM_LEGACY_DEFAULT } from '../../driver/constants.js'
import type { Admission } from '../../heap/free-run.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { relaxed } from '../../order/relaxed.js'
import { SMALL_UNITS } from '../backing/backing.js'
import type { BlockCache } from './block-cache.js'
import type { CentralHeap } from './central-heap.js'
import type { Use } from './deferred.js'
import { HostWait, NONE } from './host-wait.js'
import { ANYBODY, type Miss } from './miss.js'
import type { PoolConfig } from './options.js'
import { finish, type Waiting } from './waiting.js'

/** With 'wait-before-grow' the host waits before more than this is reserved, relative to the most that was live, and beyond it. */
const MOST_SLACK = 1.2
const LEAST_SLACK_BYTES = 32 * MiB

export class SlowPath {
  /** requests for which memory had to be found or moved */
  growths = 0
  private readonly host: HostWait

  constructor(
    private readonly central: CentralHeap,
    private readonly caches: BlockCache,
    private readonly clocks: Clocks,
    seen: Float64Array,
    private readonly config: PoolConfig,
  ) {
    this.host = new HostWait(central, clocks, seen, config)
  }

  /** A block for a stream, taken; 0 when no step helps. */
  *take(miss: Miss): Waiting<number> {
    const { heap, units, alignUnits, slot } = miss
    const { central } = this
    // Nothing below would help, even with the pool empty, and much would be disturbed.
    if (units * UNIT_BYTES > central.backing.limitBytes) return 0
    const { crossStream } = central
    const { isEmpty } = this.caches
    let record = 0
    crossStream.look(slot)
    if (!isEmpty && alignUnits === 1 && this.caches.isWorthDraining) record = crossStream.takeCached(units, slot)
    if (record === 0 && heap === central.small && central.breakLarger(units, slot)) {
      record = heap.allocate(units, alignUnits, slot + 1)
    }
    if (record === 0) record = crossStream.takeFree(heap, units, alignUnits)
    // Before it settles, which gives it a stamp to come: whoever knows all of its uses may not know that one.
    if (record === 0) record = this.takeDeferred(miss, false)
    if (record === 0 && central.settleKnown() > 0) record = this.takeKnown(miss)
    if (record === 0 && central.makeRoom(heap, units + alignUnits - 1, slot)) {
      record = heap.allocate(units, alignUnits, slot + 1)
    }
    if (record !== 0) return record
    this.checkAnnounced(slot)
    return yield* this.takeByDriver(miss)
  }

  /** Whether a request that waits could be served once all is complete, even if another one takes `lessBytes` of new memory. */
  couldServe(miss: Miss, lessBytes: number): boolean {
    return this.host.couldServe(miss, lessBytes)
  }

  /** A large block without any dependency, taken; 0 when nothing helps. */
  takeIdle(units: number): number {
    const { central } = this
    const heap = central.large
    if (units * UNIT_BYTES > central.backing.limitBytes) return 0
    const miss = { heap, units, alignUnits: 1, slot: ANYBODY }
    let record = heap.allocate(units, 1, 0)
    if (record === 0) {
      central.drain(heap)
      central.drain(central.small)
      central.settle()
      record = heap.allocate(units, 1, 0)
    }
    if (record === 0) {
      this.growths++
      record = this.growFor(miss, NONE)
    }
    while (record === 0 && finish(this.host.waitFor(miss))) {
      record = heap.allocate(units, 1, 0) || this.growFor(miss, NONE)
    }
    return record
  }

  /** Refuses a stream that another library captures without our knowledge: its memory would be used again under the graph. */
  private checkAnnounced(slot: number): void {
    const { handles, context } = this.clocks
    if (handles[slot] === CU_STREAM_LEGACY_DEFAULT) return
    const driver = context.activate()
    if (!this.clocks.submit('allocate', slot, handle => driver.cuStreamIsCapturing(handle))) return
    throw new PoolError(
      'allocate: the stream is being captured by another library; call pool.beginCapture(stream) before the capture begins',
    )
  }

  /** The steps that may need the driver. */
  private *takeByDriver(miss: Miss): Waiting<number> {
    const { heap, units, alignUnits, slot } = miss
    const { central } = this
    const { crossStream } = central
    const { crossStreamReuse } = this.config
    let record = 0
    if (central.ask() && central.settleKnown() > 0) record = this.takeKnown(miss)
    const drains = !this.caches.isEmpty && this.caches.isWorthDraining
    if (record === 0 && drains) record = this.takeDrained(miss, crossStreamReuse !== 'wait-before-grow')
    else if (record === 0) record = crossStream.takeRun(heap, units, alignUnits)
    if (record === 0 && crossStreamReuse === 'wait-before-grow') {
      record = this.takeByWaiting(miss)
      if (record !== 0) return record
      this.growths++
      record = (yield* this.takeWithSlack(miss)) || this.grow(miss)
    } else if (record === 0) {
      this.growths++
      record = this.grow(miss)
    }
    if (record === 0 && !this.caches.isEmpty) record = this.takeDrained(miss, false) || this.grow(miss)
    const elsewhere = { ...miss, heap: heap === central.small ? central.large : central.small }
    if (record === 0) record = this.takeAnywhere(elsewhere)
    if (record === 0 && crossStreamReuse === 'wait-before-oom') {
      record = this.takeByWaiting(miss)
      if (record === 0 && crossStream.waitForRun(central.backing, heap, units, alignUnits, slot))
        record = this.grow(miss)
      if (record === 0) record = this.takeByWaiting(elsewhere)
    }
    while (record === 0 && (yield* this.host.waitFor(miss))) {
      record = this.takeKnown(miss) || this.grow(miss) || this.takeAnywhere(elsewhere)
    }
    return record
  }

  /** A free block that the stream may use now, or a part of neighbouring ones. */
  private takeAnywhere(miss: Miss): number {
    const { heap, units, alignUnits } = miss
    return this.takeKnown(miss) || this.central.crossStream.takeRun(heap, units, alignUnits)
  }

  /**
   * Gives back what is cached, of the other heap too when that of this one does not help: with `sparing` only if that is not
   * much, since few of many blocks leave a granule idle, and all of them would be missed.
   */
  private takeDrained(miss: Miss, sparing: boolean): number {
    const { heap, units, alignUnits } = miss
    const { central } = this
    const other = heap === central.small ? central.large : central.small
    let record = 0
    if (central.drain(heap) > 0) {
      central.settle()
      record = this.takeKnown(miss)
    }
    if (record === 0) record = central.crossStream.takeRun(heap, units, alignUnits)
    if (record === 0 && !(sparing && central.cachesMany(other)) && central.drain(other) > 0) central.settle()
    return record
  }

  /** A free block that the stream may use now. */
  private takeKnown({ heap, units, alignUnits, slot }: Miss): number {
    const record = heap.allocate(units, alignUnits, slot + 1)
    if (record !== 0) return record
    const { crossStream } = this.central
    crossStream.look(slot)
    return crossStream.takeFree(heap, units, alignUnits)
  }

  private takeByWaiting(miss: Miss): number {
    const { heap, units, alignUnits, slot } = miss
    return this.central.crossStream.takeByWaiting(heap, units, alignUnits, slot) || this.takeDeferred(miss, true)
  }

  /** A freed block that other streams use: one that the stream may use now, or with `wait` any, which it is made to wait for. */
  private takeDeferred({ heap, units, alignUnits, slot }: Miss, wait: boolean): number {
    const { deferred, crossStream, small } = this.central
    // The host runs in no stream's order: what it has seen complete is settled already.
    if (deferred.empty || !this.config.streamOrdered) return 0
    const end = heap === small ? SMALL_UNITS : Infinity
    const isSafe = (use: Use) => use.clocks === this.clocks && crossStream.isSafe(slot, use.slot, use.stamp)
    const block = deferred.smallest(
      (units + alignUnits - 1) * UNIT_BYTES,
      end * UNIT_BYTES,
      candidate => wait || (crossStream.isSafe(slot, candidate.slot, candidate.stamp) && candidate.uses.every(isSafe)),
    )
    if (block === null) return 0
    crossStream.waitFor(slot, block.slot, block.stamp)
    for (const use of block.uses) {
      if (use.clocks === this.clocks) crossStream.waitFor(slot, use.slot, use.stamp)
      else crossStream.waitForPeer(slot, use)
    }
    deferred.remove(block)
    const freed = this.central.giveToHeap(block.record, slot, this.clocks.marked[slot] + 1)
    return freed.allocate(units, alignUnits, slot + 1)
  }

  /** Grows as long as that leaves little slack, and waits on the host as long as it would leave much; 0 when that does not help. */
  private *takeWithSlack(miss: Miss): Waiting<number> {
    const usedUnits = Math.max(this.caches.peakUnits, this.caches.liveUnits + miss.units)
    const mostBytes = Math.max(usedUnits * UNIT_BYTES * MOST_SLACK, usedUnits * UNIT_BYTES + LEAST_SLACK_BYTES)
    let record = this.grow(miss, mostBytes)
    while (record === 0 && (yield* this.host.waitFor(miss, mostBytes))) {
      record = this.takeKnown(miss) || this.grow(miss, mostBytes)
    }
    return record
  }

  private grow(miss: Miss, mostBytes = Infinity): number {
    return this.growFor(miss, this.central.crossStream.look(miss.slot), mostBytes)
  }

  /** May obtain and map memory, which only a relaxed thread may do while some stream is captured. */
  private growFor({ heap, units, alignUnits }: Miss, admission: Admission, mostBytes = Infinity): number {
    const { backing } = this.central
    return relaxed(this.clocks.context.activate(), () => backing.grow(heap, units, alignUnits, admission, mostBytes))
  }
}
