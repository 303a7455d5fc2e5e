// Prefetch, advice and discard of buffers of managed memory, on the simulated device. Its discards overwrite the
// memory, and its prefetches move nothing.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import type { DeviceBuffer } from './buffer.js'
import type { MemoryAdvice } from './managed-memory.js'
import { TestDevice } from './pool.fixture.js'

const HOST = -1

type Call = readonly (string | number)[]

/** A device whose calls about managed memory are noted, with offsets in the buffer in place of addresses. */
function setUp(options: SimulatedOptions = {}) {
  const device = new TestDevice(options)
  const { driver } = device
  const pool = device.createPool({ backing: 'managed' })
  const stream = device.createStream()
  const buffer = pool.allocate(MiB + 100, stream)
  const noted: Call[] = []
  const [advise, prefetch, discard] = [
    driver.cuMemAdvise.bind(driver),
    driver.cuMemPrefetchAsync.bind(driver),
    driver.cuMemDiscardBatchAsync.bind(driver),
  ]
  driver.cuMemAdvise = (ptr, bytes, advice, place) => {
    noted.push(['advise', ptr - buffer.ptr, bytes, advice, place])
    advise(ptr, bytes, advice, place)
  }
  driver.cuMemPrefetchAsync = (ptr, bytes, place, handle) => {
    noted.push(['prefetch', ptr - buffer.ptr, bytes, place, handle])
    prefetch(ptr, bytes, place, handle)
  }
  driver.cuMemDiscardBatchAsync = (ptr, bytes, handle) => {
    noted.push(['discard', ptr - buffer.ptr, bytes, handle])
    discard(ptr, bytes, handle)
  }
  return { device, driver, pool, stream, buffer, noted }
}

const CALLS: Readonly<Record<string, (buffer: DeviceBuffer) => void>> = {
  prefetch: buffer => buffer.prefetch(),
  advise: buffer => buffer.advise('readMostly'),
  unadvise: buffer => buffer.unadvise('readMostly'),
  discard: buffer => buffer.discard(),
}

describe('managed memory', () => {
  it("moves to the pool's device, to the host, or to another device, in the buffer's stream", () => {
    const { buffer, noted, stream } = setUp({ devices: 2 })
    const other = new TestDevice(setUp({ devices: 2 }).driver, 1)
    assert.throws(() => buffer.prefetch(other), { name: 'PoolError', code: 'ERR_OTHER_DEVICE' })
    buffer.prefetch()
    buffer.prefetch('host')
    const whole = buffer.byteLength
    assert.deepEqual(noted, [
      ['prefetch', 0, whole, 0, stream.handle],
      ['prefetch', 0, whole, HOST, stream.handle],
    ])
  })

  it('moves to another device of its driver', () => {
    const { device, buffer, noted } = setUp({ devices: 2 })
    buffer.prefetch(new TestDevice(device.driver, 1))
    assert.equal(noted[0][3], 1)
  })

  it('takes advice, and takes it back, for whole pages within the buffer', () => {
    const { device, buffer, noted } = setUp()
    const cases: readonly (readonly [MemoryAdvice, number])[] = [
      ['readMostly', 1],
      ['preferredLocation', 3],
      ['accessedBy', 5],
    ]
    for (const [advice, number] of cases) {
      buffer.advise(advice)
      buffer.unadvise(advice, 'host')
      buffer.advise(advice, device)
      const expected = [
        [number, 0],
        [number + 1, HOST],
        [number, 0],
      ]
      assert.deepEqual(
        noted.splice(0),
        expected.map(last => ['advise', 0, MiB, ...last]),
      )
    }
  })

  it('leaves out pages that the buffer shares with others', () => {
    const { pool, stream, noted, buffer } = setUp()
    const inside = pool.allocate(200 * KiB, stream)
    const before = inside.ptr % (64 * KiB)
    inside.fill(7)
    inside.advise('readMostly')
    inside.discard()
    const first = inside.ptr - buffer.ptr + ((64 * KiB - before) % (64 * KiB))
    for (const [, start, bytes] of noted) {
      assert.equal(start, first)
      assert.ok((bytes as number) >= 128 * KiB && (start as number) + (bytes as number) <= first + 200 * KiB)
    }
    assert.equal(noted.length, 2)
    const small = pool.allocate(1000, stream)
    for (const call of ['advise', 'unadvise', 'discard']) CALLS[call](small)
    assert.equal(noted.length, 2, 'no page lies within')
  })

  it('is discarded in stream order, and written again', () => {
    const { buffer } = setUp({ progress: 'seeded', seed: 3 })
    buffer.fill(1)
    buffer.discard()
    buffer.fill(2, 0, 1000)
    const bytes = buffer.readSync()
    assert.deepEqual([bytes[0], bytes[999], bytes[MiB], bytes[MiB + 99]], [2, 2, 1, 1])
    assert.notEqual(bytes[1000], 1, 'the simulated device overwrites what is discarded')
  })

  it('is advised and moved in shared pools and through wrappers, too', () => {
    const { device } = setUp()
    const calls = (name: string) => device.driver.calls.get(name) ?? 0
    const { pool } = device.createSharedPool({ backing: 'managed' })
    const buffer = pool.allocate(MiB, device.createStream())
    for (const call of Object.values(CALLS)) call(buffer)
    assert.deepEqual([calls('cuMemPrefetchAsync'), calls('cuMemAdvise'), calls('cuMemDiscardBatchAsync')], [1, 2, 1])
  })
})

describe('refused calls about managed memory', () => {
  it('of other memory, of a freed buffer, or on a device without concurrent access, say so', () => {
    const { device, stream, buffer, noted } = setUp()
    const others = (['segments', 'virtual'] as const).map(backing => device.createPool({ backing }))
    for (const [name, call] of Object.entries(CALLS)) {
      for (const other of others) {
        assert.throws(() => call(other.allocate(MiB, stream)), {
          name: 'PoolError',
          code: 'ERR_NOT_SUPPORTED',
          message: new RegExp(`^${name}: the buffer is no managed memory; .*backing: 'managed'`),
        })
      }
      const without = setUp({ concurrentManagedAccess: false })
      assert.throws(() => call(without.buffer), {
        name: 'PoolError',
        code: 'ERR_NOT_SUPPORTED',
        message: new RegExp(`^${name}: device 0 has no concurrent access`),
      })
      assert.deepEqual(without.noted, [])
    }
    buffer.free()
    for (const call of Object.values(CALLS)) assert.throws(() => call(buffer), { code: 'ERR_BUFFER_FREED' })
    assert.deepEqual(noted, [])
  })

  it('with wrong arguments name them', () => {
    const { buffer, noted } = setUp()
    assert.throws(() => buffer.advise('readmostly' as MemoryAdvice), {
      name: 'RangeError',
      message: /^advise: advice must be one of 'readMostly', 'preferredLocation', 'accessedBy', not 'readmostly'/,
    })
    assert.throws(() => buffer.unadvise(3 as unknown as MemoryAdvice), { name: 'TypeError', message: /^unadvise: / })
    for (const location of ['device', null, 0, {}]) {
      assert.throws(() => buffer.prefetch(location as 'host'), {
        name: 'TypeError',
        message: /^prefetch: location must be a device or 'host', not/,
      })
    }
    assert.deepEqual(noted, [])
  })

  it('in a captured or closed stream, or a discard in the default stream, are refused before the driver', () => {
    const { pool, stream, buffer, noted } = setUp()
    const plain = pool.allocate(MiB)
    assert.throws(() => plain.discard(), { name: 'PoolError', code: 'ERR_NOT_SUPPORTED', message: /no default stream/ })
    plain.prefetch()
    noted.length = 0
    stream.beginCapture()
    assert.throws(() => buffer.prefetch(), { name: 'PoolError', code: 'ERR_STREAM_CAPTURED' })
    assert.throws(() => buffer.discard(), { name: 'PoolError', code: 'ERR_STREAM_CAPTURED' })
    buffer.advise('readMostly')
    stream.abortCapture()
    assert.deepEqual(
      noted.splice(0).map(([call]) => call),
      ['advise'],
    )
    stream.close()
    assert.throws(() => buffer.prefetch(), { name: 'PoolError', code: 'ERR_STREAM_CLOSED' })
    assert.deepEqual(noted, [])
  })

  it('by the driver pass on its error; a driver without discards is named', () => {
    const { driver, buffer } = setUp()
    for (const [call, name] of [
      ['prefetch', 'cuMemPrefetchAsync'],
      ['advise', 'cuMemAdvise'],
      ['unadvise', 'cuMemAdvise'],
      ['discard', 'cuMemDiscardBatchAsync'],
    ] as const) {
      driver.failCall({ call: name, code: 999 })
      assert.throws(() => CALLS[call](buffer), { name: 'CudaError', result: 999 })
      CALLS[call](buffer)
    }
    driver.failCall({ call: 'cuMemDiscardBatchAsync', code: 500 })
    assert.throws(() => buffer.discard(), { name: 'PoolError', code: 'ERR_NOT_SUPPORTED', message: /driver 13\.0/ })
    buffer.fill(1)
    buffer.free()
  })
})
