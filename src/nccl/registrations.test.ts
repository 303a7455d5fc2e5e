import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { CudaError } from '../core/base/errors.js'
import { Communicator } from './communicator.js'
import { elements, TestWorld } from './world.fixture.js'

const registrable = (world: TestWorld) => world.arrays(device => device.createPool({ backing: 'registrable' }))

describe('a registered pool', () => {
  it('is registered as it grows, and deregistered as it shrinks and closes', async () => {
    using world = await TestWorld.join()
    const [pool] = registrable(world)
    const [comm] = world.comms
    const first = pool.allocate(MiB)
    assert.equal(comm.register(pool), 1)
    const second = pool.allocate(8 * MiB)
    assert.deepEqual([world.nccl.registered, comm.stats().registeredSegments], [2, 2])
    assert.equal(comm.stats().registeredBytes, pool.stats().reservedBytes)
    second.free()
    world.devices[0].synchronize()
    pool.trimTo(0)
    assert.deepEqual([world.nccl.registered, comm.stats().registeredSegments], [1, 1])
    first.free()
    pool.close()
    assert.deepEqual([world.nccl.registered, comm.stats().registeredBytes], [0, 0])
    comm.deregister(pool)
    await world.close()
  })

  it('serves two communicators, each as long as it likes', async () => {
    using world = await TestWorld.join()
    const others = await Communicator.joinAll(world.devices)
    world.comms.push(...others)
    const [pool] = registrable(world)
    pool.allocate(MiB)
    assert.equal(world.comms[0].register(pool), 1)
    assert.equal(others[0].register(pool), 1)
    pool.allocate(8 * MiB)
    assert.equal(world.nccl.registered, 4)
    world.comms[0].deregister(pool)
    assert.equal(world.nccl.registered, 2)
    others[0].abort()
    assert.equal(world.nccl.registered, 0)
    const stop = pool.observeSegments({ ready() {}, leaving() {} })
    stop()
  })

  it('keeps no segment after a refused registration, and keeps it after a refused deregistration', async () => {
    using world = await TestWorld.join()
    const others = await Communicator.joinAll(world.devices)
    world.comms.push(...others)
    const [pool] = registrable(world)
    for (const comm of [world.comms[0], others[0]]) comm.register(pool)
    const before = world.driver.usedBytes(0)
    world.nccl.failCall({ call: 'ncclCommRegister', nth: 2, result: 2 })
    assert.throws(() => pool.allocate(MiB), { code: 'ERR_COMMUNICATOR', call: 'register' })
    assert.deepEqual([world.nccl.registered, world.driver.usedBytes(0)], [0, before])
    const buffer = pool.allocate(MiB)
    assert.equal(world.nccl.registered, 2)
    buffer.free()
    world.devices[0].synchronize()
    world.nccl.failCall({ call: 'ncclCommDeregister', nth: 1, result: 2 })
    assert.throws(() => pool.trimTo(0), { code: 'ERR_COMMUNICATOR', call: 'deregister' })
    assert.ok(world.driver.usedBytes(0) > before)
    pool.trimTo(0)
    assert.deepEqual([world.nccl.registered, world.driver.usedBytes(0)], [0, before])
  })

  it('keeps a segment registered that the driver refuses to unmap', async () => {
    using world = await TestWorld.join()
    const [pool] = registrable(world)
    world.comms[0].register(pool)
    pool.allocate(MiB).free()
    world.devices[0].synchronize()
    world.driver.failCall({ call: 'cuMemUnmap', nth: 1, code: 999 })
    assert.throws(() => pool.trimTo(0), CudaError)
    assert.deepEqual([pool.segments().length, world.nccl.registered], [1, 1])
    pool.trimTo(0)
    assert.deepEqual([pool.segments().length, world.nccl.registered], [0, 0])
  })

  it('gives its memory back when another rank is gone', async () => {
    using world = await TestWorld.join()
    const pools = registrable(world)
    for (const [rank, comm] of world.comms.entries()) comm.register(pools[rank])
    for (const pool of pools) pool.allocate(MiB).free()
    for (const device of world.devices) device.synchronize()
    world.comms[0].abort()
    pools[1].trimTo(0)
    assert.equal(pools[1].stats().reservedBytes, 0)
  })

  it('is whole after refused driver calls', async () => {
    using world = await TestWorld.join()
    const [pool] = registrable(world)
    world.comms[0].register(pool)
    for (const call of ['cuMemCreate', 'cuMemAddressReserve', 'cuMemMap', 'cuMemSetAccess'] as const) {
      world.driver.failCall({ call, nth: 1, code: 999 })
      assert.throws(() => pool.allocate(MiB), CudaError)
      assert.equal(world.nccl.registered, 0)
    }
    pool.allocate(MiB).free()
    assert.equal(world.nccl.registered, 1)
  })

  it('waits for the end of a capture with a new segment', async () => {
    using world = await TestWorld.join({ devices: 1 })
    const [comm] = world.comms
    const [device] = world.devices
    const pool = device.createPool({ backing: 'registrable' })
    comm.register(pool)
    const stream = device.createStream()
    stream.beginCapture()
    const during = pool.zeros(Float32Array, 1)
    assert.deepEqual([world.nccl.registered, comm.stats().registeredSegments], [0, 0])
    stream.abortCapture()
    comm.allReduce(during, during)
    assert.deepEqual([world.nccl.registered, comm.stats().registeredSegments], [1, 1])
    during.free()
    await comm.close()
  })

  it('stays usable when its communicator fails, and is forgotten by the abort', async () => {
    using world = await TestWorld.join()
    const pools = registrable(world)
    for (const [rank, comm] of world.comms.entries()) comm.register(pools[rank])
    const memory = pools.map(pool => pool.upload(Float32Array.of(5)))
    world.nccl.failCall({ call: 'ncclAllReduce', result: 3 })
    assert.throws(() => world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank])), /ncclInternalError/)
    for (const comm of world.comms) comm.abort()
    assert.equal(world.nccl.registered, 0)
    const more = pools.map(pool => pool.upload(new Float32Array(4 * MiB).fill(2)))
    assert.deepEqual(await elements(memory), [[5], [5]])
    for (const array of [...memory, ...more]) array.free()
    for (const pool of pools) pool.close()
  })

  it('is refused a second observer of the program, with the reason', async () => {
    using world = await TestWorld.join()
    const [pool] = registrable(world)
    const stop = pool.observeSegments({ ready() {}, leaving() {} })
    assert.throws(() => world.comms[0].register(pool), {
      name: 'PoolError',
      message: /there is an observer; stop it first/,
    })
    stop()
    world.comms[0].register(pool)
  })

  it('may be an arena', async () => {
    using world = await TestWorld.join()
    const arenas = world.arrays(device => device.createArenaPool({ bytes: MiB, backing: 'registrable' }))
    for (const [rank, comm] of world.comms.entries()) assert.equal(comm.register(arenas[rank]), 1)
    const memory = arenas.map(arena => arena.upload(Float32Array.of(3)))
    world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
    assert.deepEqual(await elements(memory), [[6], [6]])
    for (const arena of arenas) arena.close()
    assert.equal(world.nccl.registered, 0)
  })
})
