// Tells an observer which memory of a pool can be used from now on, and which goes now. Libraries that register memory,
// such as NCCL, need both moments.

import { WrongTypeError } from '../../base/argument-errors.js'
import { describe } from '../../base/bytes.js'
import { isUnderWay } from '../../base/call-stack.js'
import { PoolError } from '../../base/errors.js'

/** Addresses that have memory of a pool behind them. A buffer lies in one segment, or in several that touch. */
export interface PoolSegment {
  /** the first address */
  readonly ptr: number
  /** its length */
  readonly bytes: number
}

/**
 * Is told of a pool's segments. Both methods run within a call of the pool, and must not use or close the pool. An
 * error that they throw ends that call. A segment that `ready` refuses goes back to the device, and one that `leaving`
 * refuses stays until a later call of the pool tries again.
 */
export interface SegmentObserver {
  /** the memory is mapped, the devices have access, and no buffer lies on it yet */
  ready(segment: PoolSegment): void
  /** no work uses the memory any more, and it goes back to the device next */
  leaving(segment: PoolSegment): void
}

/** The observer of a pool's or buffer's segments, if there is one. */
export class SegmentWatch {
  private observer: SegmentObserver | null = null
  /** the segments that the observer knows, by address */
  private readonly known = new Map<number, PoolSegment>()

  /** Whether the observer is called now; also after a timeout has cut its call short. */
  isTelling = false

  /** Whether there is an observer. */
  get isObserved(): boolean {
    return this.observer !== null
  }

  /**
   * Tells `observer` of `segments`, and of changes until the result is called. Throws PoolError for a second one, and
   * TypeError for one without its methods.
   */
  observe(observer: SegmentObserver, segments: readonly PoolSegment[]): () => void {
    if (typeof observer?.ready !== 'function' || typeof observer.leaving !== 'function') {
      throw new WrongTypeError(
        `observeSegments: observer must have methods ready and leaving, not ${describe(observer)}`,
      )
    }
    if (this.observer !== null) {
      throw new PoolError('observeSegments: there is an observer; stop it first, or let one observer tell several')
    }
    this.observer = observer
    try {
      for (const { ptr, bytes } of segments) this.ready(ptr, bytes)
    } catch (error) {
      this.stop(observer)
      throw error
    }
    return () => this.stop(observer)
  }

  /** Memory can be used from now on. */
  ready(ptr: number, bytes: number): void {
    if (this.observer === null) return
    const segment = { ptr, bytes }
    this.tell('ready', segment)
    this.known.set(ptr, segment)
  }

  /** The memory at an address goes now. */
  leaving(ptr: number): void {
    const segment = this.known.get(ptr)
    if (segment === undefined) return
    this.tell('leaving', segment)
    this.known.delete(ptr)
  }

  /** The memory at an address did not go, since the observer or the driver refused. The observer must know it. */
  stays(ptr: number, bytes: number): void {
    if (!this.known.has(ptr)) this.ready(ptr, bytes)
  }

  /** Throws PoolError, in the name of `call`, within a call of the observer. */
  checkNotTelling(call: string): void {
    if (!this.isTelling || !isUnderWay(this.tell)) return
    throw new PoolError(`${call}: an observer of segments is being called, and must not use what calls it; do it later`)
  }

  private tell(method: keyof SegmentObserver, segment: PoolSegment): void {
    this.isTelling = true
    try {
      this.observer?.[method](segment)
    } finally {
      this.isTelling = false
    }
  }

  private stop(observer: SegmentObserver): void {
    if (this.observer !== observer) return
    this.observer = null
    this.known.clear()
  }
}

/** The error for the sleep of memory that has an observer. */
export function registeredError(): PoolError {
  return new PoolError(
    'sleep: the segments are registered, by an observer, a communicator or a graph with collectives; end the observation ' +
      'by what observeSegments returned, deregister the pool, or close the graph',
  )
}
