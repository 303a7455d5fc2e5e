// The state of an arena that several threads share, in one shared buffer: who uses it, the stack, the order of streams, and of
// each buffer, at the number of its first unit, whose it is and how many bytes were asked for.
//
// A thread may die between any two stores. What it held is lost until the next reset, and so is memory that it took and did
// not hand out; what it counted may be wrong by one buffer until then.

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

/** What each thread counts; all but the last two of the epoch in which it counted last. Whoever frees a buffer may be another thread. */
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

/** An arena for other threads of this process; can be cloned into any message. `D` stands for its device. */
export interface SharedArenaState<D = unknown> {
  readonly kind: 'arena'
  readonly version: number
  /** number of the process */
  readonly process: number
  /** that of the pool, which its buffers carry from thread to thread */
  readonly number: number
  /** the address of unit 0 */
  readonly base: number
  readonly firstUnit: number
  readonly lastUnit: number
  readonly buffer: SharedArrayBuffer
  readonly device: D
}

type Room = Pick<SharedArenaState, 'firstUnit' | 'lastUnit'>

/** Refuses, in the name of `call`, what is no descriptor of an arena, or one of another process or version, or of a closed one. */
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

/** The same in every thread: this is the layout. */
function layOut(region: Region, { lastUnit }: Room) {
  return {
    closed: region.int32(1),
    registryWords: region.int32(REGISTRY_WORDS),
    threadIds: region.int32(MOST_WORKERS + 1),
    bumpWords: region.int32(BUMP_WORDS),
    /** by thread, a line each: see Tally */
    tallies: region.float64((MOST_WORKERS + 1) * COUNT_LINE),
    peakUnits: region.float64(1),
    epochs: epochsIn(region),
    /** by first unit: see ownerOf */
    owners: region.int32(lastUnit),
    /** by first unit: bytes asked for */
    requested: region.float64(lastUnit),
    /** by first unit, of a buffer on its way: generation × MOST_STREAMS + slot of the stream that it was allocated on */
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

  /** Enters the registry. Throws PoolError when there is no place, or when the arena is closed. */
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
    this.epochs.insertedWaits = this.tally[Tally.insertedWaits] // of earlier threads with its number
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
   * What all threads have counted, while they go on. Frees are added up after all allocations, so that what is live is never more than
   * it was in between, and never less than none.
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

  /** What all threads have counted of one kind, in an epoch or ever. */
  private sum(one: Tally, epoch?: number): number {
    let sum = 0
    for (let line = 0; line < this.tallies.length; line += COUNT_LINE) {
      if (epoch === undefined || this.tallies[line] === epoch) sum += this.tallies[line + one]
    }
    return sum
  }

  /** What this thread holds. */
  held(): { buffers: number; requestedBytes: number } {
    const mine = ownerOf(this.bump.epoch, this.thread)
    const held = { buffers: 0, requestedBytes: 0 }
    for (let unit = this.owners.indexOf(mine); unit !== -1; unit = this.owners.indexOf(mine, unit + 1)) {
      held.buffers++
      held.requestedBytes += this.requested[unit]
    }
    return held
  }

  /** What an earlier thread with the number of this one left is no thread's until the next reset. */
  private disownLeft(): void {
    const { owners } = this
    const mine = ownerOf(this.bump.epoch, this.thread)
    for (let unit = owners.indexOf(mine); unit !== -1; unit = owners.indexOf(mine, unit + 1)) {
      Atomics.compareExchange(owners, unit, mine, 0) // another thread may have it since, after a reset
    }
  }

  get peakUnits(): number {
    return this.peak[0]
  }

  /** What `worker_threads` calls the other threads that use the arena. */
  others(): number[] {
    const others: number[] = []
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      if (thread === this.thread || !this.registry.isAlive(thread) || this.registry.look(thread)) continue
      others.push(this.threadIds[thread])
    }
    return others
  }

  /** Says that the arena is closed, after which nobody enters; true for the first one that does. */
  shut(): boolean {
    return Atomics.compareExchange(this.closed, 0, 0, 1) === 0
  }

  reopen(): void {
    Atomics.store(this.closed, 0, 0)
  }
}

/** As a thread: nobody, a buffer that is being handed from one to another. */
export const UNDERWAY = 255

/** What says that a thread holds the buffer that begins at a unit: the low bits of the epoch, and its number; 0 once it is freed. */
export function ownerOf(epoch: number, thread: number): number {
  return (epoch << 8) | thread
}
