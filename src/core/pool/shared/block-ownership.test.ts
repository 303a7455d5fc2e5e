// Transferred and adopted buffers of a shared pool. Lists of them: adopt-all.test.ts.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CU_STREAM_PER_THREAD } from '../../driver/constants.js'
import { Context } from '../../driver/context.js'
import { ownerWordOf, Phase } from '../../heap/owner-word.js'
import { LAST_GENERATION, State, Word } from '../../heap/records.js'
import { Clocks } from '../../order/clocks.js'
import { Stream } from '../../order/stream.js'
import { TestDevice } from '../pool.fixture.js'
import type { TransferredBuffer } from '../transferred-buffer.js'

describe('a pool that threads share, by transfer', () => {
  it('keeps a handle stale when its transferred buffer comes back', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    for (const back of [
      (sent: TransferredBuffer) => pool.adopt(sent),
      (sent: TransferredBuffer) => pool.adopt(other.adopt(sent).transfer()),
      (sent: TransferredBuffer) => pool.adoptAll([other.adoptAll([sent])[0].transfer()])[0],
    ]) {
      const old = pool.allocate(1000)
      const sent = old.transfer()
      const adopted = back(sent)
      assert.deepEqual([old.freed, adopted.freed], [true, false])
      old[Symbol.dispose]()
      assert.throws(() => old.free(), { name: 'PoolError', message: /already freed, or handed to another thread/ })
      assert.throws(() => old.transfer(), { name: 'PoolError' })
      assert.throws(() => other.adopt(sent), { name: 'PoolError', message: /not on its way/ })
      assert.equal(adopted.freed, false)
      adopted.free()
    }
    pool.check()
  })

  it('keeps such a handle stale in the last generation of its record', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const first = pool.allocate(1000)
    const { record } = first
    first.free()
    const { words } = pool['state'].records
    const block = pool['cache'].blocks.blockOf(record)
    block.tag = (LAST_GENERATION - 1) * 8 + State.cached
    words[record << 4] = (LAST_GENERATION - 1) * 8 + State.live
    words[(record << 4) | Word.owner] = ownerWordOf(block.tag, pool['state'].thread, Phase.cached)
    const last = pool.allocate(1000)
    assert.deepEqual([last.record, last.tag >> 3], [record, LAST_GENERATION])
    let sent = last.transfer()
    for (const back of [pool, other, pool]) {
      const held = back.adopt(sent)
      assert.deepEqual([last.freed, held.freed], [true, false])
      assert.throws(() => last.transfer(), { name: 'PoolError' })
      sent = held.transfer()
      assert.equal(held.freed, true)
    }
    pool.adopt(sent).free()
    pool.check()
  })

  it('adopts a transferred buffer once, even when its record is transferred again', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const first = pool.allocate(1000).transfer()
    const second = other.adopt(first).transfer()
    assert.throws(() => pool.adopt(first), { name: 'PoolError', message: /not on its way/ })
    pool.adopt(second).free()
    pool.check()
  })

  it('gives a buffer of a closed stream to the default stream when a per-thread stream has its slot', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const [here, stream] = [new Clocks(Context.open(device.driver, 0), device.clocks.share()), device.createStream()]
    const sent = [pool.allocate(1000, stream).transfer(), pool.allocate(1000, stream).transfer()]
    stream.close()
    device.clocks.synchronize()
    for (const clocks of [device.clocks, here]) {
      const own = new Stream(clocks, CU_STREAM_PER_THREAD, false)
      assert.equal(own.slot, stream.lastSlot)
      const adopted = pool.adopt(sent.pop()!)
      assert.equal(adopted.stream, device.defaultStream)
      adopted.free()
      own.close()
      clocks.synchronize()
    }
    pool.check()
  })
})
