// `Clocks` is what a thread knows of the order of work on a device, and what pools and streams call. Its parts:
//
// - vector-clocks.ts: vector clocks and their two rules, as arithmetic
// - stream-clocks.ts: the clocks of a device's streams, in memory that threads share (shared-order.ts)
// - stream-slots.ts: the lives, owners and pins of slots
// - mark-watcher.ts: the events that this thread records, polls and waits for
// - stream-registry.ts: this thread's streams, and the end of dead threads' streams
// - barriers.ts: work that all streams come after
//
// This file orders streams with each other and with streams of other devices.

import { CudaError, DeviceLostError } from '../base/errors.js'
import { FATAL_RESULTS } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Holding } from './holding.js'
import { type Mark, MarkWatcher } from './mark-watcher.js'
import type { OrderedStream } from './ordered-stream.js'
import { untilDone } from './polling.js'
import { newOrder, orderState, type SharedOrder } from './shared-order.js'
import { StreamClocks } from './stream-clocks.js'
import { StreamRegistry } from './stream-registry.js'
import { MOST_STREAMS, type VectorTime } from './vector-clocks.js'

export { type Mark, MOST_STREAMS, type VectorTime }

/** A capture that is under way. */
export interface OpenCapture {
  /**
   * A captured stream is ordered with the legacy default stream: any work for the default stream would break the
   * capture.
   */
  readonly blocksDefault: boolean
  /** the memory that pools keep for the capture */
  readonly holdings: Set<Holding>
  abort(): void
}

/** A graph that can be launched. */
export interface OpenGraph {
  keeps(holding: Holding): boolean
  close(): void
}

/** Follows the captures of a thread. */
export interface CaptureObserver {
  joined(stream: OrderedStream): void
}

export class Clocks extends StreamClocks {
  /** this thread's streams */
  readonly registry: StreamRegistry
  /** by slot: this thread's open stream, null while it is captured */
  readonly streams: readonly (OrderedStream | null)[]
  /** captures that are under way, and graphs that can be launched, of this thread */
  readonly captures = new Set<OpenCapture>()
  readonly graphs = new Set<OpenGraph>()
  readonly captureObservers = new Set<CaptureObserver>()
  /**
   * by slot: work submitted since may come after the marks up to this, by way of another device; that order is not
   * followed
   */
  readonly orderedElsewhere: Float64Array = new Float64Array(MOST_STREAMS)
  /** the marks that this thread has placed: it polls them, and waits for them */
  readonly watcher: MarkWatcher
  private readonly sharedOrder: SharedOrder

  /**
   * Attaches to the order that another thread shares; without it the device has an order of its own. Throws PoolError
   * if too many threads are attached, or the device was closed.
   */
  constructor(context: Context, attached: SharedOrder | null = null) {
    const order = attached ?? newOrder()
    super(context, orderState(order))
    this.sharedOrder = order
    this.watcher = new MarkWatcher(this)
    this.registry = new StreamRegistry(this, this.watcher)
    this.streams = this.registry.streams
    context.checkNoCapture = call => this.registry.checkNoCapture(call)
    if (attached === null) return
    this.slots.join()
    try {
      if (this.slots.hasEstate) this.buryStreams()
    } catch (error) {
      this.slots.resign()
      throw error
    }
  }

  /** The descriptor with which another thread attaches to this order. Ticks take a lock from the first call on. */
  share(): SharedOrder {
    if (this.slots.me === 0) {
      this.slots.join()
      this.watcher.noteEvents()
    }
    return this.sharedOrder
  }

  /** Identifies the device among those of the process, in all threads; 0 until shared. */
  get identity(): number {
    return this.state.identity[0]
  }

  buryStreams(): number {
    return this.registry.buryStreams()
  }

  /**
   * Waits on the host for all work on the context. Throws PoolError while a stream is being captured, in any thread.
   */
  synchronize(): void {
    this.registry.synchronize()
  }

  /**
   * Resolves when all work of this thread's streams so far is complete, of closed ones, too, and of captured ones what
   * came before the capture. Node goes on meanwhile. Rejects with the reason of `signal`.
   */
  async finished(signal?: AbortSignal): Promise<void> {
    const { watcher } = this
    const waits: (() => boolean)[] = []
    for (let slot = 0; slot < this.slotLimit; slot++) {
      if (this.streams[slot] === null && this.slots.isOpen(slot)) continue // another thread's
      const stamp = watcher.mark(slot)
      waits.push(() => watcher.hasCompleted(slot, stamp))
    }
    await untilDone(() => waits.every(isOver => isOver()), { signal })
  }

  /** For a close that does not block: `finished`, with errors of the driver left to the close, which waits as well. */
  async finishForClose(signal?: AbortSignal): Promise<void> {
    try {
      if (!this.context.released) await this.finished(signal)
    } catch {
      signal?.throwIfAborted()
    }
  }

  /**
   * Makes the open stream of slot `later` wait for `stamp` of slot `earlier`: for the oldest watched mark that covers
   * it, or for a new mark with `afresh`. Returns whether there was something to wait for.
   */
  order(later: number, earlier: number, stamp: number, afresh: boolean): boolean {
    const mark = this.watcher.find(earlier, stamp, afresh)
    if (mark === null) {
      // Complete. A closed stream has had no work since its last mark, so everything that it knew is known, too.
      const vectorTime = this.vectorTimeOfEnded(earlier)
      if (vectorTime !== null) this.delay(later, 0, vectorTime)
      return false
    }
    this.delay(later, mark.event, mark.vectorTime)
    return true
  }

  /**
   * Makes the open stream of a slot wait for an event whose mark has this vector time; event 0 stands for a complete
   * one.
   */
  delay(later: number, event: number, vectorTime: VectorTime): void {
    const driver = this.context.activate()
    this.registry.streamOf(later)?.noteWork()
    this.submit('wait', later, handle => {
      if (event !== 0) driver.cuStreamWaitEvent(handle, event)
      this.follow(later, vectorTime)
    })
  }

  /**
   * Work submitted to `stream`, of another device, from now on starts after everything that `stamp` of a slot covers.
   * Nothing waits on the host. Returns whether there was something to wait for.
   */
  orderPeer(slot: number, stamp: number, stream: OrderedStream): boolean {
    const event = this.unlessEnded(slot, stamp, () => this.watcher.eventCovering(slot, stamp))
    if (event === undefined) return false
    const driver = stream.context.activate()
    stream.submit('wait', handle => driver.cuStreamWaitEvent(handle, event))
    stream.clocks.notePeerWait()
    return true
  }

  /** A stream of this device was made to wait for work of another device. */
  notePeerWait(): void {
    this.orderedElsewhere.set(this.marked.subarray(0, this.slotLimit))
  }

  /** For another device: polls `stamp`, which was reached or comes next, or waits for it on the host. */
  catchUp(slot: number, stamp: number, wait: boolean): void {
    this.unlessEnded(slot, stamp, () => {
      if (this.marked[slot] < stamp) this.watcher.mark(slot)
      if (wait) this.watcher.waitFor(slot, stamp)
      else this.watcher.poll(slot)
    })
  }

  /**
   * Runs `ask` unless `stamp` is known complete. On a lost or closed device nothing runs any more, so `stamp` is
   * complete there.
   */
  private unlessEnded<R>(slot: number, stamp: number, ask: () => R): R | undefined {
    if (this.completed[slot] >= stamp) return undefined
    try {
      if (!this.context.released) return ask()
    } catch (error) {
      const isFault = error instanceof CudaError && FATAL_RESULTS.includes(error.result)
      if (!isFault && !(error instanceof DeviceLostError)) throw error // users of that device get the fault
    }
    this.watcher.learn([slot, stamp], true)
    return undefined
  }

  /**
   * Waits for all work, and destroys the thread's events. While other threads have the device attached, waits for
   * this thread's marks only.
   */
  close(): void {
    const driver = this.context.activate()
    // The wait also sets `completed` for users that still look there.
    if (this.slots.isAlone) this.synchronize()
    else this.watcher.waitForNewest()
    this.watcher.close()
    const { lastEvents } = this.state
    for (let slot = 0; slot < this.slotLimit && this.slots.isAlone; slot++) {
      if (lastEvents[slot] === 0) continue
      driver.cuEventDestroy(lastEvents[slot])
      lastEvents[slot] = 0
    }
    this.slots.leave()
  }
}
