// The system under test: it carries out the operations of a program on a device, as a careful user would. Where the
// contract demands an order between streams that is missing, the system makes it. So every list of operations is a
// right program, and each failure is the pool's fault.
//
// The file is long because there are many operations, and all of them look at the same buffers and streams.

import assert from 'node:assert/strict'
import { MiB } from '../src/core/base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../src/core/base/errors.js'
import { CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, RESULT } from '../src/core/driver/constants.js'
import type { Context } from '../src/core/driver/context.js'
import { UNIT_BYTES } from '../src/core/heap/size-classes.js'
import type { Capture } from '../src/core/order/capture.js'
import type { Event } from '../src/core/order/event.js'
import { Stream } from '../src/core/order/stream.js'
import { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { classUnits } from '../src/core/pool/caching/stream-caches.js'
import type { DeviceBuffer, GrowableBuffer, HostPool, OutputLifetime } from '../src/index.js'
import { Events } from './events.js'
import { Graphs } from './graphs.js'
import { Groups, reserve } from './groups.js'
import { type Held, type History, historyOf, type Recording, type Sharing, type Use } from './held.js'
import { limitMappings } from './limit-mappings.js'
import type { Machine } from './machine.js'
import { Observers } from './observers.js'
import type { Operation } from './operation.js'
import { isPlanned, refusalOf, surviveRefusal, Thrown } from './refusal.js'
import { CAPACITY_BYTES, type Settings } from './settings.js'
import { assertAsleep, type SleepActions, type Sleeping, Sleeps } from './sleeps.js'
import { Spills } from './spills.js'

/** the addresses of a growable buffer */
export const MOST_GROWABLE_BYTES: number = 6 * MiB
const NOTHING_LOST = { heldBuffers: 0, heldBytes: 0 } as const
const NONE = { allocations: 0, liveBuffers: 0, requestedBytes: 0 } as const

export interface SystemCounts {
  readonly sleeps: number
  readonly wakes: number
  /** moves of spillable buffers to the host */
  readonly spills: number
  /** of graphs */
  readonly launches: number
  readonly refused: number
  /** launches in groups whose order was known by the exact order, and those of them that got no further wait */
  readonly ordered: number
  readonly unwaited: number
}

export const NO_COUNTS: SystemCounts = {
  sleeps: 0,
  wakes: 0,
  spills: 0,
  launches: 0,
  refused: 0,
  ordered: 0,
  unwaited: 0,
}

export class System<Point> {
  readonly pools: readonly CachingPool[]
  /** open ones, by name; 0 is the legacy default stream */
  readonly streams = new Map<number, Stream>()
  readonly held = new Map<number, Held<Point>>()
  readonly groups: Groups<Point>
  readonly graphs: Graphs<Point>
  private readonly events = new Events()
  /** by event, last recorded on a captured stream: the capture */
  private readonly recordedIn = new Map<Event, Capture>()
  /** by device: the event that is recorded again wherever the user's order is missing */
  private readonly carriers: Map<Context, Event>
  /** adopted streams that were made here */
  private readonly foreign = new Map<Stream, number>()
  /** by ended stream: all work that was submitted to it */
  private readonly ended = new Map<Stream, Point>()
  private stamps = 0
  private launches = 0
  /** operations that ended with a refused call, or in an error that the program threw */
  private refused = 0
  /** of programs with sleep and spillable buffers */
  readonly sleeps: Sleeps | null = null
  readonly spills: Spills<Point> | null = null
  readonly observers = new Observers()
  /** ends waits for memory, by buffer */
  readonly waits = new Map<number, AbortController>()
  private readonly host: HostPool | null = null
  /** by pool: buffers handed out so far */
  private readonly allocations: number[]

  constructor(
    readonly settings: Settings,
    private readonly machine: Machine<Point>,
  ) {
    const { device, peer } = machine
    this.pools = settings.pools.map(options => device.createPool(options))
    this.groups = new Groups(machine, this.pools, this.held)
    this.graphs = new Graphs(machine, this.groups)
    for (const { central } of this.pools) limitMappings(central.backing, settings.mostMappings)
    if (peer !== null) for (const pool of this.pools) pool.setAccess(peer, 'readWrite')
    const devices = peer === null ? [device] : [device, peer]
    this.carriers = new Map(devices.map(each => [each.context, each.createEvent()]))
    this.streams.set(0, device.defaultStream)
    for (let count = 0; count < settings.bystanders; count++) device.createStream()
    this.allocations = this.pools.map(() => 0)
    if (settings.sleeps === null) return
    const { hostBytes, spillBytes } = settings.sleeps
    this.host = machine.createHostPool({ maxPoolBytes: hostBytes, segmentBytes: 1 * MiB })
    this.sleeps = new Sleeps(machine, this.host, this.actions())
    this.spills = new Spills(machine, this.pools[0], this.host, spillBytes, {
      putBefore: (uses, stream) => this.putBefore(uses, stream),
      order: (earlier, later) => {
        if (!canOrder(earlier, later)) return false
        this.order(earlier, later)
        return true
      },
      newStamp: () => ++this.stamps,
      wrote: () => this.sleeps!.wrote(this.pools[0]),
    })
  }

  /**
   * Carries out one operation. It survives a refusal that the program planned; every other exception is a failure.
   * Returns a promise if Node must go on meanwhile.
   */
  run(operation: Operation): void | Promise<void> {
    this.machine.begin()
    if (!surviveRefusal(() => this.take(operation))) this.refused++
    const later = this.goOn(operation)
    if (later === null) this.machine.end()
    else return later.then(() => this.machine.end())
  }

  /** How often the rarer things happened so far. */
  get counts(): SystemCounts {
    const { launches, sleeps, spills } = this
    return {
      sleeps: sleeps?.sleeps ?? 0,
      wakes: sleeps?.wakes ?? 0,
      spills: spills?.spills ?? 0,
      launches,
      refused: this.refused + (sleeps?.refused ?? 0),
      ordered: this.groups.ordered,
      unwaited: this.groups.unwaited,
    }
  }

  check(): void {
    this.pools.forEach((pool, index) => {
      pool.check()
      this.checkCounts(pool, index)
    })
    this.host?.check()
    this.spills?.check()
    this.groups.check()
  }

  /** Compares and frees all buffers, and closes everything. */
  async finish(): Promise<void> {
    const { device } = this.machine
    this.machine.begin()
    this.machine.end()
    for (const name of [...this.graphs.open.keys()]) this.graphs.abort(name)
    this.machine.peer?.synchronize()
    device.synchronize()
    this.machine.told(device)
    await this.wakeAll()
    this.spills?.finish(device.defaultStream)
    for (const held of this.held.values()) {
      const { buffer, bytes, run } = held
      if (!this.groups.isStale(held) && run.uses.length > 0 && bytes > 0)
        this.machine.compare(buffer, bytes, run.stamp, device.defaultStream)
    }
    device.synchronize()
    this.machine.end()
    this.freeAll()
    for (const name of [...this.graphs.ready.keys()]) this.graphs.close(name)
    this.freeAll()
    this.groups.finish()
    this.check()
    for (const pool of this.pools) {
      this.checkIdle(pool)
      pool.trimTo(0)
      assert.equal(pool.stats().reservedBytes, 0, 'bytes that cannot go back')
      assert.deepEqual(pool.close(), NOTHING_LOST)
    }
    if (this.host !== null) assert.deepEqual(this.host.close(), NOTHING_LOST, 'copies are given back')
    for (const name of [...this.streams.keys()]) this.close(name)
    for (const event of this.carriers.values()) event.close()
    this.events.close()
    this.machine.finish()
  }

  private freeAll(): void {
    for (const name of [...this.held.keys()]) this.free({ do: 'free', buffer: name, announce: true, byAddress: false })
  }

  private take(operation: Operation): void {
    switch (operation.do) {
      case 'open':
        this.open(operation)
        break
      case 'close':
        this.close(operation.stream)
        break
      case 'replace':
        this.replace(operation)
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
        const [held, stream] = [this.held.get(operation.buffer), this.usable(operation.stream)]
        if (held !== undefined && stream !== undefined) this.announce(held, stream)
        break
      }
      case 'record': {
        const stream = this.usable(operation.stream)
        if (stream === undefined) break
        this.events.record(operation.event, stream, event => this.record(event, stream))
        break
      }
      case 'wait': {
        const [event, stream] = [this.events.get(operation.event), this.streams.get(operation.stream)]
        if (event === undefined || stream === undefined) break
        if (this.canWait(stream, event)) this.wait(stream, event)
        else assert.throws(() => stream.wait(event), PoolError)
        break
      }
      case 'query event':
      case 'synchronise event':
        this.ask(this.events.get(operation.event), operation.do === 'query event')
        break
      case 'query':
      case 'synchronise':
        this.ask(this.streams.get(operation.stream), operation.do === 'query')
        break
      case 'synchronise device':
        if (this.graphs.open.size > 0) assert.throws(() => this.machine.device.synchronize(), PoolError)
        else {
          this.machine.device.synchronize()
          this.machine.told(this.machine.device)
        }
        break
      case 'hold': {
        const stream = this.streams.get(operation.stream)
        if (stream !== undefined && stream.slot !== -1) this.machine.hold(stream)
        break
      }
      case 'release':
        this.machine.release()
        break
      case 'capture': {
        const stream = this.streams.get(operation.stream)
        const sharing = operation.group === undefined ? null : this.groups.open.get(operation.group)
        if (stream !== undefined && sharing !== undefined) {
          this.graphs.begin(operation.graph, stream, operation.mode, sharing)
        }
        break
      }
      case 'end capture':
        this.endCapture(operation)
        break
      case 'abort capture':
        this.graphs.abort(operation.graph)
        break
      case 'launch': {
        const stream = this.streams.get(operation.stream)
        if (stream !== undefined) this.launch(operation.graph, stream)
        break
      }
      case 'close graph':
        this.graphs.close(operation.graph)
        break
      case 'make group':
        this.groups.make(operation)
        break
      case 'output':
        this.output(operation)
        break
      case 'reserve group':
      case 'trim group':
        this.groups.change(operation)
        break
      case 'close group':
        this.groups.close(operation.group)
        break
      case 'process deferred':
        this.pools[operation.pool].processDeferred()
        break
      case 'trim':
        this.pools[operation.pool].trimTo(operation.bytes)
        break
      case 'idle':
        if (this.graphs.open.size === 0) for (const pool of this.pools) this.checkIdle(pool)
        break
      case 'limit':
        this.pools[operation.pool].maxPoolBytes = operation.bytes
        break
      case 'reserve':
        this.reserve(this.pools[operation.pool], operation.bytes)
        break
      case 'await room':
        this.awaitRoom(operation)
        break
      case 'abort':
        this.waits.get(operation.buffer)?.abort(new Thrown('the program waits no longer'))
        break
      case 'observe':
        this.observers.start(this.pools[operation.pool], operation.throwsAt)
        break
      case 'stop observing':
        this.observers.stop(this.pools[operation.pool])
        break
      case 'sleep': {
        const memory = this.memory(operation.memory)
        if (operation.hold) this.machine.holdCopy()
        if (memory !== undefined) this.sleeps!.sleep(memory, operation)
        break
      }
      case 'wake': {
        const memory = this.memory(operation.memory)
        if (operation.hold) this.machine.holdCopy()
        if (memory !== undefined) this.sleeps!.wake(memory, operation)
        break
      }
      case 'turn':
      case 'settle':
        break
      case 'growable':
        this.openGrowable(operation)
        break
      case 'resize':
        this.resize(operation)
        break
      case 'spillable':
      case 'borrow':
      case 'work':
      case 'spill': {
        const stream = this.streams.get(operation.stream)
        if (stream === undefined || stream.clocks !== this.machine.device.clocks) break
        if (operation.do === 'spillable') this.spills!.allocate(operation, stream)
        else if (operation.do === 'borrow') this.spills!.borrow(operation, stream)
        else if (operation.do === 'work') this.spills!.work(operation, stream)
        else this.spills!.spill(operation, stream)
        break
      }
      case 'give back':
        this.spills!.giveBack(operation.use, operation.stream === undefined ? undefined : this.usable(operation.stream))
        break
      case 'free spillable':
        this.spills!.free(operation.spillable)
        break
      case 'close spillables':
        this.spills!.reopen()
        break
      case 'refuse':
        this.machine.refuse(refusalOf(operation))
        break
    }
  }

  /** The part of an operation while Node goes on; null for none. */
  private goOn(operation: Operation): Promise<void> | null {
    if (operation.do === 'turn') return this.sleeps!.turns(operation.count)
    const settles =
      operation.do === 'settle' || ((operation.do === 'sleep' || operation.do === 'wake') && operation.settle)
    return settles ? this.sleeps!.settle(this.graphs.open.size > 0) : null
  }

  private actions(): SleepActions {
    const all = (memory: Sleeping) => [...this.held.values()].filter(held => this.memoryOf(held) === memory)
    return {
      loseContents: (memory, keep) => {
        if (memory instanceof CachingPool) this.groups.slept(memory)
        if (keep === 'host') return
        for (const { run } of all(memory)) run.uses = []
        if (memory === this.pools[0]) this.spills!.loseContents()
      },
      look: memory => {
        for (const held of all(memory)) this.use({ do: 'use', buffer: this.nameOf(held), stream: 0, write: false })
      },
      react: (memory, { reaction }) => {
        const [held] = all(memory)
        if (reaction === 'free' && held !== undefined) {
          this.free({ do: 'free', buffer: this.nameOf(held), announce: true, byAddress: false })
        }
        if (reaction === 'trim') for (const pool of this.pools) pool.trimTo(0)
      },
      obstacles: memory => {
        const errors = this.graphs.open.size > 0 ? [/work that is being captured uses/] : []
        if (!(memory instanceof CachingPool)) return { errors, isSure: false }
        if (memory.central.backing.kind !== 'virtual') return { errors: [/cannot be mapped again/], isSure: true }
        return this.observers.has(memory)
          ? { errors: [/the segments are registered/], isSure: true }
          : { errors, isSure: false }
      },
    }
  }

  private nameOf(held: Held<Point>): number {
    return [...this.held].find(([, one]) => one === held)![0]
  }

  /** A pool, or a growable buffer by the negative of its name. */
  private memory(name: number): Sleeping | undefined {
    return name >= 0 ? this.pools[name] : (this.held.get(-name)?.buffer as GrowableBuffer | undefined)
  }

  private memoryOf({ pool, buffer }: Held<Point>): Sleeping {
    return pool >= 0 ? this.pools[pool] : (buffer as GrowableBuffer)
  }

  private isAsleep(held: Held<Point>): boolean {
    return this.memoryOf(held).asleep
  }

  /** At the end everything is awake again; where memory is short, other pools give theirs back first. */
  private async wakeAll(): Promise<void> {
    if (this.sleeps === null) return
    for (const wait of this.waits.values()) wait.abort(new Thrown('the program ends'))
    await this.sleeps.turns(4)
    await this.sleeps.settle(false)
    for (const pool of this.pools) {
      this.observers.stop(pool)
      pool.trimTo(0)
    }
    for (const wait of this.waits.values()) wait.abort(new Thrown('the program ends'))
    await this.sleeps.turns(4)
    assert.equal(this.waits.size, 0, 'no wait for memory is left')
    const asleep = () =>
      [...this.pools.keys(), ...[...this.held].flatMap(([name, { pool }]) => (pool === -1 ? [-name] : []))].filter(
        name => this.memory(name)!.asleep,
      )
    const details = { keepCopy: false, wait: 'host', reaction: 'none', look: false, hold: false, settle: true } as const
    for (const memory of asleep()) await this.run({ do: 'wake', memory, ...details })
    if (asleep().length === 0) return
    for (const [name, held] of this.held) {
      if (!this.isAsleep(held)) this.free({ do: 'free', buffer: name, announce: true, byAddress: false })
    }
    this.machine.device.synchronize()
    for (const pool of this.pools) pool.trimTo(0)
    for (const memory of asleep()) {
      await this.run({ do: 'wake', memory, ...details })
      const one = this.memory(memory)!
      const isFull = one instanceof CachingPool && one.stats().asleepBytes > CAPACITY_BYTES / 2
      if (one.asleep) assert.ok(isFull, 'memory can be woken when the device has room')
    }
  }

  /** With all work complete nothing is pending. */
  private checkIdle(pool: CachingPool): void {
    this.machine.peer?.synchronize()
    this.machine.device.synchronize()
    pool.processDeferred()
    assert.equal(pool.stats().pendingBytes, 0, 'bytes that wait for complete work')
  }

  /** The pool's counters agree with the program's. */
  private checkCounts(pool: CachingPool, index: number): void {
    // The memory of a shared output counts until its capture ends, also once it was freed.
    const held = [...this.held.values()].filter(one => one.pool === index && one.output !== 'shared')
    const others = index === 0 && this.spills !== null ? this.spills.counts : NONE
    const shared = this.groups.countsIn(index)
    const requested = held.reduce((sum, { bytes }) => sum + bytes, others.requestedBytes + shared.requestedBytes)
    const { liveBuffers, requestedBytes, allocations, frees } = pool.stats()
    assert.deepEqual(
      { liveBuffers, requestedBytes, allocations, frees },
      {
        liveBuffers: held.length + others.liveBuffers + shared.liveBuffers,
        requestedBytes: requested,
        allocations: this.allocations[index] + others.allocations,
        frees: allocations - liveBuffers,
      },
      'the counters of the pool',
    )
  }

  private reserve(pool: CachingPool, bytes: number): void {
    if (pool.asleep) assertAsleep(() => pool.reserve(bytes))
    else reserve(pool, bytes)
  }

  /** Allocates once the pool says that there may be room. */
  private awaitRoom({ buffer, pool, stream, bytes }: Operation & { do: 'await room' }): void {
    const wait = new AbortController()
    this.waits.set(buffer, wait)
    const allocate = () => {
      this.waits.delete(buffer)
      if (this.pools[pool].asleep) return
      this.allocate({ do: 'allocate', buffer, pool, stream, bytes, alignment: 0, fill: true })
    }
    const end = (error: unknown) => {
      this.waits.delete(buffer)
      const isAsleep = error instanceof PoolError && /asleep/.test(error.message)
      if (!isPlanned(error) && !(error instanceof OutOfMemoryError) && !isAsleep) this.sleeps!.fail(error)
    }
    this.pools[pool].whenAvailable(bytes, { signal: wait.signal }).then(allocate).catch(end)
  }

  private openGrowable({ buffer: name, stream: streamName, bytes }: Operation & { do: 'growable' }): void {
    const stream = this.usable(streamName)
    if (stream === undefined || stream.capture !== null || stream.clocks !== this.machine.device.clocks) return
    let buffer: GrowableBuffer
    try {
      buffer = this.machine.device.createGrowableBuffer({ bytes, stream, capacityBytes: MOST_GROWABLE_BYTES })
    } catch (error) {
      if (error instanceof OutOfMemoryError) return
      throw error
    }
    this.machine.resized(buffer, bytes)
    this.held.set(name, newHeld(buffer, -1, bytes, 0, null, null))
  }

  /** A graph that uses the buffer could not be launched any more. */
  private resize({ buffer: name, bytes }: Operation & { do: 'resize' }): void {
    const held = this.held.get(name)
    if (held === undefined || held.pool !== -1 || this.graphs.mayUse(held)) return
    const buffer = held.buffer as GrowableBuffer
    if (buffer.asleep) {
      assertAsleep(() => buffer.grow(bytes))
      return
    }
    const before = held.bytes
    if (bytes < before) this.machine.resized(buffer, bytes)
    try {
      if (bytes < before) buffer.shrink(bytes)
      else buffer.grow(bytes)
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
    } finally {
      held.bytes = buffer.byteLength
      this.machine.resized(buffer, held.bytes)
    }
    if (held.bytes > before) held.run.isWhole = false
  }

  /** Launches a graph, unless its memory sleeps. */
  private launch(name: number, stream: Stream): void {
    const recording = this.graphs.ready.get(name)
    if (recording === undefined) return
    const touched = [...recording.touched]
    if (touched.some(held => !held.buffer.freed && this.isAsleep(held))) {
      if (stream.slot !== -1) assertAsleep(() => recording.graph!.launch(stream))
      return
    }
    try {
      if (!this.graphs.launch(name, stream, uses => this.putBefore(uses, stream))) return
    } catch (error) {
      // The graph may have memory of a pool that its work does not use.
      const isAsleep = error instanceof PoolError && /asleep/.test(error.message)
      if (!isAsleep || !this.pools.some(pool => pool.asleep)) throw error
      return
    }
    this.launches++
    for (const held of touched) this.sleeps?.wrote(this.memoryOf(held))
    if (recording.sharing !== null) this.sleeps?.wrote(this.pools[recording.sharing.pool])
  }

  private open({ stream: name, kind }: Operation & { do: 'open' }): void {
    const { device } = this.machine
    const { streams, suspended } = device.clocks.registry
    if (streams.every((stream, slot) => stream !== null || suspended.has(slot))) {
      assert.throws(() => device.createStream(), { name: 'PoolError', message: /2048 streams are open/ })
      return
    }
    if (kind === 'of the peer') {
      if (this.machine.peer !== null) this.streams.set(name, this.machine.peer.createStream())
    } else if (kind === 'own') this.streams.set(name, device.createStream())
    else if (kind === 'per-thread default') {
      const stream = device.adoptStream(CU_STREAM_PER_THREAD)
      if (![...this.streams.values()].includes(stream)) this.streams.set(name, stream)
    } else this.adopt(name, kind === 'adopted' ? CU_STREAM_NON_BLOCKING : 0)
  }

  /** A stream that another library makes. */
  private adopt(name: number, flags: number): void {
    const { device } = this.machine
    const handle = device.context.activate().cuStreamCreate(flags)
    const stream = device.adoptStream(handle)
    this.streams.set(name, stream)
    this.foreign.set(stream, handle)
  }

  /** A stream ends with its work pending. The legacy default stream stays. */
  private close(name: number): void {
    const stream = this.streams.get(name)
    if (stream === undefined || name === 0 || stream.capture !== null) return
    if (!this.announceUsesOf(stream)) return
    this.ended.set(stream, this.machine.pointOf(stream))
    stream.close()
    this.streams.delete(name)
    const handle = this.foreign.get(stream)
    if (handle !== undefined) this.machine.device.context.activate().cuStreamDestroy(handle)
  }

  private replace({ stream: name, by }: Operation & { do: 'replace' }): void {
    const stream = this.streams.get(name)
    const handle = stream && this.foreign.get(stream)
    if (handle === undefined || !this.machine.recyclesHandles || this.graphs.open.size > 0) return
    if (!this.announceUsesOf(stream!)) return
    this.ended.set(stream!, this.machine.pointOf(stream!))
    this.streams.delete(name)
    this.machine.device.context.activate().cuStreamDestroy(handle)
    this.adopt(by, CU_STREAM_NON_BLOCKING)
    assert.equal(this.streams.get(by)!.handle, handle)
  }

  /**
   * Announces, before a stream ends, its uses of other streams' buffers; where memory sleeps, orders them. False if
   * it cannot.
   */
  private announceUsesOf(stream: Stream): boolean {
    for (const held of this.held.values()) {
      const own = held.buffer.stream
      const uses = held.run.uses.filter(use => use.stream === stream && !use.byGraph)
      if (own === stream || uses.length === 0 || held.output !== null) continue
      if (own.closed || !uses.every(use => this.comesBefore(use, own))) {
        if (!this.isAsleep(held)) this.announce(held, stream)
        else if (own.closed || !canOrder(stream, own)) return false
        else this.order(stream, own)
      }
    }
    return true
  }

  private allocate({
    buffer: name,
    pool: index,
    stream: streamName,
    ...request
  }: Operation & { do: 'allocate' }): void {
    const stream = this.usable(streamName)
    if (stream === undefined || stream.clocks !== this.machine.device.clocks) return
    const { bytes, alignment, fill } = request
    const pool = this.pools[index]
    const madeIn = this.graphs.of(stream)
    const counted = alignment <= UNIT_BYTES && madeIn === null && this.machine.peer === null
    const units = counted ? classUnits(Math.ceil(bytes / UNIT_BYTES)) : 0
    if (pool.asleep) {
      assertAsleep(() => pool.tryAllocate(bytes, stream))
      return
    }
    this.machine.requested(pool, alignment === 0 ? units : 0, stream)
    const sharing = madeIn?.sharing?.pool === index ? madeIn.sharing : null
    const buffer = pool.tryAllocate(bytes, stream, alignment === 0 ? undefined : alignment)
    this.machine.granted(buffer, pool, stream, sharing?.group ?? null)
    if (buffer === null) return
    this.allocations[index]++
    const held: Held<Point> = newHeld(buffer, index, bytes, units, madeIn, sharing)
    this.held.set(name, held)
    if (fill && bytes >= 4) this.write(held, stream)
  }

  private output({ buffer: name, stream: streamName, bytes, lifetime }: Operation & { do: 'output' }): void {
    const stream = this.usable(streamName)
    const madeIn = stream === undefined ? null : this.graphs.of(stream)
    if (stream === undefined || madeIn === null || madeIn.sharing === null) return
    const output = this.groups.output(madeIn, stream, bytes, lifetime)
    if (output === null) return
    const { pool } = madeIn.sharing
    this.allocations[pool]++
    const held: Held<Point> = newHeld(output, pool, bytes, 0, madeIn, madeIn.sharing, lifetime)
    this.held.set(name, held)
    this.write(held, stream)
  }

  private free({ buffer: name, stream: streamName, announce, byAddress }: Operation & { do: 'free' }): void {
    const held = this.held.get(name)
    if (held === undefined) return
    const { buffer, output, sharing } = held
    if (output === 'shared') {
      buffer.free()
      this.held.delete(name)
      return
    }
    const own = buffer.stream
    let on = (streamName === undefined ? undefined : this.streams.get(streamName)) ?? own
    // A use on a closed stream can no longer be ordered before another stream: free on the buffer's own stream then.
    const { uses } = held.run
    const captured = [...held.captured.values()].flatMap(history => history.uses)
    if (uses.length + captured.length === 0) on = own
    if (uses.some(use => use.stream.closed && !use.byGraph && !this.comesBefore(use, on))) on = own
    const recording = this.graphs.of(on)
    const inCapture = recording === null ? [] : historyOf(held, recording).uses
    // The library knows the uses of an output.
    const pending = [...(output === null ? uses : []), ...inCapture].filter(
      use => !(use.byGraph || held.announced.has(use.stream) || use.stream.closed) && !this.comesBefore(use, on),
    )
    // Work of the default stream can be neither ordered nor announced while a captured stream blocks it.
    if (!pending.every(use => takesWork(use.stream))) return
    if (!this.mayFree(held, pending, on, recording)) return
    for (const use of pending) {
      // No captured event orders work that ran before its capture.
      const isOutside = recording !== null && uses.includes(use)
      if (!this.isAsleep(held) && (announce || isOutside || !canOrder(use.stream, on))) this.announce(held, use.stream)
      else this.order(use.stream, on)
    }
    for (const other of held.captured.keys()) {
      if (other !== recording && !other.capture.ended) this.graphs.announce(held, other)
    }
    const covered = [on, ...held.announced].map(each => this.ended.get(each) ?? this.machine.pointOf(each))
    const pool = held.pool === -1 ? null : this.pools[held.pool]
    const units = recording === null && held.captured.size === 0 ? held.units : 0
    // The address alone would count as a use in each capture.
    const ptr =
      pool === null ? (buffer as GrowableBuffer).allocation.range.base : this.groups.addressOf(buffer, held.pool)
    this.machine.freed(ptr, covered, pool, units)
    try {
      if (byAddress && on === own && pool !== null && output === null) pool.deallocate(ptr)
      else if (on === own) buffer.free()
      else buffer.free(on)
    } finally {
      if (buffer.freed) this.held.delete(name)
      else this.machine.notFreed(ptr)
      if (sharing !== null) sharing.isExact = false
    }
    if (pool === null) this.sleeps!.forget(buffer as GrowableBuffer)
    assert.throws(() => buffer.free(), PoolError)
  }

  /**
   * While memory sleeps no use can be announced, only ordered. A growable buffer stays as long as a graph may use it.
   */
  private mayFree(
    held: Held<Point>,
    pending: readonly Use<Point>[],
    on: Stream,
    recording: Recording<Point> | null,
  ): boolean {
    if (held.pool === -1 && (recording !== null || this.graphs.mayUse(held))) return false
    if (!this.isAsleep(held)) return true
    const isKnown = [...held.captured.keys()].every(
      other => other === recording || other.capture.ended || other.known.has(held) || held.madeIn === other,
    )
    return isKnown && (pending.length === 0 || (recording === null && pending.every(use => canOrder(use.stream, on))))
  }

  private use({ buffer: name, stream: streamName, write }: Operation & { do: 'use' }): void {
    const [held, stream] = [this.held.get(name), this.usable(streamName)]
    if (held === undefined || stream === undefined) return
    if (held.pool === -1 && (stream.clocks !== this.machine.device.clocks || held.bytes === 0)) return
    if (this.isAsleep(held)) {
      assertAsleep(() => this.machine.compare(held.buffer, held.bytes, 0, stream))
      return
    }
    if (this.groups.isRefused(held, this.graphs.of(stream))) {
      assert.throws(() => this.machine.compare(held.buffer, held.bytes, 0, stream), PoolError)
      return
    }
    if (!write && !held.run.isWhole && this.graphs.of(stream) === null) return
    const { uses } = historyOf(held, this.graphs.of(stream))
    // Captured work may begin with a write to a buffer that ran work has written.
    if (uses.length === 0 && !(write && held.run.uses.length > 0)) return
    const before = write ? uses : uses.slice(0, 1)
    if (
      !this.putBefore(
        before.filter(use => !this.groups.follows(held, use, stream)),
        stream,
      )
    )
      return
    this.groups.attempt(held, () => (write ? this.write(held, stream) : this.read(held, stream)))
  }

  private write(held: Held<Point>, stream: Stream): void {
    const history = this.touch(held, stream)
    const stamp = ++this.stamps
    this.machine.stamp(held.buffer, held.bytes, stamp, stream)
    history.stamp = stamp
    history.isWhole = true
    if (stream.capture === null) this.sleeps?.wrote(this.memoryOf(held))
    this.groups.used(held, stream)
    history.uses = [{ point: this.machine.pointOf(stream), stream, byGraph: false }]
  }

  private read(held: Held<Point>, stream: Stream): void {
    const history = this.touch(held, stream)
    this.machine.compare(held.buffer, held.bytes, history.stamp, stream)
    this.groups.used(held, stream)
    history.uses.push({ point: this.machine.pointOf(stream), stream, byGraph: false })
  }

  /** The history of a buffer that the stream is about to use. */
  private touch(held: Held<Point>, stream: Stream): History<Point> {
    const recording = this.graphs.of(stream)
    recording?.touched.add(held)
    return historyOf(held, recording)
  }

  private endCapture({ graph, join }: Operation & { do: 'end capture' }): void {
    const recording = this.graphs.open.get(graph)
    if (recording === undefined) return
    const { origin, capture } = recording
    if (join) {
      for (const stream of this.streams.values()) {
        if (stream.capture === capture && stream !== origin) this.order(stream, origin)
      }
    }
    try {
      this.graphs.end(graph, held => {
        this.free({ do: 'free', buffer: this.nameOf(held), announce: true, byAddress: false })
      })
    } catch (error) {
      if (join || !(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        throw error
    }
  }

  /** The open stream of this name, unless it takes no work. */
  private usable(name: number): Stream | undefined {
    const stream = this.streams.get(name)
    return stream !== undefined && takesWork(stream) ? stream : undefined
  }

  /**
   * Orders these uses before the stream wherever the order is missing. Returns false, and does nothing, if one cannot
   * be ordered.
   */
  private putBefore(uses: readonly Use<Point>[], stream: Stream): boolean {
    const missing = uses.filter(use => !this.comesBefore(use, stream))
    if (!missing.every(use => canOrder(use.stream, stream))) return false
    for (const use of missing) this.order(use.stream, stream)
    return true
  }

  private record(event: Event, stream: Stream): void {
    event.record(stream)
    if (stream.capture === null) this.recordedIn.delete(event)
    else this.recordedIn.set(event, stream.capture)
    this.machine.recorded(event, stream)
  }

  /**
   * A captured stream waits for events of its capture. Every other stream waits for uncaptured events, and unless it
   * is the default stream, for captured ones.
   */
  private canWait(stream: Stream, event: Event): boolean {
    const capture = this.recordedIn.get(event)
    if (capture === undefined) return stream.slot !== -1
    if (capture.ended) return false
    if (stream.capture !== null) return stream.capture === capture
    return stream.slot !== -1 && stream.handle !== 0 && stream.context === event.context
  }

  private wait(stream: Stream, event: Event): void {
    stream.wait(event)
    this.machine.waited(stream, event)
  }

  /** Asks a stream or an event, or waits for it. */
  private ask(whom: Event | Stream | undefined, merely: boolean): void {
    if (whom === undefined) return
    const isRefused = whom instanceof Stream ? whom.slot === -1 : this.recordedIn.has(whom)
    if (isRefused) {
      assert.throws(() => (merely ? whom.query() : whom.synchronize()), PoolError)
      return
    }
    if (merely && !whom.query()) return
    if (!merely) whom.synchronize()
    this.machine.told(whom)
  }

  private order(earlier: Stream, later: Stream): void {
    const carrier = this.carriers.get(earlier.context)!
    this.record(carrier, earlier)
    this.wait(later, carrier)
  }

  /** Whether some work comes before the stream's next work; for a closed stream, whether the work is its own. */
  private comesBefore({ point, stream }: Use<Point>, later: Stream): boolean {
    return stream === later || (!later.closed && this.machine.comesBefore(point, later))
  }

  private announce(held: Held<Point>, stream: Stream): void {
    if (held.pool === -1 && (stream.capture !== null || stream.clocks !== this.machine.device.clocks)) return
    if (this.isAsleep(held)) {
      assertAsleep(() => held.buffer.recordUse(stream))
      return
    }
    const recording = this.graphs.of(stream)
    if (this.groups.isRefused(held, recording)) {
      assert.throws(() => held.buffer.recordUse(stream), PoolError)
      return
    }
    this.groups.attempt(held, () => held.buffer.recordUse(stream))
    if (held.output !== null && recording === null) {
      held.sharing!.isExact = false // work may follow until the next launch
      return
    }
    if (recording === null) {
      held.announced.add(stream)
      return
    }
    recording.known.add(held)
    historyOf(held, recording)
  }
}

function newHeld<Point>(
  buffer: DeviceBuffer,
  pool: number,
  bytes: number,
  units: number,
  madeIn: Recording<Point> | null,
  sharing: Sharing<Point> | null,
  output: OutputLifetime | null = null,
): Held<Point> {
  const run = { uses: [], stamp: 0, isWhole: true }
  const details = { captured: new Map(), announced: new Set<Stream>() }
  return { buffer, pool, bytes, units, madeIn, run, ...details, sharing, output }
}

/** Whether a stream, captured or not, accepts work. */
function takesWork(stream: Stream): boolean {
  return stream.slot !== -1 || stream.capture !== null
}

/** Whether an event can order the work of one stream before the other's. */
function canOrder(earlier: Stream, later: Stream): boolean {
  return takesWork(earlier) && takesWork(later) && earlier.capture === later.capture
}
