import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { TestDevice } from '../pool.fixture.js'

const CHUNK = 32 * MiB

describe('driver pool: stream order', () => {
  it('a free waits for the work of every stream given to recordUse, also work submitted later', () => {
    const device = new TestDevice()
    const pool = device.defaultDriverPool()
    const [a, b] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(1 * MiB, a)
    buffer.recordUse(a)
    buffer.recordUse(b)
    const release = device.hold(b)
    buffer.free()
    assert.equal(a.query(), false)
    release()
    assert.equal(a.query(), true)
    assert.equal(device.driver.calls.get('cuStreamWaitEvent'), 1, 'its own stream needs no wait')
    assert.throws(() => buffer.free(), { name: 'PoolError', message: /already freed/ })
    const next = pool.allocate(1 * MiB, a)
    device.hold(b)
    next.free()
    assert.equal(a.query(), true, 'the next buffer waits for nothing')
    assert.throws(() => pool.allocate(1).recordUse(new TestDevice().createStream()), PoolError)
    pool.close()
    device.clocks.close()
    assert.equal(device.calls('cuEventCreate'), device.calls('cuEventDestroy'), 'no event is left')
  })

  it('the stream of the free, not the host, waits for work of streams that were closed since', () => {
    const device = new TestDevice()
    const pool = device.defaultDriverPool()
    const [a, b, c] = [device.createStream(), device.createStream(), device.createStream()]
    const buffer = pool.allocate(1 * MiB, a)
    for (const stream of [b, c]) {
      buffer.recordUse(stream)
      device.hold(stream)
    }
    b.close()
    buffer.free()
    assert.deepEqual([a.query(), c.query()], [false, false])
    a.synchronize()
    assert.equal(c.query(), true)
  })

  it("a free during a capture waits for the captured stream's earlier work, and adds nothing to the capture", () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const [a, captured] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(1 * MiB, a)
    buffer.recordUse(captured)
    const release = device.hold(captured)
    captured.beginCapture()
    buffer.free()
    assert.equal(a.capture, null)
    assert.equal(a.query(), false)
    captured.endCapture().close()
    release()
    assert.equal(a.query(), true)
  })

  it('a buffer of a closed stream is freed during a capture, when its work is complete', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const [a, captured] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(1 * MiB, a)
    device.hold(a)
    a.close()
    captured.beginCapture()
    buffer.free()
    captured.endCapture().close()
    assert.equal(pool.usedBytes, 0)
  })

  it('a refused wait frees nothing, and the next close finishes a refused one', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const buffer = pool.allocate(1 * MiB)
    buffer.recordUse(device.createStream())
    device.driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    assert.throws(() => buffer.free(), { name: 'CudaError' })
    assert.equal(buffer.freed, false)
    buffer.free()
    device.driver.failCall({ call: 'cuMemPoolDestroy', code: 999 })
    assert.throws(() => pool.close(), { name: 'CudaError' })
    assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /closed/ })
    pool.close()
    assert.equal(device.freeBytes(), device.totalBytes)
  })

  it('it allocates from its own pool, whichever is current', () => {
    const device = new TestDevice({ capacityBytes: 1 * GiB })
    const [own, standard] = [device.createDriverPool(), device.defaultDriverPool()]
    const buffers = [own.allocate(3 * MiB), standard.allocate(5 * MiB)]
    assert.deepEqual([own.usedBytes, standard.usedBytes], [3 * MiB, 5 * MiB])
    buffers[0].copyFrom(buffers[1], 0, 0, 3 * MiB)
    for (const buffer of buffers) buffer.free()
    assert.deepEqual([own.usedBytes, standard.usedBytes], [0, 0])
  })
})

describe('driver pool: limits, trims and the current pool', () => {
  it('the driver rounds maxPoolBytes up, and the error at the limit names it', () => {
    const device = new TestDevice({ capacityBytes: 1 * GiB })
    const pool = device.createDriverPool({ maxPoolBytes: 1 * MiB })
    const kept = pool.allocate(2 * MiB)
    assert.equal(pool.tryAllocate(33 * MiB), null)
    assert.throws(
      () => pool.allocate(33 * MiB),
      (error: unknown) => {
        assert.ok(error instanceof OutOfMemoryError)
        assert.match(error.message, /33 MiB in a driver pool of at most 1 MiB, of which 2 MiB are in use.*maxPoolBytes/)
        assert.deepEqual(error.figures, {
          requestedBytes: 33 * MiB,
          liveBytes: 2 * MiB,
          pendingBytes: 0,
          reservedBytes: CHUNK,
          largestFreeBytes: 0,
          maxPoolBytes: 1 * MiB,
          deviceFreeBytes: 1 * GiB - CHUNK,
        })
        return true
      },
    )
    assert.equal(pool.stats().maxPoolBytes, 1 * MiB)
    kept.free()
    assert.throws(() => device.createDriverPool({ maxPoolBytes: 64 * MiB }).allocate(65 * MiB), {
      message: /65 MiB in a driver pool of at most 64 MiB, of which 0 B are in use/,
    })
    assert.throws(() => device.createDriverPool().allocate(2 * GiB), {
      name: 'OutOfMemoryError',
      message: /no room for 2 GiB in a driver pool of 0 B, with 992 MiB free on the device/,
    })
  })

  it('a trim gives back idle memory only: no live buffers, and no free that the host has not seen complete', () => {
    const device = new TestDevice({ capacityBytes: 1 * GiB })
    const pool = device.createDriverPool()
    pool.releaseThresholdBytes = Infinity
    const [kept, large] = [pool.allocate(8192), pool.allocate(256 * MiB)]
    large.free()
    assert.equal(pool.trimTo(0), 0)
    device.defaultStream.synchronize()
    assert.equal(pool.trimTo(1 * GiB), 0)
    assert.equal(pool.trimTo(0), 256 * MiB)
    assert.equal(pool.reservedBytes, CHUNK)
    kept.fill(7)
    assert.equal(kept.readSync(8191)[0], 7)
    for (const bytes of [-1, 0.5, Number.NaN, 2 ** 53]) {
      assert.throws(() => pool.trimTo(bytes), { name: 'RangeError', message: /trimTo: bytes/ })
    }
    assert.throws(() => pool.trimTo('0' as unknown as number), TypeError)
  })

  it('cuMemAllocAsync uses the current pool, until the pool is closed', () => {
    const device = new TestDevice({ capacityBytes: 1 * GiB })
    const [standard, pool] = [device.defaultDriverPool(), device.createDriverPool()]
    assert.deepEqual([standard.isCurrent, pool.isCurrent], [true, false])
    pool.setCurrent()
    assert.deepEqual([standard.isCurrent, pool.isCurrent], [false, true])
    const ptr = device.driver.cuMemAllocAsync(4096, 0)
    assert.deepEqual([standard.usedBytes, pool.usedBytes], [0, 4096])
    device.driver.cuMemFreeAsync(ptr, 0)
    pool.close()
    assert.equal(standard.isCurrent, true)
    const again = device.createDriverPool()
    again.setCurrent()
    standard.setCurrent()
    assert.equal(again.isCurrent, false)
    for (const options of [
      { location: 'host' },
      { location: { numaNode: 0 } },
      { allocationType: 'managed' },
    ] as const) {
      assert.throws(() => device.createDriverPool(options).setCurrent(), {
        name: 'PoolError',
        message: /setCurrent: only a pool of 'pinned' memory at the location 'device'/,
      })
    }
    assert.equal(standard.isCurrent, true)
  })

  it('host, NUMA and managed memory is written, read, filled and copied like any other', async () => {
    for (const options of [
      { location: 'host' },
      { location: { numaNode: 0 } },
      { allocationType: 'managed' },
      { allocationType: 'managed', location: 'host' },
    ] as const) {
      const device = new TestDevice({ progress: 'seeded' })
      const pool = device.createDriverPool(options)
      const stream = device.createStream()
      const [buffer, other] = [pool.allocate(1 * MiB, stream), device.createPlainPool().allocate(1 * MiB, stream)]
      buffer.fill(5)
      buffer.write(Uint8Array.of(1, 2, 3), 1 * MiB - 4)
      other.copyFrom(buffer)
      buffer.copyFrom(other, 0, 1 * MiB - 4, 4)
      assert.deepEqual([...(await buffer.read(0, 5))], [1, 2, 3, 5, 5])
      assert.deepEqual([...buffer.readSync(1 * MiB - 4)], [1, 2, 3, 5])
      assert.equal(device.freeBytes(), device.totalBytes - 1 * MiB, 'it is no memory of the device')
      pool.close()
    }
  })
})

describe('driver pool: closing', () => {
  it('close destroys a pool made here, and every later use throws', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const buffer = pool.allocate(1 * MiB)
    pool.close()
    pool.close()
    assert.equal(device.driver.calls.get('cuMemPoolDestroy'), 1)
    assert.deepEqual([buffer.freed, pool.stats().liveBytes, device.freeBytes()], [true, 0, device.totalBytes])
    const uses: readonly (() => unknown)[] = [
      () => pool.allocate(1),
      () => pool.releaseThresholdBytes,
      () => pool.followEventDependencies,
      () => pool.usedBytes,
      () => pool.resetPeaks(),
      () => pool.trimTo(0),
      () => pool.isCurrent,
      () => pool.setCurrent(),
      () => pool.access('host'),
      () => pool.setAccess('host', 'none'),
      () => pool.exportPointer(buffer),
      () => {
        pool.releaseThresholdBytes = 1
      },
      () => {
        pool.allowOpportunisticReuse = true
      },
    ]
    for (const use of uses) assert.throws(use, { name: 'PoolError', message: /the pool is closed/ }, `${use}`)
  })

  it("close leaves the default pool with its settings and others' buffers", () => {
    const device = new TestDevice()
    const [pool, other] = [device.defaultDriverPool(), device.defaultDriverPool()]
    const kept = other.allocate(1 * MiB)
    pool.allocate(1 * MiB)
    pool.releaseThresholdBytes = 48 * MiB
    pool.setCurrent()
    pool.close()
    assert.equal(device.driver.calls.get('cuMemPoolDestroy'), undefined)
    assert.deepEqual([other.usedBytes, other.releaseThresholdBytes, other.isCurrent], [1 * MiB, 48 * MiB, true])
    kept.fill(1)
    other.close()
  })

  it('close waits for work on live buffers', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const stream = device.createStream()
    const buffer = pool.allocate(1 * MiB, stream)
    device.hold(stream)
    buffer.fill(1)
    pool.close()
    assert.equal(stream.query(), true)
    assert.equal(device.freeBytes(), device.totalBytes)
  })
})
