// The spillable buffers of a program, as a careful user handles them: a buffer is used only between `use` and its end,
// streams are ordered by their uses, and other streams are announced.

import assert from 'node:assert/strict'
import { OutOfMemoryError, PoolError } from '../src/core/base/errors.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import type { DeviceBuffer, HostPool, SpillableBuffer, SpillableSet, Stream } from '../src/index.js'
import { spillable } from '../src/index.js'
import type { Use } from './held.js'
import type { Machine, WatchedCounts } from './machine.js'
import type { Operation } from './operation.js'
import { assertAsleep } from './sleeps.js'

interface Spilling<Point> {
  readonly buffer: SpillableBuffer
  readonly bytes: number
  /** the last write and all reads since; empty before the first write */
  uses: Use<Point>[]
  stamp: number
}

/** A use that is open. */
interface Borrowed<Point> {
  readonly of: Spilling<Point>
  readonly buffer: DeviceBuffer
  /** the stream that has the contents from the beginning */
  readonly stream: Stream
  readonly writes: boolean
  readonly announced: Set<Stream>
}

/** The program's part in the use of its spillable buffers. */
export interface SpillActions<Point> {
  /** orders uses before a stream; false if it cannot */
  putBefore(uses: readonly Use<Point>[], stream: Stream): boolean
  /** orders all work of one stream before the other's next work */
  order(earlier: Stream, later: Stream): boolean
  newStamp(): number
  /** a buffer on the device was written */
  wrote(): void
}

export class Spills<Point> {
  readonly buffers = new Map<number, Spilling<Point>>()
  readonly borrowed = new Map<number, Borrowed<Point>>()
  /** moves of the sets that were closed */
  private earlier = 0
  private set: SpillableSet
  private readonly watched: ReturnType<Machine<Point>['watch']>

  constructor(
    private readonly machine: Machine<Point>,
    private readonly pool: CachingPool,
    private readonly host: HostPool,
    private readonly maxPoolBytes: number,
    private readonly actions: SpillActions<Point>,
  ) {
    this.watched = machine.watch(pool)
    this.set = this.open()
  }

  /** moves to the host, so far */
  get spills(): number {
    return this.earlier + this.set.stats().spills
  }

  /** The buffers of the pool that are spillable ones on the device. */
  get counts(): WatchedCounts & { readonly requestedBytes: number } {
    const { allocations, liveBuffers } = this.watched
    return { allocations, liveBuffers, requestedBytes: this.set.stats().onDeviceBytes }
  }

  allocate({ spillable: name, stream: _, bytes }: Operation & { do: 'spillable' }, stream: Stream): void {
    if (this.isRefused(stream, () => this.set.allocate(bytes, stream))) return
    this.unlessShort(() => {
      this.buffers.set(name, { buffer: this.set.allocate(bytes, stream), bytes, uses: [], stamp: 0 })
    })
  }

  borrow(operation: Operation & { do: 'borrow' }, stream: Stream): void {
    const one = this.buffers.get(operation.spillable)
    if (one === undefined) return
    const { buffer, bytes } = one
    if (stream.capture !== null || stream.slot === -1) {
      assert.throws(() => buffer.use(stream), PoolError)
      return
    }
    if (this.pool.asleep) {
      this.unlessShort(() =>
        assertAsleep(() => {
          using use = buffer.use(stream)
          this.machine.stamp(use, bytes, 1, stream)
        }),
      )
      return
    }
    const isWritten = one.uses.length > 0
    const writes = operation.writes || !isWritten
    if (!this.actions.putBefore(writes ? one.uses : one.uses.slice(0, 1), stream)) return
    this.unlessShort(() => {
      const use = buffer.use(stream, { writes })
      const borrowed = { of: one, buffer: use, stream, writes, announced: new Set([stream]) }
      this.borrowed.set(operation.use, borrowed)
      try {
        if (isWritten) this.read(borrowed, stream)
        if (writes) this.write(borrowed, stream)
      } finally {
        if (operation.use === 0) this.giveBack(0)
      }
    })
  }

  /** Work of any stream in a use that is open. */
  work({ use: name, write }: Operation & { do: 'work' }, stream: Stream): void {
    const borrowed = this.borrowed.get(name)
    if (borrowed === undefined || stream.clocks !== this.machine.device.clocks) return
    const { of, buffer, writes, announced } = borrowed
    if (stream.capture !== null || this.pool.asleep) {
      assert.throws(() => this.machine.stamp(buffer, of.bytes, 1, stream), PoolError)
      return
    }
    if (stream.slot === -1) return
    const isWrite = writes && write
    if (!this.actions.putBefore(isWrite ? of.uses : of.uses.slice(0, 1), stream)) return
    if (stream !== borrowed.stream && !this.actions.order(borrowed.stream, stream)) return
    if (!announced.has(stream)) buffer.recordUse(stream)
    announced.add(stream)
    if (isWrite) this.write(borrowed, stream)
    else this.read(borrowed, stream)
  }

  giveBack(name: number, stream?: Stream): void {
    const borrowed = this.borrowed.get(name)
    if (borrowed === undefined) return
    const { of, buffer } = borrowed
    const isOurs = stream?.clocks === this.machine.device.clocks && stream.slot !== -1
    const on = isOurs && this.actions.putBefore(of.uses, stream) ? stream : undefined
    if (on === undefined) buffer.free()
    else buffer.free(on)
    this.borrowed.delete(name)
  }

  spill({ spillable: name, bytes }: Operation & { do: 'spill' }, stream: Stream): void {
    const one = this.buffers.get(name)
    const spill = () => (one === undefined ? this.set.spill(bytes, stream) : one.buffer.spill(stream))
    if (this.isRefused(stream, spill)) return
    if (one?.buffer.inUse) assert.throws(spill, PoolError)
    else if (this.pool.asleep) {
      const before = this.spills
      try {
        spill()
      } catch (error) {
        if (!(error instanceof PoolError) || !/asleep/.test(error.message)) throw error
      }
      assert.equal(this.spills, before, 'nothing spills while the pool is asleep')
    } else spill()
  }

  free(name: number): void {
    const one = this.buffers.get(name)
    if (one === undefined) return
    if (one.buffer.inUse) {
      assert.throws(() => one.buffer.free(), PoolError)
      return
    }
    try {
      one.buffer.free()
    } finally {
      if (one.buffer.freed) this.buffers.delete(name)
    }
  }

  /** Ends the set with its buffers, and makes a new set. */
  reopen(): void {
    if (this.borrowed.size > 0) assert.throws(() => this.set.close(), PoolError)
    else this.set.close()
    for (const [name, { buffer }] of this.buffers) if (buffer.freed) this.buffers.delete(name)
    if (!this.set.closed) return
    this.earlier += this.set.stats().spills
    this.set = this.open()
  }

  /** The contents on the device are gone. */
  loseContents(): void {
    for (const one of this.buffers.values()) if (one.buffer.onDevice) one.uses = []
  }

  /** All contents are compared, and everything is freed. */
  finish(stream: Stream): void {
    for (const name of [...this.borrowed.keys()]) this.giveBack(name)
    for (const name of this.buffers.keys()) {
      if (this.buffers.get(name)!.uses.length === 0) continue
      this.borrow({ do: 'borrow', spillable: name, use: 0, stream: 0, writes: false }, stream)
    }
    this.check()
    this.set.close()
    this.buffers.clear()
  }

  check(): void {
    const { onDeviceBytes, onHostBytes } = this.set.stats()
    let [device, host] = [0, 0]
    for (const { buffer, bytes } of this.buffers.values()) {
      if (buffer.onDevice) device += bytes
      else host += bytes
    }
    assert.deepEqual([onDeviceBytes, onHostBytes], [device, host], 'bytes of spillable buffers')
  }

  private open(): SpillableSet {
    const { host, maxPoolBytes } = this
    return spillable(this.watched, { host, maxPoolBytes })
  }

  /** Whether the stream cannot move buffers now, or the pool cannot; the call must be refused then. */
  private isRefused(stream: Stream, call: () => unknown): boolean {
    if (stream.capture !== null || stream.slot === -1) assert.throws(call, PoolError)
    else return false
    return true
  }

  private unlessShort(work: () => void): void {
    try {
      work()
    } catch (error) {
      const isAsleep = this.pool.asleep && error instanceof PoolError && /asleep/.test(error.message)
      if (!(error instanceof OutOfMemoryError) && !isAsleep) throw error
    }
  }

  private write({ of, buffer }: Borrowed<Point>, stream: Stream): void {
    const stamp = this.actions.newStamp()
    this.machine.stamp(buffer, of.bytes, stamp, stream)
    this.actions.wrote()
    of.stamp = stamp
    of.uses = [{ point: this.machine.pointOf(stream), stream, byGraph: false }]
  }

  private read({ of, buffer }: Borrowed<Point>, stream: Stream): void {
    if (of.uses.length === 0) return
    this.machine.compare(buffer, of.bytes, of.stamp, stream)
    of.uses.push({ point: this.machine.pointOf(stream), stream, byGraph: false })
  }
}
