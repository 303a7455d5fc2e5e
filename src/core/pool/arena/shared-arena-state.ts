// The state of an arena that several threads share, in one shared buffer: its threads, the top of the stack, the order
// of streams, and what the next owner of a buffer on its way must know. Live buffers are on stacks of their threads.
//
// A thread may die between any two stores. Until the next reset its buffers are lost, and so is memory that it took
// and did not hand out; its counters may be wrong by one buffer.

import { threadId } from 'node:worker_threads'
import { formatBytes } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { BUMP_WORDS, SharedBump } from '../../heap/shared-bump.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { Region } from '../../threads/region.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from '../../threads/thread-registry.js'
import { closedError } from '../closable-pool.js'
import { COUNT_LINE, checkDescriptor, describePool, type PoolDescriptor } from '../shared/shared-state.js'
import type { ArenaMemory } from './arena-memory.js'
import { Epochs, epochsIn } from './epochs.js'

/**
 * Counters of a thread. All but the last two are of its latest epoch. A thread also counts its
 * frees of buffers that other threads allocated.
 */
export const enum Tally {
  epoch,
  buffers,
  units,
  requestedBytes,
  freedBuffers,
  freedUnits,
  freedBytes,
  allocations,
  insertedWaits,
}

/** The descriptor of an arena. */
export interface SharedArenaState<D = unknown> extends PoolDescriptor<D> {
  /** tells descriptors of different kinds of pool apart */
  readonly kind: 'arena'
  /**
   * the address of its memory
   * @internal
   */
  readonly base: number
  /** @internal */
  readonly bytes: number
  /** @internal */
  readonly isRegistrable: boolean
}

/** Refuses, in the name of `call`, any value that is no descriptor of an open arena of this process and version. */
export function checkArenaState(call: string, state: SharedArenaState): void {
  const { base, bytes, isRegistrable, device } = state
  const isWhole = [base, bytes].every(Number.isInteger) && typeof isRegistrable === 'boolean'
  const isState = isWhole && typeof device === 'object'
  checkDescriptor(call, state, isState)
  const [closed] = new Region(state.buffer).int32(1)
  if (closed !== 0) throw closedError(call)
}

/** The state of a new arena over `memory`. */
export function newArenaState<D>(memory: ArenaMemory, device: D): SharedArenaState<D> {
  const { base, committedBytes: bytes, isRegistrable } = memory
  const region = new Region(null)
  layOut(region, bytes / UNIT_BYTES)
  let buffer: SharedArrayBuffer
  try {
    buffer = new SharedArrayBuffer(region.bytes)
  } catch {
    throw new PoolError(
      `createArenaPool: the host has no room for ${formatBytes(region.bytes)} to keep account of the arena; make it smaller`,
    )
  }
  return { ...describePool(buffer, device), kind: 'arena', base, bytes, isRegistrable }
}

/** The layout, the same in every thread. */
function layOut(region: Region, units: number) {
  return {
    closed: region.int32(1),
    registryWords: region.int32(REGISTRY_WORDS),
    threadIds: region.int32(MOST_WORKERS + 1),
    bumpWords: region.int32(BUMP_WORDS),
    /** by thread, a cache line each: see Tally */
    tallies: region.float64((MOST_WORKERS + 1) * COUNT_LINE),
    peakUnits: region.float64(1),
    epochs: epochsIn(region),
    /** by first unit, counted from 0: see wordOf */
    underway: region.int32(units),
    /** of such a buffer: bytes asked for */
    requested: region.float64(units),
    /** of such a buffer: generation × MOST_STREAMS + slot of its stream */
    streams: region.float64(units),
  }
}

export class ArenaState {
  readonly registry: ThreadRegistry
  readonly thread: number
  readonly bump: SharedBump
  readonly epochs: Epochs
  /** this thread's line */
  readonly tally: Float64Array
  readonly parts: ReturnType<typeof layOut>

  /** Enters the registry. Throws PoolError when no number is left, or the arena is closed. */
  constructor({ buffer, bytes }: SharedArenaState, clocks: Clocks, firstUnit: number, lastUnit: number) {
    this.parts = layOut(new Region(buffer), bytes / UNIT_BYTES)
    const { registryWords, threadIds, bumpWords, tallies, epochs, closed } = this.parts
    this.registry = new ThreadRegistry(registryWords, 0)
    this.thread = this.registry.enter() || this.registry.takeOver()
    if (this.thread === 0) {
      throw new PoolError(
        `${MOST_WORKERS} threads use this pool, which is the limit; close the pool in one of them first`,
      )
    }
    if (Atomics.load(closed, 0) !== 0) {
      this.registry.forget(this.thread)
      throw closedError('attachPool')
    }
    threadIds[this.thread] = threadId
    this.tally = tallies.subarray(this.thread * COUNT_LINE, (this.thread + 1) * COUNT_LINE)
    this.epochs = new Epochs(epochs, clocks)
    this.epochs.insertedWaits = this.tally[Tally.insertedWaits] // counted by earlier threads of this number
    this.bump = new SharedBump(bumpWords, this.registry, this.thread, firstUnit, lastUnit, epoch =>
      this.epochs.begun(epoch),
    )
  }

  /** Counts a buffer that this thread has allocated, or one that it has freed. */
  count(epoch: number, kind: Tally.buffers | Tally.freedBuffers, units: number, requestedBytes: number): void {
    const { tally } = this
    if (tally[Tally.epoch] !== epoch) {
      tally.fill(0, Tally.buffers, Tally.allocations)
      tally[Tally.epoch] = epoch
    }
    tally[kind]++
    tally[kind + 1] += units
    tally[kind + 2] += requestedBytes
  }

  /**
   * Sums of all threads' counters, while they go on counting. Frees are added up after allocations, so that a live
   * sum never exceeds the true value of that time. It is never negative.
   */
  sums(): { buffers: number; units: number; requestedBytes: number; allocations: number; insertedWaits: number } {
    const { epoch } = this.bump
    const [buffers, units, bytes] = [Tally.buffers, Tally.units, Tally.requestedBytes].map(one => this.sum(one, epoch))
    const live = (allocated: number, freed: Tally) => Math.max(0, allocated - this.sum(freed, epoch))
    const liveUnits = live(units, Tally.freedUnits)
    this.parts.peakUnits[0] = Math.max(this.parts.peakUnits[0], liveUnits)
    return {
      buffers: live(buffers, Tally.freedBuffers),
      units: liveUnits,
      requestedBytes: live(bytes, Tally.freedBytes),
      allocations: this.sum(Tally.allocations),
      insertedWaits: this.sum(Tally.insertedWaits),
    }
  }

  /** The sum of one counter over all threads, in an epoch or ever. */
  private sum(one: Tally, epoch?: number): number {
    let sum = 0
    const { tallies } = this.parts
    for (let line = 0; line < tallies.length; line += COUNT_LINE) {
      if (epoch === undefined || tallies[line] === epoch) sum += tallies[line + one]
    }
    return sum
  }

  get peakUnits(): number {
    return this.parts.peakUnits[0]
  }

  /** The ids that `worker_threads` gave the other threads that use the arena. */
  others(): number[] {
    return this.registry.others(this.thread).map(thread => this.parts.threadIds[thread])
  }

  /** Marks the arena as closed, so that no thread enters any more. Returns true to the first caller. */
  shut(): boolean {
    return Atomics.compareExchange(this.parts.closed, 0, 0, 1) === 0
  }

  reopen(): void {
    Atomics.store(this.parts.closed, 0, 0)
  }
}

/** The word of a buffer on its way between two threads, which tells its epoch. All others have another. */
export function wordOf(epoch: number): number {
  return (epoch << 1) | 1
}
