import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { loadKoffi } from '../driver/native/koffi.js'
import { poolSuite } from './pool.suite.js'
import { TestDevice } from './pool-fixture.suite.js'

for (const backing of ['virtual', 'segments'] as const) {
  poolSuite(`shared by threads, ${backing}`, () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ backing })
    return { device, pool, check: () => pool.check(), close: () => pool.close() }
  })
}

describe('a pool that threads share', () => {
  it('gives back the same block', () => {
    const { pool } = new TestDevice().createSharedPool()
    const first = pool.allocate(1 * MiB)
    const { ptr } = first
    first.free()
    assert.equal(pool.allocate(1 * MiB).ptr, ptr)
    pool.check()
  })

  it('has its records on pages and its places on cache lines', { skip: process.platform !== 'linux' }, () => {
    const { pool } = new TestDevice().createSharedPool()
    const { records, slots } = pool['state']
    const addressOf = ({ buffer, byteOffset }: Int32Array) =>
      Number(loadKoffi().address(new Uint8Array(buffer, byteOffset)))
    assert.deepEqual([addressOf(records.words) % 4096, addressOf(slots['places']) % 64], [0, 0])
  })

  it('moves a block that another thread used to a record of its own', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const { records } = pool['state']
    for (const each of [pool, other, pool, other]) {
      assert.equal(records.ownerOf(each.allocate(2 * MiB).record), each.thread)
    }
    pool.check()
  })

  it('has so many driver allocations at most, says so, and loses none', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ backing: 'segments' }, { ranges: 4 })
    const held = Array.from({ length: 4 }, () => pool.allocate(5 * MiB))
    const { reservedBytes } = pool.stats()
    const full = { name: 'PoolError', message: /allocate: the pool has 4 driver allocations, which is the limit/ }
    assert.throws(() => pool.tryAllocate(5 * MiB), full)
    assert.deepEqual([pool.stats().reservedBytes, pool.stats().liveBuffers], [reservedBytes, 4])
    pool.check()
    held.pop()!.free()
    device.clocks.synchronize()
    held.push(pool.allocate(7 * MiB)) // in the place of the idle one
    for (const buffer of held) buffer.free()
    pool.check()
    pool.trimTo(0)
    assert.equal(pool.stats().reservedBytes, 0)
  })

  for (const backing of ['virtual', 'segments'] as const) {
    it(`a repair while the keeper calls the driver counts a block once: ${backing}`, () => {
      const device = new TestDevice()
      const { pool } = device.createSharedPool({ backing })
      const { driver } = device
      const state = pool['state']
      const exchange = driver.cuThreadExchangeStreamCaptureMode.bind(driver)
      let repairs = 0
      driver.cuThreadExchangeStreamCaptureMode = mode => {
        state.locked(() => state.slots.recount(state.records))
        repairs++
        return exchange(mode)
      }
      const buffer = pool.allocate(3 * MiB)
      assert.ok(repairs > 0)
      assert.equal(pool.stats().liveBuffers, 1)
      pool.check()
      buffer.free()
    })
  }
})
