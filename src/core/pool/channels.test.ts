import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { test } from 'node:test'
import { MiB } from '../base/bytes.js'
import { TestDevice } from './pool.fixture.js'

type Told = Record<string, unknown>

/** What a channel tells while `work` runs. */
function toldBy(name: string, work: () => void): Told[] {
  const messages: Told[] = []
  const listener = (message: unknown) => messages.push(message as Told)
  subscribe(name, listener)
  try {
    work()
  } finally {
    unsubscribe(name, listener)
  }
  return messages
}

test('growth and release are told, and cached allocations tell nothing', () => {
  const pool = new TestDevice().createPool()
  const grown = toldBy('cuda-mempool:grow', () => pool.allocate(4 * MiB).free())
  const { reservedBytes } = pool.stats()
  assert.deepEqual(grown, [{ pool, bytes: reservedBytes, reservedBytes }])
  assert.deepEqual(
    toldBy('cuda-mempool:grow', () => pool.allocate(4 * MiB).free()),
    [],
  )
  const released = toldBy('cuda-mempool:release', () => pool.trimTo(0))
  assert.deepEqual(released, [{ pool, bytes: reservedBytes, reservedBytes: 0 }])
})

test('a listener may call the pool', () => {
  const pool = new TestDevice().createPool({ maxPoolBytes: 8 * MiB })
  const first = pool.allocate(1 * MiB)
  const listener = () => {
    assert.equal(pool.live().length, 2)
    pool.check()
    pool.allocate(100).free()
    first.free()
  }
  subscribe('cuda-mempool:grow', listener)
  try {
    const second = pool.allocate(4 * MiB)
    assert.deepEqual([first.freed, second.freed], [true, false])
  } finally {
    unsubscribe('cuda-mempool:grow', listener)
  }
  pool.check()
})

test('a stream that is made to wait is told', () => {
  const device = new TestDevice({ capacityBytes: 4 * MiB })
  const pool = device.createPool({ maxPoolBytes: 4 * MiB })
  const [first, second] = [device.createStream(), device.createStream()]
  const release = device.hold(first)
  pool.allocate(4 * MiB, first).free()
  const waits = toldBy('cuda-mempool:wait', () => pool.allocate(4 * MiB, second))
  assert.deepEqual(waits, [{ pool, stream: second, waits: 1 }])
  release()
})

test('a refused request is told once, by plain pools and debug pools', () => {
  const device = new TestDevice()
  for (const debug of [false, true]) {
    const pool = device.createPool({ maxPoolBytes: 8 * MiB, debug })
    const refused = toldBy('cuda-mempool:out-of-memory', () => {
      assert.equal(pool.tryAllocate(16 * MiB), null)
      assert.throws(() => pool.allocate(15 * MiB), { name: 'OutOfMemoryError' })
    })
    assert.deepEqual(refused, [
      { pool, bytes: 16 * MiB },
      { pool, bytes: 15 * MiB },
    ])
  }
})

test('messages of a host pool name the host pool', () => {
  const device = new TestDevice()
  const pool = device.createHostPool({ maxPoolBytes: 8 * MiB, segmentBytes: 4 * MiB })
  const grown = toldBy('cuda-mempool:grow', () => pool.allocate(1000).free())
  assert.deepEqual(grown, [{ pool, bytes: 4 * MiB, reservedBytes: 4 * MiB }])
  const released = toldBy('cuda-mempool:release', () => pool.trimTo(0))
  assert.deepEqual(released, [{ pool, bytes: 4 * MiB, reservedBytes: 0 }])
  const refused = toldBy('cuda-mempool:out-of-memory', () => pool.tryAllocate(16 * MiB))
  assert.deepEqual(refused, [{ pool, bytes: 16 * MiB }])
})
