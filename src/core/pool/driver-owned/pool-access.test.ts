import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { Context } from '../../driver/context.js'
import { SimulatedDriver } from '../../driver/simulated/simulated-driver.js'
import { Clocks } from '../../order/clocks.js'
import { Stream } from '../../order/stream.js'
import { DriverPool } from './driver-pool.js'

describe('driver pool: several devices', () => {
  function openTwo(peerAccess = true) {
    const driver = new SimulatedDriver({ devices: 2, progress: 'eager', peerAccess })
    driver.cuInit()
    return [0, 1].map(ordinal => {
      const context = Context.open(driver, ordinal)
      const clocks = new Clocks(context)
      const stream = new Stream(clocks, 0, false)
      return { context, driver, pool: (options = {}) => new DriverPool(clocks, stream, options) }
    })
  }

  it('another device gets access and loses it, and the pool reports it', () => {
    const [first, second] = openTwo()
    const pool = first.pool()
    const buffer = pool.allocate(1 * MiB)
    buffer.fill(9)
    const { ptr } = buffer
    const host = new Uint8Array(1)
    assert.deepEqual([pool.access(first), pool.access(second), pool.access('host')], ['readWrite', 'none', 'none'])
    pool.setAccess(second, 'readWrite')
    assert.equal(pool.access(second), 'readWrite')
    second.context.activate().cuMemcpyDtoH(host, ptr)
    assert.equal(host[0], 9)
    pool.setAccess(second, 'none')
    assert.equal(pool.access(second), 'none')
    assert.throws(() => second.context.activate().cuMemcpyDtoH(host, ptr), { result: 700 })
  })

  it('memory in the host reports its access', () => {
    const [first, second] = openTwo()
    for (const options of [{ location: 'host' }, { location: { numaNode: 0 } }]) {
      const pool = first.pool(options)
      assert.deepEqual(
        [pool.access(first), pool.access(second), pool.access('host')],
        ['readWrite', 'none', 'readWrite'],
      )
      pool.setAccess(second, 'readWrite')
      pool.setAccess(first, 'none')
      assert.deepEqual([pool.access(first), pool.access(second)], ['none', 'readWrite'])
    }
    const managed = first.pool({ allocationType: 'managed' })
    assert.deepEqual([managed.access(first), managed.access(second)], ['readWrite', 'readWrite'])
  })

  it('a refused access names the reason, and changes nothing', () => {
    const [first, second] = openTwo(false)
    const pool = first.pool()
    for (const [location, access, message] of [
      [second, 'readWrite', /'readWrite' for device 1 is refused: device 1 has no way to memory of device 0; copy/],
      [first, 'none', /'none' for device 0 is refused: a pool’s own device keeps access/],
      ['host', 'readWrite', /the host is refused: memory of a device is not the host's to use/],
    ] as const) {
      assert.throws(() => pool.setAccess(location, access), { name: 'PoolError', message })
    }
    assert.throws(() => first.pool({ location: 'host' }).setAccess('host', 'none'), {
      name: 'PoolError',
      message: /the host keeps access to memory of its own/,
    })
    assert.deepEqual([pool.access(first), pool.access(second)], ['readWrite', 'none'])
    for (const location of [1, 'device', null, {}, { context: 1 }] as never[]) {
      const refused = { name: 'TypeError', message: /location must be a device or 'host'/ }
      assert.throws(() => pool.setAccess(location, 'none'), refused)
      assert.throws(() => pool.access(location), refused)
    }
    for (const access of ['read', true, undefined, 3] as never[]) {
      assert.throws(() => pool.setAccess(first, access), {
        name: 'TypeError',
        message: /access must be 'readWrite' or 'none'/,
      })
    }
    assert.throws(() => pool.setAccess(openTwo()[1], 'readWrite'), { name: 'PoolError', message: /another driver/ })
  })

  it('a bad entry in a list is named, and the others are applied', () => {
    const [first, second] = openTwo()
    const pool = first.pool()
    const grant = { location: second, access: 'readWrite' } as const
    pool.setAccess([])
    assert.throws(
      () =>
        pool.setAccess([
          { location: first, access: 'none' },
          { location: 'host', access: 'sometimes' as never },
          grant,
          null as never,
        ]),
      (error: Error) => {
        assert.ok(error instanceof PoolError)
        assert.match(
          error.message,
          /setAccess: 3 of 4 changes failed, the others are made: entry 0: 'none' for device 0.*own device keeps/,
        )
        assert.match(
          error.message,
          /entry 1: access must be 'readWrite' or 'none', not 'sometimes'; entry 3: location must be/,
        )
        assert.deepEqual(
          (error.cause as Error[]).map(each => each.name),
          ['PoolError', 'TypeError', 'TypeError'],
        )
        return true
      },
    )
    assert.equal(pool.access(second), 'readWrite')
    pool.setAccess([{ location: second, access: 'none' }, grant])
    assert.equal(pool.access(second), 'readWrite')
    first.driver.failCall({ call: 'cuMemPoolSetAccess', code: 999 })
    assert.throws(() => pool.setAccess([{ location: second, access: 'none' }, grant]), {
      name: 'PoolError',
      message: /1 of 2 changes failed.*entry 0: cuMemPoolSetAccess failed/,
    })
    first.driver.failCall({ call: 'cuMemPoolSetAccess', code: 700 })
    assert.throws(() => pool.setAccess([grant, grant]), { name: 'DeviceLostError' })
  })
})
