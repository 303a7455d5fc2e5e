// Pinned memory lies on the node that a program asks for, or on the device's own. A growth that the program awaits
// leaves the pages to another thread. Whatever ends meanwhile, no memory stays pinned.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import { isDriverError } from '../../base/thrown.js'
import { StagingBuffers } from '../../driver/staging-buffers.js'
import { PAGE_BYTES } from '../backing/pinned-segments.js'
import { pinnedPolicy } from '../policy.js'
import { TestDevice } from '../pool.fixture.js'
import type { HostPoolOptions } from './host-options.js'

/** A host pool, and what its driver has filled and pinned. */
function setUp(options: HostPoolOptions = {}, numaNodes = 4) {
  const device = new TestDevice({ numaNodes })
  const { driver } = device
  const pinned = new Set<ArrayBufferView>()
  const filled: ArrayBufferView[] = []
  const [register, unregister, fill] = [driver.cuMemHostRegister, driver.cuMemHostUnregister, driver.fillHost]
  driver.cuMemHostRegister = (host, flags) => {
    register.call(driver, host, flags)
    pinned.add(host)
  }
  driver.cuMemHostUnregister = host => {
    unregister.call(driver, host)
    pinned.delete(host)
  }
  driver.fillHost = async host => {
    await fill.call(driver, host)
    filled.push(host)
  }
  return { device, driver, pinned, filled, pool: device.createHostPool(options) }
}

describe('where pinned memory lies', () => {
  it('on the node of the device, or on the one that was asked for', () => {
    for (const numaNode of [undefined, 1]) {
      const { driver, pool } = setUp(numaNode === undefined ? {} : { numaNode })
      assert.equal(driver.hostNodeOf(pool.allocate(1).bytes), numaNode ?? 3)
      assert.equal(pool.numaNode, numaNode ?? 3)
      assert.match(`${pool}`, new RegExp(` reserved of 1 GiB on NUMA node ${numaNode ?? 3}, `))
      pool.close()
    }
  })

  it('on any node if the host has none, which the pool says', () => {
    const { driver, pool } = setUp({}, 0)
    assert.equal(driver.hostNodeOf(pool.allocate(1).bytes), -1)
    assert.equal(pool.numaNode, null)
    assert.match(`${pool}`, / reserved of 1 GiB on any NUMA node, /)
    assert.equal(JSON.parse(JSON.stringify(pool)).numaNode, null)
    pool.close()
  })

  it('a node that the host does not have is refused by name, with those that it has', () => {
    const { device } = setUp()
    for (const numaNode of [4, -1, 0.5, NaN, '0']) {
      const options = { numaNode } as HostPoolOptions
      const refusal = { name: 'RangeError', message: /^numaNode must be a NUMA node of this host, .* 0, 1, 2, 3, not / }
      assert.throws(() => device.createHostPool(options), refusal)
      assert.throws(() => device.createSharedHost(options), refusal)
    }
    assert.throws(() => setUp({ numaNode: 0 }, 0), {
      name: 'RangeError',
      message: /which has none, not 0; leave it out/,
    })
  })

  it('what is given back may lie on any node again', () => {
    const { driver, pool } = setUp()
    const { bytes } = pool.allocate(1)
    pool.close()
    assert.equal(driver.hostNodeOf(bytes), -1)
  })

  it('memory that the driver does not pin may lie on any node again', () => {
    const { driver, pool } = setUp()
    const placed: ArrayBufferView[] = []
    const place = driver.placeHost
    driver.placeHost = (host, node) => {
      placed.push(host)
      return place.call(driver, host, node)
    }
    driver.failCall({ call: 'cuMemHostRegister', nth: 1, code: 999 })
    assert.throws(() => pool.allocate(1), isDriverError)
    assert.deepEqual(
      placed.map(host => driver.hostNodeOf(host)),
      [-1],
    )
    pool.close()
  })

  it('shared pools and the memory of reads lie on the node of the device, too', () => {
    const { device, driver, pinned } = setUp()
    const { pool } = device.createSharedHost()
    assert.equal(pool.numaNode, 3)
    pool.allocate(1)
    assert.deepEqual(
      [...pinned].map(host => driver.hostNodeOf(host)),
      [3],
    )
    pool.close()
    const staging = StagingBuffers.of(device.context)
    const memory = staging.take(1)
    assert.equal(driver.hostNodeOf(memory), 3)
    staging.close()
    assert.equal(driver.hostNodeOf(memory), -1)
  })
})

describe('segments of pinned memory', () => {
  it('are small at first, and as large as all before them later', () => {
    const { pool } = setUp()
    while (pool.segments().length < 10) pool.allocate(256 * KiB)
    const sizes = pool.segments().map(({ bytes }) => bytes / MiB)
    assert.deepEqual(sizes, [0.25, 0.25, 0.5, 1, 2, 4, 8, 16, 16, 16])
    assert.equal(pinnedPolicy.segmentBytes, 16 * MiB)
    pool.close()
  })

  it('are small again once the pool has given most back', () => {
    const { pool } = setUp()
    pool.allocate(40 * MiB).free()
    pool.trimTo(0)
    pool.allocate(1)
    assert.equal(pool.stats().reservedBytes, pinnedPolicy.firstBytes)
    pool.close()
  })

  it('have the size that the program asks for', () => {
    const { pool } = setUp({ segmentBytes: 4 * MiB })
    for (let count = 0; count < 9; count++) pool.allocate(1 * MiB)
    assert.deepEqual(
      pool.segments().map(({ bytes }) => bytes / MiB),
      [4, 4, 4],
    )
    pool.close()
  })

  it('fill the limit up to the last page', () => {
    const { pool } = setUp({ maxPoolBytes: 3 * MiB + PAGE_BYTES })
    while (pool.tryAllocate(PAGE_BYTES) !== null);
    assert.equal(pool.stats().reservedBytes, 3 * MiB + PAGE_BYTES)
    pool.close()
  })
})

describe('growth of a host pool that the program awaits', () => {
  it('reserveSoon pins memory that another thread has filled', async () => {
    const { driver, pool, filled, pinned } = setUp()
    const soon = pool.reserveSoon('20MiB')
    assert.deepEqual([pinned.size, pool.stats().reservedBytes], [0, 0], 'nothing is pinned in the call')
    assert.equal(await soon, 20 * MiB)
    const [memory] = pinned
    assert.deepEqual([memory.byteLength, filled[0].byteLength], [20 * MiB, 20 * MiB])
    assert.equal(memory.buffer, filled[0].buffer)
    assert.equal(driver.hostNodeOf(memory), 3)
    pool.allocate(20 * MiB).free()
    assert.equal(pinned.size, 1, 'a request finds the memory')
    assert.equal(await pool.reserveSoon(5 * MiB), 0)
    assert.equal(filled.length, 1)
    pool.close()
  })

  it('reserveSoon says what does not fit, and changes nothing', async () => {
    const { pool, filled } = setUp({ maxPoolBytes: 4 * MiB })
    await assert.rejects(pool.reserveSoon(5 * MiB), {
      name: 'OutOfMemoryError',
      message: /raise maxPoolBytes by at least/,
    })
    assert.deepEqual([filled.length, pool.stats().reservedBytes], [0, 0])
    await assert.rejects(pool.reserveSoon(-1), { name: 'RangeError', message: /^reserveSoon: bytes/ })
    pool.close()
    await assert.rejects(pool.reserveSoon(1), { code: 'ERR_POOL_CLOSED', message: /^reserveSoon/ })
  })

  it('allocateSoon pins nothing in the call, whatever the size', async () => {
    for (const bytes of [1, 100 * KiB, 1 * MiB, 1 * MiB + 1, 1_000_001, 33 * MiB + 7]) {
      const { pool, filled, pinned } = setUp()
      const soon = pool.allocateSoon(bytes, { label: 'soon' })
      assert.equal(pinned.size, 0)
      const buffer = await soon
      assert.deepEqual([buffer.byteLength, buffer.label, filled.length], [bytes, 'soon', 1])
      assert.deepEqual(
        [...pinned].map(({ buffer }) => buffer),
        filled.map(({ buffer }) => buffer),
        `${bytes} bytes`,
      )
      pool.check()
      pool.close()
    }
  })

  it('allocateSoon uses idle memory at once', async () => {
    const { pool, filled } = setUp()
    pool.allocate(100)
    await pool.allocateSoon(200)
    assert.equal(filled.length, 0)
    pool.close()
  })

  it('allocateSoon waits in line where the limit allows no more', async () => {
    const { pool, filled } = setUp({ maxPoolBytes: 1 * MiB })
    const held = pool.allocate(1 * MiB)
    const soon = pool.allocateSoon(1 * MiB)
    held.free()
    assert.equal((await soon).byteLength, 1 * MiB)
    assert.equal(filled.length, 0)
    pool.close()
  })

  it('several growths at a time each get their memory', async () => {
    const { pool, pinned, filled } = setUp()
    const sizes = [3 * MiB, 1, 5 * MiB, 2 * MiB]
    const buffers = await Promise.all([...sizes.map(bytes => pool.allocateSoon(bytes)), pool.reserveSoon(32 * MiB)])
    assert.deepEqual(
      buffers.slice(0, -1).map(buffer => (buffer as { byteLength: number }).byteLength),
      sizes,
    )
    assert.ok(pool.stats().reservedBytes >= 32 * MiB)
    assert.ok([...pinned].every(memory => filled.some(({ buffer }) => buffer === memory.buffer)))
    pool.check()
    pool.close()
    assert.equal(pinned.size, 0)
  })
})

describe('the copies of memory that sleeps', () => {
  for (const isInto of [false, true]) {
    it(`lie in memory that another thread has filled, ${isInto ? 'of a host pool' : 'of their own'}`, async () => {
      const { device, driver, pool: host, pinned, filled } = setUp()
      const pool = device.createPool()
      const buffer = pool.allocate(5 * MiB)
      buffer.fill(7)
      await pool.sleep(isInto ? { into: host } : {})
      assert.ok(pinned.size > 0)
      assert.deepEqual(
        [...pinned].map(memory => [memory.buffer, driver.hostNodeOf(memory)]),
        filled.map(memory => [memory.buffer, 3]),
      )
      await pool.wake()
      assert.ok(buffer.readSync().every(byte => byte === 7))
      pool.close()
      host.close()
      assert.equal(pinned.size, 0)
    })
  }

  it('are of no use once the host pool is closed meanwhile', async () => {
    const { device, pool: host, pinned } = setUp()
    const pool = device.createPool()
    pool.allocate(5 * MiB)
    const asleep = pool.sleep({ into: host })
    await new Promise(resolve => setImmediate(resolve))
    host.close()
    await assert.rejects(asleep, { code: 'ERR_POOL_CLOSED' })
    pool.close()
    assert.equal(pinned.size, 0)
  })
})

describe('growth of a shared host pool that the program awaits', () => {
  it('is pinned by the pool server', async () => {
    const { device, pinned, filled } = setUp()
    const { pool } = device.createSharedHost()
    assert.equal(await pool.reserveSoon(4 * MiB), 4 * MiB)
    assert.equal((await pool.allocateSoon(5 * MiB)).byteLength, 5 * MiB)
    assert.deepEqual([filled.length, pinned.size], [0, 2])
    pool.close()
    assert.equal(pinned.size, 0)
  })
})

describe('what ends while memory is filled', () => {
  for (const name of ['reserveSoon', 'allocateSoon'] as const) {
    const step = (pool: ReturnType<typeof setUp>['pool'], signal?: AbortSignal) => pool[name](4 * MiB, { signal })

    it(`${name}: the pool`, async () => {
      const { driver, pool, pinned, filled } = setUp()
      const soon = step(pool)
      pool.close()
      await assert.rejects(soon, { code: 'ERR_POOL_CLOSED' })
      assert.deepEqual([pinned.size, filled.map(host => driver.hostNodeOf(host))], [0, [-1]])
    })

    it(`${name}: the device`, async () => {
      const { device, driver, pool, pinned, filled } = setUp()
      const soon = step(pool)
      pool.close()
      device.clocks.close()
      device.context.release()
      await assert.rejects(soon, { code: 'ERR_POOL_CLOSED' })
      assert.deepEqual([pinned.size, filled.map(host => driver.hostNodeOf(host))], [0, [-1]])
    })

    it(`${name}: the patience of the program`, async () => {
      const { driver, pool, pinned, filled } = setUp()
      const controller = new AbortController()
      const soon = step(pool, controller.signal)
      controller.abort(new Error('enough'))
      await assert.rejects(soon, { message: 'enough' })
      assert.deepEqual([pinned.size, filled.map(host => driver.hostNodeOf(host))], [0, [-1]])
      assert.equal(pool.stats().liveBuffers, 0)
      await assert.rejects(step(pool, controller.signal), { message: 'enough' })
      assert.equal(filled.length, 1, 'an aborted call prepares no memory')
      await assert.rejects(step(pool, 1 as never), {
        name: 'TypeError',
        message: new RegExp(`^${name}: signal must be`),
      })
      pool.close()
    })
  }

  it('every driver call refused in turn loses nothing', async () => {
    const run = async ({ pool }: ReturnType<typeof setUp>) => {
      for (const growth of [() => pool.reserveSoon(2 * MiB), () => pool.allocateSoon(3 * MiB)]) {
        await growth().catch(error => assert.ok(isDriverError(error) || error instanceof OutOfMemoryError, `${error}`))
      }
    }
    const counted = setUp()
    const before = counted.device.callCount
    await run(counted)
    const calls = counted.device.callCount - before
    assert.ok(calls > 4, `${calls} driver calls`)
    for (let nth = 1; nth <= calls; nth++) {
      for (const code of [2, 999]) {
        const refused = setUp()
        refused.driver.failCall({ call: '*', nth, code })
        await run(refused)
        refused.driver.clearFaults()
        refused.pool.check()
        assert.equal(refused.pinned.size, refused.pool.segments().length)
        await refused.pool.reserveSoon(8 * MiB)
        refused.pool.close()
        assert.equal(refused.pinned.size, 0, `call ${nth}`)
      }
    }
  })
})
