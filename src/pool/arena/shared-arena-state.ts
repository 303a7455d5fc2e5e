// The state of an arena that several threads share, in one shared buffer: its threads, the stack, the order of
// streams, and for each buffer, at the number of its first unit, its owner and the bytes requested.
//
// A thread may die between any two stores. Until the next reset its buffers are lost, and so is memory that it took
// and did not hand out; its counters may be wrong by one buffer.

import { threadId } from 'node:worker_threads'
import { formatBytes } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { Region } from '../../base/region.js'
import { BUMP_WORDS, SharedBump } from '../../heap/shared-bump.js'
import type { Clocks } from '../../order/clocks.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from '../../threads/thread-registry.js'
import { closedError } from '../closable-pool.js'
import { COUNT_LINE, checkDescriptor, LAYOUT_VERSION } from '../shared/shared-state.js'
import { newPoolNumber } from '../transferred-buffer.js'
import { epochsIn, SharedEpochs } from './shared-epochs.js'

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

/** An arena for other threads of this process, to be cloned into any message. `D` is the type of its device. */
export interface SharedArenaState<D = unknown> {
  /** tells descriptors of different kinds of pool apart */
  readonly kind: 'arena'
  /** version of the descriptor; all threads must use the same version of the package */
  readonly version: number
  /** number of the process; the arena works in no other */
  readonly process: number
  /** number of the pool, which its buffers carry from thread to thread */
  readonly number: number
  /**
   * the address of unit 0
   * @internal
   */
  readonly base: number
  /** @internal */
  readonly firstUnit: number
  /** @internal */
  readonly lastUnit: number
  /** @internal */
  readonly buffer: SharedArrayBuffer
  /** the descriptor of the arena's device */
  readonly device: D
}

type Room = Pick<SharedArenaState, 'firstUnit' | 'lastUnit'>

/** Refuses, in the name of `call`, any value that is no descriptor of an open arena of this process and version. */
export function checkArenaState(call: string, state: SharedArenaState): void {
  const { firstUnit, lastUnit, base, device } = state
  const isState = [firstUnit, lastUnit, base].every(Number.isInteger) && typeof device === 'object'
  checkDescriptor(call, state, isState)
  const [closed] = new Region(state.buffer).int32(1)
  if (closed !== 0) throw closedError(call)
}

/** The state of a new arena; unit 0 is at `base`. */
export function newArenaState<D>(base: number, room: Room, device: D): SharedArenaState<D> {
  const region = new Region(null)
  layOut(region, room)
  let buffer: SharedArrayBuffer
  try {
    buffer = new SharedArrayBuffer(region.bytes)
  } catch {
    throw new PoolError(
      `createArenaPool: the host has no room for ${formatBytes(region.bytes)} to keep account of the arena; make it smaller`,
    )
  }
  return {
    kind: 'arena',
    version: LAYOUT_VERSION,
    process: process.pid,
    number: newPoolNumber(),
    base,
    ...room,
    buffer,
    device,
  }
}

/** The layout, the same in every thread. */
function layOut(region: Region, { lastUnit }: Room) {
  return {
    closed: region.int32(1),
    registryWords: region.int32(REGISTRY_WORDS),
    threadIds: region.int32(MOST_WORKERS + 1),
    bumpWords: region.int32(BUMP_WORDS),
    /** by thread, a cache line each: see Tally */
    tallies: region.float64((MOST_WORKERS + 1) * COUNT_LINE),
    peakUnits: region.float64(1),
    epochs: epochsIn(region),
    /** by first unit: see ownerOf */
    owners: region.int32(lastUnit),
    /** by first unit: bytes asked for */
    requested: region.float64(lastUnit),
    /** by first unit of a transferred buffer: generation × MOST_STREAMS + slot of its stream */
    streams: region.float64(lastUnit),
  }
}

export class ArenaState {
  readonly registry: ThreadRegistry
  readonly thread: number
  readonly bump: SharedBump
  readonly epochs: SharedEpochs
  readonly owners: Int32Array
  readonly requested: Float64Array
  readonly streams: Float64Array
  /** this thread's line */
  readonly tally: Float64Array
  private readonly tallies: Float64Array
  private readonly threadIds: Int32Array
  private readonly closed: Int32Array
  private readonly peak: Float64Array

  /** Enters the registry. Throws PoolError when no number is left, or the arena is closed. */
  constructor(state: SharedArenaState, clocks: Clocks) {
    const parts = layOut(new Region(state.buffer), state)
    this.registry = new ThreadRegistry(parts.registryWords, 0)
    this.thread = this.registry.enter() || this.registry.takeOver()
    if (this.thread === 0) {
      throw new PoolError(
        `${MOST_WORKERS} threads use this pool, which is the limit; close the pool in one of them first`,
      )
    }
    this.closed = parts.closed
    if (Atomics.load(this.closed, 0) !== 0) {
      this.registry.forget(this.thread)
      throw closedError('attachPool')
    }
    this.threadIds = parts.threadIds
    this.threadIds[this.thread] = threadId
    this.owners = parts.owners
    this.requested = parts.requested
    this.streams = parts.streams
    this.tallies = parts.tallies
    this.tally = this.tallies.subarray(this.thread * COUNT_LINE, (this.thread + 1) * COUNT_LINE)
    this.peak = parts.peakUnits
    this.epochs = new SharedEpochs(parts.epochs, clocks)
    this.epochs.insertedWaits = this.tally[Tally.insertedWaits] // counted by earlier threads of this number
    const { firstUnit, lastUnit } = state
    this.bump = new SharedBump(parts.bumpWords, this.registry, this.thread, firstUnit, lastUnit, epoch =>
      this.epochs.begun(epoch),
    )
    this.disownLeft()
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
    this.peak[0] = Math.max(this.peak[0], liveUnits)
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
    for (let line = 0; line < this.tallies.length; line += COUNT_LINE) {
      if (epoch === undefined || this.tallies[line] === epoch) sum += this.tallies[line + one]
    }
    return sum
  }

  /** Buffers and bytes that this thread holds. */
  held(): { buffers: number; requestedBytes: number } {
    const mine = ownerOf(this.bump.epoch, this.thread)
    const held = { buffers: 0, requestedBytes: 0 }
    for (let unit = this.owners.indexOf(mine); unit !== -1; unit = this.owners.indexOf(mine, unit + 1)) {
      held.buffers++
      held.requestedBytes += this.requested[unit]
    }
    return held
  }

  /**
   * Disowns the buffers of an earlier thread with this thread's number; their memory comes back with the next reset.
   */
  private disownLeft(): void {
    const { owners } = this
    const mine = ownerOf(this.bump.epoch, this.thread)
    for (let unit = owners.indexOf(mine); unit !== -1; unit = owners.indexOf(mine, unit + 1)) {
      Atomics.compareExchange(owners, unit, mine, 0) // fails if, after a reset, another thread has the unit
    }
  }

  get peakUnits(): number {
    return this.peak[0]
  }

  /** The ids that `worker_threads` gave the other threads that use the arena. */
  others(): number[] {
    const others: number[] = []
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      if (thread === this.thread || !this.registry.isAlive(thread) || this.registry.look(thread)) continue
      others.push(this.threadIds[thread])
    }
    return others
  }

  /** Marks the arena as closed, so that no thread enters any more. Returns true to the first caller. */
  shut(): boolean {
    return Atomics.compareExchange(this.closed, 0, 0, 1) === 0
  }

  reopen(): void {
    Atomics.store(this.closed, 0, 0)
  }
}

/** The thread number of a buffer on its way between two threads. */
export const UNDERWAY = 255

/** The owner word of a buffer: the low bits of the epoch, and the number of its thread. Freed buffers have 0. */
export function ownerOf(epoch: number, thread: number): number {
  return (epoch << 8) | thread
}
