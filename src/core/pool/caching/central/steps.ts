// The steps of the slow path (slow-path.ts), by name. Each one returns a taken block, or 0. A step may be repeated:
// it looks at the pool as the steps before it have left it.

import { PoolError } from '../../../base/errors.js'
import { CU_STREAM_LEGACY_DEFAULT } from '../../../driver/constants.js'
import { keyOfSlot, slotOfKey } from '../../../heap/key.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { type Backing, SMALL_UNITS } from '../../backing/backing.js'
import { policy } from '../../policy.js'
import type { CrossStreamReuse } from './cross-stream.js'
import type { Deferred, Use } from './deferred.js'
import type { FreeMemory } from './free-memory.js'
import { ANY_STREAM, type Miss, OfPool, type PoolParts, type Waiting } from './parts.js'
import type { Settling } from './settling.js'
import { addSlab, giveBackEmptySlabs, leastSlabUnits, slabUnits } from './slabs.js'

export type Step = (miss: Miss) => number | Waiting<number>

export type StepName = { [Name in keyof Steps]: Steps[Name] extends Step ? Name : never }[keyof Steps]

export class Steps extends OfPool {
  /** requests that a step of growth served, or that took new memory before them */
  growths = 0
  /** bytes that the program has reserved ahead of its requests; they count as used */
  aheadBytes = 0

  constructor(
    parts: PoolParts,
    private readonly memory: FreeMemory,
    private readonly deferred: Deferred,
    private readonly crossStream: CrossStreamReuse,
    private readonly backing: Backing,
    private readonly settling: Settling,
  ) {
    super(parts)
  }

  /** Whether a step may help: beyond the pool's limit none would, even with the pool empty, and they disturb much. */
  mayHelp({ units }: Miss): boolean {
    return units * UNIT_BYTES <= this.backing.maxPoolBytes
  }

  /** A free block that depends on no work. */
  independent(miss: Miss): number {
    return this.takeKnown(miss)
  }

  /**
   * A block that other streams used last, cached, free or waiting for announced uses, if this stream comes after those
   * uses; or one that waited for work known to have completed.
   */
  reuseOrdered(miss: Miss): number {
    const { units, alignUnits, slot } = miss
    const { caches, crossStream, settling, config } = this
    const mayBeCached = alignUnits === 1 && caches.isWorthDraining
    return (
      (mayBeCached ? crossStream.takeCached(units, slot) : 0) ||
      crossStream.takeFree(miss) ||
      (config.streamOrdered ? this.takeDeferred(miss, false) : 0) || // settling would give these a later stamp
      (settling.settleKnown() > 0 ? this.takeKnown(miss) : 0)
    )
  }

  /**
   * Throws for a stream that another library captures unannounced: the pool would reuse memory that the graph uses.
   */
  refuseForeignCapture({ slot }: Miss): number {
    const { clocks } = this
    if (clocks.handles[slot] === CU_STREAM_LEGACY_DEFAULT) return 0
    const driver = clocks.context.activate()
    if (!clocks.submit('allocate', slot, handle => driver.cuStreamIsCapturing(handle))) return 0
    throw new PoolError(
      'allocate: the stream is being captured by another library; call pool.beginCapture(stream) before the capture begins',
      'ERR_STREAM_CAPTURED',
    )
  }

  /** A block that depended on work which the driver now reports complete. */
  poll(miss: Miss): number {
    const { settling } = this
    if (!this.needsCompletedWork(miss) || !settling.poll()) return 0
    // Before blocks settle: they merge then with neighbours that may wait for other work.
    return this.takeKnown(miss) || (settling.settleKnown() > 0 ? this.takeKnown(miss) : 0)
  }

  /** Adjacent safe blocks of several streams, after the caches were drained if they are worth it. */
  drain(miss: Miss): number {
    if (this.caches.isWorthDraining) return this.takeDrained(miss, this.config.crossStreamReuse !== 'wait-before-grow')
    return this.takeRun(miss)
  }

  /** A block for a capture, after all caches were drained and completed work was settled. */
  drainCompletely(miss: Miss): number {
    const { memory, settling } = this
    memory.drain(memory.large)
    memory.drain(memory.small)
    settling.settle()
    return this.takeKnown(miss)
  }

  /** The block of a small miss in a slab, out of free memory of the large heap that the stream may use now. */
  carveSlab(miss: Miss): number {
    return this.inFreeSlab(miss, slabUnits(roomOf(miss)))
  }

  private inFreeSlab(miss: Miss, units: number): number {
    const { memory, crossStream } = this
    if (!this.isInSlab(miss)) return 0
    const { records, large } = memory
    const slab = large.allocate(units, 1, keyOfSlot(miss.slot))
    if (slab !== 0) return this.takeInSlab(miss, slab, records.keyOf(slab), records.stampOf(slab))
    return this.inSlab(miss, units, free => crossStream.takeFree(free))
  }

  /** A block in the memory of slabs that were empty. */
  returnSlabs(miss: Miss): number {
    const { memory } = this
    return miss.heap === memory.large && giveBackEmptySlabs(memory) > 0 ? this.takeAnywhere(miss) : 0
  }

  /** Free memory that is contiguous in a view. */
  takeInView(miss: Miss): number {
    const { units, alignUnits, slot } = miss
    return this.mayLieInView(miss) ? this.backing.takeInView(units, alignUnits, this.crossStream.admissionFor(slot)) : 0
  }

  /** New memory, in a whole step, while the pool is little larger than it had to be so far. */
  growToBound(miss: Miss): number {
    const { growthStepBytes } = this.backing
    const mostBytes = this.usedBytes(miss.units) + growthStepBytes
    if (!this.isInSlab(miss)) return this.grow(miss, mostBytes)
    return this.inNewSlab(miss, slabUnits(roomOf(miss)), mostBytes)
  }

  /** Free memory of several places, joined in a view; with new memory as long as the pool is not tight. */
  stitchOrGrow(miss: Miss): number {
    return this.growTo(miss, this.looseBound(miss.units))
  }

  /** The same once the host has waited for the oldest work that is enough, and again until none is left. */
  *waitOnHostToStitch(miss: Miss): Waiting<number> {
    const mostBytes = this.looseBound(miss.units)
    let record = 0
    while (record === 0 && (yield* this.settling.waitForRoom(miss, mostBytes))) {
      record = this.takeCompleted(miss, mostBytes)
    }
    return record
  }

  /** New memory, however much of the pool lies idle. */
  growToLimit(miss: Miss): number {
    return this.growTo(miss, Infinity)
  }

  /** The same once all caches were drained, and empty slabs returned. */
  drainAll(miss: Miss): number {
    return this.takeDrained(miss, false) || this.takeFree(miss) || this.growToLimit(miss)
  }

  /** A block out of the heap for blocks of other sizes; also by waiting for the stream that used it last. */
  takeFromOtherHeap(miss: Miss): number {
    const other = this.inOtherHeap(miss)
    const mayWait = this.config.crossStreamReuse !== 'ordered' && miss.slot !== ANY_STREAM
    return this.takeAnywhere(other) || (mayWait ? this.takeByWaiting(other) : 0)
  }

  /** A block that another stream used last, once this stream was made to wait for that stream. */
  waitForStream(miss: Miss): number {
    if (!this.settling.mayHelp(miss.slot)) return 0 // all free memory was looked at
    return this.takeByWaiting(miss) || this.inLeastSlab(miss, slab => this.takeByWaiting(slab))
  }

  /** Free memory of several places, joined in a view, once this stream was made to wait for its last uses. */
  waitToStitch(miss: Miss): number {
    return this.waitForParts(miss, 0) ? this.join(miss, 0) : 0
  }

  /** The same with new memory. It alone was not enough, and without it the host would have to wait. */
  waitToGrow(miss: Miss): number {
    if (!this.waitForParts(miss, Infinity)) return 0
    return this.grow(miss, Infinity) || this.join(miss, Infinity) // new memory beside free memory needs no view
  }

  /**
   * Whatever the pool has once the host has waited for the oldest work that is enough, and again until none is left.
   */
  *waitOnHost(miss: Miss): Waiting<number> {
    const hasOtherHeap = !this.memory.hasSlabs && miss.slot !== ANY_STREAM
    let record = 0
    while (record === 0 && (yield* this.settling.waitForRoom(miss))) {
      record = this.takeCompleted(miss, Infinity)
      if (record === 0 && hasOtherHeap) record = this.takeAnywhere(this.inOtherHeap(miss))
    }
    return record
  }

  /** Whatever is free once the host has waited, and new memory until `mostBytes` are reserved. */
  private takeCompleted(miss: Miss, mostBytes: number): number {
    const mayBeDeferred = this.config.streamOrdered && miss.slot !== ANY_STREAM
    const take = () =>
      this.takeFree(miss) ||
      this.takeRun(miss) ||
      (mayBeDeferred ? this.takeDeferred(miss, false) : 0) ||
      this.growTo(miss, mostBytes)
    // Before blocks settle: they merge then with neighbours that may wait for other work.
    return take() || (this.settling.settle() > 0 ? take() : 0)
  }

  /** Whatever is free for the stream now, without new memory. */
  private takeFree(miss: Miss): number {
    return (
      this.takeKnown(miss) ||
      this.carveSlab(miss) ||
      this.inFreeSlab(miss, leastSlabUnits(roomOf(miss))) ||
      this.returnSlabs(miss) ||
      this.takeInView(miss)
    )
  }

  /** New memory until `mostBytes` are reserved, where possible with free memory of several places. */
  private growTo(miss: Miss, mostBytes: number): number {
    if (this.isInSlab(miss)) {
      const units = leastSlabUnits(roomOf(miss))
      return this.inFreeSlab(miss, units) || this.inNewSlab(miss, units, mostBytes)
    }
    return this.join(miss, mostBytes) || this.grow(miss, mostBytes)
  }

  /** Whether the block of a miss lies in a slab. */
  private isInSlab({ heap }: Miss): boolean {
    return this.memory.hasSlabs && heap === this.memory.small
  }

  private mayLieInView({ heap, isSlab }: Miss): boolean {
    return heap === this.memory.large && isSlab !== true
  }

  /** The block of a small miss in a slab as small as possible, which `take` finds in the large heap. */
  private inLeastSlab(miss: Miss, take: (slab: Miss) => number): number {
    return this.isInSlab(miss) ? this.inSlab(miss, leastSlabUnits(roomOf(miss)), take) : 0
  }

  private inSlab(miss: Miss, units: number, take: (slab: Miss) => number): number {
    const { memory, clocks } = this
    const { slot } = miss
    const slab = take({ heap: memory.large, units, alignUnits: 1, slot, isSlab: true })
    return slab === 0 ? 0 : this.takeInSlab(miss, slab, keyOfSlot(slot), clocks.marked[slot] + 1)
  }

  /** The same in a new slab. Every stream may use its rest if no work has used that memory yet. */
  private inNewSlab(miss: Miss, units: number, mostBytes: number): number {
    const { memory, clocks } = this
    const { slot } = miss
    const slab = this.grow({ heap: memory.large, units, alignUnits: 1, slot, isSlab: true }, mostBytes)
    if (slab === 0) return 0
    const isUnused = memory.records.keyOf(slab) === 0
    return this.takeInSlab(miss, slab, isUnused ? 0 : keyOfSlot(slot), isUnused ? 0 : clocks.marked[slot] + 1)
  }

  private takeInSlab({ heap, units, alignUnits }: Miss, slab: number, key: number, stamp: number): number {
    if (key !== 0) this.memory.await(slotOfKey(key), stamp)
    // The block is taken before the slab is free memory, which may merge with memory that other streams still use.
    const taken = addSlab(this.memory, slab, key, stamp)
    const start = Math.ceil(heap.records.offsetOf(taken) / alignUnits) * alignUnits
    return heap.keep(taken, start, units, key, stamp)
  }

  /**
   * A block once the caches of its heap were drained. If none is found, the caches of the other heap are drained for
   * the steps that follow. With `sparing` small blocks in slabs stay cached: to a large block only a whole slab is of
   * use.
   */
  private takeDrained(miss: Miss, sparing: boolean): number {
    const { settling, memory } = this
    // Much smaller blocks stay cached at first: few of them would help, and all of them would be missed.
    const ofLike = this.isInSlab(miss) ? this.drainAndTake(miss, miss.units * policy.drainedShare) : 0
    const record = ofLike || this.drainAndTake(miss)
    if (record !== 0) return record
    const other = this.inOtherHeap(miss).heap
    const staysCached = sparing && memory.hasSlabs && other === memory.small
    if (!staysCached && memory.drain(other) > 0 && this.needsCompletedWork(miss)) settling.settle()
    return 0
  }

  /** Drains the blocks of at least about `leastUnits` out of the caches of the request's heap, and takes a block. */
  private drainAndTake(miss: Miss, leastUnits = 1): number {
    const { memory, settling } = this
    if (memory.drain(miss.heap, leastUnits) === 0) return this.takeRun(miss)
    if (this.needsCompletedWork(miss)) settling.settle()
    return this.takeAnywhere(miss)
  }

  /** Whether to ask which work has completed: for memory that other streams used, or before old views can go. */
  private needsCompletedWork({ slot }: Miss): boolean {
    const { settling, backing } = this
    return settling.mayHelp(slot) || backing.isCrowded
  }

  /** A free block that the stream may use now. */
  private takeKnown(miss: Miss): number {
    const { heap, units, alignUnits, slot } = miss
    if (slot === ANY_STREAM) return heap.allocate(units, alignUnits, 0)
    return heap.allocate(units, alignUnits, keyOfSlot(slot)) || this.crossStream.takeFree(miss)
  }

  /** A part of adjacent free blocks that the stream may use now. */
  private takeRun(miss: Miss): number {
    if (miss.slot === ANY_STREAM) return 0 // neighbours that depend on no work are one block
    return this.crossStream.takeRun(miss)
  }

  private takeAnywhere(miss: Miss): number {
    return this.takeKnown(miss) || this.takeRun(miss)
  }

  private takeByWaiting(miss: Miss): number {
    return this.crossStream.takeByWaiting(miss) || (this.config.streamOrdered ? this.takeDeferred(miss, true) : 0)
  }

  /** Makes the stream wait if a block can then be joined, of free memory and of new memory up to `mostBytes`. */
  private waitForParts(miss: Miss, mostBytes: number): boolean {
    const mayHelp = this.mayLieInView(miss) && this.settling.mayHelp(miss.slot)
    return mayHelp && this.crossStream.waitForParts(this.backing, miss, mostBytes)
  }

  private inOtherHeap(miss: Miss): Miss {
    const { small, large } = this.memory
    return { ...miss, heap: miss.heap === small ? large : small }
  }

  /**
   * A freed block with announced uses: one that is safe for the stream; or, with `wait`, any, and the stream waits
   * for its uses.
   */
  private takeDeferred({ heap, units, alignUnits, slot }: Miss, wait: boolean): number {
    const { deferred, crossStream, memory, clocks } = this
    if (deferred.empty) return 0
    const end = heap === memory.small ? SMALL_UNITS : Infinity
    const isSafe = (use: Use) => use.clocks === clocks && crossStream.isSafe(slot, use.slot, use.stamp)
    const block = deferred.smallest(
      (units + alignUnits - 1) * UNIT_BYTES,
      end * UNIT_BYTES,
      candidate => wait || (crossStream.isSafe(slot, candidate.slot, candidate.stamp) && candidate.uses.every(isSafe)),
    )
    if (block === null) return 0
    crossStream.waitFor(slot, block.slot, block.stamp)
    for (const use of block.uses) {
      if (use.clocks === clocks) crossStream.waitFor(slot, use.slot, use.stamp)
      else crossStream.waitForPeer(slot, use)
    }
    deferred.remove(block)
    const freed = memory.giveToHeap(block.record, slot, clocks.marked[slot] + 1)
    return freed.allocate(units, alignUnits, keyOfSlot(slot))
  }

  private grow({ heap, units, alignUnits, slot }: Miss, mostBytes: number): number {
    const { backing, crossStream } = this
    return backing.grow(heap, units, alignUnits, crossStream.admissionFor(slot), mostBytes, backing.growthStepBytes)
  }

  private join(miss: Miss, mostBytes: number): number {
    if (!this.mayLieInView(miss)) return 0
    const { units, alignUnits, slot } = miss
    return this.backing.stitch(units, alignUnits, this.crossStream.admissionFor(slot), mostBytes)
  }

  /** The most bytes that a pool has reserved before it is tight, with a request of `units`. */
  looseBound(units: number): number {
    return this.usedBytes(units) + policy.looseSteps * this.backing.growthStepBytes
  }

  /** The most bytes that were ever in use, with a request of `units`. */
  private usedBytes(units: number): number {
    return Math.max(this.aheadBytes, this.caches.mostUsedUnits(units) * UNIT_BYTES)
  }
}

/** Units that contain a block of the miss at some multiple of its alignment. */
function roomOf({ units, alignUnits }: Miss): number {
  return units + alignUnits - 1
}
