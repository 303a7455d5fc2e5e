// The state of a pool that several threads share: all of it lies in one shared buffer of fixed size, laid out by the code
// below in each of them. The heaps and their records are the code that one thread has for itself; before them stand a
// registry of the threads and a lock.
//
// A thread may die between any two stores. It can leave behind the lock: the next one who wants it works bins and sums out
// again from the chains of blocks (heap/rebuild.ts). Blocks it had are found by their owner word (pool-server.ts).

import { threadId } from 'node:worker_threads'
import { describe } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { Region } from '../../base/region.js'
import { ownerWordOf, Phase } from '../../heap/owner-word.js'
import { rebuild } from '../../heap/rebuild.js'
import { RecordTable, State, Word } from '../../heap/records.js'
import { Doorbell } from '../../threads/doorbell.js'
import { channelWords, RequestChannel } from '../../threads/request-channel.js'
import { RobustLock } from '../../threads/robust-lock.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from '../../threads/thread-registry.js'
import { FreeMemory } from '../caching/free-memory.js'
import type { PoolConfig } from '../caching/options.js'
import { closedError } from '../closable-pool.js'
import { ThreadCaches } from './thread-caches.js'

/** Grows with each change of what lies where. */
export const LAYOUT_VERSION = 7
/** Blocks that a pool can have at a time, free ones and holes included. */
const MOST_RECORDS = 2 ** 19 - 1
/** Records kept for the pool server, which moves and gives back memory, and for blocks that are cut out of others. */
const SPARE_RECORDS = 1024
export const MOST_RANGES = 4096
/** Milliseconds that a thread waits for the pool server to clear up behind the dead. */
const MOST_WAITS = 200
/** Float64s between what two threads write: processors fetch lines of 64 bytes in pairs. */
export const COUNT_LINE = 16

/** What the pool server of a pool tells everybody. */
export const enum Figure {
  reservedBytes,
  peakReservedBytes,
  growths,
  insertedWaits,
  deferredBytes,
  /** number of the thread that keeps the pool; 0 before it is there, CLOSED once it has closed the pool */
  server,
  count,
}
export const CLOSED = -1

/** What is known of the pool before it is made. */
export interface SharedRoom {
  /** of the memory behind it: how many granules each of two ranges has, 0 for memory that does not move */
  readonly granules: number
  readonly granuleUnits: number
  /** pieces of memory that it can have at a time */
  readonly ranges: number
  /** see BiasedLock */
  readonly isFenced: boolean
}

/** A pool for other threads of this process; can be cloned into any message. `D` stands for its device. */
export interface SharedPoolState<D = unknown> {
  readonly kind: 'caching' | 'block' | 'host'
  readonly version: number
  /** number of the process */
  readonly process: number
  /** that of the pool, which its buffers carry from thread to thread */
  readonly number: number
  readonly room: SharedRoom
  readonly config: PoolConfig
  readonly buffer: SharedArrayBuffer
  /** of a Doorbell, which wakes the thread of the pool server */
  readonly doorbell: SharedArrayBuffer
  readonly device: D
}

/** What descriptors of all kinds of pools have. */
type Descriptor = Pick<SharedPoolState, 'version' | 'process' | 'buffer'>

/** Refuses, in the name of `call`, what is no descriptor of a pool, or one of another process or version; `isState` says whether the rest of it is right. */
export function checkDescriptor(call: string, state: unknown, isState: boolean): asserts state is Descriptor {
  const { version, process: owner, buffer } = (state ?? {}) as Partial<Descriptor>
  if (!isState || !Number.isInteger(owner) || !(buffer instanceof SharedArrayBuffer)) {
    throw new TypeError(`${call}: shared must come from pool.share() in another thread, not be ${describe(state)}`)
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

/** The same, and a closed pool. */
export function checkPoolState(call: string, state: unknown): void {
  const { config, device, room, doorbell } = (state ?? {}) as Partial<SharedPoolState>
  const isState =
    [config, device, room].every(part => typeof part === 'object') && doorbell instanceof SharedArrayBuffer
  checkDescriptor(call, state, isState)
  const { figures } = layOut(Region.ofPages(state.buffer), room!)
  if (figures[Figure.server] === CLOSED) throw closedError(call)
}

/** Bytes of the state of a pool. */
export function sharedStateBytes(room: SharedRoom): number {
  const region = Region.ofPages(null)
  layOut(region, room)
  return region.bytes
}

/** The same in every thread: this is the layout. */
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
  const bases = region.float64(ranges)
  const channel = new RequestChannel(region.int32(channelWords(MOST_WORKERS)), doorbell)
  const counts = region.float64((MOST_WORKERS + 1) * COUNT_LINE)
  const records = new RecordTable(region, MOST_RECORDS, MOST_WORKERS)
  const caches = new ThreadCaches(records, region, registry, isFenced)
  const memory = new FreeMemory(records, caches, seen, { region, ranges, granules, granuleUnits })
  return { lockWords, registry, threadIds, figures, bases, channel, counts, records, caches, memory }
}

export class SharedState {
  readonly registry: ThreadRegistry
  /** by number: what `worker_threads` calls the thread */
  readonly threadIds: Int32Array
  readonly figures: Float64Array
  /** by range: the device address of its unit 0 */
  readonly bases: Float64Array
  readonly channel: RequestChannel
  /** by thread, a line each: what it counts */
  readonly counts: Float64Array
  readonly records: RecordTable
  readonly caches: ThreadCaches
  readonly memory: FreeMemory
  /** this thread's number */
  readonly thread: number
  readonly lock: RobustLock
  /** heaps repaired after a death, by this thread */
  repairs = 0

  /**
   * Enters the registry. Throws PoolError when there is no place, or when the pool is closed. `seen` is what the host has seen complete, of
   * the clocks; `meanwhile` runs every millisecond while the pool server clears up behind the dead.
   */
  constructor(
    { buffer, room, doorbell }: Pick<SharedPoolState, 'buffer' | 'room' | 'doorbell'>,
    seen: Float64Array,
    meanwhile = () => {},
  ) {
    const { lockWords, ...parts } = layOut(Region.ofPages(buffer), room, seen, new Doorbell(doorbell))
    this.registry = parts.registry
    this.threadIds = parts.threadIds
    this.figures = parts.figures
    this.bases = parts.bases
    this.channel = parts.channel
    this.counts = parts.counts
    this.records = parts.records
    this.caches = parts.caches
    this.memory = parts.memory
    this.thread = this.registry.enter() || this.awaitNumber(meanwhile)
    this.threadIds[this.thread] = threadId
    this.caches.enter(this.thread)
    this.records.owner = this.thread
    this.lock = new RobustLock(lockWords, 0, this.registry, this.thread)
    // Under the lock: either the pool server that is about to close has seen this thread, or this thread sees that it has closed.
    const isClosed = this.locked(() => this.figures[Figure.server]) === CLOSED
    const { failure } = this.channel
    this.channel.doorbell.ring() // a pool server that had nobody to look after sleeps
    if (!isClosed && failure === null) return
    this.registry.forget(this.thread)
    throw failure ?? closedError('attachPool')
  }

  /** A number that the pool server gives away once it has cleared up behind a dead thread; the dead that still hold buffers keep theirs. */
  private awaitNumber(meanwhile: () => void): number {
    const dead = this.registry.lookAtAll().length
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
    const { registry, figures, threadIds } = this
    const others: number[] = []
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      if (thread === closer || thread === figures[Figure.server]) continue
      if (registry.isAlive(thread) && !registry.look(thread)) others.push(threadIds[thread])
    }
    if (others.length === 0) return
    throw new PoolError(
      `close: the pool is in use by ${others.length} other threads (${others.join(', ')}); close it there first, or end them`,
    )
  }

  /** Whether the pool may have another block. */
  get hasRecords(): boolean {
    return this.records.available > SPARE_RECORDS
  }

  /** A block that a heap has just handed out, under the lock, is live and a thread's from now on, in the record that is returned. */
  handOver(handed: number, thread: number): number {
    const { words } = this.records
    const record = this.recordFor(handed, thread)
    const tag = (words[record << 4] & ~7) + 8 + State.live
    words[(record << 4) | Word.owner] = ownerWordOf(tag, thread, Phase.live)
    words[record << 4] = tag // until here the block is the heap's
    return record
  }

  /** A taken block goes to a record on a page of the thread that gets it, and to another one when its own has no generation left. */
  private recordFor(record: number, thread: number): number {
    const { records, memory, hasRecords } = this
    const stays = records.ownerOf(record) === thread || !hasRecords
    if (stays && !records.isSpent(record)) return record
    records.owner = thread
    const moved = memory.heapOf(record).rehouse(record)
    records.owner = this.thread
    return moved
  }

  /** Waits for the lock, and mends what its last holder left when it died or failed. The driver is never called before it is released. */
  acquire(): void {
    if (this.lock.acquire() === 0) return
    try {
      this.repairs++
      rebuild([this.memory.small, this.memory.large])
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

  /** Releases the lock after an exception, say for want of stack, which may have left the heaps half changed: the next owner word repairs them. */
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
