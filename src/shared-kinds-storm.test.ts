// Threads that use a block pool, an arena or a host pool and are terminated at random moments. STORM_SEED and
// STORM_TERMINATIONS for another run, or a longer one.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { KiB, MiB } from './base/bytes.js'
import { Random } from './base/random.js'
import { type Device, openDevice } from './device.js'
import { SimulatedDriver } from './driver/simulated/simulated-driver.js'
import type { KindStorm } from './shared-kinds-thread.suite.js'
import { newStorm, Progress, type Storm } from './storm-thread.suite.js'

const SEED = Number(process.env['STORM_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['STORM_TERMINATIONS'] ?? 10)
const THREADS = 3
const REPLAY = `(STORM_SEED=${SEED} STORM_TERMINATIONS=${TERMINATIONS})`

const running = new Set<Worker>()
after(() => Promise.all([...running].map(thread => thread.terminate())))

const open = (): Device => openDevice(new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' }))

/**
 * Starts threads and terminates them, one after another, each after some steps of all; in the end, all. `bury` is called with
 * the pool's number of each that is dead.
 */
async function rage(file: string, data: object, progress: () => number, bury: (thread: number) => void): Promise<void> {
  const random = new Random(SEED)
  const start = () => {
    const thread = new Worker(new URL(file, import.meta.url), { workerData: { ...data, seed: random.next() } })
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
    const target = progress() + 40 + random.below(60)
    while (!isEnd && progress() < target) {
      for (const { failure } of threads) assert.equal(failure(), null)
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
  const pool = device.createBlockPool({ blockBytes: 64 * KiB, count: 16, maxCount: 80, shared: true })
  const first = pool.allocate(1)
  const storm: Storm = newStorm(pool.share(), first.ptr)
  first.free()
  const { progress, map, base } = storm
  let found = 0
  const inherit = (dead: number) => {
    for (const { thread, ptr, byteLength } of pool.live()) {
      const start = (ptr - base) / 256
      if (thread === dead) map.fill(0, start, start + Math.ceil(byteLength / 256))
    }
    found += pool.reclaim(dead).buffers
  }
  await rage('./storm-thread.suite.js', { storm }, () => Atomics.load(progress, Progress.steps), inherit)
  assert.equal(pool.stats().liveBuffers, pool.reclaim(0).buffers, 'what is left was on its way')
  pool.processDeferred()
  pool.check()
  const held = Array.from({ length: 80 }, () => pool.allocate(64 * KiB))
  assert.equal(pool.tryAllocate(1), null)
  for (const buffer of held) buffer.free()
  pool.check()
  assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
  device.close()
  assert.ok(found > 0, 'the dead held some')
})

test(`a storm over an arena ${REPLAY}`, async () => {
  const device = open()
  const pool = device.createArenaPool({ bytes: 2 * MiB, shared: true })
  const words = (length: number) => new Int32Array(new SharedArrayBuffer(length * 4))
  const kindStorm: KindStorm = { pool: pool.share(), map: words(pool.share().lastUnit), progress: words(2) }
  const { progress } = kindStorm
  await rage(
    './shared-kinds-thread.suite.js',
    { kindStorm },
    () => Atomics.load(progress, 0),
    () => {},
  )
  pool.reset()
  assert.deepEqual([pool.availableBytes, pool.stats().liveBuffers], [2 * MiB, 0])
  pool.allocate(2 * MiB).free()
  pool.close()
  device.close()
  assert.ok(progress[1] > 10, `${progress[1]} resets`)
})

test(`a storm over pinned memory ${REPLAY}`, async () => {
  const device = open()
  const pool = device.createHostPool({ maxPoolBytes: 2 * MiB, segmentBytes: 1 * MiB, shared: true })
  const words = (length: number) => new Int32Array(new SharedArrayBuffer(length * 4))
  const kindStorm: KindStorm = { pool: pool.share(), map: words(1), progress: words(2) }
  const { progress } = kindStorm
  let found = 0
  const inherit = (dead: number) => {
    found += pool.reclaim(dead).buffers
  }
  await rage('./shared-kinds-thread.suite.js', { kindStorm }, () => Atomics.load(progress, 0), inherit)
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
