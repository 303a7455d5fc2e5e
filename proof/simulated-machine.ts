// The simulated device with all calls observed, so that the oracle checks each grant and each unmapping.

import assert from 'node:assert/strict'
import type { Context } from '../src/core/driver/context.js'
import { State } from '../src/core/heap/records.js'
import { UNIT_BYTES } from '../src/core/heap/size-classes.js'
import { MOST_STREAMS } from '../src/core/order/clocks.js'
import { SMALL_UNITS } from '../src/core/pool/backing/backing.js'
import { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import type { FaultRule } from '../src/entries/simulated.js'
import {
  type Device,
  type DeviceBuffer,
  type GraphGroup,
  type GrowableBuffer,
  type HostPool,
  type HostPoolOptions,
  openDevices,
  type Stream,
} from '../src/index.js'
import type { Point } from './call-order.js'
import { Holds } from './holds.js'
import type { Machine } from './machine.js'
import type { ObservedDriver } from './observed-driver.js'
import type { Oracle } from './oracle.js'
import { assertNothingLeft, newSmallDriver } from './small-device.js'
import { assertNoDamage, forgetDamage, STAMP_PTX, Stamps } from './stamps.js'
import { WatchedPool, watchHost } from './watched-pool.js'

/** The most waits of the host in one operation: one for each mark, 64 for each stream. */
const MOST_WAITS = 64 * MOST_STREAMS

export class SimulatedMachine implements Machine<Point> {
  readonly device: Device
  readonly peer: Device | null
  readonly recyclesHandles = true
  readonly captures = true
  readonly oracle: Oracle
  /**
   * requests with a freed block of that size, safe by the exact order; and how many were served without a driver call
   */
  ready = 0
  recognised = 0
  private readonly driver: ObservedDriver
  private readonly stamps = new Map<Context, Stamps>()
  private readonly holds = new Holds()
  /** how often the host waited in this operation */
  private waits = 0
  private isRefusing = false
  private isReady = false
  private secondsBefore = 0

  constructor(progress: 'eager' | 'seeded', seed: number, withPeer: boolean) {
    forgetDamage()
    const driver = newSmallDriver(progress, seed, withPeer ? 2 : 1)
    this.driver = driver
    driver.copiesAreOfPools = true
    const [device, peer = null] = openDevices(driver)
    this.device = device
    this.peer = peer
    device.context.activate()
    this.oracle = driver.oracle
    this.countWaits()
    for (const each of peer === null ? [device] : [device, peer]) {
      this.stamps.set(each.context, new Stamps(each.loadModule(STAMP_PTX)))
    }
  }

  begin(): void {
    this.waits = 0
    this.isRefusing = false
  }

  end(): void {
    if (!this.isRefusing) this.driver.clearFaults()
    assertNoDamage()
    const { failure } = this.driver
    if (failure !== null) throw failure
  }

  stamp(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    this.stamps.get(stream.context)!.write(buffer, bytes, stamp, stream)
  }

  compare(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    this.stamps.get(stream.context)!.compare(buffer, bytes, stamp, stream)
  }

  hold(stream: Stream): void {
    this.holds.hold(stream)
  }

  holdCopy(): void {
    const { driver } = this
    driver.beforeCopy = stream => {
      driver.beforeCopy = null
      this.holds.add(driver.hold(stream))
    }
  }

  release(): boolean {
    return this.holds.release()
  }

  refuse(rule: FaultRule): void {
    this.driver.failCall(rule)
    this.isRefusing = true
  }

  pointOf(stream: Stream): Point {
    stream.context.activate() // handle 0 is the default stream of the current context
    return this.driver.pointOf(stream.handle)
  }

  comesBefore(point: Point, later: Stream): boolean {
    later.context.activate()
    return this.driver.order.comesBefore(point, this.driver.queueOf(later.handle))
  }

  recorded(): void {}
  waited(): void {}
  told(): void {}

  /** A deterministic pool ignores answers of the driver, so its requests are not counted. */
  requested(pool: CachingPool, units: number, stream: Stream): void {
    stream.context.activate()
    this.isReady = units > 0 && !pool.config.deterministic && this.hasReady(pool, units, stream)
    this.secondsBefore = this.driver.modelledSeconds
  }

  granted(
    buffer: DeviceBuffer | null,
    pool: CachingPool,
    stream: Stream,
    group: GraphGroup | null,
    isOwn = false,
  ): void {
    if (this.isReady) {
      this.ready++
      if (this.driver.modelledSeconds === this.secondsBefore) this.recognised++ // every call costs something
    }
    if (buffer === null) return
    stream.context.activate()
    const units = pool.records.unitsOf(buffer.record)
    const ptr = pool.addressOfRecord(buffer.record) // the program itself has no address
    this.oracle.grant(ptr, ptr + units * UNIT_BYTES, this.driver.queueOf(stream.handle), pool, group, isOwn)
  }

  pinned(start: number): void {
    this.oracle.pinned(start)
  }

  freed(start: number, covered: readonly Point[], pool: CachingPool | null, units: number): void {
    // An event recorded earlier does not cover this free, even with no work submitted in between.
    const after = covered.map(point => ({ ...point, position: point.position + 0.5 }))
    this.oracle.free(start, after, pool, units)
  }

  notFreed(start: number): void {
    this.oracle.takeBack(start)
  }

  resized(buffer: GrowableBuffer, bytes: number): void {
    const { base } = buffer.allocation.range
    this.oracle.adopt(base, base + bytes, buffer)
  }

  fallsAsleep(memory: CachingPool | GrowableBuffer): void {
    const isOwn =
      memory instanceof CachingPool
        ? (ptr: number) => memory.central.backing.rangesAt(ptr).length > 0
        : (ptr: number) =>
            ptr >= memory.allocation.range.base && ptr < memory.allocation.range.base + memory.capacityBytes
    this.oracle.fallsAsleep(memory, isOwn)
  }

  isAwake(memory: CachingPool | GrowableBuffer): void {
    this.oracle.isAwake(memory)
  }

  watch(pool: CachingPool): WatchedPool {
    return new WatchedPool(pool, this.driver)
  }

  createHostPool(options: HostPoolOptions): HostPool {
    return watchHost(this.device.createHostPool(options), this.driver)
  }

  finish(): void {
    this.peer?.close()
    this.device.close()
    assertNothingLeft(this.driver)
  }

  /**
   * Whether a pool has a freed block of this size that the stream may get by the exact order. Merged neighbours count
   * as one block. A block in the heap of other sizes does not count: the pool hands it out only when memory runs out.
   */
  private hasReady(pool: CachingPool, units: number, stream: Stream): boolean {
    const queue = this.driver.queueOf(stream.handle)
    return this.oracle.readyAt(pool, units, queue).some(start => {
      const block = blockAt(pool, start)
      if (block === null || block.isSmall !== units < SMALL_UNITS) return false
      return this.oracle.isSafe(block.start, block.end, queue)
    })
  }

  /** Notices waits without end. */
  private countWaits(): void {
    const { driver } = this
    const { cuEventSynchronize } = driver
    driver.cuEventSynchronize = event => {
      assert.ok(++this.waits < MOST_WAITS, 'one operation waits without end')
      cuEventSynchronize.call(driver, event)
    }
  }
}

/** The extent of the block that an address lies in, and whether it is of the heap for small blocks; null for a view. */
function blockAt(
  { records, central }: CachingPool,
  ptr: number,
): { start: number; end: number; isSmall: boolean } | null {
  for (const range of central.backing.rangesAt(ptr)) {
    const unit = (ptr - central.backing.bases[range]) / UNIT_BYTES
    for (const heap of [central.small, central.large]) {
      let record = heap.firstRecords.get(range) ?? 0
      if (record === 0) continue
      while (records.offsetOf(record) + records.unitsOf(record) <= unit) record = records.nextOf(record)
      if (records.state(record) === State.absent || records.state(record) === State.lent) continue
      const start = ptr + (records.offsetOf(record) - unit) * UNIT_BYTES
      return { start, end: start + records.unitsOf(record) * UNIT_BYTES, isSmall: heap === central.small }
    }
  }
  return null
}
