// Calls of a shared pool that are cut short while their thread lives on. proof/cuts.test.ts cuts them at every point.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { runInNewContext } from 'node:vm'
import { MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'

/** Stops an endless call once `isSoFar` holds, without running its `finally` blocks. */
function cutShort(call: () => unknown, isSoFar: () => boolean): void {
  while (!isSoFar()) {
    assert.throws(() => runInNewContext('call()', { call }, { timeout: 5 }), { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' })
  }
}

describe('a pool that threads share, after a cut call', () => {
  it('is repaired by any thread after a call was cut short in a change', () => {
    const { pool, attach } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    pool.allocate(1000).free()
    for (const next of [pool, other]) {
      const { memory } = pool['state']
      const handOut = memory.small.allocate.bind(memory.small)
      memory.small.allocate = (...of) => {
        handOut(...of)
        throw new RangeError('Maximum call stack size exceeded')
      }
      assert.throws(() => pool.allocate(4000), RangeError)
      memory.small.allocate = handOut
      next.allocate(5000).free()
      next.check()
    }
    assert.equal(pool.stats().liveBuffers, 0)
  })

  it('is repaired by a thread whose script was stopped while it held the lock', () => {
    const { pool } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB })
    const hold = () => {
      pool['state'].acquire()
      for (;;);
    }
    const { lock, thread } = pool['state']
    cutShort(hold, () => lock.owner === thread)
    pool.allocate(5000).free()
    pool.check()
    assert.equal(pool['state'].repairs, 1)
    cutShort(hold, () => lock.owner === thread)
    pool.processDeferred() // done by the pool server, which needs the lock
    pool.check()
  })

  it('takes the late answer to a call that was cut short, and frees its block', () => {
    const { pool, server } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB })
    const serve = server.serve.bind(server)
    server.serve = () => {
      for (;;);
    }
    const { channel, thread } = pool['state']
    cutShort(
      () => pool.allocate(24 * MiB),
      () => channel.isLate(thread),
    )
    server.serve = serve
    assert.equal(pool.processDeferred(), 1, 'the block of the call that was cut short')
    assert.equal(pool.stats().liveBuffers, 0)
    pool.allocate(24 * MiB).free()
    pool.check()
  })

  it('the second close reports what a close that was cut short lost', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    pool.allocate(1000)
    const serve = server.serve.bind(server)
    const cut = new RangeError('while it waits, just when the answer is there')
    server.serve = () => {
      serve()
      throw cut
    }
    assert.throws(() => pool.close(), cut)
    server.serve = serve
    assert.deepEqual(pool.close(), { heldBuffers: 1, heldBytes: 1000 })
  })
})
