// A simulated device on which the operations of a program are carried out, as a careful user would: whatever order between
// streams the contract asks of the user, and is not there by the exact order of work, is made. So every list of
// operations is a right program, and what goes wrong is the pool's fault.

import assert from 'node:assert/strict'
import { CudaError, PoolError } from '../src/base/errors.js'
import { RESULT } from '../src/driver/constants.js'
import { registerSimulatedKernel, SimulatedDriver } from '../src/driver/simulated/index.js'
import type { WorkPoint } from '../src/driver/simulated/stream-queue.js'
import { Stride, Word } from '../src/heap/records.js'
import { UNIT_BYTES } from '../src/heap/size-classes.js'
import { type Device, type DeviceBuffer, type Event, openDevice, type Stream } from '../src/index.js'
import type { Kernel } from '../src/kernel/kernel.js'
import { MOST_STREAMS } from '../src/order/clocks.js'
import type { CachingPool } from '../src/pool/caching-pool.js'
import { classUnits } from '../src/pool/slot-cache.js'
import { Judge } from './judge.js'
import type { Operation } from './operation.js'
import { CAPACITY_BYTES, GRANULE_BYTES, type Settings } from './settings.js'

const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry proof_stamp(.param .u64 words, .param .u64 count, .param .u32 stamp) { ret; }
.visible .entry proof_compare(.param .u64 words, .param .u64 count, .param .u32 stamp) { ret; }`

/** Waits of the host in one operation; each ends the wait for a mark, of which there are 64 a stream. */
const MOST_WAITS = 64 * MOST_STREAMS

/** What kernels found that was not as it should be. */
const corruptions: string[] = []

/** The first, the middle and the last word stand for the whole buffer. */
function placesOf(ptr: number, count: number): number[] {
  return [ptr, ptr + 4 * (count >> 1), ptr + 4 * (count - 1)]
}

registerSimulatedKernel('proof_stamp', ({ args, memory }) => {
  const stamp = Uint32Array.of(args.uint32(2))
  for (const place of placesOf(args.pointer(0), args.pointer(1))) memory.store(place, stamp)
})

registerSimulatedKernel('proof_compare', ({ args, memory }) => {
  const stamp = args.uint32(2)
  for (const place of placesOf(args.pointer(0), args.pointer(1))) {
    const [found] = memory.load(Uint32Array, place, 1)
    if (found !== stamp) corruptions.push(`a word of 0x${args.pointer(0).toString(16)} is ${found}, not ${stamp}`)
  }
})

/** A piece of work on a buffer. */
interface Use {
  readonly point: WorkPoint
  readonly stream: Stream
}

interface Held {
  readonly buffer: DeviceBuffer
  readonly pool: number
  readonly start: number
  readonly bytes: number
  readonly units: number
  /** whether it was aligned, which may take a larger block */
  readonly aligned: boolean
  /** the last write, and all that read since; empty before the first write */
  uses: Use[]
  /** of a buffer that was not written yet: what used the memory before */
  inherited: WorkPoint[]
  readonly announced: Set<Stream>
  stamp: number
}

export class World {
  readonly driver: SimulatedDriver
  readonly device: Device
  readonly pools: readonly CachingPool[]
  /** open ones, by name; 0 is the legacy default stream */
  readonly streams = new Map<number, Stream>()
  readonly held = new Map<number, Held>()
  readonly judge: Judge
  /** requests for which a freed block of that size was there, safe by the exact order; and those served without a driver call */
  ready = 0
  recognised = 0
  private readonly stampKernel: Kernel
  private readonly compareKernel: Kernel
  private readonly events = new Map<number, Event>()
  /** re-recorded wherever the user's order is missing */
  private readonly carrier: Event
  private readonly foreign = new Map<Stream, number>()
  private holds: { stream: Stream; ticket: number }[] = []
  private stamps = 0
  /** how often the host waited in this operation */
  private waits = 0

  constructor(
    readonly settings: Settings,
    seed: number,
  ) {
    corruptions.length = 0
    const { progress } = settings
    this.driver = new SimulatedDriver({
      capacityBytes: CAPACITY_BYTES,
      granularityBytes: GRANULE_BYTES,
      progress,
      seed,
    })
    this.device = openDevice(this.driver)
    this.judge = new Judge(this.driver)
    this.watchDriver()
    this.pools = settings.pools.map(options => this.device.createPool(options))
    const module = this.device.loadModule(PTX)
    this.stampKernel = module.kernel('proof_stamp')
    this.compareKernel = module.kernel('proof_compare')
    this.carrier = this.device.createEvent()
    this.streams.set(0, this.device.defaultStream)
  }

  /** Carries out one operation. A refusal that the program asked for is survived; everything else that is thrown is a failure. */
  run(operation: Operation): void {
    this.waits = 0
    try {
      this.take(operation)
    } catch (error) {
      if (!(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_UNKNOWN) throw error
    }
    if (operation.do !== 'refuse') this.driver.clearFaults()
    if (corruptions.length > 0) assert.fail(corruptions[0])
  }

  check(): void {
    for (const pool of this.pools) pool.check()
  }

  /** All buffers are compared and given back, and nothing is left. */
  finish(): void {
    this.driver.clearFaults()
    this.device.synchronize()
    for (const held of this.held.values())
      if (held.uses.length > 0) this.launch(this.compareKernel, held, this.streams.get(0)!)
    this.device.synchronize()
    if (corruptions.length > 0) assert.fail(corruptions[0])
    for (const name of [...this.held.keys()]) this.free({ do: 'free', buffer: name, announce: true, byAddress: false })
    this.check()
    this.device.close()
    assert.equal(this.driver.usedBytes(), 0, 'all memory is given back')
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
        const event = this.events.get(operation.event) ?? this.device.createEvent()
        event.record(stream)
        this.events.set(operation.event, event)
        break
      }
      case 'wait': {
        const event = this.events.get(operation.event)
        if (event !== undefined) this.streams.get(operation.stream)?.wait(event)
        break
      }
      case 'query event':
        this.events.get(operation.event)?.query()
        break
      case 'synchronise event':
        this.events.get(operation.event)?.synchronize()
        break
      case 'query':
        this.streams.get(operation.stream)?.query()
        break
      case 'synchronise':
        this.streams.get(operation.stream)?.synchronize()
        break
      case 'synchronise device':
        this.device.synchronize()
        break
      case 'hold': {
        const stream = this.streams.get(operation.stream)
        if (stream !== undefined) this.holds.push({ stream, ticket: this.driver.holdOperation(stream.handle) })
        break
      }
      case 'release': {
        const oldest = this.holds.shift()
        if (oldest !== undefined) this.driver.releaseThrough(oldest.stream.handle, oldest.ticket)
        break
      }
      case 'process deferred':
        this.pools[operation.pool].processDeferred()
        break
      case 'trim':
        this.pools[operation.pool].trimTo(operation.bytes)
        break
      case 'refuse':
        this.driver.failCall({ call: operation.call, nth: operation.nth, code: RESULT.CUDA_ERROR_UNKNOWN })
        break
    }
  }

  private open({ stream: name, kind }: Operation & { do: 'open' }): void {
    if (this.device.clocks.streams.every(stream => stream !== null)) {
      assert.throws(() => this.device.createStream(), { name: 'PoolError', message: /64 streams are open/ })
      return
    }
    if (kind === 'own') this.streams.set(name, this.device.createStream())
    else if (kind === 'per-thread default') {
      const stream = this.device.adoptStream(2)
      if (![...this.streams.values()].includes(stream)) this.streams.set(name, stream)
    } else {
      const handle = this.driver.cuStreamCreate(kind === 'adopted' ? 1 : 0)
      const stream = this.device.adoptStream(handle)
      this.streams.set(name, stream)
      this.foreign.set(stream, handle)
    }
    assert.ok(this.streams.size <= MOST_STREAMS)
  }

  /** A stream ends with its work pending. The legacy default stream stays. */
  private close(name: number): void {
    const stream = this.streams.get(name)
    if (stream === undefined || name === 0) return
    this.announceUsesOf(stream)
    stream.close()
    this.streams.delete(name)
    this.holds = this.holds.filter(hold => hold.stream !== stream)
    const handle = this.foreign.get(stream)
    if (handle !== undefined) this.driver.cuStreamDestroy(handle)
  }

  private replace({ stream: name, by }: Operation & { do: 'replace' }): void {
    const stream = this.streams.get(name)
    const handle = stream && this.foreign.get(stream)
    if (handle === undefined) return
    this.announceUsesOf(stream!)
    this.streams.delete(name)
    this.holds = this.holds.filter(hold => hold.stream !== stream)
    this.driver.cuStreamDestroy(handle)
    const recycled = this.driver.cuStreamCreate(1)
    assert.equal(recycled, handle)
    const successor = this.device.adoptStream(recycled)
    this.streams.set(by, successor)
    this.foreign.set(successor, recycled)
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
    pool,
    stream: streamName,
    bytes,
    alignment,
    fill,
  }: Operation & { do: 'allocate' }): void {
    const stream = this.streams.get(streamName)
    if (stream === undefined) return
    const units = classUnits(Math.ceil(bytes / UNIT_BYTES))
    // What it was answered, a deterministic pool is to forget.
    const counts = alignment === 0 && !this.pools[pool].config.deterministic
    const isReady = counts && this.isReady(pool, units, stream)
    const before = this.driver.modelledSeconds
    const buffer = this.pools[pool].tryAllocate(bytes, stream, alignment === 0 ? undefined : alignment)
    if (isReady) {
      this.ready++
      if (this.driver.modelledSeconds === before) this.recognised++ // every call costs something
    }
    if (buffer === null) return
    const start = buffer.ptr
    const inherited = this.judge.grant(start, start + bytes, stream.handle)
    const aligned = alignment > UNIT_BYTES
    const announced = new Set<Stream>()
    const held: Held = { buffer, pool, start, bytes, units, aligned, uses: [], inherited, announced, stamp: 0 }
    this.held.set(name, held)
    if (fill && bytes >= 4) this.write(held, stream)
  }

  /**
   * Whether a freed block of this size lies in a pool that the stream may have, by the exact order. Neighbours that have
   * become one block count as one.
   */
  private isReady(pool: number, units: number, stream: Stream): boolean {
    const start = this.judge.findReady(pool, units, stream.handle)
    if (start === undefined) return false
    const block = blockAt(this.pools[pool], start)
    return this.judge.isSafe(block.start, block.end, stream.handle)
  }

  /** All that was submitted to a stream, and the free itself: an event recorded before does not cover it. */
  private freePoint(stream: Stream): WorkPoint {
    const point = this.driver.submitted(stream.handle)
    return { ...point, position: point.position + 0.5 }
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
    const covered = [on, ...held.announced].flatMap(each => (each.closed ? [] : [this.freePoint(each)]))
    this.judge.free(held.start, uses, [...uses, ...covered], held.pool, held.aligned ? 0 : held.units)
    if (byAddress && on === own) this.pools[held.pool].deallocate(held.start)
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
    else this.launch(this.compareKernel, held, stream)
  }

  private write(held: Held, stream: Stream): void {
    held.stamp = ++this.stamps
    held.uses = []
    this.launch(this.stampKernel, held, stream)
  }

  private launch(kernel: Kernel, held: Held, stream: Stream): void {
    kernel.launch({ grid: 1, block: 1, stream }, held.buffer, held.bytes >> 2, held.stamp)
    held.uses.push({ point: this.driver.submitted(stream.handle), stream })
  }

  /** Whether some work comes before what a stream does next; of a closed stream, whether it is its own. */
  private comesBefore({ point, stream }: Use, later: Stream): boolean {
    return stream === later || (!later.closed && this.driver.happensBefore(point, later.handle))
  }

  private order(earlier: Stream, later: Stream): void {
    this.carrier.record(earlier)
    later.wait(this.carrier)
  }

  private announce(held: Held, stream: Stream): void {
    held.buffer.recordUse(stream)
    held.announced.add(stream)
  }

  /** Lets the judge see what leaves the address space, and notices waits without end. */
  private watchDriver(): void {
    const { driver, judge } = this
    const sizes = new Map<number, number>()
    const { cuMemAlloc, cuMemFree, cuMemUnmap, cuEventSynchronize } = driver
    driver.cuEventSynchronize = event => {
      assert.ok(++this.waits < MOST_WAITS, 'one operation waits without end')
      cuEventSynchronize.call(driver, event)
    }
    driver.cuMemAlloc = bytes => {
      const ptr = cuMemAlloc.call(driver, bytes)
      sizes.set(ptr, bytes)
      return ptr
    }
    driver.cuMemFree = ptr => {
      cuMemFree.call(driver, ptr)
      judge.leave(ptr, ptr + sizes.get(ptr)!)
    }
    driver.cuMemUnmap = (ptr, bytes) => {
      cuMemUnmap.call(driver, ptr, bytes)
      judge.leave(ptr, ptr + bytes)
    }
  }
}

/** The extent of the block that an address lies in. */
function blockAt({ records, reserve }: CachingPool, ptr: number): { start: number; end: number } {
  const { words } = records
  const range = reserve.backing.rangeAt(ptr)
  const unit = (ptr - reserve.backing.bases[range]) / UNIT_BYTES
  const first = reserve.small.firstRecords.get(range) ?? reserve.large.firstRecords.get(range)!
  let at = first * Stride.words
  while (words[at + Word.offset] + words[at + Word.units] <= unit) at = words[at + Word.next] * Stride.words
  const start = ptr + (words[at + Word.offset] - unit) * UNIT_BYTES
  return { start, end: start + words[at + Word.units] * UNIT_BYTES }
}
