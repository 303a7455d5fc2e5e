// Memory that a shared pool takes before it is needed: `reserve`, and the option `readyBytes`.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import type { PoolOptions } from '../caching/options.js'
import { serve, TestDevice } from '../pool.fixture.js'

const READY = 8 * MiB

function readyPool(options: PoolOptions = {}, device = new TestDevice()) {
  const { pool, server, attach } = device.createSharedPool({ readyBytes: READY, ...options })
  const freeBytes = () => pool['state'].memory.large.freeUnits * 256
  return { device, pool, server, attach, freeBytes }
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`reserve in a shared pool: ${backing}`, () => {
    it('serves the requests of every thread without the driver', () => {
      const device = new TestDevice()
      const { pool, attach } = device.createSharedPool({ backing })
      const other = attach()
      assert.equal(other.reserve(30 * MiB), 30 * MiB)
      assert.equal(pool.reserve(30 * MiB), 0)
      const before = new Map(device.driver.calls)
      pool.allocate(10 * MiB)
      other.allocate(15 * MiB)
      assert.deepEqual(device.driver.calls, before)
      assert.equal(pool.stats().reservedBytes, 30 * MiB)
      pool.check()
    })

    it('adds nothing beyond the limit, and throws in the thread that asked', () => {
      const { pool, attach } = new TestDevice().createSharedPool({ backing, maxPoolBytes: 16 * MiB })
      pool.reserve(10 * MiB)
      assert.throws(() => attach().reserve(20 * MiB), {
        name: 'OutOfMemoryError',
        message: /^reserve: no room for 10 MiB more: .*raise maxPoolBytes by at least 4 MiB/,
      })
      assert.equal(pool.stats().reservedBytes, 10 * MiB)
      for (const bytes of [-1, 0.5, Number.NaN]) assert.throws(() => pool.reserve(bytes), RangeError)
      assert.throws(() => pool.reserve('1' as unknown as number), TypeError)
      assert.equal(pool.reserve(0), 0)
      pool.check()
    })

    it('is whole after a repair in the middle of the call', () => {
      const device = new TestDevice()
      const { pool } = device.createSharedPool({ backing })
      const state = pool['state']
      const repairs = device.duringGrowth(() =>
        state.locked(() => {
          state.memory.rebuild()
          state.caches.recount()
        }),
      )
      const held = pool.allocate(3 * MiB)
      const before = repairs()
      pool.reserve(60 * MiB)
      assert.ok(repairs() > before)
      assert.equal(pool.stats().liveBuffers, 1)
      pool.check()
      held.free()
      pool.allocate(30 * MiB)
      pool.check()
    })
  })
}

describe('reserve in a shared block pool', () => {
  it('is refused with the remedy', () => {
    const { pool } = new TestDevice().createSharedBlocks({ blockBytes: 4096, count: 10 })
    assert.throws(() => pool.reserve(), { name: 'PoolError', message: /reserve: .*raise count/ })
    pool.allocate(1000).free()
    pool.check()
  })
})

describe('readyBytes', () => {
  it('has memory ready from the start, so that requests up to that much need no driver', () => {
    const { device, pool, freeBytes } = readyPool()
    pool.begin()
    assert.ok(freeBytes() >= READY)
    const created = device.calls('cuMemCreate')
    pool.allocate(5 * MiB)
    pool.allocate(3 * MiB)
    assert.equal(device.calls('cuMemCreate'), created)
    pool.check()
  })

  it('wakes the pool server once less is free, and it then takes at most twice as much', () => {
    const { pool, server, freeBytes } = readyPool()
    const { doorbell } = pool['state'].channel
    pool.begin()
    serve(server)
    const { rings } = doorbell
    pool.allocate(2 * MiB)
    assert.equal(doorbell.rings, rings + 1)
    pool.allocate(2 * MiB)
    assert.equal(doorbell.rings, rings + 1, 'woken already')
    serve(server)
    assert.ok(freeBytes() >= READY && freeBytes() <= 2 * READY, `${freeBytes()} are free`)
    pool.check()
  })

  it('takes memory only after the request has its answer', () => {
    const device = new TestDevice({ capacityBytes: 4 * GiB })
    const create = device.driver.cuMemCreate.bind(device.driver)
    const answered: boolean[] = []
    let isAsked = () => false
    device.driver.cuMemCreate = (...args) => {
      answered.push(!isAsked())
      return create(...args)
    }
    const { pool } = readyPool({ maxPoolBytes: 256 * MiB }, device) // a step is less than what is to be ready
    isAsked = () => pool['state'].channel.isAsked
    answered.length = 0
    pool.allocate(12 * MiB) // before the pool server's first round
    assert.equal(answered[0], false, 'memory for the request')
    assert.ok(answered.length > 1 && answered.at(-1) === true, 'memory ahead of demand')
    assert.ok(pool.stats().reservedBytes <= 12 * MiB + 2 * READY)
  })

  it('gives memory back by trimTo, until the next request', () => {
    const { pool, server, freeBytes } = readyPool()
    pool.begin()
    assert.ok(pool.trimTo(0) >= READY)
    serve(server)
    assert.equal(pool.stats().reservedBytes, 0)
    pool.allocate(1 * MiB)
    assert.ok(freeBytes() >= READY)
    pool.check()
  })

  it('never takes more than maxPoolBytes, leaveFreeBytes and releaseThresholdBytes allow', () => {
    for (const options of [
      { maxPoolBytes: 12 * MiB },
      { leaveFreeBytes: 52 * MiB },
      { releaseThresholdBytes: 12 * MiB },
    ]) {
      const { pool, server } = readyPool(options)
      pool.begin()
      const held = [6, 2, 2].map(size => pool.allocate(size * MiB))
      for (let round = 0; round < 3; round++) serve(server)
      assert.ok(pool.stats().reservedBytes <= 12 * MiB, `${JSON.stringify(options)}`)
      for (const buffer of held) buffer.free()
      pool.check()
    }
  })

  it('tries a refusing device once, and again when the pool has changed', () => {
    const { device, pool, server, freeBytes } = readyPool()
    device.driver.failCall({ call: 'cuMemCreate', code: 2, onwards: true })
    pool.begin()
    const tries = device.calls('cuMemCreate')
    for (let round = 0; round < 5; round++) serve(server)
    assert.equal(device.calls('cuMemCreate'), tries)
    assert.equal(pool.stats().reservedBytes, 0)
    device.driver.clearFaults()
    pool.allocate(2 * MiB)
    assert.ok(freeBytes() >= READY)
    pool.check()
  })
})
