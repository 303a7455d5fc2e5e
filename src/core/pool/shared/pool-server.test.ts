// The pool server in its rounds, when the driver refuses a call, and when the pool closes.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, DeviceLostError } from '../../base/errors.js'
import { TestDevice } from '../pool.fixture.js'
import { PoolServerGroup } from './pool-server-group.js'
import { CLOSED, Figure, type SharedState } from './shared-state.js'

describe('a pool that threads share, and its pool server', () => {
  it('refuses to be made when the pool server cannot map memory', () => {
    const device = new TestDevice()
    device.driver.failCall({ call: 'cuMemSetAccess', nth: 2, code: 999, onwards: true }) // the first call is the maker's
    assert.throws(() => device.createSharedPool(), { name: 'PoolError', message: /'virtual' is not possible here/ })
    device.driver.clearFaults()
    device.createSharedPool().pool.allocate(1000).free()
  })

  it('close throws when the pool server dies meanwhile', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    const { figures, registry } = pool['state']
    pool.begin()
    server.serve = () => {
      registry.bury(figures[Figure.server])
      figures[Figure.server] = CLOSED
      server.serve = () => 0
      return 0
    }
    assert.throws(() => pool.close(), { name: 'PoolError', message: /the thread that made it has ended/ })
  })

  it('survives a refused driver call that no thread requested', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    const refused = new CudaError('cuEventRecord', 2, 'CUDA_ERROR_OUT_OF_MEMORY')
    let refusals = 0
    server['clocks'].buryStreams = () => {
      refusals++
      throw refused
    }
    server['sweptAt'] = -Infinity
    pool.processDeferred()
    assert.equal(refusals, 1)
    pool.check()
  })

  it('survives a refused mark that no thread requested', () => {
    const device = new TestDevice({ capacityBytes: 2048 * MiB })
    const { pool, server } = device.createSharedPool()
    const buffers = Array.from({ length: 800 }, () => pool.allocate(2 * MiB))
    for (const buffer of buffers) buffer.free()
    assert.ok(server['central'].memory.wantsMarks)
    const records = () => device.driver.calls.get('cuEventRecord') ?? 0
    const before = records()
    device.driver.failCall({ call: 'cuEventRecord', code: 2 })
    server.serve()
    assert.equal(records(), before + 1, 'the pool server has placed a mark, which was refused')
    assert.equal(pool.processDeferred(), 1, 'the next mark covers what was freed')
    pool.check()
  })

  it('throws the reason for the end of its pool server in every thread', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const lost = new DeviceLostError(new CudaError('cuEventQuery', 700, 'CUDA_ERROR_ILLEGAL_ADDRESS'))
    server.serve = () => {
      throw lost
    }
    const servers = new PoolServerGroup(() => {})
    servers.add(server)
    servers.serve()
    assert.equal(servers.count, 0)
    server.serve = () => 0
    for (const ask of [() => pool.processDeferred(), () => other.trimTo(0), () => pool.allocate(8 * MiB), attach]) {
      assert.throws(ask, { name: 'DeviceLostError', message: lost.message })
    }
    assert.deepEqual(other.close(), { heldBuffers: 0, heldBytes: 0 })
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  })

  it('publishes the figures of the backing before it releases the lock', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    const { state } = server as unknown as { state: SharedState }
    const release = state.release.bind(state)
    state.release = () => {
      assert.equal(state.figures[Figure.reservedBytes], server['central'].backing.reservedBytes)
      release()
    }
    pool.allocate(3 * MiB)
    pool.trimTo(0)
    assert.ok(pool.stats().reservedBytes > 0)
  })

  it('sweeps an idle pool less and less often, and not at all once its maker alone uses it', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const { caches, channel } = server['state']
    const other = attach()
    let now = 1e6
    let looks = 0
    const look = caches.noteSums.bind(caches)
    caches.noteSums = () => {
      looks++
      look()
    }
    const naps = (count: number) =>
      Array.from({ length: count }, () => {
        server.serve(now)
        const restMs = server.restMs(now)
        now += restMs
        return restMs
      })
    const growing = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert.deepEqual(naps(9), growing)
    assert.equal(looks, 1, 'the blocks are looked at once')
    other.allocate(1 * MiB).free() // makes a request
    now += 50
    assert.deepEqual(naps(9), growing)
    assert.equal(looks, 2)
    other.close()
    now += 50
    assert.deepEqual(naps(1), [Infinity])
    now = 2e6
    const { rings } = channel.doorbell
    attach()
    assert.ok(channel.doorbell.rings > rings, 'a thread that comes wakes the pool server')
    assert.deepEqual(naps(2), [200, 400])
    pool.check()
  })

  it('stays open when a thread attaches before the pool server closes it', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const serve = server.serve.bind(server)
    const late: ReturnType<typeof attach>[] = []
    server.serve = () => {
      server.serve = serve
      late.push(attach())
      return serve()
    }
    assert.throws(() => pool.close(), { name: 'PoolError', message: /close: the pool is in use by 1 other thread \(/ })
    late[0].allocate(1000).free()
    late[0].close()
    pool.allocate(1000).free()
    pool.check()
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  })

  for (const backing of ['virtual', 'segments', 'registrable'] as const) {
    it(`a repair while the pool server calls the driver counts a block once: ${backing}`, () => {
      const device = new TestDevice()
      const { pool } = device.createSharedPool({ backing })
      const state = pool['state']
      const repairs = device.duringGrowth(() => state.locked(() => state.caches.recount()))
      const buffer = pool.allocate(3 * MiB)
      assert.ok(repairs() > 0)
      assert.equal(pool.stats().liveBuffers, 1)
      pool.check()
      buffer.free()
    })
  }
})
