import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { MiB } from '../core/base/bytes.js'
import { Communicator } from './communicator.js'
import type { SymmetricArena } from './symmetric-arena.js'
import { elements, TestWorld } from './world.fixture.js'

const arenasOf = async (world: TestWorld, debug = false): Promise<SymmetricArena[]> =>
  await Promise.all(world.comms.map(comm => comm.createSymmetricArena({ bytes: MiB, debug })))

/** Compares offsets on all ranks of this thread. */
async function compare(arenas: readonly SymmetricArena[]): Promise<PromiseSettledResult<void>[]> {
  const checks: Promise<void>[] = []
  Communicator.group(() => checks.push(...arenas.map(arena => arena.compareOffsets())))
  return await Promise.allSettled(checks)
}

describe('a symmetric arena', () => {
  it('is one window on all ranks, aligned, and goes with its communicator', async () => {
    using world = await TestWorld.join()
    const arenas = await arenasOf(world)
    assert.equal(world.nccl.registered, 2)
    const memory = arenas.map(arena => arena.upload(Float32Array.of(1, 2)))
    const next = arenas.map(arena => arena.allocate(1))
    for (const [rank, arena] of arenas.entries()) {
      const base = arena.segments()[0].ptr
      assert.deepEqual([memory[rank].ptr - base, next[rank].ptr - base], [0, 4096])
      assert.equal(arena.allocate(1, { alignment: '8KiB' }).ptr % 8192, 0)
      assert.equal(arena.tryAllocate(1, undefined, 256)!.ptr % 4096, 0)
      assert.throws(() => arena.allocate(1, undefined, 3), { code: 'ERR_OUT_OF_RANGE', message: /alignment/ })
    }
    world.all((comm, rank) => comm.allReduce(memory[rank], memory[rank]))
    assert.deepEqual(await elements(memory), [
      [2, 4],
      [2, 4],
    ])
    assert.equal(world.comms[0].stats().symmetricBytes, arenas[0].stats().reservedBytes)
    await world.close()
    assert.deepEqual([arenas[0].closed, world.nccl.registered], [true, 0])
  })

  it('compares offsets in debug mode', async () => {
    using world = await TestWorld.join()
    const arenas = await arenasOf(world, true)
    for (const arena of arenas) for (const bytes of [1, 5000, 3]) arena.allocate(bytes)
    assert.deepEqual(
      (await compare(arenas)).map(({ status }) => status),
      ['fulfilled', 'fulfilled'],
    )
    for (const arena of arenas) arena.reset()
    arenas[1].allocate(5000)
    for (const arena of arenas) arena.allocate(1)
    for (const result of await compare(arenas)) {
      assert.match(
        String(result.status === 'rejected' && result.reason),
        /PoolError: compareOffsets: rank 1 has allocated otherwise/,
      )
    }
    const others = await arenasOf(world, true)
    for (const [rank, arena] of others.entries()) arena.allocate(rank === 0 ? 5000 : 1)
    for (const { status } of await compare(others)) assert.equal(status, 'rejected', 'as many, of other sizes')
    const without = await arenasOf(world)
    without[0].allocate(1)
    assert.deepEqual(
      (await compare(without)).map(({ status }) => status),
      ['fulfilled', 'fulfilled'],
    )
  })

  it('compares no offsets without the other ranks, and waits for none', async () => {
    using world = await TestWorld.join({ timeoutMs: 30 })
    const [arena] = await arenasOf(world, true)
    const warnings: Error[] = []
    const note = (warning: Error) => warnings.push(warning)
    process.on('warning', note)
    await assert.rejects(arena.compareOffsets(), { code: 'ERR_COMMUNICATOR', message: /within 30 ms/ })
    const before = world.driver.usedBytes(0)
    world.comms[0].abort()
    await setImmediate()
    process.off('warning', note)
    assert.deepEqual(warnings, [])
    assert.ok(world.driver.usedBytes(0) < before)
  })

  it('is made after an arena that was begun at the same time', async () => {
    using world = await TestWorld.join()
    const arenas = await Promise.all(
      world.comms.map(comm =>
        Promise.all([2 * MiB, 6 * MiB].map(async bytes => await comm.createSymmetricArena({ bytes }))),
      ),
    )
    const sizes = arenas.map(each => each.map(arena => arena.stats().reservedBytes))
    assert.deepEqual(sizes, [
      [2 * MiB, 6 * MiB],
      [2 * MiB, 6 * MiB],
    ])
    assert.equal(world.nccl.registered, 4)
    for (const arena of arenas.flat()) arena.close()
    assert.equal(world.comms[0].arenas.size, 0, 'closed arenas are forgotten')
  })

  it('is made before a close that comes behind, and closed by it', async () => {
    using world = await TestWorld.join({ progress: 'eager' })
    const making = arenasOf(world)
    await world.close()
    assert.deepEqual(
      (await making).map(({ closed }) => closed),
      [true, true],
    )
  })

  it('goes with its device', async () => {
    using world = await TestWorld.join()
    await arenasOf(world)
    world.devices[0].close()
    assert.equal(world.comms[0].closed, true)
    assert.equal(world.driver.usedBytes(0), 0)
  })

  it('leaves no rejection unheard when the group of a comparison is refused', async t => {
    using world = await TestWorld.join()
    const arenas = await arenasOf(world, true)
    const unheard = t.mock.fn()
    process.on('unhandledRejection', unheard)
    const group = () =>
      Communicator.group(() => {
        for (const arena of arenas) arena.compareOffsets()
        world.nccl.failCall({ call: 'ncclAllGather', result: 4 })
      })
    assert.throws(group, { code: 'ERR_COMMUNICATOR' })
    for (let turn = 0; turn < 100; turn++) await setImmediate()
    process.off('unhandledRejection', unheard)
    assert.equal(unheard.mock.callCount(), 0)
  })

  it('is refused where a rank does not come, or NCCL refuses, and leaves no memory', async () => {
    using world = await TestWorld.join({ timeoutMs: 30 })
    await assert.rejects(world.comms[0].createSymmetricArena({ bytes: MiB }), {
      code: 'ERR_COMMUNICATOR',
      message: /rank 1 of this thread has not made this call within 30 ms/,
    })
    assert.equal(world.nccl.registered, 0)
    world.nccl.failCall({ call: 'ncclCommWindowRegister', result: 3 })
    await Promise.allSettled(world.comms.map(comm => comm.createSymmetricArena({ bytes: MiB })))
    for (const comm of world.comms) comm.abort()
    assert.equal(world.driver.usedBytes(0), 0)
  })

  it('is not registered once more', async () => {
    using world = await TestWorld.join()
    const [arena] = await arenasOf(world)
    assert.throws(() => world.comms[0].register(arena), {
      code: 'ERR_POOL',
      message: 'register: NCCL knows a symmetric arena as a window already; use its buffers as they are',
    })
  })

  it('is refused with the wrong options', async () => {
    using world = await TestWorld.join()
    const [comm] = world.comms
    const create = (options: object) => comm.createSymmetricArena(options as never)
    await assert.rejects(create({}), { code: 'ERR_INVALID_ARG_TYPE', message: /createSymmetricArena: bytes/ })
    await assert.rejects(create({ bytes: 0 }), { code: 'ERR_OUT_OF_RANGE' })
    await assert.rejects(create({ bytes: MiB, debug: 1 }), { code: 'ERR_INVALID_ARG_TYPE', message: /debug must be/ })
    await assert.rejects(create({ bytes: MiB, size: 1 }), { code: 'ERR_INVALID_ARG_TYPE', message: /unknown option/ })
  })
})
