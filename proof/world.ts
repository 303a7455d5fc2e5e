// A device on which the operations of a program are carried out, as a careful user would: whatever order between
// streams the contract asks of the user, and is not there already, is made. So every list of operations is a right
// program, and what goes wrong is the pool's fault.
//
// The file is long because there are many operations, and all of them look at the same buffers and streams.

import assert from 'node:assert/strict'
import { CudaError, PoolError } from '../src/base/errors.js'
import { CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, RESULT } from '../src/driver/constants.js'
import { UNIT_BYTES } from '../src/heap/size-classes.js'
import type { DeviceBuffer, Event, Stream } from '../src/index.js'
import type { CachingPool } from '../src/pool/caching-pool.js'
import { classUnits } from '../src/pool/slot-cache.js'
import type { Machine } from './machine.js'
import type { Operation } from './operation.js'
import type { Settings } from './settings.js'

/** A piece of work on a buffer. */
interface Use<Point> {
  readonly point: Point
  readonly stream: Stream
}

export interface Held<Point> {
  readonly buffer: DeviceBuffer
  readonly pool: number
  readonly bytes: number
  /** the size of its block; 0 where it was aligned, which may have taken a larger one */
  readonly units: number
  /** the last write, and all that read since; empty before the first write */
  uses: Use<Point>[]
  /** of a buffer that was not written yet: what used the memory before */
  inherited: Point[]
  readonly announced: Set<Stream>
  stamp: number
}

export class World<Point> {
  readonly pools: readonly CachingPool[]
  /** open ones, by name; 0 is the legacy default stream */
  readonly streams = new Map<number, Stream>()
  readonly held = new Map<number, Held<Point>>()
  private readonly events = new Map<number, Event>()
  /** re-recorded wherever the user's order is missing */
  private readonly carrier: Event
  /** adopted streams that were made here */
  private readonly foreign = new Map<Stream, number>()
  /** by stream that is no more: all that was submitted to it */
  private readonly ended = new Map<Stream, Point>()
  private stamps = 0

  constructor(
    readonly settings: Settings,
    private readonly machine: Machine<Point>,
  ) {
    const { device } = machine
    this.pools = settings.pools.map(options => device.createPool(options))
    this.carrier = device.createEvent()
    this.streams.set(0, device.defaultStream)
  }

  /** Carries out one operation. A refusal that the program asked for is survived; everything else that is thrown is a failure. */
  run(operation: Operation): void {
    this.machine.begin()
    try {
      this.take(operation)
    } catch (error) {
      if (!(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_UNKNOWN) throw error
    }
    this.machine.end()
  }

  check(): void {
    for (const pool of this.pools) pool.check()
  }

  /** All buffers are compared and given back, and everything is closed. */
  finish(): void {
    const { device } = this.machine
    this.machine.begin()
    this.machine.end()
    device.synchronize()
    this.machine.told(device)
    for (const held of this.held.values()) {
      if (held.uses.length > 0) this.machine.compare(held.buffer, held.bytes, held.stamp, device.defaultStream)
    }
    device.synchronize()
    this.machine.end()
    for (const name of [...this.held.keys()]) this.free({ do: 'free', buffer: name, announce: true, byAddress: false })
    this.check()
    for (const pool of this.pools) assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
    for (const name of [...this.streams.keys()]) this.close(name)
    for (const event of [this.carrier, ...this.events.values()]) event.close()
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
        const [held, stream] = [this.held.get(operation.buffer), this.streams.get(operation.stream)]
        if (held !== undefined && stream !== undefined) this.announce(held, stream)
        break
      }
      case 'record': {
        const stream = this.streams.get(operation.stream)
        if (stream === undefined) break
        const event = this.events.get(operation.event) ?? this.machine.device.createEvent()
        this.record(event, stream)
        this.events.set(operation.event, event)
        break
      }
      case 'wait': {
        const [event, stream] = [this.events.get(operation.event), this.streams.get(operation.stream)]
        if (event !== undefined && stream !== undefined) this.wait(stream, event)
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
        this.machine.device.synchronize()
        this.machine.told(this.machine.device)
        break
      case 'hold': {
        const stream = this.streams.get(operation.stream)
        if (stream !== undefined) this.machine.hold(stream)
        break
      }
      case 'release':
        this.machine.release()
        break
      case 'process deferred':
        this.pools[operation.pool].processDeferred()
        break
      case 'trim':
        this.pools[operation.pool].trimTo(operation.bytes)
        break
      case 'refuse':
        this.machine.refuse({ call: operation.call, nth: operation.nth, code: RESULT.CUDA_ERROR_UNKNOWN })
        break
    }
  }

  private open({ stream: name, kind }: Operation & { do: 'open' }): void {
    const { device } = this.machine
    if (device.clocks.streams.every(stream => stream !== null)) {
      assert.throws(() => device.createStream(), { name: 'PoolError', message: /64 streams are open/ })
      return
    }
    if (kind === 'own') this.streams.set(name, device.createStream())
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
    if (stream === undefined || name === 0) return
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
    if (handle === undefined || !this.machine.recyclesHandles) return
    this.announceUsesOf(stream!)
    this.ended.set(stream!, this.machine.pointOf(stream!))
    this.streams.delete(name)
    this.machine.closed(stream!)
    this.machine.device.context.activate().cuStreamDestroy(handle)
    this.adopt(by, CU_STREAM_NON_BLOCKING)
    assert.equal(this.streams.get(by)!.handle, handle)
  }

  /** Before a stream ends, buffers of other streams that it uses are told of it. */
  private announceUsesOf(stream: Stream): void {
    for (const held of this.held.values()) {
      const own = held.buffer.stream
      if (own === stream || !held.uses.some(use => use.stream === stream)) continue
      if (own.closed || !held.uses.every(use => use.stream !== stream || this.comesBefore(use, own))) {
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
    const stream = this.streams.get(streamName)
    if (stream === undefined) return
    const { bytes, alignment, fill } = request
    const pool = this.pools[index]
    const units = classUnits(Math.ceil(bytes / UNIT_BYTES))
    this.machine.requested(pool, alignment === 0 ? units : 0, stream)
    const buffer = pool.tryAllocate(bytes, stream, alignment === 0 ? undefined : alignment)
    const inherited = this.machine.granted(buffer, pool, stream)
    if (buffer === null) return
    const aligned = alignment > UNIT_BYTES
    const held: Held<Point> = {
      buffer,
      pool: index,
      bytes,
      units: aligned ? 0 : units,
      uses: [],
      inherited,
      announced: new Set(),
      stamp: 0,
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
    // What cannot be ordered before another stream any more is left to the buffer's own.
    if (held.uses.length === 0 || held.uses.some(use => use.stream.closed && !this.comesBefore(use, on))) on = own
    for (const use of held.uses) {
      if (held.announced.has(use.stream) || this.comesBefore(use, on) || use.stream.closed) continue
      if (announce || on.closed) this.announce(held, use.stream)
      else this.order(use.stream, on)
    }
    this.held.delete(name)
    const uses = held.uses.length > 0 ? held.uses.map(use => use.point) : held.inherited
    const covered = [on, ...held.announced].map(each => this.ended.get(each) ?? this.machine.pointOf(each))
    const pool = this.pools[held.pool]
    this.machine.freed(buffer.ptr, uses, covered, pool, held.units)
    if (byAddress && on === own) pool.deallocate(buffer.ptr)
    else if (on === own) buffer.free()
    else buffer.free(on)
    assert.throws(() => buffer.free(), PoolError)
  }

  private use({ buffer: name, stream: streamName, write }: Operation & { do: 'use' }): void {
    const [held, stream] = [this.held.get(name), this.streams.get(streamName)]
    if (held === undefined || stream === undefined || held.uses.length === 0) return
    const before = write ? held.uses : held.uses.slice(0, 1)
    if (before.some(use => use.stream.closed && !this.comesBefore(use, stream))) return
    for (const use of before) if (!this.comesBefore(use, stream)) this.order(use.stream, stream)
    if (write) this.write(held, stream)
    else this.read(held, stream)
  }

  private write(held: Held<Point>, stream: Stream): void {
    held.stamp = ++this.stamps
    this.machine.stamp(held.buffer, held.bytes, held.stamp, stream)
    held.uses = [{ point: this.machine.pointOf(stream), stream }]
  }

  private read(held: Held<Point>, stream: Stream): void {
    this.machine.compare(held.buffer, held.bytes, held.stamp, stream)
    held.uses.push({ point: this.machine.pointOf(stream), stream })
  }

  private record(event: Event, stream: Stream): void {
    event.record(stream)
    this.machine.recorded(event, stream)
  }

  private wait(stream: Stream, event: Event): void {
    stream.wait(event)
    this.machine.waited(stream, event)
  }

  /** Asks a stream or an event, or waits for it. */
  private ask(whom: Event | Stream | undefined, merely: boolean): void {
    if (whom === undefined) return
    if (merely && !whom.query()) return
    if (!merely) whom.synchronize()
    this.machine.told(whom)
  }

  private order(earlier: Stream, later: Stream): void {
    this.record(this.carrier, earlier)
    this.wait(later, this.carrier)
  }

  /** Whether some work comes before what a stream does next; of a closed stream, whether it is its own. */
  private comesBefore({ point, stream }: Use<Point>, later: Stream): boolean {
    return stream === later || (!later.closed && this.machine.comesBefore(point, later))
  }

  private announce(held: Held<Point>, stream: Stream): void {
    held.buffer.recordUse(stream)
    held.announced.add(stream)
  }
}
