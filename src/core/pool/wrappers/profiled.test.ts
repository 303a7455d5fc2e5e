import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { fakeNvtx } from '../../libraries/nvtx.fixture.js'
import { TestDevice } from '../pool.fixture.js'
import { type ProfiledOptions, profiled } from './profiled.js'

function setUp(options: ProfiledOptions = {}) {
  const device = new TestDevice()
  const upstream = device.createPool({ maxPoolBytes: 8 * MiB })
  const { nvtx, library } = fakeNvtx()
  return { device, upstream, library, pool: profiled(upstream, { nvtx, ...options }) }
}

const hex = (ptr: number) => `0x${ptr.toString(16)}`

describe('profiled', () => {
  it("each allocation and free is a range, with the buffer's address and size in a mark", () => {
    const { pool, library } = setUp()
    const buffer = pool.allocate(3 * MiB)
    const { ptr } = buffer
    assert.deepEqual(library.told(), [`push allocate ${3 * MiB}`, `|mark 3 MiB at ${hex(ptr)} ${ptr}`])
    buffer.free()
    assert.deepEqual(library.told(), [`push free ${ptr}`])
    const array = pool.allocateArray(Float32Array, 256)
    pool.tryAllocate(1 * KiB)?.free()
    array.free()
    const calls = library.told().filter(line => line.startsWith('push'))
    assert.deepEqual(
      calls.map(line => line.split(' ')[1]),
      ['allocate', 'allocate', 'free', 'free'],
    )
  })

  it('the name is in every text', () => {
    const { pool, library } = setUp({ name: 'weights' })
    const { ptr } = pool.allocate(1500)
    assert.equal(pool.tryAllocate(9 * MiB), null)
    assert.deepEqual(library.told(), [
      'push allocate #weights 1500',
      `|mark 1.46 KiB #weights at ${hex(ptr)} ${ptr}`,
      `push allocate #weights ${9 * MiB}`,
      `|mark no room for 9 MiB #weights ${9 * MiB}`,
    ])
  })

  it('an out of memory is a mark within its range, and the range ends', () => {
    const { pool, library } = setUp()
    assert.throws(() => pool.allocate(9 * MiB), { name: 'OutOfMemoryError' })
    assert.deepEqual(library.told(), [`push allocate ${9 * MiB}`, `|mark no room for 9 MiB ${9 * MiB}`])
  })

  it('a range ends when the driver refuses, too', () => {
    const { pool, device, library } = setUp()
    device.driver.failCall({ call: '*', nth: 1, code: 999, onwards: true })
    assert.throws(() => pool.allocate(1 * MiB), { name: 'CudaError' })
    device.driver.clearFaults()
    assert.deepEqual(library.told(), [`push allocate ${1 * MiB}`])
  })

  it('a call with a bad argument makes no event', () => {
    const { pool, library } = setUp()
    const buffer = pool.allocate(1)
    buffer.free()
    library.told()
    assert.throws(() => buffer.free(), PoolError)
    assert.throws(() => pool.allocate(0), RangeError)
    assert.throws(() => pool.tryAllocate('1' as never), TypeError)
    assert.deepEqual(library.told(), [])
  })

  it('ranges nest like the wrappers, innermost last', () => {
    const { upstream } = setUp()
    const { nvtx, library } = fakeNvtx()
    const nested = profiled(profiled(upstream, { nvtx, name: 'inner' }), { nvtx, name: 'outer' })
    const { ptr } = nested.allocate(256)
    assert.deepEqual(library.told(), [
      'push allocate #outer 256',
      '|push allocate #inner 256',
      `||mark 256 B #inner at ${hex(ptr)} ${ptr}`,
      `|mark 256 B #outer at ${hex(ptr)} ${ptr}`,
    ])
    assert.equal(upstream.stats().liveBuffers, 1)
  })

  it('memory is named on request, and making the pool throws if NVTX cannot', () => {
    const { pool, library, upstream } = setUp({ name: 'weights', memoryNames: true })
    const { ptr } = pool.allocate(1 * MiB)
    assert.deepEqual(library.told().slice(-1), [`|memory 1 MiB #weights ${ptr}`])
    const { nvtx } = fakeNvtx(['nvtxMemRegionsName'])
    assert.throws(() => profiled(upstream, { nvtx, memoryNames: true }), { name: 'NoLibraryError' })
    profiled(upstream, { nvtx }).allocate(256).free()
  })

  it('bad options are refused by name', () => {
    const { upstream } = setUp()
    const { nvtx } = fakeNvtx()
    for (const [bad, message] of [
      [null, /options must be an object/],
      [{ names: 1 }, /unknown option 'names'; the options are nvtx, name, memoryNames/],
      [{ nvtx: {} }, /nvtx must be what openNvtx returns/],
      [{ nvtx, name: 5 }, /name must be a text/],
      [{ nvtx, memoryNames: 'yes' }, /memoryNames must be true or false/],
    ] as const) {
      assert.throws(() => profiled(upstream, bad as never), { name: 'TypeError', message })
    }
  })
})
