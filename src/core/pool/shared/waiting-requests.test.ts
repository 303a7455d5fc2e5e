// Requests to a pool server that wait for the GPU. One thread plays all threads and the pool server.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'

/**
 * A pool of 32 MiB whose only memory, 24 MiB, waits for a held stream. Pools made by `attach` leave the stream held
 * while they wait; the pool of `waiting` does `once` in its first wait.
 */
function busyPool() {
  const device = new TestDevice()
  const { pool, server, attach } = device.createSharedPool({ maxPoolBytes: 32 * MiB, crossStreamReuse: 'ordered' })
  const [busy, free] = [device.createStream(), device.createStream()]
  const big = pool.allocate(24 * MiB, busy)
  const { ptr } = big
  const release = device.hold(busy)
  big.free()
  const polling = () => attach(() => server.serve())
  const waiting = (once: () => void) => {
    let next = once
    return attach(() => {
      server.serve()
      const work = next
      next = () => {}
      work()
    })
  }
  return { device, pool, server, polling, waiting, free, release, ptr }
}

describe('a request that waits for the GPU', () => {
  it('does not delay other threads', () => {
    const { device, pool, polling, waiting, free, release, ptr } = busyPool()
    const other = polling()
    const small = other.allocate(1 * MiB, free)
    const done: string[] = []
    const first = waiting(() => {
      small.recordUse(device.defaultStream)
      small.free()
      done.push('a use and a free')
      other.allocate(4 * MiB, free).free()
      done.push('new memory')
      other.trimTo(32 * MiB)
      done.push('trimming')
      release()
    })
    assert.equal(first.allocate(24 * MiB, free).ptr, ptr)
    assert.deepEqual(done, ['a use and a free', 'new memory', 'trimming'])
    pool.check()
  })

  it('keeps later requests from the memory that it needs, and from no other', () => {
    const { pool, polling, waiting, free, release } = busyPool()
    const other = polling()
    const late = waiting(release)
    const answers: unknown[] = []
    const first = waiting(() => {
      answers.push(other.allocate(4 * MiB, free).byteLength)
      answers.push(late.tryAllocate(2 * MiB, free)) // lets the stream continue
    })
    assert.equal(first.allocate(28 * MiB, free).byteLength, 28 * MiB)
    assert.deepEqual(answers, [4 * MiB, null])
    pool.check()
  })

  it('is dropped when its thread has died, and loses no block', () => {
    const { pool, server, polling, free, waiting, release } = busyPool()
    const died = new Error('terminated')
    const dead = waiting(() => {
      throw died
    })
    assert.throws(() => dead.allocate(24 * MiB, free), died)
    const other = polling()
    assert.deepEqual(server['waitingRequests'].askers, [dead['state'].thread])
    server['state'].registry.bury(dead['state'].thread)
    other.processDeferred()
    assert.deepEqual(server['waitingRequests'].askers, [])
    release()
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
    other.close()
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  })

  it('throws the errors of the driver meanwhile', () => {
    const { device, pool, waiting, free, release, ptr } = busyPool()
    const first = waiting(() => device.driver.failCall({ call: 'cuEventQuery', code: 999 }))
    assert.throws(() => first.allocate(24 * MiB, free), { name: 'CudaError', message: /cuEventQuery/ })
    release()
    assert.equal(first.allocate(24 * MiB, free).ptr, ptr)
    pool.check()
  })

  it('waits in the driver if the pool is deterministic', () => {
    const device = new TestDevice()
    const options = { maxPoolBytes: 32 * MiB, crossStreamReuse: 'ordered', deterministic: true } as const
    const { pool } = device.createSharedPool(options)
    const big = pool.allocate(24 * MiB, device.createStream())
    const { ptr } = big
    device.hold(big.stream)
    big.free()
    const waits = device.calls('cuEventSynchronize')
    assert.equal(pool.allocate(24 * MiB).ptr, ptr)
    assert.ok(device.calls('cuEventSynchronize') > waits)
  })
})
