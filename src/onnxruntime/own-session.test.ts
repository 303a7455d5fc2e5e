// Sessions whose runs leave the thread, without the library: stand-ins call the allocator from threads of libuv.
// CUDA_MEMPOOL_ONNXRUNTIME_RUNS=100000 is the long form.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, describe, it } from 'node:test'
import { KiB, MiB } from '../core/base/bytes.js'
import { OutOfMemoryError } from '../core/base/errors.js'
import { Random } from '../core/base/random.js'
import { openDevice } from '../core/device/open.js'
import type { Pool } from '../core/pool/pool.js'
import { limited } from '../core/pool/wrappers/limited.js'
import type { Pointer } from './library.js'
import { ServedOnnxRuntime } from './serve.js'
import { askFromNewThread, StandInLibrary, StandInSession } from './stand-in.fixture.js'

const RUNS = Number(process.env.CUDA_MEMPOOL_ONNXRUNTIME_RUNS ?? 400)
const SEED = Number(process.env.CUDA_MEMPOOL_SEED ?? 1)
const LIMIT = 4 * MiB

describe('a session of its own', () => {
  const device = openDevice('simulated')
  after(() => device.close())

  function setUp(pool: Pool) {
    const library = new StandInLibrary()
    const served = new ServedOnnxRuntime(pool, library.asLibrary(), 'stream', null, [])
    const make = async () => {
      await new Promise(setImmediate) // as onnxruntime-node does
      return new StandInSession(library)
    }
    const create = (name: string, of: Pool = pool) => served.createSession(name, make, { pool: of })
    return { library, served, create }
  }

  it(`takes all memory from its pool in ${RUNS} runs in other threads, and each refusal is its run's`, async () => {
    using general = device.createPool()
    const { served, create } = setUp(general)
    const pools = [1, 2, 3].map(() => device.createPool({ maxPoolBytes: LIMIT }))
    const sessions = await Promise.all(pools.map((pool, index) => create(`model ${index}`, pool)))
    let refused = 0
    const runAll = async (session: StandInSession, index: number) => {
      const random = new Random(SEED + index)
      const before = pools[index].stats().allocations
      let requests = 0
      for (let run = 0; run < RUNS / sessions.length; run++) {
        const isTooLarge = random.below(10) === 0
        const sizes = [64 * KiB, 64 * KiB, isTooLarge ? 2 * LIMIT : Math.floor(random.logUniform(256, 1 * MiB))]
        // The scope of an `as` is known to runs in this thread, and changes nothing there either.
        const work = async () => (run % 4 === 0 ? session.runSync({ sizes }) : await session.run({ sizes }))
        const ended = served.as('another', work, { pool: general })
        if (isTooLarge) {
          refused++
          await assert.rejects(ended, OutOfMemoryError, `seed ${SEED}, run ${run}`)
        } else assert.equal(new Set(await ended).size, sizes.length)
        requests += isTooLarge ? 2 : 3
      }
      assert.equal(pools[index].stats().allocations - before, requests)
    }
    await Promise.all(sessions.map(runAll))
    assert.ok(refused > 0)
    assert.equal(served.stats().failures, refused)
    assert.deepEqual([general.stats().allocations, served.live().length], [0, sessions.length])
    for (const session of sessions) await session.release()
    assert.deepEqual([served.live(), served.stats().failures], [[], refused])
    for (const pool of pools) assert.equal(pool.close().heldBuffers, 0)
    served.close()
  })

  it('runs take turns: only the run that got no memory fails, and the error of ONNX Runtime is the cause', async () => {
    using pool = device.createPool({ maxPoolBytes: LIMIT })
    const { served, create } = setUp(pool)
    const session = await create('model')
    const ended = await Promise.allSettled([1, 8, 1].map(mib => session.run({ sizes: [mib * MiB] })))
    assert.deepEqual(
      ended.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    )
    const { reason } = ended[1] as PromiseRejectedResult
    assert.ok(reason instanceof OutOfMemoryError)
    assert.match(String(reason.cause), /Failed to allocate memory/)
    assert.throws(() => session.runSync({ sizes: [8 * MiB] }), OutOfMemoryError)
    assert.equal(session.runSync({ sizes: [1 * MiB] }).length, 1)
    await session.release()
    served.close()
  })

  it('refuses its release, and sleep and close of its pool, only while a run is under way', async () => {
    const pool = device.createPool({ backing: 'virtual' })
    const { served, create } = setUp(limited(pool, 64 * MiB))
    const session = await create('model')
    let asleep: Promise<void> | undefined
    const inUse = (call: string) => ({
      name: 'PoolError',
      code: 'ERR_POOL_IN_USE',
      message: new RegExp(`^${call}: a run of 'model'.*await it first$`),
    })
    const run = session.run({
      sizes: [1 * MiB],
      meanwhile: () => {
        assert.throws(() => pool.close(), inUse('close'))
        asleep = pool.sleep()
        asleep.catch(() => {})
      },
    })
    await assert.rejects(session.release(), inUse('release'))
    assert.throws(() => session.runSync({ sizes: [] }), inUse('runSync'))
    await run
    await assert.rejects(asleep!, inUse('sleep'))
    await pool.sleep()
    await assert.rejects(session.run({ sizes: [1] }), { code: 'ERR_POOL_ASLEEP', message: /^run: the pool sleeps/ })
    await pool.wake()
    await session.run({ sizes: [1 * MiB] })
    await session.release()
    await assert.rejects(session.run({ sizes: [1] }), {
      name: 'PoolError',
      message: /^run: the session 'model' is rel/,
    })
    served.close()
    assert.equal(pool.close().heldBuffers, 0)
  })

  it('a run after the close of its pool is refused, and its memory is released without harm', async () => {
    using general = device.createPool()
    const { served, create } = setUp(general)
    const pool = device.createPool()
    const session = await create('model', pool)
    pool.warnOnHeld = false
    assert.equal(pool.close().heldBuffers, 1)
    await assert.rejects(session.run({ sizes: [1] }), { code: 'ERR_POOL_CLOSED' })
    assert.throws(() => served.close(), { code: 'ERR_POOL_IN_USE' })
    await session.release()
    served.close()
  })

  it('threads may ask and end at once, while a run of the session is under way', async () => {
    using pool = device.createPool()
    const { library, served } = setUp(pool)
    let allocator: Pointer = 0
    const session = await served.createSession('model', () => {
      allocator = library.registered
      return new StandInSession(library)
    })
    let isRunning = true
    const runs = async () => {
      while (isRunning) await session.run({ sizes: [1 * KiB, 64 * KiB] })
    }
    const ended = runs()
    for (let thread = 0; thread < 50; thread++) await askFromNewThread(library, allocator)
    isRunning = false
    await ended
    assert.equal(pool.stats().liveBuffers, 1)
    await session.release()
    served.close()
  })

  it('a second release does nothing: other sessions keep their memory', async () => {
    using pool = device.createPool()
    const { served, create } = setUp(pool)
    const [first, second] = [await create('first'), await create('second')]
    await first.run({ sizes: [1 * KiB] })
    await Promise.all([first.release(), first.release()])
    await first.release()
    assert.equal(served.stats().allocations, 3)
    await second.run({ sizes: [1 * KiB] })
    await second.release()
    assert.equal(served.stats().liveBuffers, 0)
    served.close()
  })

  it('a release that failed can be tried again', async () => {
    using pool = device.createPool()
    const { library, served } = setUp(pool)
    const session = new StandInSession(library)
    const release = session.release.bind(session)
    let tries = 0
    session.release = () => (++tries === 1 ? Promise.reject(new Error('not now')) : release())
    const made = await served.createSession('model', () => session)
    await assert.rejects(made.release(), /not now/)
    await made.release()
    assert.equal(tries, 2)
    assert.equal(served.stats().liveBuffers, 0)
    served.close()
  })

  it('create that calls createSession is refused, and both can be made one after another', async () => {
    using pool = device.createPool()
    const { library, served, create } = setUp(pool)
    const outer = served.createSession('outer', async () => {
      await create('inner')
      return new StandInSession(library)
    })
    await assert.rejects(outer, { code: 'ERR_POOL_IN_USE', message: /^createSession: the create function of 'outer'/ })
    for (const name of ['inner', 'outer']) await (await create(name)).release()
    served.close()
  })

  it('a second session that is made at the same time gets no memory, and neither stays', async () => {
    using general = device.createPool()
    using pool = device.createPool()
    const { library, served, create } = setUp(general)
    let other: Promise<unknown> | undefined
    let stray: StandInSession | undefined
    const both = served.createSession(
      'model',
      () => {
        other = served.as('other', async () => {
          stray = new StandInSession(library)
        })
        other.catch(() => {})
        return new StandInSession(library)
      },
      { pool },
    )
    const mixed = { name: 'PoolError', message: /^createSession: another session was made together with 'model'/ }
    await assert.rejects(both, mixed)
    await assert.rejects(other!, mixed)
    const { failures } = served.stats()
    const warned = once(process, 'warning')
    await assert.rejects(stray!.run({ sizes: [1 * KiB] }), /Failed to allocate/)
    assert.match(String(await warned), /ONNX Runtime: createSession: another session was made together/)
    assert.equal(served.stats().failures, failures + 1)
    assert.deepEqual([pool.stats().liveBuffers, general.stats().allocations], [0, 0])
    const session = await create('model', pool)
    assert.equal(pool.stats().liveBuffers, 1)
    await session.release()
    const late = StandInSession.prototype.run.call(session, { sizes: [1 * KiB] })
    await assert.rejects(late, /Failed to allocate/, 'the allocator of a released session has no pool')
    served.close()
  })

  it('a session that was made already is refused, and goes on as before', async () => {
    using general = device.createPool()
    using pool = device.createPool()
    const { served, create } = setUp(general)
    const session = await create('model', pool)
    await assert.rejects(
      served.createSession('again', () => session),
      { name: 'PoolError', message: "createSession: create of 'again' must make a session, not return an earlier one" },
    )
    assert.equal(session.runSync({ sizes: [1 * KiB] }).length, 1)
    await session.run({ sizes: [1 * KiB] })
    assert.deepEqual([pool.stats().liveBuffers, general.stats().allocations], [1, 0])
    await session.release()
    assert.equal(pool.stats().liveBuffers, 0)
    served.close()
  })

  it('results without run, and pools of another kind, are refused; the general allocator stays', async () => {
    using pool = device.createPool({ maxPoolBytes: 2 * MiB })
    const { library, served, create } = setUp(pool)
    const { registered } = library
    const nothing = () => ({}) as never
    await assert.rejects(served.createSession('a', nothing), { name: 'TypeError', message: /must return a session/ })
    await assert.rejects(served.createSession(1 as never, nothing), {
      name: 'TypeError',
      message: /^createSession: na/,
    })
    await assert.rejects(served.createSession('a', 1 as never), {
      name: 'TypeError',
      message: /^createSession: create/,
    })
    await assert.rejects(served.as('a', null as never), { name: 'TypeError', message: /^as: work must be a function/ })
    const host = device.createHostPool()
    await assert.rejects(served.createSession('a', nothing, { pool: host }), {
      name: 'TypeError',
      message: /pool must/,
    })
    pool.allocate(2 * MiB)
    await assert.rejects(create('a'), OutOfMemoryError)
    assert.equal(library.registered, registered)
    const making = served.createSession('a', () => new Promise<never>(() => {}))
    making.catch(() => {})
    assert.throws(() => served.close(), { code: 'ERR_POOL_IN_USE', message: /a session is being made/ })
    const external = new ServedOnnxRuntime(pool, new StandInLibrary().asLibrary(), 'external', null, [])
    await assert.rejects(external.createSession('a', nothing), { code: 'ERR_NOT_SUPPORTED' })
    host.close()
  })
})
