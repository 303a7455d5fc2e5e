// The simulated device, every call of which is observed: each grant and each unmapping is judged by that.

import assert from 'node:assert/strict'
import type { Context } from '../src/driver/context.js'
import { type FaultRule, registerSimulatedKernel } from '../src/driver/simulated/index.js'
import { UNIT_BYTES } from '../src/heap/size-classes.js'
import { type Device, type DeviceBuffer, openDevices, type Stream } from '../src/index.js'
import type { Kernel } from '../src/kernel/kernel.js'
import { MOST_STREAMS } from '../src/order/clocks.js'
import { SMALL_UNITS } from '../src/pool/backing/backing.js'
import type { CachingPool } from '../src/pool/caching/caching-pool.js'
import type { Point } from './call-order.js'
import { Holds } from './holds.js'
import type { Judge } from './judge.js'
import type { Machine } from './machine.js'
import type { ObservedDriver } from './observed-driver.js'
import { assertNothingLeft, newSmallDriver } from './small-device.js'

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

export class SimulatedMachine implements Machine<Point> {
  readonly device: Device
  readonly peer: Device | null
  readonly recyclesHandles = true
  readonly captures = true
  readonly judge: Judge
  /** requests for which a freed block of that size was there, safe by the exact order; and those served without a driver call */
  ready = 0
  recognised = 0
  private readonly driver: ObservedDriver
  private readonly kernels = new Map<Context, { stamp: Kernel; compare: Kernel }>()
  private readonly holds = new Holds()
  /** how often the host waited in this operation */
  private waits = 0
  private isRefusing = false
  private isReady = false
  private secondsBefore = 0

  constructor(progress: 'eager' | 'seeded', seed: number, withPeer: boolean) {
    corruptions.length = 0
    const driver = newSmallDriver(progress, seed, withPeer ? 2 : 1)
    this.driver = driver
    const [device, peer = null] = openDevices(driver)
    this.device = device
    this.peer = peer
    device.context.activate()
    this.judge = driver.judge
    this.countWaits()
    for (const each of peer === null ? [device] : [device, peer]) {
      const module = each.loadModule(PTX)
      this.kernels.set(each.context, { stamp: module.kernel('proof_stamp'), compare: module.kernel('proof_compare') })
    }
  }

  begin(): void {
    this.waits = 0
    this.isRefusing = false
  }

  end(): void {
    if (!this.isRefusing) this.driver.clearFaults()
    if (corruptions.length > 0) assert.fail(corruptions[0])
  }

  stamp(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    this.kernels.get(stream.context)!.stamp.launch({ grid: 1, block: 1, stream }, buffer, bytes >> 2, stamp)
  }

  compare(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    this.kernels.get(stream.context)!.compare.launch({ grid: 1, block: 1, stream }, buffer, bytes >> 2, stamp)
  }

  hold(stream: Stream): void {
    this.holds.hold(stream)
  }

  release(): void {
    this.holds.release()
  }

  refuse(rule: FaultRule): void {
    this.driver.failCall(rule)
    this.isRefusing = true
  }

  pointOf(stream: Stream): Point {
    stream.context.activate() // the default stream is that of the current context
    return this.driver.pointOf(stream.handle)
  }

  comesBefore(point: Point, later: Stream): boolean {
    later.context.activate()
    return this.driver.order.comesBefore(point, this.driver.queueOf(later.handle))
  }

  recorded(): void {}
  waited(): void {}
  told(): void {}

  closed(stream: Stream): void {
    this.holds.forget(held => held === stream)
  }

  /** What it was answered, a deterministic pool is to forget, so that its requests are not counted. */
  requested(pool: CachingPool, units: number, stream: Stream): void {
    stream.context.activate()
    this.isReady = units > 0 && !pool.config.deterministic && this.hasReady(pool, units, stream)
    this.secondsBefore = this.driver.modelledSeconds
  }

  granted(buffer: DeviceBuffer | null, pool: CachingPool, stream: Stream): void {
    if (this.isReady) {
      this.ready++
      if (this.driver.modelledSeconds === this.secondsBefore) this.recognised++ // every call costs something
    }
    if (buffer === null) return
    stream.context.activate()
    const units = pool.records.unitsOf(buffer.record)
    this.judge.grant(buffer.ptr, buffer.ptr + units * UNIT_BYTES, this.driver.queueOf(stream.handle))
  }

  freed(start: number, covered: readonly Point[], pool: CachingPool, units: number): void {
    // An event that was recorded before does not cover a free of now, although nothing was submitted in between.
    const after = covered.map(point => ({ ...point, position: point.position + 0.5 }))
    this.judge.free(start, after, pool, units)
  }

  finish(): void {
    this.peer?.close()
    this.device.close()
    assertNothingLeft(this.driver)
  }

  /**
   * Whether the stream may have a freed block of this size in a pool, by the exact order. Neighbours that have become one block
   * count as one. A block in the heap of other sizes does not count, since the pool gives it away only when its memory runs out.
   */
  private hasReady(pool: CachingPool, units: number, stream: Stream): boolean {
    const queue = this.driver.queueOf(stream.handle)
    const { backing, small } = pool.central
    return this.judge.readyAt(pool, units, queue).some(start => {
      if (small.firstRecords.has(backing.rangeAt(start)) !== units < SMALL_UNITS) return false
      const block = blockAt(pool, start)
      return this.judge.isSafe(block.start, block.end, queue)
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

/** The extent of the block that an address lies in. */
function blockAt({ records, central }: CachingPool, ptr: number): { start: number; end: number } {
  const range = central.backing.rangeAt(ptr)
  const unit = (ptr - central.backing.bases[range]) / UNIT_BYTES
  const first = central.small.firstRecords.get(range) || central.large.firstRecords.get(range)
  let record = first
  while (records.offsetOf(record) + records.unitsOf(record) <= unit) record = records.nextOf(record)
  const start = ptr + (records.offsetOf(record) - unit) * UNIT_BYTES
  return { start, end: start + records.unitsOf(record) * UNIT_BYTES }
}
