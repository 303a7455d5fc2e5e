import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
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
