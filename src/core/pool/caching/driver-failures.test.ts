// Every driver call of a workload fails in turn, once or from then on. The pool must stay consistent, and live
// buffers must keep their contents. Once the driver works again, every buffer can be freed, the whole capacity can be
// allocated in one piece, and the device gets all of its memory back.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, isRefused, TestDevice } from '../pool.fixture.js'
import { limited } from '../wrappers/limited.js'
import type { CachingPool } from './caching-pool.js'

const CAPACITY = 64 * MiB

interface Held {
  readonly buffer: DeviceBuffer
  readonly stamp: number
}

/** Grows, stitches, waits, trims, opens and closes streams; skips the steps that the driver refuses. */
class Workload {
  readonly held: Held[] = []
  /** calls of the pool that threw */
  refusals = 0
  private readonly streams: Stream[]
  private stamps = 0

  constructor(
    private readonly device: TestDevice,
    private readonly pool: CachingPool,
  ) {
    this.streams = [device.defaultStream, device.createStream()]
  }

  run(): void {
    const [a, b] = this.streams
    for (let count = 0; count < 3; count++) this.allocate(400 * KiB, a)
    for (let count = 0; count < 3; count++) this.allocate(5 * MiB, a)
    this.free(1, a)
    this.free(3, a)
    this.allocate(12 * MiB, b) // more than the longest free run
    this.attempt(() => this.pool.trimTo(8 * MiB))
    const wrapped = limited(this.pool, 24 * MiB)
    this.attempt(() => this.hold(wrapped.allocate(9 * MiB, a)))
    this.attempt(() => this.hold(wrapped.allocate(3 * MiB, b, 1 * MiB)))
    this.recordUse(0, b)
    this.free(0, a)
    this.attempt(() => this.pool.processDeferred())
    this.attempt(() => this.shortLivedStream())
    while (this.held.length > 2) this.free(this.held.length >> 1, b)
    this.allocate(40 * MiB, a) // from everywhere, after waits for pending work
    this.allocate(30 * MiB, b) // too much
    this.free(0, b)
    if (this.held.length > 0) this.attempt(() => this.pool.deallocate(this.held[0].buffer.ptr))
    for (let count = 0; count < 10; count++) this.allocate(2 * MiB, b)
    for (let count = 0; count < 9; count++) this.free(0, a)
    this.attempt(() => this.pool.trimTo(0))
  }

  private allocate(bytes: number, stream: Stream): void {
    this.attempt(() => this.hold(this.pool.allocate(bytes, stream)))
  }

  private hold(buffer: DeviceBuffer): void {
    const stamp = ++this.stamps
    const held = { buffer, stamp }
    this.held.push(held)
    try {
      buffer.fill(stamp)
    } catch (error) {
      this.held[this.held.length - 1] = { buffer, stamp: -1 } // contents unknown
      throw error
    }
  }

  private free(index: number, stream: Stream): void {
    if (index >= this.held.length) return
    this.attempt(() => this.held[index].buffer.free(stream))
    this.dropFreed()
  }

  private recordUse(index: number, stream: Stream): void {
    this.attempt(() => this.held[index]?.buffer.recordUse(stream))
  }

  private shortLivedStream(): void {
    const stream = this.device.createStream()
    try {
      this.pool.allocate(1 * MiB, stream).free()
    } finally {
      stream.close()
    }
  }

  private attempt(step: () => void): void {
    if (isRefused(step, OutOfMemoryError)) this.refusals++
    this.dropFreed()
  }

  private dropFreed(): void {
    for (let index = this.held.length - 1; index >= 0; index--) {
      if (this.held[index].buffer.freed) this.held.splice(index, 1)
    }
  }
}

function open(backing: 'virtual' | 'segments' | 'managed' | 'registrable') {
  const device = new TestDevice({ capacityBytes: CAPACITY })
  const pool = device.createPool({ backing, maxPoolBytes: CAPACITY, releaseThresholdBytes: 48 * MiB })
  return { device, pool, workload: new Workload(device, pool) }
}

/** The number of driver calls that the steps make if all calls succeed. */
function countCalls(
  backing: 'virtual' | 'segments' | 'managed' | 'registrable',
  steps: (opened: ReturnType<typeof open>) => void,
): number {
  const opened = open(backing)
  const before = opened.device.callCount
  steps(opened)
  return opened.device.callCount - before
}

/** Granules that a failed growth left unmapped. The pool may use them later. */
function spareOf(pool: CachingPool): number {
  const blocks = pool.snapshot().ranges.flatMap(range => range.blocks)
  const counted = blocks.filter(({ state }) => state !== 'absent' && state !== 'part')
  const used = counted.reduce((sum, block) => sum + block.bytes, 0)
  const spare = pool.stats().reservedBytes - used
  assert.ok(spare >= 0 && spare % (2 * MiB) === 0, `${spare} bytes are reserved and nowhere`)
  return spare
}

for (const backing of ['virtual', 'segments', 'managed', 'registrable'] as const) {
  describe(`driver failures: ${backing}`, () => {
    const calls = countCalls(backing, ({ workload }) => workload.run())

    it('the workload runs, and only its oversized request is refused', () => {
      const { pool, workload } = open(backing)
      workload.run()
      assert.equal(workload.refusals, 1)
      assert.ok(calls > 60, `${calls} driver calls`)
      assertConsistent(pool, spareOf(pool))
    })

    for (const [name, codeOf] of [
      ['out of memory', () => 2],
      ['another refusal', (nth: number) => (nth % 2 === 0 ? 1 : 999)],
    ] as const) {
      for (const onwards of [false, true]) {
        it(`${name}, ${onwards ? 'from the n-th call on' : 'at the n-th call'}, for each of its calls`, () => {
          for (let nth = 1; nth <= calls; nth++) {
            const { device, pool, workload } = open(backing)
            device.driver.failCall({ call: '*', nth, code: codeOf(nth), onwards })
            workload.run()
            device.driver.clearFaults()
            try {
              assertRecovers(device, pool, workload)
            } catch (error) {
              throw new Error(`after call ${nth} of ${calls} failed`, { cause: error })
            }
          }
        })
      }
    }

    it('emptying the caches and settling lose no block when a call in between fails', () => {
      const steps = [(pool: CachingPool) => pool.trimTo(0), (pool: CachingPool) => pool.processDeferred()]
      for (const step of steps) {
        let refused = true
        for (let nth = 1; refused; nth++) {
          const device = new TestDevice({ capacityBytes: 1 * GiB })
          const pool = device.createPool({ backing, maxPoolBytes: '100%', releaseThresholdBytes: 4 * MiB })
          const side = device.createStream()
          const kept = Array.from({ length: 10 }, (_, index) => pool.allocate((1 + index / 16) * MiB))
          const used = Array.from({ length: 20 }, () => pool.allocate(1 * MiB))
          for (const buffer of used) buffer.recordUse(side)
          for (const buffer of [...kept, ...used]) buffer.free()
          device.driver.failCall({ call: '*', nth, code: 999 })
          refused = isRefused(() => step(pool))
          device.driver.clearFaults()
          assertConsistent(pool, spareOf(pool))
          pool.allocate(1 * GiB).free()
          pool.close()
          assert.equal(device.freeBytes(), 1 * GiB)
        }
      }
    })

    it('a close that is refused can be repeated, and then all memory is back', () => {
      const closing = countCalls(backing, ({ pool, workload }) => {
        workload.run()
        pool.close()
      })
      let refusals = 0
      for (let nth = calls + 1; nth <= closing; nth++) {
        for (const onwards of [false, true]) {
          const { device, pool, workload } = open(backing)
          device.driver.failCall({ call: '*', nth, code: 999, onwards })
          workload.run()
          const wasRefused = isRefused(() => pool.close())
          device.driver.clearFaults()
          if (wasRefused) pool.close() // the end of relaxed mode may be refused
          refusals += wasRefused ? 1 : 0
          assert.equal(device.freeBytes(), CAPACITY, `after call ${nth} of ${closing} failed`)
        }
      }
      assert.ok(refusals > closing - calls, `${refusals} refusals`)
    })

    it('a pool that cannot be made leaves nothing behind', () => {
      const making = countCallsOfMaking(backing)
      for (let nth = 1; nth <= making; nth++) {
        const device = new TestDevice({ capacityBytes: CAPACITY })
        device.driver.failCall({ call: '*', nth, code: 999 })
        isRefused(() => device.createPool({ backing }).close(), PoolError)
        device.driver.clearFaults()
        assert.equal(device.freeBytes(), CAPACITY, `call ${nth}`)
      }
    })
  })
}

function countCallsOfMaking(backing: 'virtual' | 'segments' | 'managed' | 'registrable'): number {
  const device = new TestDevice({ capacityBytes: CAPACITY })
  const before = device.callCount
  device.createPool({ backing })
  return device.callCount - before
}

function assertRecovers(device: TestDevice, pool: CachingPool, workload: Workload): void {
  assertConsistent(pool, spareOf(pool))
  const { held } = workload
  assert.equal(pool.stats().liveBuffers, held.length, 'what was handed out is what is held')
  for (const { buffer, stamp } of held) {
    if (stamp !== -1) assert.equal(buffer.readSync(buffer.byteLength - 1)[0], stamp, 'contents are kept')
  }
  for (const { buffer } of held) buffer.free()
  assert.equal(pool.stats().liveBytes, 0)
  pool.allocate(CAPACITY).free()
  assertConsistent(pool, spareOf(pool))
  device.context.activate().cuCtxSynchronize()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  assert.equal(device.freeBytes(), CAPACITY)
  pool.allocate(1 * MiB)
  pool.close()
  assert.equal(device.freeBytes(), CAPACITY)
}
