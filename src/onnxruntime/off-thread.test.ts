// ONNX Runtime on the CPU, with runs in threads of libuv and services in workers.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { Worker } from 'node:worker_threads'
import { MiB } from '../core/base/bytes.js'
import { OutOfMemoryError, type PoolError } from '../core/base/errors.js'
import { Random } from '../core/base/random.js'
import { openDevice } from '../core/device/open.js'
import { type Installed, installedOnnxRuntime } from './installed.fixture.js'
import { OnnxRuntimeLibrary } from './library.js'
import { smallModel } from './model.fixture.js'
import { OffThreadSession } from './off-thread.fixture.js'
import { serveOnnxRuntime } from './serve.js'

const WIDTH = 64
const MODEL = smallModel(WIDTH)
const RUNS = Number(process.env.CUDA_MEMPOOL_ONNXRUNTIME_RUNS ?? 300)
const SEED = Number(process.env.CUDA_MEMPOOL_SEED ?? 1)
const LIMIT = 1 * MiB

const installed = installedOnnxRuntime()
if (typeof installed === 'string') console.log(`skipped with ONNX Runtime: ${installed}`)

const rowsOf = (rows: number) => ({ x: new Float32Array(rows * WIDTH).fill(2), rows })
const TOO_MANY = rowsOf((2 * LIMIT) / (WIDTH * 4))

describe('runs of ONNX Runtime off the thread', { skip: typeof installed === 'string' ? installed : false }, () => {
  const { ort, library } = installed as Installed

  it(`${RUNS} runs of sessions with pools of their own take no memory of another, and lose no refusal`, async () => {
    using device = openDevice('simulated')
    using general = device.createHostPool()
    using served = serveOnnxRuntime(general, { library })
    const opened = OnnxRuntimeLibrary.open(library)
    const pools = [1, 2].map(() => device.createHostPool({ maxPoolBytes: LIMIT, segmentBytes: LIMIT / 4 }))
    const sessions = []
    for (const [index, pool] of pools.entries()) {
      const create = () => new OffThreadSession(opened, MODEL, WIDTH, 'registered')
      sessions.push(await served.createSession(`model ${index}`, create, { pool }))
    }
    let refused = 0
    const runAll = async (session: OffThreadSession, index: number) => {
      const random = new Random(SEED + index)
      for (let run = 0; run < RUNS / sessions.length; run++) {
        if (random.below(20) === 0) {
          refused++
          await assert.rejects(session.run(TOO_MANY), OutOfMemoryError, `seed ${SEED}, run ${run}`)
          continue
        }
        const rows = 1 + random.below(64)
        const y = await session.run(rowsOf(rows))
        assert.deepEqual([y.length, y[0], y.at(-1)], [rows * WIDTH, 0.5, 0.5])
      }
    }
    await Promise.all(sessions.map(runAll))
    assert.ok(refused > 0 && served.stats().failures >= refused)
    assert.equal(general.stats().allocations, 0)
    for (const session of sessions) await session.release()
    assert.deepEqual(served.live(), [])
    for (const pool of pools) assert.equal(pool.close().heldBuffers, 0)
  })

  it('without a pool that is known, a run in another thread is refused, also where no work is under way', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    using other = device.createHostPool()
    using served = serveOnnxRuntime(pool, { library })
    const opened = OnnxRuntimeLibrary.open(library)
    const create = () => new OffThreadSession(opened, MODEL, WIDTH, 'registered')
    const session = await served.as('model', create)
    assert.equal((await session.run(rowsOf(1)))[0], 0.5) // there is one pool only
    const refused = {
      name: 'PoolError',
      message: /^as: ONNX Runtime asked for memory in another thread.*createSession/,
    }
    await assert.rejects(
      served.as('model', () => session.run(rowsOf(1))),
      refused,
    )
    await served.as('other', () => 0, { pool: other })
    const before = pool.stats().allocations
    const warned = once(process, 'warning')
    assert.equal((await session.run(rowsOf(1)))[0], 0.5) // in ordinary memory
    assert.match(String((await warned)[0]), /ONNX Runtime: as: ONNX Runtime asked for memory in another thread/)
    assert.deepEqual([pool.stats().allocations, other.stats().allocations], [before, 0])
    await session.release()
  })

  it('sessions of onnxruntime-node run the same, with all memory of their pool', async () => {
    using device = openDevice('simulated')
    using general = device.createHostPool()
    using pool = device.createHostPool({ maxPoolBytes: LIMIT, segmentBytes: LIMIT / 4 })
    using served = serveOnnxRuntime(general, { library })
    const create = () => ort.InferenceSession.create(MODEL, served.sessionOptions())
    const session = await served.createSession('own', create, { pool })
    const plain = await served.as('plain', create)
    const feeds = ({ x, rows }: { x: Float32Array; rows: number }) => ({
      x: new ort.Tensor('float32', x, [rows, WIDTH]),
    })
    const ended = await Promise.allSettled([rowsOf(3), TOO_MANY, rowsOf(2)].map(rows => session.run(feeds(rows))))
    assert.deepEqual(
      ended.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    )
    assert.ok((ended[1] as PromiseRejectedResult).reason instanceof OutOfMemoryError)
    assert.equal((await plain.run(feeds(rowsOf(3)))).y.data[0], 0.5)
    const names = () => new Set(served.live().map(({ name }) => name))
    assert.deepEqual(names(), new Set(['own', 'plain']))
    await session.release()
    assert.deepEqual(names(), new Set(['plain']))
    assert.equal(pool.stats().liveBuffers, 0)
    await plain.release()
  })

  it('two threads never serve a memory together: the second waits until the first has closed or ended', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    const serve = () => serveOnnxRuntime(pool, { library })
    const elsewhere = {
      code: 'ERR_POOL_IN_USE',
      message: /^serveOnnxRuntime: another thread serves the memory of 'cpu', or/,
    }
    for (const end of ['release', 'exit']) {
      const worker = new Worker(new URL('./serving.worker.js', import.meta.url), { workerData: { library, end } })
      const [answer] = (await once(worker, 'message')) as [number]
      assert.equal(answer, 0.5)
      assert.throws(serve, elsewhere)
      worker.postMessage('end')
      await once(worker, 'exit')
      const served = serve()
      const session = await ort.InferenceSession.create(MODEL, served.sessionOptions())
      assert.ok(served.stats().liveBytes > 0)
      await session.release()
      served.close()
    }
  })

  it('a worker is refused while this thread serves, and its sessions never ask this one', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    using served = serveOnnxRuntime(pool, { library })
    const worker = new Worker(new URL('./serving.worker.js', import.meta.url), { workerData: { library, end: 'exit' } })
    const [error] = (await once(worker, 'error')) as [PoolError]
    assert.match(error.message, /^serveOnnxRuntime: another thread/)
    assert.equal(served.stats().allocations, 0)
  })
})
