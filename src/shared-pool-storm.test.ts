// Threads that take and free each other's buffers of one pool and are terminated at random moments. A longer run: npm run
// storm, with STORM_SEED set for another one.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { MiB } from './base/bytes.js'
import { Random } from './base/random.js'
import { type Device, openDevice } from './device.js'
import { SimulatedDriver } from './driver/simulated/simulated-driver.js'
import type { SharedPool } from './pool/shared-pool.js'
import { newStorm, POOL_BYTES, Progress, type Storm } from './storm-thread.suite.js'

const SEED = Number(process.env['STORM_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['STORM_TERMINATIONS'] ?? 40)
const THREADS = 4

class StormThread {
  private static readonly all = new Set<Worker>()
  readonly number: Promise<number>
  private readonly thread: Worker

  constructor(storm: Storm, seed: number) {
    const url = new URL('./storm-thread.suite.js', import.meta.url)
    this.thread = new Worker(url, { workerData: { storm, seed } })
    StormThread.all.add(this.thread)
    this.number = once(this.thread, 'message').then(([number]) => number as number)
  }

  terminate(): Promise<number> {
    StormThread.all.delete(this.thread)
    return this.thread.terminate()
  }

  /** How many buffers it holds when it was told to stop. */
  async held(): Promise<number> {
    const [held] = await once(this.thread, 'message')
    return held
  }

  static async terminateAll(): Promise<void> {
    await Promise.all([...StormThread.all].map(thread => thread.terminate()))
  }
}
after(() => StormThread.terminateAll())

/** Takes what a dead thread held off the map and gives it back. Returns how many buffers that were. */
function inherit(pool: SharedPool, storm: Storm, dead: number): number {
  // The number of a thread that held nothing may be another one's already.
  if (pool.threads().find(({ thread }) => thread === dead)?.alive !== false) return 0
  for (const { thread, ptr, byteLength } of pool.live()) {
    if (thread !== dead) continue
    const start = (ptr - storm.base) / 256
    storm.map.fill(0, start, start + Math.ceil(byteLength / 256))
  }
  return pool.reclaim(dead).buffers
}

test(`a storm (STORM_SEED=${SEED} STORM_TERMINATIONS=${TERMINATIONS})`, async () => {
  const random = new Random(SEED)
  const device: Device = openDevice(new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' }))
  const pool = device.createPool({ shared: true, maxPoolBytes: POOL_BYTES })
  const first = pool.allocate(256)
  const storm = newStorm(pool.share(), first.ptr)
  first.free()
  const { progress } = storm
  const running = Array.from({ length: THREADS }, () => new StormThread(storm, random.next()))
  let found = 0
  for (let count = 0; count < TERMINATIONS; ) {
    const steps = Atomics.load(progress, Progress.steps)
    while (Atomics.load(progress, Progress.steps) < steps + 50) await setImmediate()
    for (let turns = random.below(30); turns > 0; turns--) await setImmediate()
    const victims = running.splice(0, 1 + random.below(2))
    const numbers = await Promise.all(victims.map(victim => victim.number))
    await Promise.all(victims.map(victim => victim.terminate()))
    for (const number of numbers) found += inherit(pool, storm, number)
    for (const _ of victims) running.push(new StormThread(storm, random.next()))
    count += victims.length
  }
  const survivors = running.splice(0, THREADS / 2)
  const numbers = await Promise.all(running.map(thread => thread.number))
  const others = await Promise.all(survivors.map(thread => thread.number))
  await Promise.all(running.map(thread => thread.terminate()))
  for (const number of numbers) found += inherit(pool, storm, number)
  const held = survivors.map(thread => thread.held())
  Atomics.store(progress, Progress.stop, 1)
  const counts = await Promise.all(held)
  pool.check()
  const threads = pool.threads()
  for (const [index, number] of others.entries()) {
    const known = threads.find(({ thread }) => thread === number)
    assert.equal(known?.liveBuffers, counts[index], 'what a survivor holds is what the pool says')
  }
  await Promise.all(survivors.map(thread => thread.terminate()))
  for (const number of others) found += inherit(pool, storm, number)
  // What is left was on the board, or on its way there when a thread died.
  assert.equal(pool.stats().liveBuffers, pool.reclaim(0).buffers)

  pool.processDeferred()
  pool.check()
  const whole = pool.allocate(POOL_BYTES)
  whole.free()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
  device.close()
  assert.ok(
    found > 0 && progress[Progress.adopted] > 0,
    `${found} held by the dead, ${progress[Progress.adopted]} adopted`,
  )
})
