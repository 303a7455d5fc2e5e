// ONNX Runtime on the CPU with the memory of a host pool, end to end; and what is refused.

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import { KiB, MiB } from '../core/base/bytes.js'
import { OutOfMemoryError, PoolError } from '../core/base/errors.js'
import { openDevice } from '../core/device/open.js'
import type { HostPool } from '../core/pool/host/host-pool.js'
import type { Pool } from '../core/pool/pool.js'
import { Registration } from './allocator.js'
import { ResultBlocks } from './blocks.js'
import { type Installed, installedOnnxRuntime } from './installed.fixture.js'
import { OnnxRuntimeLibrary } from './library.js'
import { smallModel } from './model.fixture.js'
import { serveOnnxRuntime } from './serve.js'

const WIDTH = 64
const MODEL = smallModel(WIDTH)

describe('arguments', () => {
  const device = openDevice('simulated')
  after(() => device.close())
  const library = '/absent'

  it('a library that is missing, foreign or without this system is refused', t => {
    const pool = device.createHostPool()
    assert.throws(() => serveOnnxRuntime(pool, { library }), { name: 'NoLibraryError', message: /no such file/ })
    const folder = mkdtempSync(join(tmpdir(), 'onnxruntime-'))
    t.after(() => rmSync(folder, { recursive: true }))
    writeFileSync(join(folder, 'package.json'), '{}')
    const empty = { name: 'NoLibraryError', message: /has no libonnxruntime\.so\.1 for/ }
    assert.throws(() => serveOnnxRuntime(pool, { library: folder }), empty)
    const broken = join(folder, 'libonnxruntime.so.1')
    writeFileSync(broken, 'not a library')
    const unusable = { name: 'NoLibraryError', message: /is no usable ONNX Runtime/ }
    assert.throws(() => serveOnnxRuntime(pool, { library: broken }), unusable)
    pool.close()
  })

  const old = process.env.CUDA_MEMPOOL_OLD_ONNXRUNTIME
  const skip = old === undefined && 'set CUDA_MEMPOOL_OLD_ONNXRUNTIME to the folder of onnxruntime-node 1.20'
  it('a library without allocations by stream is too old', { skip }, () => {
    using pool = device.createHostPool()
    const tooOld = /^ONNX Runtime 1\.20\.\d+ at .* is too old; install onnxruntime-node 1\.23 or later$/
    assert.throws(() => serveOnnxRuntime(pool, { library: old! }), { name: 'NoLibraryError', message: tooOld })
  })

  it('bad pools and options are refused', () => {
    const pool = device.createHostPool()
    assert.throws(() => serveOnnxRuntime({} as never, { library }), { name: 'TypeError', message: /pool must be/ })
    assert.throws(() => serveOnnxRuntime(pool, {} as never), { name: 'TypeError', message: /library must be a path/ })
    const way = 'other' as never
    assert.throws(() => serveOnnxRuntime(pool, { library, way }), { name: 'RangeError', message: /way must be/ })
    const results = pool
    const refused = (of: HostPool | Pool, options: object) => () =>
      serveOnnxRuntime(of, { library, ...options } as never)
    assert.throws(refused(pool, { results }), { name: 'TypeError', message: /results are for a device's pool/ })
    assert.throws(refused(device.createPool(), { results: 1 }), { name: 'TypeError', message: /must be a host pool/ })
    const simulated = { name: 'PoolError', message: /a simulated device has no memory for CUDA/ }
    assert.throws(() => serveOnnxRuntime(device.createPool(), { library }), simulated)
    pool.close()
    const closed = { name: 'PoolError', message: /the pool is closed/ }
    assert.throws(() => serveOnnxRuntime(pool, { library }), closed)
    assert.throws(refused(device.createPool(), { results }), closed)
  })
})

const installed = installedOnnxRuntime()
if (typeof installed === 'string') console.log(`skipped with ONNX Runtime: ${installed}`)

describe('ONNX Runtime on the CPU', { skip: typeof installed === 'string' ? installed : false }, () => {
  const { ort, library } = installed as Installed

  const feeds = (rows: number, value = 2) => ({
    x: new ort.Tensor('float32', new Float32Array(rows * WIDTH).fill(value), [rows, WIDTH]),
  })

  it('sessions take weights and activations from the pool, and give all back', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    using served = serveOnnxRuntime(pool, { library })
    assert.match(served.version, /^1\.\d+\.\d+$/)
    const create = () => ort.InferenceSession.create(MODEL, served.sessionOptions({ executionMode: 'sequential' }))
    const a = await served.as('a', create)
    const b = await served.as('b', create)
    const weights = served.stats().liveBytes
    assert.ok(weights >= 2 * WIDTH * WIDTH * 4, `${weights} bytes`)
    assert.deepEqual(new Set(served.live().map(({ name }) => name)), new Set(['a', 'b']))
    assert.ok(pool.stats().requestedBytes >= weights)
    const before = pool.stats().allocations
    const { y } = await served.as('a', () => a.run(feeds(3)))
    assert.deepEqual(y.data, new Float32Array(3 * WIDTH).fill(0.5))
    assert.ok(pool.stats().allocations > before)
    await a.release()
    assert.deepEqual(
      new Set(
        served
          .live()
          .filter(({ bytes }) => bytes >= WIDTH * WIDTH * 4)
          .map(({ name }) => name),
      ),
      new Set(['b']),
    )
    assert.throws(() => served.close(), { name: 'PoolError', message: /sessions hold memory \(.*'b'/ })
    assert.equal(served.closed, false)
    await b.release()
  })

  it('a limit that is reached is an OutOfMemoryError of the work, and the process goes on', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool({ maxPoolBytes: 4 * MiB, segmentBytes: 1 * MiB })
    using served = serveOnnxRuntime(pool, { library })
    const session = await served.as('a', () => ort.InferenceSession.create(MODEL, served.sessionOptions({})))
    const large = feeds((8 * MiB) / (WIDTH * 4))
    await assert.rejects(
      served.as('a', () => session.run(large)),
      (error: Error) => error instanceof OutOfMemoryError && error.figures.maxPoolBytes === 4 * MiB,
    )
    assert.ok(served.stats().failures > 0)
    const { y } = await served.as('a', () => session.run(feeds(1)))
    assert.equal(y.data[0], 0.5)
    await session.release()
  })

  it('a scope takes memory from a pool of its own', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    using other = device.createHostPool()
    using served = serveOnnxRuntime(pool, { library })
    const create = () => ort.InferenceSession.create(MODEL, served.sessionOptions())
    const session = await served.as('a', create, { pool: other })
    assert.equal(pool.stats().allocations, 0)
    assert.equal(other.stats().liveBuffers, served.stats().liveBuffers)
    const { y } = await served.as('a', () => session.run(feeds(3)), { pool: other })
    assert.equal(y.data[0], 0.5)
    assert.equal(pool.stats().allocations, 0)
    await served.as('a', () => session.run(feeds(3)))
    assert.ok(pool.stats().allocations > 0)
    await session.release()
    assert.deepEqual([pool.stats().liveBuffers, other.stats().liveBuffers], [0, 0])
    const devicePool = device.createPool()
    const refused = (options: object) => served.as('a', create, options)
    await assert.rejects(refused({ pool: devicePool }), { name: 'TypeError', message: /pool must be a host pool/ })
    await assert.rejects(refused({ pol: other }), { name: 'TypeError', message: /pool/ })
    other.close()
    await assert.rejects(refused({ pool: other }), { name: 'PoolError', message: /the pool is closed/ })
  })

  it('a run is refused while the pool of its weights sleeps, and works after the wake', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    const weights = Object.assign(device.createHostPool(), { asleep: false }) // host pools do not sleep: it looks so
    using served = serveOnnxRuntime(pool, { library })
    const create = () => ort.InferenceSession.create(MODEL, served.sessionOptions())
    const session = await served.as('a', create, { pool: weights })
    const other = await served.as('b', create)
    weights.asleep = true
    const failures = () => served.stats().failures
    await assert.rejects(session.run(feeds(1)), {
      name: 'PoolError',
      message: /^run: memory of the session lies in.*wake\(\)/,
    })
    await assert.rejects(
      served.as('run', () => session.run(feeds(1))),
      {
        name: 'PoolError',
        message: /^run: memory of the session lies in a pool that sleeps; await its wake\(\) first$/,
      },
    )
    assert.equal(failures(), 0)
    // A run that another library calls, and one whose pool falls asleep between its call and its start.
    const inner = Object.getPrototypeOf(session).run.bind(session)
    await assert.rejects(
      served.as('a', () => inner(feeds(1))),
      { name: 'PoolError', message: /^as: memory of 'a' lies in a pool that sleeps; await its wake\(\) first$/ },
    )
    weights.asleep = false
    const late = session.run(feeds(1))
    weights.asleep = true
    await assert.rejects(late, { name: 'PoolError', message: /memory of the session lies in a pool that sleeps/ })
    assert.ok(failures() > 1)
    assert.equal((await other.run(feeds(1))).y.data[0], 0.5)
    weights.asleep = false
    for (const run of [session.run(feeds(1)), served.as('run', () => session.run(feeds(1)))]) {
      assert.equal((await run).y.data[0], 0.5)
    }
    weights.asleep = true
    await session.release()
    await other.release()
    assert.deepEqual([weights.stats().liveBuffers, served.stats().liveBuffers], [0, 0])
    weights.close()
  })

  it('memory for results is a help only: weights and what has no room lie in ordinary memory', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool({ maxPoolBytes: 1 * MiB, segmentBytes: 256 * KiB })
    const opened = OnnxRuntimeLibrary.open(library)
    const blocks = new ResultBlocks(pool, opened.koffi)
    const registration = new Registration(opened, { kind: 'Cpu', ordinal: 0 }, blocks, 'plain')
    const options = { extra: { session: { use_env_allocators: '1' } } }
    const session = await ort.InferenceSession.create(MODEL, options)
    assert.ok(blocks.groups()[0].bytes >= WIDTH * WIDTH * 4)
    assert.ok(pool.stats().requestedBytes < WIDTH * WIDTH * 4, 'weights are not in the pool')
    const before = pool.stats().allocations
    assert.equal((await session.run(feeds(3))).y.data[0], 0.5)
    assert.ok(pool.stats().allocations > before)
    const large = await session.run(feeds((8 * MiB) / (WIDTH * 4)))
    assert.deepEqual([large.y.data[0], large.y.data.at(-1), blocks.failures], [0.5, 0.5, 0])
    registration.close()
    pool.close()
    assert.equal((await session.run(feeds(3))).y.data[0], 0.5)
    await session.release()
    assert.deepEqual([blocks.groups(), blocks.failures], [[], 0])
  })

  it('parallel execution, a second service and a closed service are refused', () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    const served = serveOnnxRuntime(pool, { library })
    const parallel = { executionMode: 'parallel' } as const
    assert.throws(() => served.sessionOptions(parallel), { name: 'RangeError', message: /use 'sequential'/ })
    assert.throws(() => serveOnnxRuntime(pool, { library }), { name: 'PoolError', message: /served already/ })
    served.close()
    served.close()
    assert.throws(() => served.sessionOptions(), { name: 'PoolError', message: /the service is closed/ })
    serveOnnxRuntime(pool, { library }).close()
  })

  it('a session outlives its pool: it is released later, and its runs are refused', async () => {
    using device = openDevice('simulated')
    const pool = device.createHostPool({ segmentBytes: 64 * KiB })
    const served = serveOnnxRuntime(pool, { library })
    const session = await ort.InferenceSession.create(MODEL, served.sessionOptions())
    pool.close()
    await assert.rejects(
      served.as('a', () => session.run(feeds(1))),
      { name: 'PoolError', message: /the pool is closed/ },
    )
    const { y } = await session.run(feeds(2)) // in ordinary memory
    assert.equal(y.data[0], 0.5)
    assert.throws(() => served.close(), PoolError)
    await session.release()
    assert.equal(served.stats().liveBuffers, 0)
    served.close()
  })

  it('a model that does not load leaves nothing behind', async () => {
    using device = openDevice('simulated')
    using pool = device.createHostPool()
    using served = serveOnnxRuntime(pool, { library })
    const broken = MODEL.slice(0, 100)
    await assert.rejects(served.as('a', () => ort.InferenceSession.create(broken, served.sessionOptions())))
    assert.equal(served.stats().liveBuffers, 0)
  })
})
