// Every wrapper of this folder, alone and in every order of two; the recorder has its own folder's tests.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { fakeNvtx } from '../../libraries/nvtx.fixture.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'
import { fallback } from './fallback.js'
import { limited } from './limited.js'
import { profiled } from './profiled.js'
import { retrying } from './retrying.js'
import { statistics } from './statistics.js'
import { tagged } from './tagged.js'
import { WRAPPERS, wrapperSuite } from './wrapper.suite.js'

for (const [name, wrap] of Object.entries(WRAPPERS)) {
  wrapperSuite(name, [wrap])
  for (const [outerName, outer] of Object.entries(WRAPPERS)) wrapperSuite(`${name}, in ${outerName}`, [wrap, outer])
}

describe('wrappers', () => {
  it('a wrapper owns the buffers that it hands out, and no earlier or later buffers of the same memory', () => {
    const device = new TestDevice()
    for (const pool of [
      device.createPool(),
      device.createPool({ debug: true }),
      device.createArenaPool({ bytes: 1 * MiB }),
      device.createBlockPool({ blockBytes: 4096, count: 2 }),
      device.createPlainPool(),
    ]) {
      const [inner, other] = [limited(pool, Infinity), limited(pool, Infinity)]
      const outer = tagged(inner)
      const stale: DeviceBuffer[] = []
      for (const owner of [pool, inner, outer, other, pool]) {
        const buffer = owner.allocate(4096)
        assert.equal(buffer.pool, owner)
        const counted = [inner.handedOutBytes, other.handedOutBytes]
        for (const old of stale) assert.throws(() => old.free(), { message: /already freed/ })
        assert.deepEqual([inner.handedOutBytes, other.handedOutBytes], counted)
        assert.deepEqual(
          counted,
          [owner === inner || owner === outer, owner === other].map(isIts => (isIts ? 4096 : 0)),
        )
        buffer.free()
        assert.equal(inner.handedOutBytes + other.handedOutBytes, 0)
        stale.push(buffer)
      }
    }
  })

  it("wrappers of an arena stay apart if one stream's buffers have several owners", () => {
    const arena = new TestDevice().createArenaPool({ bytes: 1 * MiB })
    const [one, two] = [limited(arena, Infinity), limited(arena, Infinity)]
    const held = [one, two, arena, one, two].map(owner => [owner, owner.allocate(256)] as const)
    for (const [owner, buffer] of held) assert.equal(buffer.pool, owner)
    for (const [, buffer] of held) buffer.free()
    assert.deepEqual([one.handedOutBytes, two.handedOutBytes, arena.stats().liveBuffers], [0, 0, 0])
  })

  it('anything but a pool is refused by name', () => {
    const pool = new TestDevice().createPool()
    for (const bad of [null, undefined, 5, {}, { allocate() {} }] as unknown as Pool[]) {
      const wraps = [
        () => limited(bad, 1 * MiB),
        () => tagged(bad),
        () => statistics(bad),
        () => profiled(bad, { nvtx: fakeNvtx().nvtx }),
        () => retrying(bad, () => false),
        () => fallback(bad, pool),
      ]
      for (const wrap of wraps) {
        assert.throws(wrap, { name: 'TypeError', message: /^upstream must be a pool.*, not / }, `${wrap}`)
      }
      assert.throws(() => fallback(pool, bad), { name: 'TypeError', message: /^fallback: second must be a pool/ })
    }
  })

  it('a host pool is refused with its own remedy, also one that threads share', () => {
    const device = new TestDevice()
    for (const host of [device.createHostPool(), device.createSharedHost().pool] as unknown as Pool[]) {
      const message = /must be a pool of device memory, not a host pool, .* maxPoolBytes of createHostPool/
      assert.throws(() => limited(host, 1 * MiB), { name: 'TypeError', message })
      assert.throws(() => fallback(device.createPool(), host), { name: 'TypeError', message })
    }
  })
})
