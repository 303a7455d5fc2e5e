// Random programs on a pool of any kind: buffers on several streams, used in order, with work pending. The oracle
// checks each grant, and kernels check the contents. Every program keeps the rules of its pool, so whatever goes
// wrong is the pool's fault. A kind of pool adds its own steps, its sizes, and what must hold at the end.

import assert from 'node:assert/strict'
import { KiB, MiB } from '../../src/core/base/bytes.js'
import { CudaError, PoolError } from '../../src/core/base/errors.js'
import { Random } from '../../src/core/base/random.js'
import { Module } from '../../src/core/kernel/module.js'
import { Event } from '../../src/core/order/event.js'
import type { Stream } from '../../src/core/order/stream.js'
import type { DeviceBuffer } from '../../src/core/pool/buffer.js'
import type { CloseReport } from '../../src/core/pool/closable-pool.js'
import { TestDevice } from '../../src/core/pool/pool.fixture.js'
import type { Pool } from '../../src/core/pool/pool.js'
import { ObservedDriver } from '../observed-driver.js'
import { WrongGrant } from '../oracle.js'
import { assertNoDamage, forgetDamage, STAMP_PTX, Stamps } from '../stamps.js'

export const CAPACITY_BYTES: number = 64 * MiB
const FEW_STREAMS = 6
const EVENTS = 4
const CHECK_EVERY = 25

export interface Held {
  readonly buffer: DeviceBuffer
  readonly bytes: number
  /** other streams that used the buffer */
  readonly others: Set<Stream>
  /** other streams with uses that must still be ordered before the free, or announced */
  readonly silent: Set<Stream>
  stamp: number
}

/** How often each step is taken, in parts of their sum. */
type Weights = Readonly<Record<string, number>>

export type Progress = 'eager' | 'seeded'

export abstract class PoolProgram<P extends Pool & { check(): void; close(): CloseReport }> {
  /** how often each step was taken */
  readonly taken = new Map<string, number>()
  readonly pool: P
  protected readonly random: Random
  protected readonly device: TestDevice
  protected readonly held: Held[] = []
  protected readonly streams: Stream[]
  private readonly driver: ObservedDriver
  private readonly stamps: Stamps
  /** recorded now and then, and waited for at other times */
  private readonly events: Event[]
  private holds: { stream: Stream; release: () => void }[] = []
  private lastStamp = 0
  private readonly steps: Readonly<Record<string, () => void>> = {
    allocate: () => this.allocate(),
    free: () => this.free(),
    useElsewhere: () => this.useElsewhere(),
    hold: () => this.hold(),
    release: () => this.release(),
    stream: () => this.openOrClose(),
    observe: () => this.observe(),
    signal: () => this.signal(),
    ...this.ownSteps(),
  }

  constructor(
    seed: number,
    progress: Progress,
    open: (device: TestDevice) => P,
    granularityBytes = 256 * KiB,
    /** more than a few are open from the start */
    private readonly mostStreams = FEW_STREAMS,
  ) {
    this.random = new Random(seed)
    this.driver = new ObservedDriver({ capacityBytes: CAPACITY_BYTES, granularityBytes, progress, seed })
    this.device = new TestDevice(this.driver)
    this.pool = open(this.device)
    this.stamps = new Stamps(new Module(this.device.context, this.device.defaultStream, STAMP_PTX))
    this.streams = [this.device.defaultStream, this.device.createStream(), this.device.createStream()]
    while (mostStreams > FEW_STREAMS && this.streams.length < mostStreams) {
      this.streams.push(this.device.createStream())
    }
    this.events = Array.from({ length: EVENTS }, (_, index) => {
      const event = new Event(this.device.context)
      event.record(this.streams[index % this.streams.length])
      return event
    })
  }

  /** grants of memory that another stream used last */
  get takeovers(): number {
    return this.driver.oracle.takeovers
  }

  /** Steps beside the common ones. */
  protected abstract ownSteps(): Readonly<Record<string, () => void>>
  /** The next request. */
  protected abstract request(): { bytes: number; alignment?: number }
  /** Asserts, after a refused request, that no memory was left for it. */
  protected abstract ranOut(bytes: number, alignment: number): void
  /** Asserts, with no buffer held, that the pool can hand out all of its memory. */
  protected abstract finish(): void

  run(steps: number, phases: readonly Weights[]): void {
    forgetDamage()
    for (let step = 0; step < steps; step++) {
      const name = this.pick(phases[Math.floor((step * 2 * phases.length) / steps) % phases.length])
      this.note(name)
      this.steps[name]()
      if (step % CHECK_EVERY === 0) this.check()
      assertNoDamage()
    }
    this.note('ended')
    for (const held of this.held) if (!held.buffer.stream.closed) this.compare(held, held.buffer.stream)
    for (const { release } of this.holds.splice(0)) release()
    this.device.context.activate().cuCtxSynchronize()
    assertNoDamage()
    this.letGo(this.held)
    for (const { buffer } of this.held.splice(0)) buffer.free()
    this.check()
    this.finish()
    const { heldBuffers, heldBytes } = this.pool.close()
    assert.deepEqual([heldBuffers, heldBytes], [0, 0])
    assert.equal(this.device.freeBytes(), this.device.totalBytes)
  }

  protected note(what: string): void {
    this.taken.set(what, (this.taken.get(what) ?? 0) + 1)
  }

  protected anyStream(): Stream {
    return this.streams[this.random.below(this.streams.length)]
  }

  /**
   * Puts each use of these buffers before the next work of `stream`, or announces it. Without a stream it announces
   * all.
   */
  protected settleUses(all: readonly Held[], stream: Stream | undefined): void {
    for (const held of all) for (const user of [...held.silent]) this.orderOrAnnounce(held, user, stream)
  }

  /** The program no longer holds these buffers. */
  protected forget(all: readonly Held[]): void {
    for (const held of all) this.held.splice(this.held.indexOf(held), 1)
  }

  /** The oracle must know of a free before the pool makes use of it. */
  protected letGo(all: readonly Held[]): void {
    for (const { buffer } of all) this.driver.oracle.free(buffer.ptr)
  }

  protected check(): void {
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
    this.driver.oracle.grant(buffer.ptr, buffer.ptr + bytes, this.driver.queueOf(stream.handle))
    const held: Held = { buffer, bytes, others: new Set(), silent: new Set(), stamp: 0 }
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
    if (!on.closed && this.random.below(2) === 0) this.compare(held, on)
    this.letGo([held])
    this.forget([held])
    this.giveBack(buffer, on)
    assert.throws(() => buffer.free(), PoolError)
  }

  /** Frees a buffer in the order of a stream, in any way that the pool has. */
  protected giveBack(buffer: DeviceBuffer, on: Stream): void {
    if (on === buffer.stream && this.random.below(2) === 0) buffer.free()
    else buffer.free(on)
  }

  /** Another stream reads a buffer, and at times writes it, in order. */
  private useElsewhere(): void {
    const held = this.held[this.random.below(this.held.length)]
    const other = this.anyStream()
    if (held === undefined || held.buffer.stream.closed || held.buffer.stream === other) return
    const own = held.buffer.stream
    this.order(own, other)
    this.compare(held, other)
    held.silent.add(other)
    const users = [...held.others].filter(stream => stream !== other)
    held.others.add(other)
    if (this.random.below(3) === 0 && users.every(stream => !stream.closed)) {
      for (const stream of users) this.order(stream, other)
      this.fill(held, other)
      this.order(other, own)
    }
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
    if (this.streams.length < this.mostStreams && this.random.below(2) === 0) {
      this.streams.push(this.device.createStream())
    } else if (this.streams.length >= 3) {
      const [closing] = this.streams.splice(1 + this.random.below(this.streams.length - 1), 1)
      for (const held of this.held) if (held.silent.has(closing)) this.announce(held, closing)
      this.holds = this.holds.filter(({ stream }) => stream !== closing)
      closing.close()
    }
  }

  /** The user looks at streams and events, which moves the clocks. */
  private observe(): void {
    const stream = this.anyStream()
    const choice = this.random.below(6)
    if (choice === 0 && this.random.below(4) === 0) this.device.clocks.synchronize()
    else if (choice === 0) stream.synchronize()
    else if (choice < 3) stream.query()
    else {
      using event = new Event(this.device.context)
      event.record(stream)
      if (choice === 3) event.query()
      if (choice === 4) event.synchronize()
    }
  }

  /** Order between streams that belongs to no buffer, over events that last. */
  private signal(): void {
    const event = this.events[this.random.below(EVENTS)]
    const choice = this.random.below(16)
    if (choice < 6) event.record(this.anyStream())
    else if (choice < 13) this.anyStream().wait(event)
    else if (choice < 15) event.query()
    else event.synchronize()
  }

  private fill(held: Held, stream: Stream): void {
    held.stamp = ++this.lastStamp
    // Every word: a stamp of some words would miss most of a buffer that overlaps.
    this.device.context.activate().cuMemsetD32Async(held.buffer.ptr, held.stamp, held.bytes >> 2, stream.handle)
  }

  private compare(held: Held, stream: Stream): void {
    this.stamps.compare(held.buffer, held.bytes, held.stamp, stream)
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

/** Whether a program fails as it should on a broken pool. */
export function isCaught(run: () => void): boolean {
  try {
    run()
    return false
  } catch (error) {
    if (![WrongGrant, CudaError, assert.AssertionError].some(kind => error instanceof kind)) throw error
    return true
  }
}
