// The state of a pool that several threads share. It lies in one shared buffer of fixed size, which each thread lays
// out by the code below. Heaps and records are the code of a pool of one thread, behind a registry of the threads and
// a lock.
//
// A thread may die between any two stores, even while it holds the lock. The next thread that takes the lock rebuilds
// bins and sums from the chains of blocks (core/heap/rebuild.ts). The pool server finds the dead thread's blocks by
// their owner words (pool-server.ts).

import { types } from 'node:util'
import { threadId } from 'node:worker_threads'
import { WrongTypeError } from '../../base/argument-errors.js'
import { describe } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { serveWaiting } from '../../driver/serve-waiting.js'
import { ownerWordOf, Phase } from '../../heap/owner-word.js'
import { RecordTable, State, Word } from '../../heap/records.js'
import type { Clocks } from '../../order/clocks.js'
import { Doorbell } from '../../threads/doorbell.js'
import { Region } from '../../threads/region.js'
import { channelWords, RequestChannel } from '../../threads/request-channel.js'
import { RobustLock } from '../../threads/robust-lock.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from '../../threads/thread-registry.js'
import { FreeMemory, MOST_VIEWS } from '../caching/central/free-memory.js'
import { seenBy } from '../caching/central/parts.js'
import type { PoolConfig } from '../caching/options.js'
import { closedError, inUseError } from '../closable-pool.js'
import { newPoolNumber } from '../transferred-buffer.js'
import { GroupTable } from './groups/group-table.js'
import { labelWords, SharedLabels } from './shared-labels.js'
import { ThreadCaches } from './thread-caches.js'

/** Grows with each change of the layout. */
const LAYOUT_VERSION = 11
/** Most blocks of a pool at a time, free ones and holes included. */
const MOST_RECORDS = 2 ** 19 - 1
/** Records kept for the pool server, which moves and gives back memory, and for blocks that are split off. */
const SPARE_RECORDS = 1024
export const MOST_RANGES = 4096
/** Milliseconds that a thread waits for the pool server to clear up behind the dead. */
const MOST_WAITS = 200
/** Float64s from one thread's counters to the next thread's: processors fetch lines of 64 bytes in pairs. */
export const COUNT_LINE = 16

/** Figures that the pool server publishes for all threads. */
export const enum Figure {
  reservedBytes,
  peakReservedBytes,
  growths,
  insertedWaits,
  deferredBytes,
  /** the most bytes that the pool may reserve */
  maxPoolBytes,
  /** number of the pool server's thread; 0 before it has begun, CLOSED once it has closed the pool */
  server,
  count,
}
export const CLOSED = -1

/** The sizes that the layout of a pool depends on. */
export interface SharedRoom {
  /** granules of the home range; 0 for memory that is not mapped piece by piece */
  readonly granules: number
  readonly granuleUnits: number
  /** most pieces of memory at a time */
  readonly ranges: number
  /** see BiasedLock */
  readonly isFenced: boolean
}

/** A pool for other threads of this process, to be cloned into any message. `D` is the type of its device. */
export interface PoolDescriptor<D = unknown> {
  /** version of the descriptor; all threads must use the same version of the package */
  readonly version: number
  /** number of the process; the pool works in no other */
  readonly process: number
  /** number of the pool, which its buffers carry from thread to thread */
  readonly number: number
  /** @internal */
  readonly buffer: SharedArrayBuffer
  /** the descriptor of the pool's device */
  readonly device: D
}

/** The descriptor of a caching pool, or of one that is built on it. */
export interface SharedPoolState<D = unknown> extends PoolDescriptor<D> {
  /** tells descriptors of different kinds of pool apart */
  readonly kind: 'caching' | 'block' | 'host'
  /** @internal */
  readonly room: SharedRoom
  /** @internal */
  readonly config: PoolConfig
  /**
   * of a Doorbell, which wakes the thread of the pool server
   * @internal
   */
  readonly doorbell: SharedArrayBuffer
}

/** The descriptor of a new pool of this process, with its state in `buffer`. */
export function describePool<D>(buffer: SharedArrayBuffer, device: D): PoolDescriptor<D> {
  return { version: LAYOUT_VERSION, process: process.pid, number: newPoolNumber(), buffer, device }
}

/**
 * Refuses, in the name of `call`, any value that is no descriptor of this process and version. `isState`: the rest of
 * it is right.
 */
export function checkDescriptor(call: string, state: unknown, isState: boolean): asserts state is PoolDescriptor {
  const { version, process: owner, buffer } = (state ?? {}) as Partial<PoolDescriptor>
  if (!isState || !Number.isInteger(owner) || !types.isSharedArrayBuffer(buffer)) {
    throw new WrongTypeError(`${call}: shared must come from pool.share() in another thread, not be ${describe(state)}`)
  }
  if (version !== LAYOUT_VERSION) {
    const fact = `the pool has layout ${version}, not ${LAYOUT_VERSION}`
    throw new PoolError(`${call}: ${fact}; use one version of the package in all threads`)
  }
  if (owner !== process.pid) {
    throw new PoolError(
      `${call}: the pool belongs to another process; share memory with that by createInterprocessBuffer`,
    )
  }
}

/** The same for caching, block and host pools; refuses closed ones too. */
export function checkPoolState(call: string, state: unknown): void {
  const { config, device, room, doorbell } = (state ?? {}) as Partial<SharedPoolState>
  const isState = [config, device, room].every(part => typeof part === 'object') && types.isSharedArrayBuffer(doorbell)
  checkDescriptor(call, state, isState)
  const { figures } = layOut(Region.ofPages(state.buffer), room!)
  if (figures[Figure.server] === CLOSED) throw closedError(call)
}

/** Bytes of a pool's state. */
export function sharedStateBytes(room: SharedRoom): number {
  const region = Region.ofPages(null)
  layOut(region, room)
  return region.bytes
}

/** The layout, the same in every thread. */
function layOut(
  region: Region,
  { ranges, granules, granuleUnits, isFenced }: SharedRoom,
  seen: Float64Array = new Float64Array(0),
  doorbell = new Doorbell(),
) {
  const lockWords = region.int32(1)
  const registry = new ThreadRegistry(region.int32(REGISTRY_WORDS), 0)
  const threadIds = region.int32(MOST_WORKERS + 1)
  const figures = region.float64(Figure.count)
  const bases = region.float64(ranges + MOST_VIEWS)
  const channel = new RequestChannel(region.int32(channelWords(MOST_WORKERS)), doorbell)
  const counts = region.float64((MOST_WORKERS + 1) * COUNT_LINE)
  const records = new RecordTable(region, MOST_RECORDS, MOST_WORKERS)
  const caches = new ThreadCaches(records, region, registry, isFenced)
  const memory = new FreeMemory({ records, caches, seen }, { region, ranges, granules, granuleUnits })
  const labels = new SharedLabels(region.int32(labelWords(MOST_RECORDS)))
  const groupTable = new GroupTable(region)
  return {
    lockWords,
    registry,
    threadIds,
    figures,
    bases,
    channel,
    counts,
    records,
    caches,
    memory,
    labels,
    groupTable,
  }
}

export class SharedState {
  readonly registry: ThreadRegistry
  /** by number: the id that `worker_threads` gave the thread */
  readonly threadIds: Int32Array
  readonly figures: Float64Array
  /** by range: the device address of its unit 0 */
  readonly bases: Float64Array
  readonly channel: RequestChannel
  /** by thread, a cache line each: its counters */
  readonly counts: Float64Array
  readonly records: RecordTable
  readonly caches: ThreadCaches
  readonly memory: FreeMemory
  readonly labels: SharedLabels
  readonly groupTable: GroupTable
  /** this thread's number */
  readonly thread: number
  readonly lock: RobustLock
  /** see `seenBy` */
  readonly seen: Float64Array
  /** heaps repaired after a death, by this thread */
  repairs = 0

  /**
   * Enters the registry. Throws PoolError when no number is left, or the pool is closed. `meanwhile` runs every
   * millisecond while the pool server clears up behind dead threads.
   */
  constructor(
    { buffer, room, doorbell, config }: Pick<SharedPoolState, 'buffer' | 'room' | 'doorbell' | 'config'>,
    clocks: Clocks,
    meanwhile = () => {},
  ) {
    this.seen = seenBy(clocks, config)
    const { lockWords, ...parts } = layOut(Region.ofPages(buffer), room, this.seen, new Doorbell(doorbell))
    this.registry = parts.registry
    this.threadIds = parts.threadIds
    this.figures = parts.figures
    this.bases = parts.bases
    this.channel = parts.channel
    this.counts = parts.counts
    this.records = parts.records
    this.caches = parts.caches
    this.memory = parts.memory
    this.labels = parts.labels
    this.groupTable = parts.groupTable
    this.thread = this.registry.enter() || this.awaitNumber(meanwhile)
    this.threadIds[this.thread] = threadId
    this.caches.enter(this.thread)
    this.records.owner = this.thread
    this.lock = new RobustLock(lockWords, 0, this.registry, this.thread, serveWaiting)
    // Under the lock: either the closing pool server has seen this thread, or this thread sees that the pool is
    // closed.
    const isClosed = this.locked(() => this.figures[Figure.server]) === CLOSED
    const { failure } = this.channel
    this.channel.doorbell.ring() // a pool server with no thread to watch sleeps
    if (!isClosed && failure === null) return
    this.registry.forget(this.thread)
    throw failure ?? closedError('attachPool')
  }

  /**
   * Waits for the number of a dead thread, which is free once the pool server has cleared up. Dead threads with
   * buffers keep theirs.
   */
  private awaitNumber(meanwhile: () => void): number {
    const dead = this.registry.findDead().length
    const patience = new Int32Array(new SharedArrayBuffer(4))
    for (let waits = 0; dead > 0 && waits < MOST_WAITS; waits++) {
      this.channel.doorbell.ring()
      meanwhile()
      const thread = this.registry.enter()
      if (thread !== 0) return thread
      Atomics.wait(patience, 0, 0, 1)
    }
    const remedy =
      dead === 0
        ? 'close the pool in one of them first'
        : `${dead} of them have ended: give back what they held with pool.reclaim(thread), for each of pool.threads() that is not alive`
    throw new PoolError(`${MOST_WORKERS} threads use this pool, which is the limit; ${remedy}`)
  }

  /** Throws PoolError while threads other than `closer` and the pool server use the pool. */
  checkAlone(closer: number): void {
    const others = this.registry.others(closer, this.figures[Figure.server])
    if (others.length > 0) throw inUseError(others.map(thread => this.threadIds[thread]))
  }

  /** Whether the pool may have another block. */
  get hasRecords(): boolean {
    return this.records.available > SPARE_RECORDS
  }

  /**
   * Under the lock: makes a block that a heap has just handed out live, and a thread's. Returns its record, which may
   * be another.
   */
  handOver(handed: number, thread: number): number {
    const { words } = this.records
    const record = this.recordFor(handed, thread)
    const tag = (words[record << 4] & ~7) + 8 + State.live
    words[(record << 4) | Word.owner] = ownerWordOf(tag, thread, Phase.live)
    words[record << 4] = tag // until here the block is the heap's
    return record
  }

  /**
   * Moves a taken block to a record on a page of its new thread, and to another record when its own has no generation
   * left.
   */
  private recordFor(record: number, thread: number): number {
    const { records, memory, hasRecords } = this
    const stays = records.ownerOf(record) === thread || !hasRecords
    if (stays && !records.isSpent(record)) return record
    records.owner = thread
    const moved = memory.rehouse(record)
    records.owner = this.thread
    return moved
  }

  /**
   * Waits for the lock, and repairs the state if the last owner died or failed. No driver call is made under the
   * lock, but the owner may wait for a thread that closes a stream, and so calls the driver.
   */
  acquire(): void {
    if (this.lock.acquire() === 0) return
    try {
      this.repairs++
      this.memory.rebuild()
      this.caches.recount()
      this.caches.biasedLock.mend()
    } catch (error) {
      this.releaseBroken()
      throw error
    }
  }

  release(): void {
    this.caches.biasedLock.open()
    this.lock.release()
  }

  /**
   * Releases the lock after an exception, which may have left the heaps half changed. The next owner repairs them.
   */
  releaseBroken(): void {
    this.lock.releaseBroken()
  }

  /** Does `work` under the lock. */
  locked<R>(work: () => R): R {
    this.acquire()
    let result: R
    try {
      result = work()
    } catch (error) {
      this.releaseBroken()
      throw error
    }
    this.release()
    return result
  }
}
