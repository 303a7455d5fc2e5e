// ONNX Runtime's CUDA provider with the memory of a device's pool. It needs onnxruntime-node with that provider beside
// its library; CUDA_MEMPOOL_ONNXRUNTIME names the folder of the package.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../core/base/bytes.js'
import { OutOfMemoryError } from '../core/base/errors.js'
import { openDevice } from '../core/device/open.js'
import { type Installed, installedOnnxRuntime } from './installed.fixture.js'
import { OnnxRuntimeLibrary } from './library.js'
import { smallModel } from './model.fixture.js'
import { OffThreadSession } from './off-thread.fixture.js'
import { type OnnxSessionOptions, serveOnnxRuntime } from './serve.js'

const WIDTH = 256
const MODEL = smallModel(WIDTH)
const ROWS = [1, 300, 7, 4000, 64]

const installed = installedOnnxRuntime()
if (typeof installed === 'string') console.log(`skipped with ONNX Runtime: ${installed}`)

describe('ONNX Runtime on CUDA', { skip: typeof installed === 'string' ? installed : false }, () => {
  const { ort, library } = installed as Installed

  const feeds = (rows: number) => {
    const x = Float32Array.from({ length: rows * WIDTH }, (_, i) => Math.fround(Math.sin(i)))
    return { x: new ort.Tensor('float32', x, [rows, WIDTH]) }
  }

  it('results arrive in pinned memory, or in ordinary memory where that has no room', async () => {
    using device = openDevice()
    using pool = device.createPool()
    using host = device.createHostPool({ maxPoolBytes: 64 * MiB })
    const own = await ort.InferenceSession.create(MODEL, { executionProviders: ['cuda'] })
    using served = serveOnnxRuntime(pool, { library, results: host })
    assert.throws(() => serveOnnxRuntime(host, { library }), { name: 'PoolError', message: /'cpu' is served already/ })
    const options = served.sessionOptions<OnnxSessionOptions>({ executionProviders: ['cuda'] })
    assert.equal(options.intraOpNumThreads, 1)
    assert.equal(served.sessionOptions({ intraOpNumThreads: 3 }).intraOpNumThreads, 3)
    const session = await served.as('model', () => ort.InferenceSession.create(MODEL, options))
    for (const rows of ROWS) {
      const before = host.stats().allocations
      assert.deepEqual((await session.run(feeds(rows))).y.data, (await own.run(feeds(rows))).y.data, `${rows} rows`)
      assert.ok(host.stats().allocations > before)
    }
    const rows = (128 * MiB) / (WIDTH * 4) // more than the host pool has
    assert.equal((await session.run(feeds(rows))).y.data.length, rows * WIDTH)
    assert.equal(served.stats().failures, 0)
    await session.release()
    assert.deepEqual([host.stats().liveBuffers, pool.stats().liveBuffers], [0, 0])
    await own.release()
  })

  it('sessions whose runs leave the thread take all memory from pools of their own, and lose no refusal', async () => {
    using device = openDevice()
    using general = device.createPool()
    using served = serveOnnxRuntime(general, { library })
    const opened = OnnxRuntimeLibrary.open(library)
    const pools = [1, 2].map(() => device.createPool({ maxPoolBytes: 16 * MiB, backing: 'virtual' }))
    const create = () => new OffThreadSession(opened, MODEL, WIDTH, 'registered', 'cuda')
    const sessions: OffThreadSession[] = []
    for (const pool of pools) sessions.push(await served.createSession('model', create, { pool }))
    const tooMany = (64 * MiB) / (WIDTH * 4)
    const rowsOf = (rows: number) => ({ x: new Float32Array(rows * WIDTH).fill(2), rows })
    const runAll = async (session: OffThreadSession, pool: (typeof pools)[number]) => {
      for (let run = 0; run < 200; run++) {
        const rows = ROWS[run % ROWS.length]
        if (run % 20 === 0) await assert.rejects(session.run(rowsOf(tooMany)), OutOfMemoryError)
        const running = session.run(rowsOf(rows))
        if (run % 50 === 1) {
          await new Promise(setImmediate)
          await assert.rejects(pool.sleep(), { code: 'ERR_POOL_IN_USE' })
          assert.throws(() => pool.close(), { code: 'ERR_POOL_IN_USE' })
        }
        assert.deepEqual([...new Set(await running)], [0.5], `run ${run}`)
      }
      await pool.sleep()
      await assert.rejects(session.run(rowsOf(1)), { code: 'ERR_POOL_ASLEEP' })
      await pool.wake()
      assert.equal((await session.run(rowsOf(1)))[0], 0.5)
    }
    await Promise.all(sessions.map((session, index) => runAll(session, pools[index])))
    assert.equal(general.stats().allocations, 0)
    for (const session of sessions) await session.release()
    for (const pool of pools) assert.equal(pool.close().heldBuffers, 0)
  })

  for (const way of ['stream', 'external'] as const) {
    it(`results are those of its own arena, and all memory is named and comes back: ${way}`, async () => {
      using device = openDevice()
      using pool = device.createPool({ maxPoolBytes: 1 * GiB })
      const own = await ort.InferenceSession.create(MODEL, { executionProviders: ['cuda'] })
      {
        using served = serveOnnxRuntime(pool, { library, way })
        const options = served.sessionOptions({ executionProviders: ['cuda'] })
        const session = await served.as('model', () => ort.InferenceSession.create(MODEL, options))
        assert.ok(served.stats().liveBytes >= WIDTH * WIDTH * 4)
        assert.deepEqual(
          served.live().map(({ name }) => name),
          ['model'],
        )
        for (const rows of ROWS) {
          const { y } = await served.as('model', () => session.run(feeds(rows)))
          assert.deepEqual(y.data, (await own.run(feeds(rows))).y.data, `${rows} rows`)
        }
        assert.equal(served.stats().failures, 0)
        assert.ok(pool.live().every(({ label }) => label === 'model'))
        pool.check()
        await session.release()
        assert.deepEqual([served.stats().liveBuffers, pool.stats().liveBuffers], [0, 0])
      }
      await own.release()
    })

    it(`sessions with a pool each sleep apart, and give the same results after the wake: ${way}`, async () => {
      using device = openDevice()
      using pool = device.createPool()
      using first = device.createPool({ backing: 'virtual' })
      using second = device.createPool({ backing: 'virtual' })
      using served = serveOnnxRuntime(pool, { library, way })
      const options = served.sessionOptions({ executionProviders: ['cuda'] })
      const create = () => ort.InferenceSession.create(MODEL, options)
      const a = await served.as('a', create, { pool: first })
      const b = await served.as('b', create, { pool: second })
      const run = async (session: typeof a) => (await served.as('run', () => session.run(feeds(9)))).y.data
      const before = await run(a)
      await first.sleep()
      assert.equal(first.stats().reservedBytes, 0)
      await assert.rejects(
        served.as('a', () => a.run(feeds(9)), { pool: first }),
        { name: 'PoolError', message: /^as: the pool sleeps; await pool\.wake\(\) first$/ },
      )
      const refusal = { name: 'PoolError', message: /lies in a pool that sleeps; await its wake\(\) first$/ }
      await assert.rejects(run(a), refusal)
      await assert.rejects(a.run(feeds(9)), refusal)
      const inner = Object.getPrototypeOf(a).run.bind(a)
      await assert.rejects(
        served.as('a', () => inner(feeds(9))),
        refusal,
      )
      assert.deepEqual(await run(b), before)
      await first.wake()
      assert.deepEqual(await run(a), before)
      await first.sleep()
      await a.release()
      assert.equal(first.stats().liveBuffers, 0)
      await b.release()
    })

    it(`a limit that is reached is an OutOfMemoryError of the run, and the process goes on: ${way}`, async () => {
      using device = openDevice()
      using pool = device.createPool({ maxPoolBytes: 16 * MiB })
      using served = serveOnnxRuntime(pool, { library, way })
      const options = served.sessionOptions({ executionProviders: ['cuda'] })
      const session = await served.as('model', () => ort.InferenceSession.create(MODEL, options))
      const rows = (64 * MiB) / (WIDTH * 4)
      await assert.rejects(
        served.as('model', () => session.run(feeds(rows))),
        (error: Error) => error instanceof OutOfMemoryError && error.figures.maxPoolBytes === 16 * MiB,
      )
      const { y } = await served.as('model', () => session.run(feeds(2)))
      assert.equal(y.data.length, 2 * WIDTH)
      await session.release()
    })
  }
})
