// Threads that share a pool, all of them in this one, and what a careful user does with it: before a buffer is freed, or a stream
// is closed, every use is announced or put before. So every list of operations is a right program. Which of several threads goes
// on is decided between calls: what only shows in the middle of one is not looked for here.
//
// The file is long because there are many operations, and all of them look at the same buffers, streams and threads.

import assert from 'node:assert/strict'
import { CudaError, PoolError } from '../src/base/errors.js'
import type { Random } from '../src/base/random.js'
import { CU_STREAM_PER_THREAD, RESULT } from '../src/driver/constants.js'
import { Context } from '../src/driver/context.js'
import { ThreadState } from '../src/driver/simulated/thread-state.js'
import { UNIT_BYTES } from '../src/heap/size-classes.js'
import { Clocks } from '../src/order/clocks.js'
import { Event } from '../src/order/event.js'
import { Stream } from '../src/order/stream.js'
import { DeviceBuffer } from '../src/pool/buffer.js'
import { HostBuffer } from '../src/pool/host-buffer.js'
import { makeCachingPool } from '../src/pool/make-caching-pool.js'
import { OutsideLock } from '../src/pool/outside-lock.js'
import type { PoolStats } from '../src/pool/pool.js'
import { SharedArenaPool } from '../src/pool/shared-arena-pool.js'
import type { TransferredBuffer } from '../src/pool/transferred.js'
import type { Point } from './call-order.js'
import { ObservedDriver } from './observed-driver.js'
import { CAPACITY_BYTES, GRANULE_BYTES } from './settings.js'
import type { SharedOperation } from './shared-operation.js'
import { type Buffer, type Common, drawCommon, type SharedKind } from './shared-pools.js'
import { inNameOf, SharedThread } from './shared-thread.js'

type Of<Verb extends SharedOperation['do']> = SharedOperation & { do: Verb }

export interface SharedHeld {
  buffer: Buffer
  readonly bytes: number
  readonly ptr: number
  /** of a pool that no threads share */
  readonly own: boolean
  /** null while it is on its way */
  thread: SharedThread | null
  sent: TransferredBuffer | null
  /** what uses elsewhere must come after; null in memory of the host */
  readonly granted: Point | null
  /** by stream, as some thread has it, the last work */
  readonly uses: Map<Stream, Point>
  readonly announced: Set<Stream>
}

const OWN_POOL_BYTES = 2 ** 22

export class SharedWorld {
  readonly threads = new Map<number, SharedThread>()
  readonly held = new Map<number, SharedHeld>()
  readonly events = new Map<number, { readonly thread: SharedThread; readonly event: Event }>()
  /** open streams, by name; 0 is the legacy default stream */
  readonly streams = new Map<number, { readonly maker: SharedThread; readonly view: Stream }>()
  readonly common: Common
  readonly driver: ObservedDriver
  readonly mostStreams: number
  private readonly maker: SharedThread
  /** the name of a stream, by any thread's object of it */
  private readonly names = new Map<Stream, number>()
  /** by stream that is closed, for one thread or all: what was submitted to it before */
  private readonly ended = new Map<Stream, Point>()
  private readonly dead: SharedThread[] = []
  private holds: { readonly thread: SharedThread; readonly view: Stream; readonly ticket: number }[] = []
  private allocations = 0
  /** memory of the device that copies of host memory go to */
  private readonly scratch: number
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
    const { clocks, defaultStream } = this.maker
    this.threads.set(0, this.maker)
    this.streams.set(0, { maker: this.maker, view: defaultStream })
    this.names.set(defaultStream, 0)
    clocks.share()
    this.common = drawCommon(kind, random, clocks, () => {
      const outside = new OutsideLock(inNameOf(new ThreadState(), this.driver))
      const context = Context.open(outside.driver, 0)
      return { outside, context, clocks: new Clocks(context, clocks.share()) }
    })
    this.maker.front = this.common.front(clocks, defaultStream, true)
    this.scratch = this.maker.context.activate().cuMemAlloc(this.common.mostBytes)
  }

  /** Carries out one operation. A refusal that the program asked for is survived; everything else that is thrown is a failure. */
  run(operation: SharedOperation): void {
    this.isRefusing = false
    try {
      this.take(operation)
    } catch (error) {
      if (!(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_UNKNOWN) throw error
    }
    if (!this.isRefusing) this.driver.clearFaults()
  }

  /** The statistics are what the program has done. */
  check(): void {
    const { front } = this.maker
    if (!(front instanceof SharedArenaPool)) front!.check()
    this.compare(
      front!.stats(),
      [...this.held.values()].filter(held => !held.own),
      this.allocations,
    )
    for (const thread of this.threads.values()) {
      if (thread.own === null) continue
      thread.own.check()
      const held = [...this.held.values()].filter(each => each.own && each.thread === thread)
      this.compare(thread.own.stats(), held, thread.own.stats().allocations)
    }
  }

  /** Everything is given back, and nothing is left. */
  finish(): void {
    this.driver.clearFaults()
    this.reclaimAll()
    for (const thread of [...this.threads.values()]) if (thread !== this.maker) this.end(thread)
    this.common.keeper?.sweep()
    this.maker.clocks.buryStreams()
    this.reclaimAll()
    const { front, clocks, context } = this.maker
    if (front instanceof SharedArenaPool) this.reset({ do: 'reset', thread: 0, stream: 0 })
    this.closeAllOf(this.maker)
    this.check()
    assert.deepEqual(front!.close(), { lostBuffers: 0, lostBytes: 0 })
    clocks.close()
    context.destroyRest()
    context.activate().cuMemFree(this.scratch)
    context.release()
    assert.equal(this.driver.usedBytes(), 0, 'all memory is given back')
    assert.equal(this.driver.leaks, '', 'all that was made is given back')
  }

  /** The stream as a thread has it, if that can use it. */
  view(thread: SharedThread, name: number): Stream | null {
    const stream = this.streams.get(name)
    if (stream === undefined) return null
    const known = thread.views.get(name)
    if (known !== undefined && !known.closed) return known
    if (!stream.view.isShareable || thread.isDead) return null
    const view = Stream.borrow(thread.clocks, structuredClone(stream.view.share()))!
    this.note(thread, name, view)
    return view
  }

  /** The name of a stream, whichever thread's object of it that is. */
  nameOf(view: Stream): number {
    return this.names.get(view) ?? 0
  }

  private take(operation: SharedOperation): void {
    switch (operation.do) {
      case 'start':
        this.start(operation)
        break
      case 'end': {
        const thread = this.other(operation.thread)
        if (thread !== null) this.end(thread)
        break
      }
      case 'die': {
        const thread = this.other(operation.thread)
        if (thread !== null) this.die(thread)
        break
      }
      case 'attach anew': {
        const thread = this.other(operation.thread)
        if (thread === null) break
        this.leave(thread)
        thread.front = this.common.front(thread.clocks, thread.defaultStream, false)
        break
      }
      case 'open':
      case 'open own default':
        this.open(operation)
        break
      case 'close':
        this.close(operation)
        break
      case 'allocate':
        this.allocate(operation)
        break
      case 'free':
        this.free(operation)
        break
      case 'use':
        this.use(operation)
        break
      case 'announce': {
        const held = this.held.get(operation.buffer)
        const view = this.viewFor(held, operation.stream)
        if (held !== undefined && view !== null) this.announce(held, view)
        break
      }
      case 'transfer':
        this.transfer(operation)
        break
      case 'adopt':
        this.adopt(operation)
        break
      case 'record':
        this.record(operation)
        break
      case 'wait': {
        const known = this.events.get(operation.event)
        if (known !== undefined) this.view(known.thread, operation.stream)?.wait(known.event)
        break
      }
      case 'pass event': {
        const [known, thread] = [this.events.get(operation.event), this.threads.get(operation.thread)]
        if (known === undefined || thread === undefined || known.thread === thread) break
        this.events.set(operation.event, { thread, event: Event.adopt(thread.clocks, known.event.transfer()) })
        break
      }
      case 'query':
        this.viewOf(operation)?.query()
        break
      case 'synchronise':
        this.viewOf(operation)?.synchronize()
        break
      case 'hold': {
        const [thread, view] = [this.threads.get(operation.thread), this.viewOf(operation)]
        if (thread === undefined || view === null) break
        const driver = thread.context.activate() as ObservedDriver
        this.holds.push({ thread, view, ticket: driver.holdOperation(view.handle) })
        break
      }
      case 'release': {
        const oldest = this.holds.shift()
        if (oldest === undefined) break
        const driver = oldest.thread.context.activate() as ObservedDriver
        driver.releaseThrough(oldest.view.handle, oldest.ticket)
        break
      }
      case 'process deferred':
      case 'trim': {
        const thread = this.threads.get(operation.thread)
        for (const pool of [thread?.front, thread?.own]) {
          if (!pool || pool instanceof SharedArenaPool) continue
          if (operation.do === 'trim') pool.trimTo(operation.bytes)
          else pool.processDeferred()
        }
        break
      }
      case 'reset':
        this.reset(operation)
        break
      case 'sweep': {
        const { keeper } = this.common
        if (keeper === null) break
        try {
          keeper.sweep()
        } finally {
          keeper['sweptAt'] = Infinity
        }
        break
      }
      case 'reclaim':
        this.reclaim(operation)
        break
      case 'refuse':
        this.driver.failCall({ call: operation.call, nth: operation.nth, code: RESULT.CUDA_ERROR_UNKNOWN })
        this.isRefusing = true
    }
  }

  // Threads

  private start({ thread: name, ownPool }: Of<'start'>): void {
    const thread = new SharedThread(name, this.driver, this.maker.clocks.share())
    this.names.set(thread.defaultStream, 0)
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

  /** The thread's part of the pool ends; what it holds is freed by that, but for an arena's. */
  private leave(thread: SharedThread): void {
    this.driver.clearFaults()
    const mine = [...this.held].filter(([, held]) => held.thread === thread && !held.own)
    const isArena = thread.front instanceof SharedArenaPool
    for (const [name, held] of mine) {
      this.settle(held, streamOf(held), true)
      if (isArena)
        held.thread = null // nobody can do anything with it until the reset
      else this.forget(name)
    }
    const lostBytes = mine.reduce((sum, [, { bytes }]) => sum + bytes, 0)
    const report = thread.front!.close()
    assert.deepEqual(report, { lostBuffers: mine.length, lostBytes })
  }

  /** Buffers of its own pool, that pool, its streams and its events. */
  private closeAllOf(thread: SharedThread): void {
    for (const [name, held] of [...this.held]) {
      if (held.thread === thread) this.free({ do: 'free', buffer: name, announce: true, byAddress: false })
    }
    if (thread.own !== null) assert.deepEqual(thread.own.close(), { lostBuffers: 0, lostBytes: 0 })
    for (const [name, view] of [...thread.views]) {
      if (name !== 0 && !view.closed) this.close({ do: 'close', thread: thread.name, stream: name })
      assert.ok(name === 0 || view.closed)
    }
    this.holds = this.holds.filter(hold => hold.thread !== thread)
    this.closeEventsOf(thread)
  }

  private closeEventsOf(thread: SharedThread): void {
    for (const [name, known] of this.events) {
      if (known.thread !== thread) continue
      known.event.close()
      this.events.delete(name)
    }
  }

  /** Its memory stays, and its streams are ended by others. An own pool and its events would be lost. */
  private die(thread: SharedThread): void {
    if (thread.own !== null) return
    this.driver.clearFaults()
    this.closeEventsOf(thread)
    this.holds = this.holds.filter(hold => hold.thread !== thread)
    thread.context.destroyRest()
    for (const [name, stream] of [...this.streams]) if (stream.maker === thread && name !== 0) this.forgetStream(name)
    thread.die()
    this.threads.delete(thread.name)
    this.dead.push(thread)
  }

  /** What the dead held, or for 0 what is on its way. */
  private reclaim({ thread: name, dead: deadName }: Of<'reclaim'>): void {
    const thread = this.threads.get(name)
    if (thread === undefined || thread.front instanceof SharedArenaPool) return
    this.driver.clearFaults()
    const dead = this.dead.find(each => each.name === deadName) ?? null
    if (dead === null && deadName !== 0) return
    const mine = [...this.held].filter(([, held]) => held.thread === dead)
    const bytes = mine.reduce((sum, [, held]) => sum + held.bytes, 0)
    for (const [held] of mine) this.forget(held)
    assert.deepEqual(thread.front!.reclaim(dead === null ? 0 : dead.front!.thread), { buffers: mine.length, bytes })
  }

  private reclaimAll(): void {
    for (const dead of [null, ...this.dead]) this.reclaim({ do: 'reclaim', thread: 0, dead: dead?.name ?? 0 })
  }

  // Streams

  private open({ do: verb, thread: threadName, stream: name }: Of<'open'> | Of<'open own default'>): void {
    const thread = this.threads.get(threadName)
    if (thread === undefined) return
    const isOwnDefault = verb === 'open own default'
    const isOpen = [...thread.views.values()].some(view => view.handle === CU_STREAM_PER_THREAD && !view.closed)
    if (isOwnDefault && isOpen) return
    const { clocks } = thread
    const view = isOwnDefault ? new Stream(clocks, CU_STREAM_PER_THREAD, false) : Stream.create(clocks)
    this.streams.set(name, { maker: thread, view })
    this.note(thread, name, view)
  }

  private close({ thread: threadName, stream: name }: Of<'close'>): void {
    const [thread, stream] = [this.threads.get(threadName), this.streams.get(name)]
    const view = thread?.views.get(name)
    if (name === 0 || thread === undefined || view === undefined || view.closed) return
    const isForAll = stream?.view === view
    if (isForAll) this.secureUsesOf(name)
    const point = this.pointOf(thread, view)
    try {
      view.close()
    } finally {
      if (view.closed) {
        this.ended.set(view, point)
        thread.views.delete(name)
        this.holds = this.holds.filter(hold => hold.view !== view)
        if (isForAll) this.forgetStream(name)
      }
    }
  }

  /** Before a stream ends, whoever holds a buffer that it uses tells the pool, or puts that use before. */
  private secureUsesOf(name: number): void {
    for (const held of this.held.values()) {
      const uses = [...held.uses.keys()].filter(view => this.names.get(view) === name)
      if (uses.length > 0) this.settle(held, streamOf(held), true, uses)
    }
  }

  private forgetStream(name: number): void {
    const stream = this.streams.get(name)!
    const point = this.ended.get(stream.view) ?? this.pointOf(stream.maker, stream.view)
    for (const [view, of] of this.names) if (of === name && !this.ended.has(view)) this.ended.set(view, point)
    this.holds = this.holds.filter(hold => this.names.get(hold.view) !== name)
    this.streams.delete(name)
  }

  private note(thread: SharedThread, name: number, view: Stream): void {
    this.names.set(view, name)
    thread.views.set(name, view)
  }

  // Buffers

  private allocate(operation: Of<'allocate'>): void {
    const { buffer: name, bytes, alignment, own } = operation
    const [thread, view] = [this.threads.get(operation.thread), this.viewOf(operation)]
    const pool = own ? thread?.own : thread?.front
    if (thread === undefined || view === null || !pool) return
    const aligned = alignment === 0 ? undefined : alignment
    const isHost = this.isHost && !own
    if (!own && !isHost && !view.isShareable) {
      assert.throws(() => pool.tryAllocate(bytes, view), PoolError)
      return
    }
    const buffer = isHost ? pool.tryAllocate(bytes, undefined, aligned) : pool.tryAllocate(bytes, view, aligned)
    if (buffer === null) return
    if (!own) this.allocations++
    const ptr = addressOf(buffer)
    const queue = isHost ? null : this.queueOf(thread, view)
    this.driver.judge.grant(ptr, ptr + Math.ceil(bytes / UNIT_BYTES) * UNIT_BYTES, queue)
    // An event that was recorded before does not cover what the pool has made the stream wait for.
    const point = this.pointOf(thread, view)
    const granted = isHost ? null : { ...point, position: point.position + 0.5 }
    this.held.set(name, {
      buffer,
      bytes,
      ptr,
      own,
      thread,
      sent: null,
      granted,
      uses: new Map(),
      announced: new Set(),
    })
  }

  private use({ buffer: name, stream }: Of<'use'>): void {
    const held = this.held.get(name)
    const view = this.viewFor(held, stream)
    if (held === undefined || view === null) return
    const thread = held.thread!
    if (held.granted !== null && !this.isBefore(held.granted, thread, view)) {
      const own = streamOf(held)!
      if (own.closed) thread.clocks.synchronize()
      else this.order(thread, own, view)
    }
    const driver = thread.context.activate()
    const { buffer, bytes, ptr } = held
    if (buffer instanceof HostBuffer) {
      // A copy that the pool is told of, into memory that is nobody's.
      if (!view.isShareable) return
      this.announce(held, view)
      driver.cuMemcpyHtoDAsync(this.scratch, buffer.bytes, view.handle)
    } else if (view === buffer.stream) buffer.fill(0)
    else driver.cuMemsetD8Async(ptr, 0, bytes, view.handle)
    held.uses.set(view, this.pointOf(thread, view))
  }

  private free({ buffer: name, stream, announce, byAddress }: Of<'free'>): void {
    const held = this.held.get(name)
    if (held === undefined || held.thread === null || held.thread.isDead) return
    const { buffer, thread, own, ptr } = held
    const mine = streamOf(held)
    let on = stream === undefined ? null : this.view(thread, stream)
    if (!on?.isShareable && !own) on = null
    if (on !== null && mine !== null && on !== mine) {
      if (!mine.closed) this.order(thread, mine, on)
      else if (!this.isBefore(this.ended.get(mine)!, thread, on)) on = null
    }
    this.settle(held, on ?? mine, announce)
    this.driver.judge.free(ptr)
    try {
      if (byAddress && on === null && buffer instanceof DeviceBuffer) {
        const pool = own ? thread.own! : thread.front!
        if ('deallocate' in pool) pool.deallocate(ptr)
        else buffer.free()
      } else buffer.free(on ?? undefined)
      this.held.delete(name)
    } finally {
      if (!buffer.freed) this.driver.judge.takeBack(ptr)
      else this.held.delete(name)
    }
    assert.throws(() => buffer.free(), PoolError)
  }

  private transfer({ buffer: name }: Of<'transfer'>): void {
    const held = this.held.get(name)
    if (held === undefined || held.own || held.thread === null || held.thread.isDead) return
    // Only its own thread can do anything about the per-thread default stream.
    this.settle(
      held,
      streamOf(held),
      true,
      [...held.uses.keys()].filter(view => !view.isShareable),
    )
    held.sent = structuredClone(held.buffer.transfer())
    held.thread = null
    assert.throws(() => held.buffer.free(), PoolError)
  }

  private adopt({ thread: name, buffers }: Of<'adopt'>): void {
    const thread = this.threads.get(name)
    const list = buffers.flatMap(buffer => this.held.get(buffer) ?? []).filter(held => held.sent !== null)
    if (thread === undefined || list.length === 0) return
    const sent = list.map(held => held.sent!)
    const adopted: readonly Buffer[] = sent.length === 1 ? [thread.front!.adopt(sent[0])] : thread.front!.adoptAll(sent)
    for (const [index, held] of list.entries()) {
      const buffer = adopted[index]
      assert.deepEqual([addressOf(buffer), buffer.byteLength], [held.ptr, held.bytes])
      Object.assign(held, { buffer, thread, sent: null })
      const view = streamOf(held)
      if (view !== null && !this.names.has(view)) this.note(thread, this.nameBySlot(view), view)
    }
    assert.throws(() => thread.front!.adopt(sent[0]), PoolError)
  }

  private reset({ thread: name, stream }: Of<'reset'>): void {
    const thread = this.threads.get(name)
    const view = thread === undefined ? null : this.view(thread, stream)
    if (thread === undefined || !(thread.front instanceof SharedArenaPool) || !view?.isShareable) return
    this.driver.clearFaults()
    const shared = [...this.held].filter(([, held]) => !held.own)
    for (const [, held] of shared) this.settle(held, view, true, undefined, thread)
    for (const [buffer] of shared) this.forget(buffer)
    thread.front.reset(view)
    for (const [, { buffer }] of shared) assert.equal(buffer.freed, true)
  }

  /** A buffer is freed, by whichever call comes next. */
  private forget(name: number): void {
    this.driver.judge.free(this.held.get(name)!.ptr)
    this.held.delete(name)
  }

  /** Some uses of a buffer, or all, are told to the pool, or put before what `on` does next; those of the dead are waited for. */
  private settle(
    held: SharedHeld,
    on: Stream | null,
    announce: boolean,
    views: Iterable<Stream> = held.uses.keys(),
    actor: SharedThread | null = held.thread,
  ): void {
    for (const used of [...views]) {
      const point = held.uses.get(used)!
      const isKnown = () => held.announced.has(used) || this.isBefore(point, actor, on)
      if (isKnown()) continue
      const name = this.names.get(used)!
      const canTell = held.thread !== null && !held.thread.isDead
      const told = canTell ? this.view(held.thread!, name) : null
      const view = actor === null || actor.isDead ? null : this.view(actor, name)
      if (told?.isShareable && (announce || view === null || on === null || on.closed)) {
        this.announce(held, told)
        held.announced.add(used)
      } else if (view !== null && on !== null && !on.closed) this.order(actor!, view, on)
      if (!isKnown()) this.maker.clocks.synchronize()
    }
  }

  private announce(held: SharedHeld, view: Stream): void {
    if (!view.isShareable && !held.own) {
      assert.throws(() => held.buffer.recordUse(view), PoolError)
      return
    }
    held.buffer.recordUse(view)
    held.announced.add(view)
  }

  // Order

  private record({ thread: threadName, event: name, stream }: Of<'record'>): void {
    const thread = this.threads.get(threadName)
    const view = thread === undefined ? null : this.view(thread, stream)
    if (thread === undefined || view === null) return
    const known = this.events.get(name)
    const event = known?.thread === thread ? known.event : new Event(thread.context)
    try {
      event.record(view)
    } catch (error) {
      if (event !== known?.event) event.close()
      throw error
    }
    this.events.set(name, { thread, event })
    if (event !== known?.event) known?.event.close()
  }

  private order(thread: SharedThread, earlier: Stream, later: Stream): void {
    const event = new Event(thread.context)
    try {
      event.record(earlier)
      later.wait(event)
    } finally {
      event.close()
    }
  }

  /** Whether work comes before what a stream of a thread does next; of a closed one, whether it was submitted to it; null is the host. */
  private isBefore(point: Point, thread: SharedThread | null, later: Stream | null): boolean {
    const { order } = this.driver
    if (order.comesBefore(point, null)) return true
    if (later === null || thread === null) return false
    if (!later.closed) return order.comesBefore(point, this.queueOf(thread, later))
    const end = this.ended.get(later)
    return end?.queue === point.queue && point.position <= end.position
  }

  private queueOf(thread: SharedThread, view: Stream) {
    return (thread.context.activate() as ObservedDriver).queueOf(view.handle)
  }

  private pointOf(thread: SharedThread, view: Stream): Point {
    return (thread.context.activate() as ObservedDriver).pointOf(view.handle)
  }

  // What names stand for

  private get isHost(): boolean {
    const { front } = this.maker
    return !(front instanceof SharedArenaPool) && 'memory' in front!
  }

  /** A thread other than the one that made the pool. */
  private other(name: number): SharedThread | null {
    return name === 0 ? null : (this.threads.get(name) ?? null)
  }

  private viewOf({ thread: name, stream }: { readonly thread: number; readonly stream: number }): Stream | null {
    const thread = this.threads.get(name)
    return thread === undefined ? null : this.view(thread, stream)
  }

  /** A stream as the thread has it that holds a buffer. */
  private viewFor(held: SharedHeld | undefined, stream: number): Stream | null {
    if (held === undefined || held.thread === null || held.thread.isDead) return null
    return this.view(held.thread, stream)
  }

  /** The name of a stream that a thread has got to know by adopting a buffer of it. */
  private nameBySlot({ handle, generation }: Stream): number {
    const same = [...this.names].filter(([known]) => known.handle === handle && known.generation === generation)
    return same.at(-1)![1]
  }

  private compare(stats: PoolStats, held: readonly SharedHeld[], allocations: number): void {
    const { liveBuffers, requestedBytes, frees } = stats
    assert.deepEqual(
      { liveBuffers, requestedBytes, allocations: stats.allocations, frees },
      {
        liveBuffers: held.length,
        requestedBytes: held.reduce((sum, { bytes }) => sum + bytes, 0),
        allocations,
        frees: allocations - held.length,
      },
    )
    assert.ok(stats.liveBytes <= stats.reservedBytes && stats.reservedBytes <= stats.limitBytes, 'all has its room')
  }
}

/** The stream that a buffer is for; null in memory of the host. */
function streamOf({ buffer }: SharedHeld): Stream | null {
  return buffer instanceof DeviceBuffer ? buffer.stream : null
}

function addressOf(buffer: Buffer): number {
  return buffer instanceof DeviceBuffer ? buffer.ptr : buffer['block'].ptr
}
