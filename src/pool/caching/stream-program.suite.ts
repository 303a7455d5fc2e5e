// Random programs over several streams for pools that may make streams wait, judged twice: every grant by the
// order of work that the simulated driver knows, and all memory by its contents, as in random-program.test.ts.

import assert from 'node:assert/strict'
import { KiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import { registerSimulatedKernel } from '../../driver/simulated-kernels.js'
import type { Kernel } from '../../kernel/kernel.js'
import { Module } from '../../kernel/module.js'
import { Event } from '../../order/event.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { TestDevice } from '../pool-fixture.suite.js'
import type { CloseReport } from './caching-pool.js'
import { ShadowOrder, type Use } from './shadow-order.suite.js'

const MOST_STREAMS = 6
const CHECK_EVERY = 25
const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry compare_stamp(.param .u64 words, .param .u64 count, .param .u32 stamp) { ret; }`

/** Wrong contents that kernels found. */
const corruptions: string[] = []

registerSimulatedKernel('compare_stamp', ({ args, memory }) => {
  const [ptr, count, stamp] = [args.pointer(0), args.pointer(1), args.uint32(2)]
  for (let sample = 0; sample <= 8; sample++) {
    const index = Math.floor(((count - 1) * sample) / 8)
    const [found] = memory.load(Uint32Array, ptr + index * 4, 1)
    if (found !== stamp) corruptions.push(`word ${index} of ${count} is ${found}, not ${stamp}`)
  }
})

export interface Held {
  readonly buffer: DeviceBuffer
  readonly bytes: number
  readonly uses: Use[]
  /** streams with uses that were not announced to the pool: the free must come after them */
  readonly silent: Set<Stream>
  stamp: number
}

/** How often each step is taken, in parts of their sum. */
export type Weights = Readonly<Record<string, number>>

export abstract class StreamProgram<P extends Pool & { check(): void; close(): CloseReport }> {
  /** steps taken, for assertions that something happened at all */
  readonly taken = new Map<string, number>()
  readonly pool: P
  protected readonly random: Random
  protected readonly device: TestDevice
  protected readonly held: Held[] = []
  protected readonly streams: Stream[]
  private readonly shadow: ShadowOrder
  private readonly compare: Kernel
  private holds: { stream: Stream; release: () => void }[] = []
  private stamps = 0
  private readonly steps: Readonly<Record<string, () => void>> = {
    allocate: () => this.allocate(),
    free: () => this.free(),
    useElsewhere: () => this.useElsewhere(),
    hold: () => this.hold(),
    release: () => this.release(),
    stream: () => this.openOrClose(),
    observe: () => this.observe(),
    ...this.ownSteps(),
  }

  constructor(seed: number, progress: 'eager' | 'seeded', capacityBytes: number, open: (device: TestDevice) => P) {
    this.random = new Random(seed)
    this.device = new TestDevice({ capacityBytes, granularityBytes: 256 * KiB, progress, seed })
    this.shadow = new ShadowOrder(this.device)
    this.pool = open(this.device)
    this.compare = new Module(this.device.context, this.device.defaultStream, PTX).kernel('compare_stamp')
    this.streams = [this.device.defaultStream, this.device.createStream(), this.device.createStream()]
  }

  /** Steps beside the common ones. */
  protected abstract ownSteps(): Readonly<Record<string, () => void>>
  /** The next request. */
  protected abstract request(): { bytes: number; alignment?: number }
  /** A request failed: asserts that no memory was left for it. */
  protected abstract ranOut(bytes: number, alignment: number): void
  /** All buffers are freed: asserts that all memory can be allocated again. */
  protected abstract finish(): void

  run(steps: number, phases: readonly Weights[]): void {
    corruptions.length = 0
    for (let step = 0; step < steps; step++) {
      const name = this.pick(phases[Math.floor((step * 2 * phases.length) / steps) % phases.length])
      this.note(name)
      this.steps[name]()
      if (step % CHECK_EVERY === 0) this.check()
      assert.deepEqual(corruptions, [], `at step ${step}`)
    }
    this.note('ended')
    for (const held of this.held) if (!held.buffer.stream.closed) this.compareStamp(held, held.buffer.stream)
    for (const { release } of this.holds.splice(0)) release()
    this.device.context.activate().cuCtxSynchronize()
    assert.deepEqual(corruptions, [])
    for (const { buffer } of this.held.splice(0)) buffer.free()
    this.check()
    this.finish()
    assert.deepEqual(this.pool.close(), { lostBuffers: 0, lostBytes: 0 })
    assert.equal(this.device.freeBytes(), this.device.totalBytes)
  }

  protected note(what: string): void {
    this.taken.set(what, (this.taken.get(what) ?? 0) + 1)
  }

  protected anyStream(): Stream {
    return this.streams[this.random.below(this.streams.length)]
  }

  /**
   * Orders the work on these buffers before the next work of `stream`, or announces it to the pool; without a stream
   * it announces all.
   */
  protected settleUses(all: readonly Held[], stream: Stream | undefined): void {
    for (const held of all) for (const user of [...held.silent]) this.orderOrAnnounce(held, user, stream)
  }

  /** Buffers that the pool took back in `stream`'s order. */
  protected forget(all: readonly Held[]): void {
    for (const held of all) this.held.splice(this.held.indexOf(held), 1)
  }

  /** To be called before the pool takes buffers back. */
  protected letGo(all: readonly Held[]): void {
    for (const { buffer, bytes, uses } of all) this.shadow.free({ ptr: buffer.ptr, end: buffer.ptr + bytes }, uses)
  }

  private check(): void {
    this.pool.check()
    const { liveBuffers, requestedBytes, allocations, frees } = this.pool.stats()
    const requested = this.held.reduce((sum, { bytes }) => sum + bytes, 0)
    assert.deepEqual([liveBuffers, requestedBytes, allocations - frees], [this.held.length, requested, liveBuffers])
  }

  private pick(weights: Weights): string {
    let rest = this.random.below(Object.values(weights).reduce((sum, weight) => sum + weight, 0))
    return Object.keys(weights).find(name => {
      rest -= weights[name]
      return rest < 0
    })!
  }

  private allocate(): void {
    const stream = this.anyStream()
    const { bytes, alignment } = this.request()
    const buffer = this.pool.tryAllocate(bytes, stream, alignment)
    if (buffer === null) {
      this.note('ranOut')
      this.ranOut(bytes, alignment ?? 1)
      return
    }
    assert.deepEqual([buffer.ptr % (alignment ?? 256), buffer.byteLength], [0, bytes])
    this.shadow.grant({ ptr: buffer.ptr, end: buffer.ptr + bytes }, stream)
    const held: Held = { buffer, bytes, uses: [], silent: new Set(), stamp: 0 }
    this.fill(held, stream)
    this.held.push(held)
  }

  private free(): void {
    const held = this.held[this.random.below(this.held.length)]
    if (held === undefined) return
    const { buffer } = held
    const own = buffer.stream
    const on = own.closed || this.random.below(4) > 0 ? own : this.anyStream()
    if (on !== own) this.order(own, on)
    this.settleUses([held], on)
    if (!on.closed && this.random.below(2) === 0) this.compareStamp(held, on)
    this.letGo([held])
    this.forget([held])
    if (on === own && this.random.below(2) === 0) buffer.free()
    else buffer.free(on)
    assert.throws(() => buffer.free(), PoolError)
  }

  /** Another stream reads a buffer, in order. */
  private useElsewhere(): void {
    const held = this.held[this.random.below(this.held.length)]
    const other = this.anyStream()
    if (held === undefined || held.buffer.stream.closed || held.buffer.stream === other) return
    this.order(held.buffer.stream, other)
    this.compareStamp(held, other)
    held.silent.add(other)
    if (this.random.below(2) === 0) this.announce(held, other)
  }

  private hold(): void {
    const stream = this.anyStream()
    this.holds.push({ stream, release: this.device.hold(stream) })
  }

  private release(): void {
    if (this.holds.length > 0) this.holds.splice(this.random.below(this.holds.length), 1)[0].release()
  }

  private openOrClose(): void {
    if (this.streams.length < MOST_STREAMS && this.random.below(2) === 0) {
      this.streams.push(this.device.createStream())
    } else if (this.streams.length >= 3) {
      const [closing] = this.streams.splice(1 + this.random.below(this.streams.length - 1), 1)
      for (const held of this.held) if (held.silent.has(closing)) this.announce(held, closing)
      this.holds = this.holds.filter(({ stream }) => stream !== closing)
      closing.close()
    }
  }

  /** The user looks at streams, which moves the clocks. */
  private observe(): void {
    const stream = this.anyStream()
    if (this.random.below(4) === 0) stream.synchronize()
    else stream.query()
  }

  private fill(held: Held, stream: Stream): void {
    held.stamp = ++this.stamps
    const driver = this.device.context.activate()
    driver.cuMemsetD32Async(held.buffer.ptr, held.stamp, Math.floor(held.bytes / 4), stream.handle)
    held.uses.push(this.shadow.use(stream))
  }

  private compareStamp(held: Held, stream: Stream): void {
    this.compare.launch({ grid: 1, block: 1, stream }, held.buffer, Math.floor(held.bytes / 4), held.stamp)
    held.uses.push(this.shadow.use(stream))
  }

  private order(earlier: Stream, later: Stream): void {
    using event = new Event(this.device.context)
    event.record(earlier)
    later.wait(event)
  }

  private orderOrAnnounce(held: Held, user: Stream, later: Stream | undefined): void {
    if (user === later) held.silent.delete(user)
    else if (later === undefined || later.closed || this.random.below(2) === 0) this.announce(held, user)
    else this.order(user, later)
  }

  private announce(held: Held, stream: Stream): void {
    held.buffer.recordUse(stream)
    held.silent.delete(stream)
  }
}
