// Memory that libraries can register: that each segment is one mapping of the right kind, that nothing but a whole
// segment goes, and that an observer has it while it can be used. All else is in the suites, which run with it too.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import type { SimulatedOptions } from '../../driver/simulated/options.js'
import type { PoolSegment } from '../backing/segment-watch.js'
import { assertConsistent, isRefused, TestDevice, twoDevices } from '../pool.fixture.js'

const POSIX = 1
const FABRIC = 8

/** A device, and the handle types and RDMA flag of each call that created memory. */
function setUp(options: SimulatedOptions = {}) {
  const device = new TestDevice(options)
  const asked: [handleTypes: number, gpuDirectRdma: boolean | undefined][] = []
  const create = device.driver.cuMemCreate.bind(device.driver)
  const isProbe = (bytes: number, handleTypes: number) => bytes === 2 * MiB && handleTypes === 0
  device.driver.cuMemCreate = (bytes, number, handleTypes, gpuDirectRdma) => {
    if (!isProbe(bytes, handleTypes)) asked.push([handleTypes, gpuDirectRdma])
    return create(bytes, number, handleTypes, gpuDirectRdma)
  }
  return { device, asked }
}

describe('registrable memory', () => {
  it('is one handle and one mapping a segment, of whole granules, and goes back', () => {
    const { device } = setUp()
    const pool = device.createPool({ backing: 'registrable' })
    assert.deepEqual([pool.isRegistrable, device.createPool().isRegistrable], [true, false])
    assert.equal(pool.snapshot().backing, 'registrable')
    const before = new Map(device.driver.calls)
    const calls = (name: string) => (device.driver.calls.get(name) ?? 0) - (before.get(name) ?? 0)
    const buffers = [1000, 5 * MiB, 9 * MiB + 1].map(bytes => pool.allocate(bytes))
    for (const buffer of buffers) buffer.fill(3)
    for (const buffer of buffers) assert.equal(buffer.readSync(buffer.byteLength - 1)[0], 3)
    const segments = pool.segments()
    for (const { ptr, bytes } of segments) assert.ok(ptr % (2 * MiB) === 0 && bytes % (2 * MiB) === 0)
    assert.deepEqual(segments.map(({ bytes }) => bytes / MiB).sort(), [10, 2, 6])
    for (const name of ['cuMemAddressReserve', 'cuMemCreate', 'cuMemMap', 'cuMemRelease', 'cuMemSetAccess']) {
      assert.equal(calls(name), 3, name)
    }
    assert.equal(calls('cuMemUnmap'), 0)
    for (const buffer of buffers.slice(1)) buffer.free()
    device.context.activate().cuCtxSynchronize()
    assert.equal(pool.trimTo(0), 16 * MiB)
    pool.close()
    assert.deepEqual([calls('cuMemUnmap'), calls('cuMemAddressFree')], [3, 3])
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('has granules of 2 MiB at least, and larger ones where the device needs them', () => {
    for (const [granularityBytes, bytes] of [
      [64 * KiB, 2 * MiB],
      [8 * MiB, 8 * MiB],
    ]) {
      const pool = new TestDevice({ granularityBytes }).createPool({ backing: 'registrable' })
      pool.allocate(100)
      const [segment] = pool.segments()
      assert.deepEqual([segment.bytes, segment.ptr % bytes], [bytes, 0])
    }
  })

  it('is made with the handles and flags that the device has', () => {
    for (const [options, expected] of [
      [{}, [[POSIX, true]]],
      [{ gpuDirectRdma: false }, [[POSIX, false]]],
      [{ fabricHandles: true }, [[POSIX | FABRIC, true]]],
      [
        { fabricHandles: 'refused' },
        [
          [POSIX | FABRIC, true],
          [POSIX, true],
        ],
      ],
    ] as const) {
      const { device, asked } = setUp(options)
      const pool = device.createPool({ backing: 'registrable' })
      pool.allocate(100).fill(1)
      assert.deepEqual(asked, expected)
      pool.allocate(9 * MiB).fill(1)
      assert.deepEqual(asked.slice(expected.length), expected.slice(-1), 'a refusal of fabric handles is remembered')
    }
  })

  it('is made without fabric handles after 800 and 801 alone', () => {
    for (const [code, message] of [
      [800, null],
      [801, null],
      [999, /cuMemCreate.*999/],
    ] as const) {
      const { device } = setUp({ fabricHandles: true })
      const pool = device.createPool({ backing: 'registrable' })
      device.driver.failCall({ call: 'cuMemCreate', code })
      if (message === null) pool.allocate(100)
      else assert.throws(() => pool.allocate(100), { name: 'CudaError', message })
      assertConsistent(pool)
    }
  })

  it('needs no attribute that an older driver does not know', () => {
    for (let nth = 1; nth <= 4; nth++) {
      const { device, asked } = setUp({ fabricHandles: true })
      device.driver.failCall({ call: 'cuDeviceGetAttribute', nth, code: 1 })
      const refused = isRefused(() => device.createPool({ backing: 'registrable' }).allocate(100), PoolError)
      const [[handleTypes, gpuDirectRdma] = []] = asked
      if (nth === 1) assert.ok(refused, 'descriptors are needed')
      if (nth === 3) assert.deepEqual([handleTypes, gpuDirectRdma], [POSIX, true])
      if (nth === 4) assert.deepEqual([handleTypes, gpuDirectRdma], [POSIX | FABRIC, false])
    }
  })

  it('is refused where the device cannot have it, with the alternative', () => {
    for (const options of [{ virtualMemory: false }, { posixDescriptors: false }]) {
      const device = new TestDevice(options)
      for (const make of [
        () => device.createPool({ backing: 'registrable' }),
        () => device.createPool({ backing: 'registrable', debug: true }),
        () => device.createSharedPool({ backing: 'registrable' }),
        () => device.createArenaPool({ bytes: 1, backing: 'registrable' }),
        () => device.createSharedArena({ bytes: 1, backing: 'registrable' }),
      ]) {
        const message = /backing 'registrable' is not possible here: .*; leave backing out/
        assert.throws(make, { name: 'PoolError', code: 'ERR_NOT_SUPPORTED', message })
      }
      device.createPool().allocate(1)
    }
  })

  it('does not sleep', async () => {
    const pool = new TestDevice().createPool({ backing: 'registrable' })
    const message = /sleep: memory of backing 'registrable' cannot be mapped again; make the pool with 'virtual'/
    await assert.rejects(pool.sleep(), { name: 'PoolError', message })
    pool.allocate(100)
    pool.observeSegments({ ready() {}, leaving() {} })
    await assert.rejects(pool.sleep(), { name: 'PoolError', message })
  })

  it('is told while every device can use it, and before it goes', () => {
    const [home, peer] = twoDevices()
    const pool = home.createPool({ backing: 'registrable', maxPoolBytes: 48 * MiB })
    const use = ({ ptr, bytes }: PoolSegment) => {
      for (const { context } of [peer, home]) {
        context.activate().cuMemsetD8Async(ptr, 5, bytes, 0)
        context.finishWork()
      }
    }
    const said: string[] = []
    pool.observeSegments({
      ready: segment => {
        said.push(`ready ${segment.bytes / MiB}`)
        use(segment)
      },
      leaving: segment => {
        said.push(`leaving ${segment.bytes / MiB}`)
        use(segment)
      },
    })
    const [kept, idle] = [pool.allocate(4 * MiB), pool.allocate(10 * MiB)]
    idle.free()
    home.context.finishWork()
    pool.trimTo(0)
    assert.deepEqual(said, ['ready 4', 'ready 10', 'leaving 10'])
    assert.equal(kept.freed, false)
    pool.close()
    assert.deepEqual(said.slice(3), ['leaving 4'])
  })

  it('is not unmapped in part: a segment with a live block stays whole', () => {
    const { device } = setUp()
    const pool = device.createPool({ backing: 'registrable' })
    pool.reserve(32 * MiB)
    const segments = pool.segments()
    using _kept = pool.allocate(100)
    using _large = pool.allocate(4 * MiB)
    const large = pool.segments().find(({ bytes }) => bytes > 2 * MiB)
    pool.trimTo(0)
    assert.ok(segments.length > 0 && large !== undefined && pool.segments().some(({ ptr }) => ptr === large.ptr))
  })

  it('that the driver takes back in parts is tried again by the next call', () => {
    for (const call of ['cuMemUnmap', 'cuMemAddressFree'] as const) {
      const { device } = setUp()
      const pool = device.createPool({ backing: 'registrable' })
      pool.allocate(8 * MiB).free()
      const before = device.calls('cuMemAddressFree')
      device.driver.failCall({ call, code: 999, onwards: true })
      isRefused(() => pool.trimTo(0))
      isRefused(() => pool.close())
      assert.equal(pool.closed, false)
      device.driver.clearFaults()
      pool.close()
      assert.equal(device.freeBytes(), 64 * MiB)
      assert.ok(device.calls('cuMemAddressFree') > before)
    }
  })

  it('of a growth that failed goes back with the next growth or trim', () => {
    for (const next of ['allocate', 'trimTo', 'close'] as const) {
      const { device } = setUp()
      const pool = device.createPool({ backing: 'registrable', maxPoolBytes: '100%' })
      device.driver.failCall({ call: 'cuMemSetAccess', code: 999 })
      device.driver.failCall({ call: 'cuMemUnmap', code: 999, onwards: true })
      assert.throws(() => pool.allocate(40 * MiB), { name: 'CudaError', message: /cuMemSetAccess/ })
      assert.equal(device.freeBytes(), 24 * MiB, 'the driver keeps it')
      device.driver.clearFaults()
      if (next === 'allocate') pool.allocate(64 * MiB).free()
      if (next === 'trimTo') pool.trimTo(0)
      if (next === 'close') pool.close()
      assert.equal(device.freeBytes(), next === 'allocate' ? 0 : 64 * MiB)
    }
  })
})
