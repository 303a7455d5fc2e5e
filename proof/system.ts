// The system under test: it carries out the operations of a program on a device, as a careful user would. Where the
// contract demands an order between streams that is missing, the system makes it. So every list of operations is a
// right program, and each failure is the pool's fault.
//
// The file is long because there are many operations, and all of them look at the same buffers and streams.

import assert from 'node:assert/strict'
import { CudaError, PoolError } from '../src/base/errors.js'
import { CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, RESULT } from '../src/driver/constants.js'
import type { Context } from '../src/driver/context.js'
import { UNIT_BYTES } from '../src/heap/size-classes.js'
import type { Capture } from '../src/order/capture.js'
import type { Event } from '../src/order/event.js'
import { Stream } from '../src/order/stream.js'
import type { CachingPool } from '../src/pool/caching/caching-pool.js'
import { classUnits } from '../src/pool/caching/stream-caches.js'
import { Events } from './events.js'
import { Graphs } from './graphs.js'
import { type Held, type History, historyOf, type Use } from './held.js'
import { limitMappings } from './limit-mappings.js'
import type { Machine } from './machine.js'
import type { Operation } from './operation.js'
import { refusalOf, surviveRefusal } from './refusal.js'
import type { Settings } from './settings.js'

export class System<Point> {
  readonly pools: readonly CachingPool[]
  /** open ones, by name; 0 is the legacy default stream */
  readonly streams = new Map<number, Stream>()
  readonly held = new Map<number, Held<Point>>()
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

  constructor(
    readonly settings: Settings,
    private readonly machine: Machine<Point>,
  ) {
    const { device, peer } = machine
    this.graphs = new Graphs(machine)
    this.pools = settings.pools.map(options => device.createPool(options))
    for (const { central } of this.pools) limitMappings(central.backing, settings.mostMappings)
    if (peer !== null) for (const pool of this.pools) pool.setAccess(peer, 'readWrite')
    const devices = peer === null ? [device] : [device, peer]
    this.carriers = new Map(devices.map(each => [each.context, each.createEvent()]))
    this.streams.set(0, device.defaultStream)
    for (let count = 0; count < settings.bystanders; count++) device.createStream()
  }

  /**
   * Carries out one operation. It survives a refusal that the program planned; every other exception is a failure.
   */
  run(operation: Operation): void {
    this.machine.begin()
    surviveRefusal(() => this.take(operation))
    this.machine.end()
  }

  check(): void {
    for (const pool of this.pools) pool.check()
  }

  /** Compares and frees all buffers, and closes everything. */
  finish(): void {
    const { device } = this.machine
    this.machine.begin()
    this.machine.end()
    for (const name of [...this.graphs.open.keys()]) this.graphs.abort(name)
    this.machine.peer?.synchronize()
    device.synchronize()
    this.machine.told(device)
    for (const { buffer, bytes, run } of this.held.values()) {
      if (run.uses.length > 0) this.machine.compare(buffer, bytes, run.stamp, device.defaultStream)
    }
    device.synchronize()
    this.machine.end()
    for (const name of [...this.held.keys()]) this.free({ do: 'free', buffer: name, announce: true, byAddress: false })
    for (const name of [...this.graphs.ready.keys()]) this.graphs.close(name)
    this.check()
    for (const pool of this.pools) assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
    for (const name of [...this.streams.keys()]) this.close(name)
    for (const event of this.carriers.values()) event.close()
    this.events.close()
    this.machine.finish()
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
        if (stream !== undefined) this.graphs.begin(operation.graph, stream, operation.mode)
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
        if (stream !== undefined) {
          this.graphs.launch(operation.graph, stream, uses => this.putBefore(uses, stream))
        }
        break
      }
      case 'close graph':
        this.graphs.close(operation.graph)
        break
      case 'process deferred':
        this.pools[operation.pool].processDeferred()
        break
      case 'trim':
        this.pools[operation.pool].trimTo(operation.bytes)
        break
      case 'refuse':
        this.machine.refuse(refusalOf(operation))
        break
    }
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
    this.announceUsesOf(stream)
    this.ended.set(stream, this.machine.pointOf(stream))
    stream.close()
    this.streams.delete(name)
    this.machine.closed(stream)
    const handle = this.foreign.get(stream)
    if (handle !== undefined) this.machine.device.context.activate().cuStreamDestroy(handle)
  }

  private replace({ stream: name, by }: Operation & { do: 'replace' }): void {
    const stream = this.streams.get(name)
    const handle = stream && this.foreign.get(stream)
    if (handle === undefined || !this.machine.recyclesHandles || this.graphs.open.size > 0) return
    this.announceUsesOf(stream!)
    this.ended.set(stream!, this.machine.pointOf(stream!))
    this.streams.delete(name)
    this.machine.closed(stream!)
    this.machine.device.context.activate().cuStreamDestroy(handle)
    this.adopt(by, CU_STREAM_NON_BLOCKING)
    assert.equal(this.streams.get(by)!.handle, handle)
  }

  /** Announces, before a stream ends, its uses of other streams' buffers. */
  private announceUsesOf(stream: Stream): void {
    for (const held of this.held.values()) {
      const own = held.buffer.stream
      const uses = held.run.uses.filter(use => use.stream === stream && !use.byGraph)
      if (own === stream || uses.length === 0) continue
      if (own.closed || !uses.every(use => this.comesBefore(use, own))) {
        this.announce(held, stream)
      }
    }
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
    this.machine.requested(pool, alignment === 0 ? units : 0, stream)
    const buffer = pool.tryAllocate(bytes, stream, alignment === 0 ? undefined : alignment)
    this.machine.granted(buffer, pool, stream)
    if (buffer === null) return
    const held: Held<Point> = {
      buffer,
      pool: index,
      bytes,
      units,
      madeIn,
      run: { uses: [], stamp: 0 },
      captured: new Map(),
      announced: new Set(),
    }
    this.held.set(name, held)
    if (fill && bytes >= 4) this.write(held, stream)
  }

  private free({ buffer: name, stream: streamName, announce, byAddress }: Operation & { do: 'free' }): void {
    const held = this.held.get(name)
    if (held === undefined) return
    const { buffer } = held
    const own = buffer.stream
    let on = (streamName === undefined ? undefined : this.streams.get(streamName)) ?? own
    // A use on a closed stream can no longer be ordered before another stream: free on the buffer's own stream then.
    const { uses } = held.run
    const captured = [...held.captured.values()].flatMap(history => history.uses)
    if (uses.length + captured.length === 0) on = own
    if (uses.some(use => use.stream.closed && !use.byGraph && !this.comesBefore(use, on))) on = own
    const recording = this.graphs.of(on)
    const inCapture = recording === null ? [] : historyOf(held, recording).uses
    const pending = [...uses, ...inCapture].filter(
      use => !(use.byGraph || held.announced.has(use.stream) || use.stream.closed) && !this.comesBefore(use, on),
    )
    // Work of the default stream can be neither ordered nor announced while a captured stream blocks it.
    if (!pending.every(use => takesWork(use.stream))) return
    for (const use of pending) {
      // No captured event orders work that ran before its capture.
      const isOutside = recording !== null && uses.includes(use)
      if (announce || isOutside || !canOrder(use.stream, on)) this.announce(held, use.stream)
      else this.order(use.stream, on)
    }
    for (const other of held.captured.keys()) {
      if (other !== recording && !other.capture.ended) this.graphs.announce(held, other)
    }
    this.held.delete(name)
    const covered = [on, ...held.announced].map(each => this.ended.get(each) ?? this.machine.pointOf(each))
    const pool = this.pools[held.pool]
    const units = recording === null && held.captured.size === 0 ? held.units : 0
    this.machine.freed(buffer.ptr, covered, pool, units)
    if (byAddress && on === own) pool.deallocate(buffer.ptr)
    else if (on === own) buffer.free()
    else buffer.free(on)
    assert.throws(() => buffer.free(), PoolError)
  }

  private use({ buffer: name, stream: streamName, write }: Operation & { do: 'use' }): void {
    const [held, stream] = [this.held.get(name), this.usable(streamName)]
    if (held === undefined || stream === undefined) return
    const { uses } = historyOf(held, this.graphs.of(stream))
    // Captured work may begin with a write to a buffer that ran work has written.
    if (uses.length === 0 && !(write && held.run.uses.length > 0)) return
    if (!this.putBefore(write ? uses : uses.slice(0, 1), stream)) return
    if (write) this.write(held, stream)
    else this.read(held, stream)
  }

  private write(held: Held<Point>, stream: Stream): void {
    const history = this.touch(held, stream)
    history.stamp = ++this.stamps
    this.machine.stamp(held.buffer, held.bytes, history.stamp, stream)
    history.uses = [{ point: this.machine.pointOf(stream), stream, byGraph: false }]
  }

  private read(held: Held<Point>, stream: Stream): void {
    const history = this.touch(held, stream)
    this.machine.compare(held.buffer, held.bytes, history.stamp, stream)
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
      this.graphs.end(graph)
    } catch (error) {
      if (join || !(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_STREAM_CAPTURE_UNJOINED) throw error
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
    held.buffer.recordUse(stream)
    const recording = this.graphs.of(stream)
    if (recording === null) {
      held.announced.add(stream)
      return
    }
    recording.known.add(held)
    historyOf(held, recording)
  }
}

/** Whether a stream, captured or not, accepts work. */
function takesWork(stream: Stream): boolean {
  return stream.slot !== -1 || stream.capture !== null
}

/** Whether an event can order the work of one stream before the other's. */
function canOrder(earlier: Stream, later: Stream): boolean {
  return takesWork(earlier) && takesWork(later) && earlier.capture === later.capture
}
