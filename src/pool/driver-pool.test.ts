import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { TestDevice } from './pool-fixture.suite.js'

describe('driver pool', () => {
  it('memory used on another stream waits for the work there, also what comes after recordUse', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const [a, b] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(1 * MiB, a)
    buffer.recordUse(b)
    const release = device.hold(b)
    buffer.free()
    assert.equal(a.query(), false)
    release()
    assert.equal(a.query(), true)
    assert.throws(() => buffer.free(), { name: 'PoolError', message: /already freed/ })
    const next = pool.allocate(1 * MiB, a)
    device.hold(b)
    next.free()
    assert.equal(a.query(), true, 'the next buffer waits for nothing')
    assert.throws(() => pool.allocate(1).recordUse(new TestDevice().createStream()), PoolError)
  })

  it('work on streams that were closed meanwhile is waited for on the host', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const [a, b, c] = [device.createStream(), device.createStream(), device.createStream()]
    const buffer = pool.allocate(1 * MiB, a)
    for (const stream of [b, c]) {
      buffer.recordUse(stream)
      device.hold(stream)
    }
    b.close()
    buffer.free()
    assert.equal(c.query(), true)
  })

  it('a refused wait frees nothing, and a refused close is finished by the next', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    const buffer = pool.allocate(1 * MiB)
    buffer.recordUse(device.createStream())
    device.driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    assert.throws(() => buffer.free(), { name: 'CudaError' })
    assert.equal(buffer.freed, false)
    buffer.free()
    device.driver.failCall({ call: 'cuMemPoolTrimTo', code: 999 })
    assert.throws(() => pool.close(), { name: 'CudaError' })
    pool.close()
    assert.equal(device.freeBytes(), device.totalBytes)
  })
})
