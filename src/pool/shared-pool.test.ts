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
})
