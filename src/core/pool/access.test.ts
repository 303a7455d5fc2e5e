// Access of other devices to the memory of a pool: giving it, taking it back, and refusals. The file is long because
// all cases share one set-up.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { CudaError, PoolError } from '../base/errors.js'
import { CU_MEM_LOCATION_TYPE_DEVICE } from '../driver/constants.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import { registerSimulatedKernel } from '../driver/simulated-kernels.js'
import { Module } from '../kernel/module.js'
import { Event } from '../order/event.js'
import type { AccessChange, AccessLocation, PoolAccess } from './access.js'
import type { DeviceBuffer } from './buffer.js'
import type { PoolOptions } from './caching/options.js'
import { assertConsistent, isRefused, TestDevice, twoDevices } from './pool.fixture.js'
import type { Pool } from './pool.js'
import { fallback } from './wrappers/fallback.js'
import { limited } from './wrappers/limited.js'

const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry access_test_touch(.param .u64 target, .param .u32 bytes) { ret; }`

/** Offsets in every granule, and of the last byte. */
const placesIn = (bytes: number) =>
  [...Array(Math.ceil(bytes / MiB)).keys()].map(index => index * MiB).concat(bytes - 1)

registerSimulatedKernel('access_test_touch', ({ args, memory }) => {
  for (const place of placesIn(args.uint32(1))) memory.store(args.pointer(0) + place, Uint8Array.of(1))
})

function setUp(poolOptions: PoolOptions = {}, options: SimulatedOptions = {}) {
  const [home, peer] = twoDevices(options)
  const pool = home.createPool({ maxPoolBytes: '100%', ...poolOptions })
  const kernel = new Module(peer.context, peer.defaultStream, PTX).kernel('access_test_touch')
  /** Writes 1 at those offsets of a buffer, in a kernel of the other device, and waits for the kernel. */
  const touch = (buffer: DeviceBuffer) => {
    kernel.launch({ grid: 1, block: 1, stream: peer.defaultStream }, buffer, buffer.byteLength)
    peer.context.finishWork()
  }
  return { home, peer, pool, driver: home.driver, kernel, touch }
}

/** Whether a kernel of the other device reaches a buffer; false if the launch throws before any driver call. */
function reaches({ touch, driver }: ReturnType<typeof setUp>, buffer: DeviceBuffer): boolean {
  buffer.fill(0)
  buffer.stream.synchronize()
  const launches = driver.calls.get('cuLaunchKernel')
  try {
    touch(buffer)
  } catch (error) {
    assert.ok(error instanceof PoolError && /belongs to another device: .*setAccess/.test(error.message), `${error}`)
    assert.equal(driver.calls.get('cuLaunchKernel'), launches)
    return false
  }
  for (const place of placesIn(buffer.byteLength)) assert.equal(buffer.readSync(place, 1)[0], 1)
  return true
}

describe('access to a pool', () => {
  for (const backing of ['virtual', 'segments'] as const) {
    it(`lets another device use present and future memory, ${backing}`, () => {
      const opened = setUp({ backing })
      const { pool, peer } = opened
      const before = [100, 3 * MiB].map(bytes => pool.allocate(bytes))
      assert.ok(before.every(buffer => !reaches(opened, buffer)))
      pool.setAccess(peer, 'readWrite')
      pool.setAccess(peer, 'readWrite')
      const after = [400 * KiB, 9 * MiB].map(bytes => pool.allocate(bytes))
      for (const buffer of [...before, ...after]) assert.ok(reaches(opened, buffer))
      assert.equal(before[0].reachableFrom(peer.context), true)
      assertConsistent(pool)
    })
  }

  it('includes memory that is joined in a view, before and after it is given', () => {
    for (const givesFirst of [true, false]) {
      const opened = setUp({ backing: 'virtual' })
      const { pool, peer, home } = opened
      if (givesFirst) pool.setAccess(peer, 'readWrite')
      const buffers = Array.from({ length: 15 }, () => pool.allocate(4 * MiB))
      for (const buffer of buffers.filter((_, index) => index % 2 === 1)) buffer.free()
      home.context.finishWork()
      const large = pool.allocate(24 * MiB)
      if (!givesFirst) pool.setAccess(peer, 'readWrite')
      const blocks = pool.snapshot().ranges.flatMap(range => range.blocks)
      assert.ok(blocks.filter(({ state }) => state === 'part').length > 1, 'the block has several parts')
      assert.ok(reaches(opened, large))
      assertConsistent(pool)
    }
  })

  it('costs one call for each newly mapped run, and one for each piece when it is given', () => {
    const { pool, home, peer } = setUp({ backing: 'virtual' }, { devices: 3 })
    const third = new TestDevice(home.driver, 2)
    const calls = () => home.calls('cuMemSetAccess')
    const created = home.calls('cuMemCreate')
    pool.allocate(10 * MiB)
    pool.allocate(2 * MiB)
    const pieces = home.calls('cuMemCreate') - created
    let before = calls()
    pool.setAccess([
      { location: peer, access: 'readWrite' },
      { location: third, access: 'readWrite' },
    ])
    assert.equal(calls(), before + 2 * pieces)
    before = calls()
    const buffer = pool.allocate(20 * MiB)
    assert.equal(calls(), before + 1)
    for (const { context } of [peer, third]) {
      context.activate().cuMemsetD8Async(buffer.ptr, 7, 20 * MiB, 0)
      context.finishWork()
    }
  })

  it('can be taken away again, and given again', () => {
    const opened = setUp({ backing: 'virtual' })
    const { pool, peer, home } = opened
    const buffer = pool.allocate(3 * MiB)
    for (const access of ['readWrite', 'none', 'readWrite', 'none'] as const) {
      pool.setAccess(peer, access)
      assert.equal(reaches(opened, buffer), access === 'readWrite')
      assert.equal(reaches(opened, pool.allocate(3 * MiB)), access === 'readWrite')
    }
    assert.equal(buffer.readSync()[0], 0, 'its own device keeps it')
    peer.context.activate().cuMemsetD8Async(buffer.ptr, 1, 4, 0)
    assert.throws(() => peer.context.activate().cuCtxSynchronize(), { name: 'CudaError', result: 700 })
    assert.equal(home.context.released, false)
  })

  it('to plain allocations is the access to their device, and stays', () => {
    for (const open of [
      (device: TestDevice): Pool => device.createPool({ backing: 'segments' }),
      (device: TestDevice): Pool => device.createPlainPool(),
      (device: TestDevice): Pool => device.createArenaPool({ bytes: 1 * MiB }),
      (device: TestDevice): Pool => device.createBlockPool({ blockBytes: 4096, count: 4 }),
    ]) {
      const opened = setUp()
      const { home, peer } = opened
      const [pool, other] = [open(home), home.createPlainPool().allocate(100)]
      const buffer = pool.allocate(4000)
      pool.setAccess(peer, 'none')
      assert.deepEqual([reaches(opened, buffer), reaches(opened, other)], [false, false])
      pool.setAccess(peer, 'readWrite')
      assert.deepEqual([reaches(opened, buffer), reaches(opened, other)], [true, true])
      assert.equal(home.calls('cuCtxEnablePeerAccess'), 1)
      const expected = { name: 'PoolError', message: /device 0 .*device 1 all or none.*'virtual'/ }
      assert.throws(() => pool.setAccess(peer, 'none'), expected)
      assert.ok(reaches(opened, buffer))
    }
  })

  it('to plain allocations follows enablePeerAccess; access to virtual memory does not', () => {
    const opened = setUp({ backing: 'virtual' })
    const { home, peer, pool } = opened
    const segments = home.createPool({ backing: 'segments' })
    peer.context.enablePeerAccess(home.context)
    assert.equal(reaches(opened, segments.allocate(100)), true)
    assert.equal(reaches(opened, pool.allocate(100)), false)
  })

  it('to managed memory belongs to every device', () => {
    const opened = setUp({ backing: 'managed' })
    const { pool, peer } = opened
    const buffer = pool.allocate(100)
    assert.ok(reaches(opened, buffer))
    pool.setAccess(peer, 'readWrite')
    assert.throws(() => pool.setAccess(peer, 'none'), { name: 'PoolError', message: /managed.*every device/ })
  })

  it('to registrable memory belongs to every device that can reach it, until it is taken away', () => {
    const opened = setUp({ backing: 'registrable' }, { devices: 3 })
    const { pool, peer, home } = opened
    const buffer = pool.allocate(3 * MiB)
    assert.ok(reaches(opened, buffer))
    assert.deepEqual(pool.segments().length, home.calls('cuMemSetAccess') - 1, 'one call for all devices')
    for (const access of ['none', 'readWrite', 'none'] as const) {
      pool.setAccess(peer, access)
      for (const each of [buffer, pool.allocate(5 * MiB)]) assert.equal(reaches(opened, each), access === 'readWrite')
    }
    const third = new TestDevice(home.driver, 2)
    assert.ok(buffer.reachableFrom(third.context), 'opened later')
    third.context.activate().cuMemsetD8Async(buffer.ptr, 9, 3 * MiB, 0)
    third.context.finishWork()
    assert.equal(buffer.readSync(3 * MiB - 1)[0], 9)
    assert.equal(buffer.reachableFrom(new TestDevice({ devices: 2 }, 1).context), false, 'of another driver')
    const far = setUp({ backing: 'registrable' }, { peerAccess: false })
    assert.equal(reaches(far, far.pool.allocate(100)), false)
    peer.context.activate().cuMemsetD8Async(buffer.ptr, 1, 4, 0)
    assert.throws(() => peer.context.activate().cuCtxSynchronize(), { name: 'CudaError', result: 700 })
  })

  it('to a driver pool is read from the driver', () => {
    const opened = setUp()
    const { peer, home, driver } = opened
    const pool = home.createDriverPool({})
    const buffer = pool.allocate(100)
    assert.equal(reaches(opened, buffer), false)
    for (const access of ['readWrite', 'none', 'readWrite'] as const) {
      pool.setAccess(peer, access)
      assert.equal(reaches(opened, buffer), access === 'readWrite')
    }
    home.context.activate()
    const ofDevice = home.defaultDriverPool()
    driver.cuMemPoolSetAccess(driver.cuDeviceGetDefaultMemPool(0), CU_MEM_LOCATION_TYPE_DEVICE, 1, 3)
    assert.equal(reaches(opened, ofDevice.allocate(100)), true)
    assert.equal(buffer.reachableFrom(new TestDevice().context), false)
    pool.close()
    assert.equal(pool.reachableFrom(peer.context), false)
    assert.ok(reaches(opened, home.createDriverPool({ allocationType: 'managed' }).allocate(100)))
  })

  it('passes through wrappers', () => {
    const opened = setUp({ maxPoolBytes: 8 * MiB, backing: 'virtual' })
    const { pool, peer, home } = opened
    const wrapped = limited(fallback(pool, home.createPlainPool()), Infinity)
    wrapped.setAccess(peer, 'readWrite')
    for (const buffer of [wrapped.allocate(8 * MiB), wrapped.allocate(8 * MiB)]) assert.ok(reaches(opened, buffer))
  })

  it('ends when its device is closed, and can be given again', () => {
    const opened = setUp({ backing: 'virtual' })
    const { pool, peer, driver } = opened
    const buffer = pool.allocate(100)
    pool.setAccess(peer, 'readWrite')
    const again = new TestDevice(driver, 1)
    assert.equal(buffer.reachableFrom(again.context), false)
    pool.setAccess(again, 'readWrite')
    assert.equal(buffer.reachableFrom(again.context), true)
    peer.context.release()
    assert.throws(() => pool.setAccess(peer, 'readWrite'), { name: 'PoolError', message: /device 1 is closed/ })
  })
})

describe('an impossible change of access', () => {
  it('throws for a bad location, access or device, and changes nothing', () => {
    const opened = setUp()
    const { pool, home, peer } = opened
    for (const location of [undefined, null, 1, 'gpu', {}, { context: 5 }]) {
      const act = () => pool.setAccess(location as unknown as AccessLocation, 'readWrite')
      assert.throws(act, { name: 'TypeError', message: /location must be a device or 'host'/ })
    }
    for (const access of [undefined, null, 'read', 3, '']) {
      const act = () => pool.setAccess(peer, access as PoolAccess)
      assert.throws(act, { name: 'TypeError', message: /access must be 'readWrite' or 'none'/ })
    }
    const expected = { name: 'PoolError', message: /two drivers; open both with openDevices/ }
    assert.throws(() => pool.setAccess(new TestDevice(), 'readWrite'), expected)
    pool.setAccess(home, 'readWrite')
    assert.throws(() => pool.setAccess(home, 'none'), { name: 'PoolError', message: /device 0 is the pool's own/ })
    pool.setAccess('host', 'none')
    assert.throws(() => pool.setAccess('host', 'readWrite'), { name: 'PoolError', message: /not the host's.*managed/ })
    assert.equal(home.calls('cuMemSetAccess') + home.calls('cuCtxEnablePeerAccess'), 1, 'that of the probe')
    assert.equal(reaches(opened, pool.allocate(100)), false)
    pool.close()
    assert.throws(() => pool.setAccess(peer, 'readWrite'), { name: 'PoolError', message: /pool is closed/ })
  })

  it('names devices that cannot reach each other', () => {
    for (const backing of ['virtual', 'segments', 'registrable'] as const) {
      const { pool, peer, home } = setUp({ backing }, { peerAccess: false })
      pool.allocate(100)
      const expected = { name: 'PoolError', message: /setAccess: device 1 cannot .*device 0.*copyFrom/ }
      assert.throws(() => pool.setAccess(peer, 'readWrite'), expected)
      assert.equal(home.calls('cuCtxEnablePeerAccess'), 0)
    }
  })

  it('a growing arena opens later memory too, and closes all of it', () => {
    const opened = setUp()
    const pool = opened.home.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 64 * MiB })
    const early = pool.allocate(100)
    assert.equal(reaches(opened, early), false)
    pool.setAccess(opened.peer, 'readWrite')
    const late = pool.allocate(40 * MiB)
    assert.deepEqual([reaches(opened, early), reaches(opened, late)], [true, true])
    assert.equal(late.reachableFrom(opened.peer.context), true)
    pool.setAccess(opened.peer, 'none')
    assert.deepEqual([reaches(opened, early), reaches(opened, late)], [false, false])
    assert.equal(late.reachableFrom(opened.peer.context), false)
    pool.close()
  })

  it('a growable buffer opens later memory too, even from an empty buffer', () => {
    const opened = setUp()
    const buffer = opened.home.createGrowableBuffer({ bytes: 0, capacityBytes: 64 * MiB })
    buffer.setAccess(opened.peer, 'readWrite')
    buffer.grow(4 * MiB)
    assert.equal(reaches(opened, buffer), true)
    buffer.setAccess(opened.peer, 'none')
    buffer.grow(8 * MiB)
    assert.equal(reaches(opened, buffer), false)
    assert.throws(() => buffer.setAccess('host', 'readWrite'), { name: 'PoolError', message: /not the host's/ })
    assert.throws(() => buffer.setAccess(opened.peer, 'all' as never), { name: 'TypeError', message: /access must be/ })
    const [good, bad] = [opened.peer, 'host'].map(location => ({ location, access: 'readWrite' }) as AccessChange)
    assert.throws(() => buffer.setAccess([bad, good]), { name: 'PoolError', message: /1 of 2 changes failed.*entry 0/ })
    assert.equal(reaches(opened, buffer), true)
    buffer.free()
    assert.throws(() => buffer.setAccess(opened.peer, 'readWrite'), { name: 'PoolError', message: /freed/ })
  })

  it('does not speak of other changes if all entries of a list failed', () => {
    const { pool, home } = setUp({ backing: 'virtual' })
    const bad = { location: home, access: 'none' } as const
    const message = /^setAccess: all changes failed: entry 0: device 0 is the pool's own.*; entry 1: device 0/
    assert.throws(() => pool.setAccess([bad, bad]), { name: 'PoolError', message })
  })

  it('names a bad entry of a list, and makes the other changes', () => {
    const opened = setUp({ backing: 'virtual' }, { devices: 3 })
    const { pool, peer, home } = opened
    const third = new TestDevice(home.driver, 2)
    const buffer = pool.allocate(100)
    const changes = [
      { location: peer, access: 'readWrite' },
      { location: home, access: 'none' },
      null,
      { location: peer, access: 'all' },
      { location: third, access: 'readWrite' },
    ] as unknown as AccessChange[]
    assert.throws(
      () => pool.setAccess(changes),
      (error: unknown) => {
        assert.ok(error instanceof PoolError)
        assert.match(error.message, /3 of 5 changes failed, the others are made: entry 1: .*; entry 2: .*; entry 3: /)
        assert.deepEqual(
          (error.cause as Error[]).map(one => one.name),
          ['PoolError', 'TypeError', 'TypeError'],
        )
        return true
      },
    )
    assert.ok(reaches(opened, buffer) && buffer.reachableFrom(third.context))
    pool.setAccess([])
    peer.driver.failCall({ call: 'cuMemSetAccess', code: 999 })
    const one = [peer, third].map(location => ({ location, access: 'none' as const }))
    assert.throws(() => pool.setAccess(one), { name: 'PoolError', message: /1 of 2 .*entry 0: cuMemSetAccess/ })
    assert.deepEqual(
      [peer, third].map(({ context }) => buffer.reachableFrom(context)),
      [false, false],
    )
  })

  it('a failing call leaves the pool as it was, or without access, and can be repeated', () => {
    for (const backing of ['virtual', 'segments', 'registrable'] as const) {
      for (const access of ['readWrite', 'none'] as const) {
        for (const onwards of [false, true]) {
          for (let nth = 1, failed = true; failed; nth++) {
            const opened = setUp({ backing })
            const { pool, peer, driver } = opened
            const buffers = [100, 4 * MiB, 100, 4 * MiB].map(bytes => pool.allocate(bytes))
            buffers[1].free()
            pool.trimTo(0)
            pool.allocate(1.5 * MiB)
            if (access === 'none' && backing === 'virtual') pool.setAccess(peer, 'readWrite')
            if (access === 'readWrite' && backing === 'registrable') pool.setAccess(peer, 'none')
            driver.failCall({ call: '*', nth, code: 999, onwards })
            failed = isRefused(() => pool.setAccess(peer, access))
            driver.clearFaults()
            assertConsistent(pool)
            const isOpen = buffers[0].reachableFrom(peer.context)
            assert.ok(!failed || access === 'none' || !isOpen)
            assert.equal(reaches(opened, buffers[0]), isOpen)
            pool.setAccess(peer, access)
            for (const buffer of [buffers[0], buffers[3], pool.allocate(20 * MiB)]) {
              assert.equal(reaches(opened, buffer), access === 'readWrite')
            }
            pool.close()
            assert.equal(driver.usedBytes(0), 0)
          }
        }
      }
    }
  })

  it('closes memory that was opened before a call failed', () => {
    const { pool, peer, driver } = setUp({ backing: 'virtual' })
    const [small, large] = [pool.allocate(100), pool.allocate(4 * MiB)]
    driver.failCall({ call: 'cuMemSetAccess', nth: 2, code: 999 })
    assert.throws(() => pool.setAccess(peer, 'readWrite'), CudaError)
    assert.equal(small.reachableFrom(peer.context) || large.reachableFrom(peer.context), false)
    peer.context.activate().cuMemsetD8Async(small.ptr, 1, 4, 0)
    assert.throws(() => peer.context.activate().cuCtxSynchronize(), { name: 'CudaError', result: 700 })
  })

  it('a growth that fails between mapping and access loses no memory', () => {
    const opened = setUp({ backing: 'virtual' })
    const { pool, peer, driver } = opened
    pool.setAccess(peer, 'readWrite')
    driver.failCall({ call: 'cuMemSetAccess', code: 999 })
    assert.throws(() => pool.allocate(8 * MiB), CudaError)
    assert.ok(reaches(opened, pool.allocate(8 * MiB)))
    assertConsistent(pool)
  })
})

describe('closing a pool that other devices have access to', () => {
  const pools = {
    'virtual memory': device => device.createPool({ backing: 'virtual' }),
    segments: device => device.createPool({ backing: 'segments' }),
    managed: device => device.createPool({ backing: 'managed' }),
    registrable: device => device.createPool({ backing: 'registrable' }),
    plain: device => device.createPlainPool(),
    'driver pool': device => device.createDriverPool({}),
    arena: device => device.createArenaPool({ bytes: 1 * MiB }),
    'registrable arena': device => device.createArenaPool({ bytes: 1 * MiB, backing: 'registrable' }),
    blocks: device => device.createBlockPool({ blockBytes: 4 * KiB, count: 1 }),
  } satisfies Record<string, (device: TestDevice) => Pool>

  for (const [kind, open] of Object.entries(pools)) {
    it(`waits for their work: ${kind}`, () => {
      const { home, peer, kernel } = setUp()
      const pool = open(home)
      const buffer = pool.allocate(4 * KiB)
      pool.setAccess(peer, 'readWrite')
      const stream = peer.createStream()
      peer.hold(stream)
      kernel.launch({ grid: 1, block: 1, stream }, buffer, 1024)
      pool.close()
      assert.equal(stream.query(), true)
      peer.context.activate().cuCtxSynchronize()
      assert.equal(home.driver.usedBytes(0), 0)
    })
  }

  it('waits for work of a device that needed no grant', () => {
    const { home, peer, pool, kernel } = setUp({ backing: 'registrable' })
    const buffer = pool.allocate(4 * KiB)
    const stream = peer.createStream()
    peer.hold(stream)
    kernel.launch({ grid: 1, block: 1, stream }, buffer, 1024)
    pool.close()
    assert.equal(stream.query(), true)
    peer.context.activate().cuCtxSynchronize()
    assert.equal(home.driver.usedBytes(0), 0)
  })

  it('ignores a lost device', () => {
    const { pool, peer, home } = setUp({ backing: 'virtual' })
    pool.setAccess(peer, 'readWrite')
    pool.allocate(100)
    const event = new Event(peer.context)
    event.record(peer.defaultStream)
    home.driver.failCall({ call: 'cuEventQuery', code: 700 })
    assert.throws(() => event.query(), CudaError)
    pool.close()
    assert.equal(home.driver.usedBytes(0), 0)
  })
})
