// Which work a sleep waits for, and what its neighbours in time must not lose: uses that were announced before it,
// copies of the wake before it, and copies of a call that has failed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import { SimulatedDriver } from '../../../driver/simulated/simulated-driver.js'
import { MOST_STREAMS } from '../../../order/clocks.js'
import { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { isFilled, TestDevice } from '../../pool.fixture.js'

/** Copies to and from the device wait for `arrive`, if `isLate`. */
class LateCopies extends SimulatedDriver {
  isLate = true
  private held: (() => void)[] = []

  override cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    this.hold(stream)
    super.cuMemcpyHtoDAsync(target, source, stream)
  }

  override cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void {
    this.hold(stream)
    super.cuMemcpyDtoHAsync(target, source, stream)
  }

  override cuMemcpyBatchAsync(...args: Parameters<SimulatedDriver['cuMemcpyBatchAsync']>): void {
    this.hold(args[2])
    super.cuMemcpyBatchAsync(...args)
  }

  arrive(): void {
    this.isLate = false
    for (const release of this.held.splice(0)) release()
  }

  private hold(stream: number): void {
    if (!this.isLate) return
    const ticket = this.holdOperation(stream)
    this.held.push(() => this.releaseThrough(stream, ticket))
  }
}

function open(driver = new LateCopies({ capacityBytes: 64 * MiB, progress: 'eager' })) {
  const device = new TestDevice(driver)
  const pool = device.createPool({ backing: 'virtual', maxPoolBytes: 32 * MiB })
  return { driver, device, pool }
}

function assertFilled(buffer: DeviceBuffer, value: number): void {
  const bytes = buffer.readSync()
  assert.ok(isFilled(bytes, value), `all bytes are ${value}, not ${bytes[0]}`)
}

async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
}

describe('a sleep', () => {
  it('waits for work of streams that were closed', async () => {
    const { driver, device, pool } = open()
    const stream = device.createStream()
    const buffer = pool.allocate(4 * MiB, stream)
    buffer.fill(1)
    driver.isLate = false
    device.hold(stream)
    buffer.fill(2)
    buffer.recordUse(device.defaultStream)
    stream.close()
    const calls = device.calls('cuMemUnmap')
    let isAsleep = false
    const sleeping = pool.sleep().then(() => {
      isAsleep = true
    })
    await turns()
    assert.deepEqual([isAsleep, device.calls('cuMemUnmap')], [false, calls])
    device.clocks.watcher.waitForAll(stream.lastSlot)
    await sleeping
    await pool.wake()
    const copy = pool.allocate(4 * MiB)
    copy.copyFrom(buffer)
    assertFilled(copy, 2)
  })

  it('leaves uses that were announced before it with the buffer', async () => {
    const { driver, device, pool } = open()
    driver.isLate = false
    const [own, user] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(32 * MiB, own)
    buffer.recordUse(user)
    await pool.sleep()
    await pool.wake()
    const release = device.hold(user)
    user.submit('fill', handle => driver.cuMemsetD8Async(buffer.ptr, 3, buffer.byteLength, handle))
    buffer.free()
    const next = pool.allocate(32 * MiB, own)
    next.fill(4)
    release()
    assertFilled(next, 4)
  })

  it('waits until the copies of the last wake have arrived', async () => {
    const { driver, pool } = open()
    const buffer = pool.allocate(4 * MiB)
    buffer.fill(5)
    for (let round = 0; round < 5; round++) {
      driver.isLate = false
      await pool.sleep()
      driver.isLate = true
      await pool.wake({ wait: 'streams' })
      for (let wait = 0; wait < 4; wait++) await turns() // the wake polls each millisecond by now
      await new Promise(resolve => setTimeout(resolve, 1))
      const sleeping = pool.sleep() // it polls at each turn, and so is the first to see the copies complete
      driver.arrive()
      driver.isLate = true // now the copies of the sleep
      while (pool['sleeper']!['isArriving']) await turns()
      driver.arrive()
      await sleeping
      assert.equal(pool.stats().hostCopyBytes, 4 * MiB)
      await pool.wake()
    }
    assertFilled(buffer, 5)
  })

  it('and a wake work with all slots of streams taken', async () => {
    const { driver, device, pool } = open()
    driver.isLate = false
    const growable = device.createGrowableBuffer({ bytes: 3 * MiB })
    const buffer = pool.allocate(2 * MiB)
    for (let made = 1; made < MOST_STREAMS; made++) device.createStream()
    assert.throws(() => device.createStream(), /streams are open on this device, which is the limit/)
    for (const wait of ['host', 'streams'] as const) {
      for (const one of [buffer, growable]) one.fill(6)
      await Promise.all([pool.sleep(), growable.sleep()])
      await Promise.all([pool.wake({ wait }), growable.wake({ wait })])
      for (const one of [buffer, growable]) assertFilled(one, 6)
    }
    assert.equal(device.defaultStream.isOpen, true)
    await pool.sleep()
  })

  it('on the default stream ends before a copy that would break a capture', async () => {
    const { driver, device } = open(new LateCopies({ capacityBytes: 256 * MiB, progress: 'eager' }))
    const pool = device.createPool({ backing: 'virtual', maxPoolBytes: 192 * MiB })
    driver.isLate = false
    const buffers = Array.from({ length: 2 }, () => pool.allocate(64 * MiB)) // one step of copies each
    for (const buffer of buffers) buffer.fill(1)
    device.context.activate()
    const blocking = driver.cuStreamCreate(0)
    for (let made = 2; made < MOST_STREAMS; made++) device.createStream()
    const captured = new Stream(device.clocks, blocking, false)
    const copy = driver.cuMemcpyDtoHAsync.bind(driver)
    driver.cuMemcpyDtoHAsync = (...args) => {
      copy(...args)
      driver.cuMemcpyDtoHAsync = copy
      captured.beginCapture()
    }
    await assert.rejects(pool.sleep(), /^PoolError: sleep: a stream that is ordered with the default stream is being/)
    captured.endCapture().close()
    await pool.sleep()
  })
})

describe('copies that a driver refuses to wait for', () => {
  /** The calls that end a use of memory. */
  const ends = (device: TestDevice) =>
    ['cuMemUnmap', 'cuMemRelease', 'cuMemHostUnregister'].map(call => device.calls(call))

  for (const isClosed of [false, true]) {
    it(`keep their memory mapped and pinned after a wake that failed${isClosed ? ', until the close' : ''}`, async () => {
      const { driver, device, pool } = open()
      driver.isLate = false
      const buffers = [1, 2].map(value => {
        const buffer = pool.allocate(4 * MiB)
        buffer.fill(value)
        return buffer
      })
      await pool.sleep()
      const before = ends(device)
      driver.isLate = true
      driver.failCall({ call: 'cuMemcpyHtoDAsync', nth: 2, code: 999 })
      driver.failCall({ call: 'cuEventRecord', code: 999, onwards: true })
      await assert.rejects(pool.wake(), CudaError)
      await turns()
      assert.deepEqual(ends(device), before, 'nothing goes under the copy')
      assert.deepEqual([pool.asleep, pool.stats().reservedBytes], [true, 8 * MiB])
      driver.clearFaults()
      if (isClosed) {
        pool.close()
        assert.equal(device.freeBytes(), 64 * MiB)
        return
      }
      driver.arrive()
      await pool.wake()
      for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
      assert.equal(pool.stats().hostCopyBytes, 0)
    })
  }

  it('keep their memory after a wake that failed, and a sleep then gives it back', async () => {
    const { driver, device, pool } = open()
    driver.isLate = false
    const buffer = pool.allocate(4 * MiB)
    buffer.fill(1)
    await pool.sleep()
    driver.isLate = true
    const onProgress = () => {}
    driver.failCall({ call: 'cuEventRecord', code: 999, onwards: true })
    await assert.rejects(pool.wake({ onProgress }), CudaError)
    const sleeping = pool.sleep()
    await turns()
    assert.equal(pool.stats().reservedBytes, 4 * MiB)
    driver.clearFaults()
    driver.arrive()
    await sleeping
    assert.equal(device.freeBytes(), 64 * MiB)
    await pool.wake()
    assertFilled(buffer, 1)
  })

  it('keep their memory mapped and pinned after a sleep that failed', async () => {
    const { driver, device, pool } = open()
    const buffer = pool.allocate(4 * MiB)
    buffer.fill(1)
    const before = ends(device)
    // The first event asks whether the pool is idle.
    driver.failCall({ call: 'cuEventRecord', nth: 2, code: 999, onwards: true })
    await assert.rejects(pool.sleep(), CudaError)
    driver.clearFaults()
    buffer.free()
    assert.equal(pool.trimTo(0), 0)
    assert.deepEqual(ends(device), before)
    driver.arrive()
    while (pool.stats().hostCopyBytes > 0) await new Promise(resolve => setTimeout(resolve, 1))
    device.defaultStream.synchronize()
    pool.trimTo(0)
    assert.equal(device.freeBytes(), 64 * MiB)
  })
})

describe('the progress of a wake that streams wait for', () => {
  it('may throw: the error is uncaught, and the copies go on', async () => {
    const { driver, pool } = open()
    const buffer = pool.allocate(4 * MiB)
    buffer.fill(1)
    driver.isLate = false
    await pool.sleep()
    driver.isLate = true
    let calls = 0
    const onProgress = () => {
      calls++
      throw new RangeError('enough')
    }
    const uncaught = new Promise<unknown>(resolve => process.setUncaughtExceptionCaptureCallback(resolve))
    try {
      await pool.wake({ wait: 'streams', onProgress })
      driver.arrive()
      assert.match(`${await uncaught}`, /RangeError: enough/)
    } finally {
      process.setUncaughtExceptionCaptureCallback(null)
    }
    while (pool.stats().hostCopyBytes > 0) await new Promise(setImmediate)
    assert.equal(calls, 1)
    assertFilled(buffer, 1)
  })
})
