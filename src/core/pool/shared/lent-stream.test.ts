// Memory of a stream that another thread lends, with the clocks of both threads in this one.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { Context } from '../../driver/context.js'
import { Clocks } from '../../order/clocks.js'
import { Stream } from '../../order/stream.js'
import { ArenaPool } from '../arena/arena-pool.js'
import { BlockPool } from '../blocks/block-pool.js'
import { makeCachingPool } from '../debug/make-caching-pool.js'
import { TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'

/** A pool made by the thread of these clocks, with the default stream of that thread. */
type MakePool = (clocks: Clocks, defaultStream: Stream, device: TestDevice) => Pool

const POOLS: Record<string, MakePool> = {
  'caching pool': (clocks, stream, { totalBytes }) => makeCachingPool(clocks, stream, {}, totalBytes),
  'block pool': (clocks, stream) => new BlockPool(clocks, stream, { blockBytes: 1 * MiB, count: 1, maxCount: 2 }),
  arena: (clocks, stream) => new ArenaPool(clocks, stream, { bytes: 4 * MiB }),
}

function setUp(makePool: MakePool) {
  const device = new TestDevice()
  const owner = device.createStream()
  const there = new Clocks(Context.open(device.driver, 0), device.clocks.share())
  const borrow = (stream: Stream) => Stream.borrow(there, structuredClone(stream.share()))!
  const pool = makePool(there, borrow(device.defaultStream), device)
  return { device, owner, pool, lent: borrow(owner), other: Stream.create(there) }
}

for (const [name, makePool] of Object.entries(POOLS)) {
  describe(`${name}: a stream that another thread lends`, () => {
    for (const announced of [false, true]) {
      it(`closed with work pending keeps the memory ${announced ? 'announced to' : 'of'} it from other streams`, () => {
        const { device, owner, pool, lent, other } = setUp(makePool)
        const buffer = pool.allocate(1 * MiB, announced ? other : lent)
        lent.synchronize()
        const release = device.hold(owner)
        if (announced) buffer.recordUse(lent)
        const { ptr } = buffer
        lent.close()
        buffer.free()
        if (pool instanceof ArenaPool) pool.reset(other)
        const next = pool.allocate(1 * MiB, other)
        assert.ok(next.ptr !== ptr || !other.query(), 'its work comes first')
        release()
        assert.equal(other.query(), true)
      })
    }
  })
}
