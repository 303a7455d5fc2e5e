// Frees by address in a shared pool.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'

describe('a pool that threads share, by address', () => {
  it('frees a block of a closed stream by address when a captured stream has its slot', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const stream = device.createStream()
    const { ptr } = pool.allocate(1 * MiB, stream)
    stream.close()
    const next = device.createStream()
    assert.equal(next.slot, stream.lastSlot)
    next.beginCapture()
    pool.deallocate(ptr)
    assert.equal(pool.stats().liveBuffers, 0)
    next.abortCapture()
    pool.check()
  })

  it('frees an adopted buffer by address', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    pool.deallocate(pool.adopt(attach().allocate(1000).transfer()).ptr)
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
  })

  it('frees by address when the first lookup misses the block', () => {
    const { pool } = new TestDevice().createSharedPool()
    const { ptr } = pool.allocate(1000)
    const addresses = pool['addresses']
    const rangesAt = addresses['rangesAt'].bind(addresses)
    let looks = 0
    // As if the first record of the range changed between the two loads of the lookup.
    addresses['rangesAt'] = (address: number) => (looks++ === 0 ? [] : rangesAt(address))
    pool.deallocate(ptr)
    assert.equal(looks, 2)
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
  })

  it('frees a buffer of a closed stream by address', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const stream = device.createStream()
    const { ptr } = pool.allocate(1000, stream)
    stream.close()
    pool.deallocate(ptr)
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
  })
})
