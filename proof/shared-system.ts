// The system under test of shared pools, with all threads in this one. It acts as a careful user: before a buffer is
// freed, or a stream is closed, every use is announced or ordered. So every list of operations is a right program.
// Threads alternate only between calls; proof/interleave/ looks for faults in the middle of calls.

import assert from 'node:assert/strict'
import { CudaError } from '../src/core/base/errors.js'
import type { Random } from '../src/core/base/random.js'
import { RESULT } from '../src/core/driver/constants.js'
import { Context } from '../src/core/driver/context.js'
import { ThreadState } from '../src/core/driver/simulated/thread-state.js'
import { Clocks } from '../src/core/order/clocks.js'
import type { Stream } from '../src/core/order/stream.js'
import { SharedArenaPool } from '../src/core/pool/arena/shared-arena-pool.js'
import { makeCachingPool } from '../src/core/pool/debug/make-caching-pool.js'
import { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import { UnlockedDriver } from '../src/core/pool/shared/unlocked-driver.js'
import { ObservedDriver } from './observed-driver.js'
import { CAPACITY_BYTES, GRANULE_BYTES } from './settings.js'
import { SharedBuffers } from './shared-buffers.js'
import { SharedEvents } from './shared-events.js'
import type { Of, SharedOperation } from './shared-operation.js'
import { type Common, drawCommon, type SharedKind } from './shared-pools.js'
import { SharedStreams } from './shared-streams.js'
import { inNameOf, SharedThread } from './shared-thread.js'

const OWN_POOL_BYTES = 2 ** 22

export class SharedSystem {
  readonly threads = new Map<number, SharedThread>()
  readonly streams: SharedStreams
  readonly buffers: SharedBuffers
  readonly common: Common
  readonly driver: ObservedDriver
  readonly mostStreams: number
  private readonly maker: SharedThread
  private readonly events = new SharedEvents()
  private readonly dead: SharedThread[] = []
  private isRefusing = false

  constructor(kind: SharedKind, random: Random, seed: number) {
    this.mostStreams = [2, 4, 8, 16][random.below(4)]
    const progress = random.below(2) === 0 ? 'eager' : 'seeded'
    this.driver = new ObservedDriver({
      capacityBytes: CAPACITY_BYTES,
      granularityBytes: GRANULE_BYTES,
      progress,
      seed,
    })
    this.driver.cuInit()
    this.maker = new SharedThread(0, this.driver, null)
    this.threads.set(0, this.maker)
    this.streams = new SharedStreams(this.driver.order)
    this.streams.addDefault(this.maker)
    const { clocks, defaultStream } = this.maker
    clocks.share()
    this.common = drawCommon(kind, random, clocks, () => {
      const outside = new UnlockedDriver(inNameOf(new ThreadState(), this.driver))
      const context = Context.open(outside.driver, 0)
      return { outside, context, clocks: new Clocks(context, clocks.share()) }
    })
    this.maker.front = this.common.front(clocks, defaultStream, true)
    this.buffers = new SharedBuffers(this.driver, this.streams, this.maker, this.common.mostBytes)
  }

  /**
   * Carries out one operation. It survives a refusal that the program planned; every other exception is a failure.
   */
  run(operation: SharedOperation): void {
    this.isRefusing = false
    try {
      this.take(operation)
    } catch (error) {
      if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_UNKNOWN) throw error
    }
    if (!this.isRefusing) this.driver.clearFaults()
  }

  /** Asserts that the statistics match the program. */
  check(): void {
    const { buffers } = this
    const { front } = this.maker
    if (!(front instanceof SharedArenaPool)) front!.check()
    // A limit may have been set below what is in use.
    const stats = front!.stats()
    const maxPoolBytes = Math.max(stats.maxPoolBytes, this.common.maxPoolBytes)
    buffers.compare({ ...stats, maxPoolBytes }, held => !held.own, buffers.allocations)
    for (const thread of this.threads.values()) {
      if (thread.own === null) continue
      thread.own.check()
      const stats = thread.own.stats()
      buffers.compare(stats, held => held.own && held.thread === thread, stats.allocations)
    }
  }

  /** Gives everything back, and asserts that nothing is left. */
  finish(): void {
    this.driver.clearFaults()
    this.reclaimAll()
    for (const thread of [...this.threads.values()]) if (thread !== this.maker) this.end(thread)
    this.common.server?.sweep()
    this.maker.clocks.buryStreams()
    this.reclaimAll()
    const { front, clocks, context } = this.maker
    if (front instanceof SharedArenaPool) this.reset(this.maker, 0)
    this.closeAllOf(this.maker)
    this.check()
    assert.deepEqual(front!.close(), { heldBuffers: 0, heldBytes: 0 })
    clocks.close()
    context.destroyRest()
    this.buffers.close()
    context.release()
    assert.equal(this.driver.usedBytes(), 0, 'all memory is given back')
    assert.equal(this.driver.leaks, '', 'all that was made is given back')
  }

  private take(operation: SharedOperation): void {
    const thread = 'thread' in operation ? (this.threads.get(operation.thread) ?? null) : null
    const others = thread === this.maker ? null : thread
    switch (operation.do) {
      case 'start':
        this.start(operation)
        break
      case 'end':
        if (others !== null) this.end(others)
        break
      case 'die':
        if (others !== null) this.die(others)
        break
      case 'attach anew':
        if (others === null) break
        this.leave(others)
        others.front = this.common.front(others.clocks, others.defaultStream, false)
        break
      case 'open':
      case 'open own default':
        if (thread !== null) this.streams.make(thread, operation.stream, operation.do === 'open own default')
        break
      case 'close':
        if (thread !== null) this.close(thread, operation.stream)
        break
      case 'allocate':
        if (thread !== null) this.buffers.allocate(thread, operation)
        break
      case 'free':
        this.buffers.free(operation)
        break
      case 'use':
        this.buffers.use(operation)
        break
      case 'announce':
        this.buffers.announce(operation)
        break
      case 'transfer':
        this.buffers.transfer(operation)
        break
      case 'adopt':
        if (thread !== null) this.buffers.adopt(thread, operation)
        break
      case 'record': {
        const view = this.viewOf(operation)
        if (thread !== null && view !== null) this.events.record(thread, operation.event, view)
        break
      }
      case 'wait':
        this.events.wait(operation.event, of => this.streams.view(of, operation.stream))
        break
      case 'pass event':
        if (thread !== null) this.events.pass(operation.event, thread)
        break
      case 'query':
        this.viewOf(operation)?.query()
        break
      case 'synchronise':
        this.viewOf(operation)?.synchronize()
        break
      case 'hold': {
        const view = this.viewOf(operation)
        if (view !== null) this.streams.holds.hold(view)
        break
      }
      case 'release':
        this.streams.holds.release()
        break
      case 'process deferred':
      case 'trim':
        for (const pool of [thread?.front, thread?.own]) {
          if (!pool || pool instanceof SharedArenaPool) continue
          if (operation.do === 'trim') pool.trimTo(operation.bytes)
          else pool.processDeferred()
        }
        break
      case 'limit': {
        const { maxPoolBytes } = this.common
        if (thread?.front instanceof SharedPool) thread.front.maxPoolBytes = operation.bytes || maxPoolBytes
        break
      }
      case 'reset':
        if (thread !== null) this.reset(thread, operation.stream)
        break
      case 'sweep': {
        const { server } = this.common
        if (server === null) break
        try {
          server.sweep()
        } finally {
          server['sweptAt'] = Infinity
        }
        break
      }
      case 'reclaim':
        if (thread !== null) this.reclaim(thread, operation.dead)
        break
      case 'refuse':
        this.driver.failCall({ call: operation.call, nth: operation.nth, code: RESULT.CUDA_ERROR_UNKNOWN })
        this.isRefusing = true
    }
  }

  private start({ thread: name, ownPool }: Of<'start'>): void {
    const thread = new SharedThread(name, this.driver, this.maker.clocks.share())
    this.streams.addDefault(thread)
    const { clocks, defaultStream } = thread
    if (ownPool) thread.own = makeCachingPool(clocks, defaultStream, { maxPoolBytes: OWN_POOL_BYTES }, CAPACITY_BYTES)
    thread.front = this.common.front(clocks, defaultStream, false)
    this.threads.set(name, thread)
  }

  private end(thread: SharedThread): void {
    this.driver.clearFaults()
    this.leave(thread)
    this.closeAllOf(thread)
    thread.clocks.close()
    thread.context.destroyRest()
    thread.context.release()
    this.threads.delete(thread.name)
  }

  /** The thread's part of the pool ends. */
  private leave(thread: SharedThread): void {
    this.driver.clearFaults()
    const { buffers, bytes } = this.buffers.leave(thread)
    assert.deepEqual(thread.front!.close(), { heldBuffers: buffers, heldBytes: bytes })
  }

  /** Closes the thread's own pool with its buffers, its streams and its events. */
  private closeAllOf(thread: SharedThread): void {
    this.buffers.freeAllOf(thread)
    if (thread.own !== null) assert.deepEqual(thread.own.close(), { heldBuffers: 0, heldBytes: 0 })
    for (const [name, view] of [...thread.views]) {
      this.close(thread, name)
      assert.ok(name === 0 || view.closed)
    }
    this.streams.holds.forget(view => view.context === thread.context)
    this.events.closeAllOf(thread)
  }

  /** The thread's memory stays, and other threads end its streams. A pool of its own would be lost. */
  private die(thread: SharedThread): void {
    if (thread.own !== null) return
    this.driver.clearFaults()
    this.events.closeAllOf(thread)
    this.streams.holds.forget(view => view.context === thread.context)
    thread.context.destroyRest()
    this.streams.forgetAllOf(thread)
    thread.die()
    this.threads.delete(thread.name)
    this.dead.push(thread)
  }

  private close(thread: SharedThread, name: number): void {
    const view = thread.views.get(name)
    if (name === 0 || view === undefined || view.closed) return
    if (this.streams.endsFor(thread, name)) this.buffers.secureUsesOf(name)
    this.streams.close(thread, name)
  }

  private reset(thread: SharedThread, stream: number): void {
    const view = this.streams.view(thread, stream)
    if (!(thread.front instanceof SharedArenaPool) || !view?.isShareable) return
    this.driver.clearFaults()
    this.buffers.reset(thread, thread.front, view)
  }

  /** The buffers of a dead thread; for 0, those on their way. */
  private reclaim(thread: SharedThread, deadName: number): void {
    if (thread.front instanceof SharedArenaPool) return
    this.driver.clearFaults()
    const dead = this.dead.find(each => each.name === deadName) ?? null
    if (dead === null && deadName !== 0) return
    const expected = this.buffers.forgetAllOf(dead)
    assert.deepEqual(thread.front!.reclaim(dead === null ? 0 : dead.front!.thread), expected)
  }

  private reclaimAll(): void {
    for (const dead of [null, ...this.dead]) this.reclaim(this.maker, dead?.name ?? 0)
  }

  private viewOf({ thread: name, stream }: { readonly thread: number; readonly stream: number }): Stream | null {
    const thread = this.threads.get(name)
    return thread === undefined ? null : this.streams.view(thread, stream)
  }
}
