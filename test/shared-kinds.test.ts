// Block pools, arenas and host pools in several threads.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, describe, it } from 'node:test'
import { Worker } from 'node:worker_threads'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { attachPool } from '../src/core/device/attach.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { TransferredBuffer } from '../src/core/pool/transferred-buffer.js'
import type { tasks } from './shared-kinds.worker.js'
import { threadProgram } from './thread-program.fixture.js'

const PROGRAM = threadProgram(new URL('./shared-kinds.worker.js', import.meta.url))

const threads: Worker[] = []
after(() => Promise.all(threads.map(thread => thread.terminate())))

function start<T extends keyof typeof tasks>(kindTask: T, ...args: Parameters<(typeof tasks)[T]>) {
  const thread = new Worker(PROGRAM, { workerData: { kindTask, args } })
  threads.push(thread)
  const done = once(thread, 'message').then(([result]) => result as ReturnType<(typeof tasks)[T]>)
  done.catch(() => {})
  return { thread, done }
}

function open() {
  const driver = new SimulatedDriver({ progress: 'eager', capacityBytes: 64 * MiB })
  const device = openDevice(driver)
  const block = device.createSharedBlockPool({ blockBytes: 8 * KiB, count: 4 })
  const arena = device.createSharedArenaPool({ bytes: 1 * MiB })
  const host = device.createSharedHostPool({ maxPoolBytes: 4 * MiB })
  return { driver, device, block, arena, host }
}

describe('pools of other kinds in several threads', () => {
  it('are attached, used, handed on, and closed last where they were made', async () => {
    const { driver, device, block, arena, host } = open()
    const { thread, done } = start('fillEach', block.share(), arena.share(), host.share(), 42)
    const [first, second, third] = (await done) as TransferredBuffer[]
    for (const buffer of [block.adopt(first), arena.adopt(second)]) {
      assert.deepEqual([...buffer.readSync()], Array(1000).fill(42))
      buffer.free()
    }
    const pinned = host.adopt(third)
    assert.deepEqual([...pinned.bytes], Array(1000).fill(42))
    const target = block.allocate(1000)
    pinned.copyTo(target)
    pinned.free()
    assert.equal(target.readSync(999)[0], 42)
    target.free()
    for (const pool of [block, arena, host]) {
      assert.throws(() => pool.close(), {
        name: 'PoolError',
        message: /close: the pool is in use by 1 other thread \(\d+\)/,
      })
    }
    thread.postMessage('close')
    const nothing = { heldBuffers: 0, heldBytes: 0 }
    assert.deepEqual((await once(thread, 'message'))[0], [nothing, nothing, nothing])
    const shared = [block.share(), arena.share(), host.share()]
    for (const pool of [block, arena, host]) assert.deepEqual(pool.close(), nothing)
    for (const state of shared) {
      assert.throws(() => attachPool(state as never), { name: 'PoolError', message: /attachPool: the pool is closed/ })
    }
    await thread.terminate()
    device.close()
    assert.deepEqual([driver.usedBytes(), driver.usedHostBytes()], [0, 0])
  })

  it('a thread has an arena of its own on a buffer of a shared pool', async () => {
    const { driver, device } = open()
    const pool = device.createSharedPool()
    const { thread, done } = start('serveFromArena', pool.share(), 1000, 42)
    const buffer = pool.adopt((await done) as TransferredBuffer)
    assert.deepEqual([...buffer.readSync(0, 1000)], Array(1000).fill(42))
    buffer.free()
    thread.postMessage('close')
    const nothing = { heldBuffers: 0, heldBytes: 0 }
    assert.deepEqual((await once(thread, 'message'))[0], nothing)
    assert.deepEqual(pool.close(), nothing)
    await thread.terminate()
    device.close()
    assert.deepEqual([driver.usedBytes(), driver.usedHostBytes()], [0, 0])
  })

  it('a device that is closed closes them', () => {
    const { driver, device, arena, block, host } = open()
    host.allocate(1)
    device.close()
    assert.deepEqual(
      [arena.closed, block.closed, host.closed, driver.usedBytes(), driver.usedHostBytes()],
      [true, true, true, 0, 0],
    )
  })

  it('an arena outlives the thread that made it, and is given back by the last one', async () => {
    const { driver, device, arena } = open()
    const used = driver.usedBytes()
    // Two fronts in this thread: one for the thread that made the arena, which the registry counts as ended, and one
    // for the last thread.
    const shared = structuredClone(arena.share())
    assert.equal(attachPool(shared), arena)
    device['sharedPools']['known'].clear()
    const last = attachPool(shared)
    const { state } = arena as unknown as { state: { registry: { bury(thread: number): boolean } } }
    state.registry.bury(arena.thread)
    last.close()
    assert.equal(driver.usedBytes(), used - 1 * MiB)
    assert.throws(() => attachPool(arena.share()), { name: 'PoolError', message: /closed/ })
    void device
  })

  it('wrappers are of one thread each', async () => {
    const { device, block, arena } = open()
    const caching = device.createSharedPool()
    const expected = { isOurs: true, overLimit: true, live: 1, freed: true, left: 0 }
    for (const pool of [caching, block, arena]) {
      const { thread, done } = start('wrap', pool.share())
      assert.deepEqual(await done, expected)
      await thread.terminate()
    }
  })

  it('descriptors of another process or version, or none, are refused', () => {
    const { device, block, arena, host } = open()
    for (const pool of [block, arena, host]) {
      const shared = pool.share() as { version: number; process: number; buffer: SharedArrayBuffer }
      for (const [change, name, message] of [
        [{ version: 99 }, 'PoolError', /attachPool: the pool has layout 99, not/],
        [{ process: 1 }, 'PoolError', /attachPool: the pool belongs to another process/],
        [{ buffer: new ArrayBuffer(8) }, 'TypeError', /attachPool: shared must come from pool.share\(\)/],
        [{ device: 5 }, 'TypeError', /attachPool: shared must come from pool.share\(\)/],
      ] as const) {
        assert.throws(() => attachPool({ ...shared, ...change } as never), { name, message })
      }
    }
    for (const bad of [null, undefined, 5, {}, { kind: 'arena' }, { kind: 'block' }]) {
      assert.throws(() => attachPool(bad as never), { name: 'TypeError', message: /attachPool: shared must come from/ })
    }
    device.close()
  })
})
