// Segments of pools that NCCL knows. A pool has one observer of its segments, so all communicators of this thread
// share it. A segment is registered before a buffer lies on it, and deregistered before it goes back to the device.
// Both are local to the rank, so that growth waits for no other rank.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import type { Context } from '../core/driver/context.js'
import { ArenaPool } from '../core/pool/arena/arena-pool.js'
import type { PoolSegment, SegmentObserver } from '../core/pool/backing/segment-watch.js'
import { CachingPool } from '../core/pool/caching/caching-pool.js'
import { Pool } from '../core/pool/pool.js'
import type { JoinedRank } from './joined-rank.js'
import { Cell } from './nccl.js'

/** Has segments that an observer can follow. */
export interface ObservablePool {
  observeSegments(observer: SegmentObserver): () => void
}

/** Hears of the segments of a pool: a registration, or a reason why the pool must not sleep. */
export interface Follower {
  add(segment: PoolSegment): void
  remove(ptr: number): void
  /** Removes all segments. */
  clear(): void
}

/** The segments of a pool that a rank has registered. */
export class Registration implements Follower {
  /** NCCL's handles, by address; 0 for a segment that waits for the end of a capture */
  readonly handles = new Map<number, number>()
  private readonly lengths = new Map<number, number>()
  /** segments with the handle 0 */
  private waiting = 0

  constructor(
    private readonly rank: JoinedRank,
    private readonly isCapturing: () => boolean,
  ) {}

  get bytes(): number {
    return [...this.handles].reduce((sum, [ptr, handle]) => sum + (handle === 0 ? 0 : this.lengths.get(ptr)!), 0)
  }

  get segments(): number {
    return [...this.handles.values()].filter(handle => handle !== 0).length
  }

  add({ ptr, bytes }: PoolSegment): void {
    if (!this.rank.isWell) return
    // NCCL refuses it during a capture. Until it has ended, collectives copy this segment through NCCL's own memory.
    const handle = this.isCapturing() ? 0 : this.register(ptr, bytes)
    if (handle === 0) this.waiting++
    this.handles.set(ptr, handle)
    this.lengths.set(ptr, bytes)
  }

  remove(ptr: number): void {
    const handle = this.handles.get(ptr)
    if (handle === undefined) return
    if (handle !== 0) this.deregister(handle)
    else this.waiting--
    this.handles.delete(ptr)
    this.lengths.delete(ptr)
  }

  clear(): void {
    for (const ptr of [...this.handles.keys()]) this.remove(ptr)
  }

  /** Registers the segments that waited for the end of a capture. */
  catchUp(): void {
    if (this.waiting === 0 || this.isCapturing()) return
    for (const [ptr, handle] of this.handles) {
      if (handle !== 0) continue
      this.handles.set(ptr, this.register(ptr, this.lengths.get(ptr)!))
      this.waiting--
    }
  }

  private register(ptr: number, bytes: number): number {
    const { rank } = this
    rank.context.activate()
    const handle = new Cell()
    rank.check('register', rank.nccl.ncclCommRegister(rank.handle, ptr, bytes, handle))
    return handle.value
  }

  private deregister(handle: number): void {
    const { rank } = this
    rank.whileWell(() => {
      rank.context.activate()
      rank.check('deregister', rank.nccl.ncclCommDeregister(rank.handle, handle))
    })
  }
}

/** The observer of a pool. It tells all followers. */
class PoolObserver implements SegmentObserver {
  readonly followers = new Set<Follower>()
  private readonly segments = new Map<number, PoolSegment>()
  stop: () => void = () => {}

  ready(segment: PoolSegment): void {
    const done: Follower[] = []
    try {
      for (const follower of this.followers) {
        follower.add(segment)
        done.push(follower)
      }
    } catch (error) {
      for (const follower of done) follower.remove(segment.ptr)
      throw error
    }
    this.segments.set(segment.ptr, segment)
  }

  leaving(segment: PoolSegment): void {
    const done: Follower[] = []
    try {
      for (const follower of this.followers) {
        follower.remove(segment.ptr)
        done.push(follower)
      }
    } catch (error) {
      for (const follower of done) follower.add(segment) // the segment stays
      throw error
    }
    this.segments.delete(segment.ptr)
  }

  /** Tells another follower of all segments, or of none. */
  join(follower: Follower): void {
    try {
      for (const segment of this.segments.values()) follower.add(segment)
    } catch (error) {
      follower.clear()
      throw error
    }
    this.followers.add(follower)
  }
}

const observers = new WeakMap<ObservablePool, PoolObserver>()

/** Lets `follower` know the pool's segments, now and later. The result ends that, and removes them from it. */
export function follow(pool: ObservablePool, follower: Follower): () => void {
  const observer = observers.get(pool) ?? observe(pool)
  const stopIfLast = () => {
    if (observer.followers.size > 0) return
    observer.stop()
    observers.delete(pool)
  }
  try {
    observer.join(follower)
  } catch (error) {
    stopIfLast()
    throw error
  }
  return () => {
    follower.clear()
    observer.followers.delete(follower)
    stopIfLast()
  }
}

function observe(pool: ObservablePool): PoolObserver {
  const observer = new PoolObserver()
  observer.stop = pool.observeSegments(observer)
  observers.set(pool, observer)
  return observer
}

/** A pool with `backing: 'registrable'`: a caching pool, or an arena. */
export type RegistrablePool = CachingPool | ArenaPool

/** Throws TypeError or PoolError unless NCCL can register the memory of `pool` for a rank of `context`. */
export function checkRegistrable(call: string, pool: unknown, context: Context): asserts pool is RegistrablePool {
  if (!(pool instanceof CachingPool || pool instanceof ArenaPool)) {
    const remedy =
      pool instanceof Pool ? 'pass the pool behind a wrapper; a shared pool is mapped by another thread' : ''
    throw new WrongTypeError(
      `${call}: pool must be of createPool({ backing: 'registrable' }) or of createArenaPool with it, not ${describe(pool)}${remedy === '' ? '' : `; ${remedy}`}`,
    )
  }
  if (pool.closed) throw new PoolError(`${call}: the pool is closed; create another`, 'ERR_POOL_CLOSED')
  if (!pool.isRegistrable) {
    throw new PoolError(
      `${call}: NCCL cannot register this pool's memory, which is not one mapping a segment, or not exportable; ` +
        "create it with backing: 'registrable'",
      'ERR_NOT_SUPPORTED',
    )
  }
  if (pool.context.sharesDevice(context)) return
  throw new PoolError(
    `${call}: the pool is of device ${pool.context.ordinal}, and this rank of device ${context.ordinal}; register a pool of its own device`,
    'ERR_OTHER_DEVICE',
  )
}
