import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import { aligned } from './aligned.js'

describe('aligned', () => {
  for (const kind of ['caching', 'plain'] as const) {
    it(`every address is a multiple of the alignment, also with another in the call, from a ${kind} pool`, () => {
      const device = new TestDevice()
      const upstream = kind === 'plain' ? device.createPlainPool() : device.createPool()
      for (let alignment = 1; alignment <= 2 * MiB; alignment *= 2) {
        const pool = aligned(upstream, alignment)
        const odd = upstream.allocate(100) // so that the next block does not start at a granule
        const buffers = [undefined, 1, 256, 4 * KiB].flatMap(own => [
          pool.allocate(300, undefined, own),
          pool.tryAllocate(300 * KiB, undefined, own)!,
        ])
        for (const { ptr } of buffers) assert.equal(ptr % alignment, 0)
        for (const { ptr } of buffers.slice(6)) assert.equal(ptr % (4 * KiB), 0)
        for (const buffer of [odd, ...buffers]) buffer.free()
      }
    })
  }

  it('the stricter of two alignments holds, also when nested', () => {
    const pool = aligned(aligned(new TestDevice().createPool(), 64 * KiB), 1 * KiB)
    pool.allocate(100)
    assert.equal(pool.allocate(100).ptr % (64 * KiB), 0)
    assert.equal(pool.allocate(100, undefined, 1 * MiB).ptr % MiB, 0)
  })

  it('an alignment that every pool gives keeps allocations cached', () => {
    const upstream = new TestDevice().createPool()
    const pool = aligned(upstream, 256)
    for (let round = 0; round < 10; round++) pool.allocate(1000).free()
    assert.equal(upstream.stats().cacheMisses, 1)
    assertConsistent(upstream)
  })

  it('a bad alignment is refused when the wrapper is made', () => {
    const upstream = new TestDevice().createPool()
    for (const bad of [0, -256, 3, 1.5, 768, Number.NaN, Infinity, 4 * MiB, '64', undefined]) {
      const expected = { name: 'RangeError', message: /alignment must be a power of two of at most 2 MiB/ }
      assert.throws(() => aligned(upstream, bad as number), expected)
    }
  })
})
