// Segments of pools that NCCL knows. A pool has one observer of its segments, so all communicators of this thread
// share it. A segment is registered before a buffer lies on it, and deregistered before it goes back to the device. Both
// are local to the rank, so that growth waits for no other rank.

import { PoolError } from '../core/base/errors.js'
import type { PoolSegment, SegmentObserver } from '../core/pool/backing/segment-watch.js'
import type { JoinedRank } from './joined-rank.js'
import { Cell } from './nccl.js'

/** A pool whose memory NCCL can register. */
export interface ObservablePool {
  readonly closed: boolean
  observeSegments(observer: SegmentObserver): () => void
}

/** The segments of one pool that one rank has registered. */
export class Registration {
  /** NCCL's handles, by address; 0 for a segment that waits for the end of a capture */
  readonly handles = new Map<number, number>()
  private readonly lengths = new Map<number, number>()

  constructor(
    private readonly rank: JoinedRank,
    private readonly isCapturing: () => boolean,
    private readonly timeoutMs: number,
  ) {}

  get bytes(): number {
    return [...this.handles].reduce((sum, [ptr, handle]) => sum + (handle === 0 ? 0 : this.lengths.get(ptr)!), 0)
  }

  get segments(): number {
    return [...this.handles.values()].filter(handle => handle !== 0).length
  }

  add({ ptr, bytes }: PoolSegment): void {
    if (this.rank.failure !== null) return
    // NCCL refuses it during a capture. Until it has ended, collectives copy this segment through NCCL's own memory.
    const handle = this.isCapturing() ? 0 : this.register(ptr, bytes)
    this.handles.set(ptr, handle)
    this.lengths.set(ptr, bytes)
  }

  remove(ptr: number): void {
    const handle = this.handles.get(ptr)
    if (handle === undefined) return
    if (handle !== 0 && this.rank.failure === null) this.deregister(handle)
    this.handles.delete(ptr)
    this.lengths.delete(ptr)
  }

  /** Registers what waited for the end of a capture. */
  catchUp(): void {
    if (this.isCapturing()) return
    for (const [ptr, handle] of this.handles) {
      if (handle === 0) this.handles.set(ptr, this.register(ptr, this.lengths.get(ptr)!))
    }
  }

  private register(ptr: number, bytes: number): number {
    const { rank, timeoutMs } = this
    rank.context.activate()
    rank.settleNow('register', rank.ask(), timeoutMs)
    const handle = new Cell()
    rank.settleNow('register', rank.nccl.ncclCommRegister(rank.handle, ptr, bytes, handle), timeoutMs)
    return handle.value
  }

  private deregister(handle: number): void {
    const { rank, timeoutMs } = this
    rank.context.activate()
    rank.settleNow('deregister', rank.ask(), timeoutMs)
    rank.settleNow('deregister', rank.nccl.ncclCommDeregister(rank.handle, handle), timeoutMs)
  }
}

/** The one observer of a pool, which tells the registrations of all ranks. */
class PoolObserver implements SegmentObserver {
  readonly registrations = new Set<Registration>()
  private readonly segments = new Map<number, PoolSegment>()
  stop: () => void = () => {}

  ready(segment: PoolSegment): void {
    const done: Registration[] = []
    try {
      for (const registration of this.registrations) {
        registration.add(segment)
        done.push(registration)
      }
    } catch (error) {
      for (const registration of done) registration.remove(segment.ptr)
      throw error
    }
    this.segments.set(segment.ptr, segment)
  }

  leaving({ ptr }: PoolSegment): void {
    for (const registration of this.registrations) registration.remove(ptr)
    this.segments.delete(ptr)
  }

  /** Registers all segments for another rank, or none. */
  join(registration: Registration): void {
    try {
      for (const segment of this.segments.values()) registration.add(segment)
    } catch (error) {
      for (const ptr of [...registration.handles.keys()]) registration.remove(ptr)
      throw error
    }
    this.registrations.add(registration)
  }
}

const observers = new WeakMap<ObservablePool, PoolObserver>()

/** Lets `registration` know the pool's segments, now and later. The result ends that, and deregisters them. */
export function follow(pool: ObservablePool, registration: Registration): () => void {
  const observer = observers.get(pool) ?? observe(pool)
  const stopIfLast = () => {
    if (observer.registrations.size > 0) return
    observer.stop()
    observers.delete(pool)
  }
  try {
    observer.join(registration)
  } catch (error) {
    stopIfLast()
    throw error
  }
  return () => {
    for (const ptr of [...registration.handles.keys()]) registration.remove(ptr)
    observer.registrations.delete(registration)
    stopIfLast()
  }
}

function observe(pool: ObservablePool): PoolObserver {
  const observer = new PoolObserver()
  try {
    observer.stop = pool.observeSegments(observer)
  } catch (error) {
    if (!(error instanceof PoolError) || pool.closed) throw error
    throw new PoolError(`register: the pool's segments cannot be followed (${error.message})`, error.code, {
      cause: error,
    })
  }
  observers.set(pool, observer)
  return observer
}
