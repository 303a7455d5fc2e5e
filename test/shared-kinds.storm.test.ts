// Threads that use a block pool, an arena or a host pool and are terminated at random moments. STORM_SEED and
// STORM_TERMINATIONS for another run, or a longer one.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { PoolStats } from '../src/core/pool/pool.js'
import type { KindStorm } from './shared-kinds.worker.js'
import { threadProgram } from './thread-program.fixture.js'

const SEED = Number(process.env['STORM_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['STORM_TERMINATIONS'] ?? 4)
const THREADS = 3
const PROGRAM = threadProgram(new URL('./shared-kinds.worker.js', import.meta.url))
const REPLAY = `(STORM_SEED=${SEED} STORM_TERMINATIONS=${TERMINATIONS})`

const running = new Set<Worker>()
after(() => Promise.all([...running].map(thread => thread.terminate())))

const words = (length: number) => new Int32Array(new SharedArrayBuffer(length * 4))
const open = (): Device => openDevice(new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' }))

/**
 * Starts threads and terminates them, one after another, each after some steps of all; in the end, all, once they have
 * made `leastResets`. `bury` is called with the pool's number of each that is dead.
 */
async function rage(
  kindStorm: KindStorm,
  pool: { stats(): PoolStats },
  bury: (thread: number) => void,
  leastResets = 0,
): Promise<void> {
  const { progress } = kindStorm
  const random = new Random(SEED)
  const start = () => {
    const thread = new Worker(PROGRAM, { workerData: { kindStorm, seed: random.next() } })
    running.add(thread)
    let failure: Error | null = null
    thread.on('error', error => {
      failure = error
    })
    const number = once(thread, 'message').then(([first]) => first as number)
    return { thread, number, failure: () => failure }
  }
  const threads = Array.from({ length: THREADS }, start)
  for (let count = 0; count < TERMINATIONS + THREADS; count++) {
    const isEnd = count >= TERMINATIONS
    const target = Atomics.load(progress, 0) + 40 + random.below(60)
    while (isEnd ? Atomics.load(progress, 1) < leastResets : Atomics.load(progress, 0) < target) {
      for (const { failure } of threads) assert.equal(failure(), null)
      const { liveBuffers, liveBytes, frees } = pool.stats()
      assert.ok(liveBuffers >= 0 && liveBytes >= 0 && frees >= 0, `${liveBuffers} live, of ${liveBytes} bytes`)
      assert.ok(liveBytes <= pool.stats().maxPoolBytes, `${liveBytes} bytes live`)
      await setImmediate()
    }
    for (let turns = random.below(20); turns > 0; turns--) await setImmediate()
    const [{ thread, number, failure }] = threads.splice(random.below(threads.length), 1)
    const dead = await number
    await thread.terminate()
    assert.equal(failure(), null)
    running.delete(thread)
    bury(dead)
    if (!isEnd) threads.push(start())
  }
}

test(`a storm over blocks ${REPLAY}`, async () => {
  const device = open()
  const pool = device.createSharedBlockPool({ blockBytes: 64 * KiB, count: 16, maxCount: 80 })
  const all = Array.from({ length: 80 }, () => pool.allocate(1))
  const base = Math.min(...all.map(({ ptr }) => ptr))
  const kindStorm: KindStorm = { pool: pool.share(), map: words(2 ** 16), base, progress: words(2) }
  for (const buffer of all) buffer.free()
  const { map } = kindStorm
  let found = 0
  const inherit = (dead: number) => {
    for (const { thread, ptr } of pool.live()) if (thread === dead) map[(ptr - base) / pool.blockBytes] = 0
    found += pool.reclaim(dead).buffers
  }
  await rage(kindStorm, pool, inherit)
  assert.equal(pool.stats().liveBuffers, 0)
  pool.processDeferred()
  pool.check()
  const held = Array.from({ length: 80 }, () => pool.allocate(64 * KiB))
  assert.equal(pool.tryAllocate(1), null)
  for (const buffer of held) buffer.free()
  pool.check()
  assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  device.close()
  assert.ok(found > 0, 'the dead held some')
})

test(`a storm over an arena ${REPLAY}`, async () => {
  const device = open()
  const pool = device.createSharedArenaPool({ bytes: 2 * MiB })
  const { base, bytes } = pool.share()
  const kindStorm: KindStorm = { pool: pool.share(), map: words(bytes / 256), base, progress: words(2) }
  await rage(kindStorm, pool, () => {}, 10)
  pool.reset()
  assert.deepEqual([pool.availableBytes, pool.stats().liveBuffers], [2 * MiB, 0])
  pool.allocate(2 * MiB).free()
  pool.close()
  device.close()
})

test(`a storm over pinned memory ${REPLAY}`, async () => {
  const device = open()
  const pool = device.createSharedHostPool({ maxPoolBytes: 2 * MiB, segmentBytes: 1 * MiB })
  const kindStorm: KindStorm = { pool: pool.share(), map: words(1), base: 0, progress: words(2) }
  let found = 0
  const inherit = (dead: number) => {
    found += pool.reclaim(dead).buffers
  }
  await rage(kindStorm, pool, inherit)
  assert.equal(pool.stats().liveBuffers, 0)
  pool.processDeferred()
  pool.check()
  const halves = [pool.allocate(1 * MiB), pool.allocate(1 * MiB)]
  for (const half of halves) half.free()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  pool.close()
  device.close()
  assert.ok(found > 0, 'the dead held some')
})
