// Pools of each kind while a run in another thread uses their memory.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { checkNotRunning, RunningWork } from '../pool/sleep/running-work.js'
import { fallback } from '../pool/wrappers/fallback.js'
import { limited } from '../pool/wrappers/limited.js'
import { openDevice } from './open.js'

const RUN = "a run of 'model'"
const inUse = (call: string) => ({
  name: 'PoolError',
  code: 'ERR_POOL_IN_USE',
  message: `${call}: ${RUN} uses memory of the pool; await it first`,
})

describe('while a run uses a pool', () => {
  const device = openDevice('simulated')
  after(() => device.close())

  const kinds = {
    'a caching pool': () => device.createPool(),
    'a pool in debug mode': () => device.createPool({ debug: true }),
    'a shared pool': () => device.createSharedPool(),
    'a block pool': () => device.createBlockPool({ blockBytes: 1 * MiB, count: 2 }),
    'an arena': () => device.createArenaPool({ bytes: 2 * MiB }),
    'a shared arena': () => device.createSharedArenaPool({ bytes: 2 * MiB }),
    'a shared block pool': () => device.createSharedBlockPool({ blockBytes: 1 * MiB, count: 2 }),
    'a plain pool': () => device.createPlainPool(),
    "a driver's pool": () => device.createDriverPool(),
    'a host pool': () => device.createHostPool(),
    'a shared host pool': () => device.createSharedHostPool(),
  }
  for (const [kind, create] of Object.entries(kinds)) {
    it(`${kind} is not closed before all runs have ended`, () => {
      const pool = create()
      const works = [1, 2].map(() => new RunningWork(pool, RUN))
      for (const work of works) work.isUnderWay = true
      assert.throws(() => pool.close(), inUse('close'))
      works[0].isUnderWay = false
      assert.throws(() => pool.close(), inUse('close'))
      assert.equal(pool.closed, false)
      works[1].forget()
      pool.close()
      assert.equal(pool.closed, true)
    })
  }

  it('a pool does not sleep, and goes on; other pools do', async () => {
    using pool = device.createPool({ backing: 'virtual' })
    using other = device.createPool({ backing: 'virtual' })
    const work = new RunningWork(limited(pool, 64 * MiB), RUN)
    work.isUnderWay = true
    await assert.rejects(pool.sleep(), inUse('sleep'))
    assert.equal(pool.asleep, false)
    pool.allocate(1 * MiB).free()
    await other.sleep()
    await other.wake()
    work.isUnderWay = false
    await pool.sleep()
    await pool.wake()
  })

  it('all pools behind a wrapper are in use', () => {
    using first = device.createPool()
    using second = device.createPool()
    const pool = fallback(first, second)
    const work = new RunningWork(pool, RUN)
    work.isUnderWay = true
    for (const source of [first, second]) assert.throws(() => checkNotRunning('close', source), inUse('close'))
    work.forget()
    for (const source of [first, second]) checkNotRunning('close', source)
  })
})
