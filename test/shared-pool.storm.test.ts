// Threads that take and free each other's buffers of one pool, and lend each other streams. Their calls are cut
// short, and they are terminated at random moments. `npm run storm` runs longer, and STORM_SEED chooses a different
// storm.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import { newStorm, POOL_BYTES, Progress, type Storm } from './storm.worker.js'
import { threadProgram } from './thread-program.fixture.js'

const SEED = Number(process.env['STORM_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['STORM_TERMINATIONS'] ?? 12)
const THREADS = 4
const PROGRAM = threadProgram(new URL('./storm.worker.js', import.meta.url))

interface Ended {
  /** the pool's number of the thread */
  readonly number: number
  readonly threadId: number
}

class StormThread {
  private static readonly all = new Set<Worker>()
  /** the error of a thread, in a list of one or none */
  static readonly errors: unknown[] = []
  readonly number: Promise<number>
  private readonly thread: Worker
  private readonly threadId: number

  constructor(storm: Storm, seed: number) {
    this.thread = new Worker(PROGRAM, { workerData: { storm, seed } })
    this.threadId = this.thread.threadId
    StormThread.all.add(this.thread)
    this.thread.on('error', error => StormThread.errors.push(error))
    this.number = once(this.thread, 'message').then(([number]) => number as number)
  }

  async terminate(): Promise<Ended> {
    const { threadId } = this
    const number = await this.number
    StormThread.all.delete(this.thread)
    await this.thread.terminate()
    return { number, threadId }
  }

  /** The number of buffers that the thread holds when it stops. */
  async held(): Promise<number> {
    const [held] = await once(this.thread, 'message')
    return held
  }

  static async terminateAll(): Promise<void> {
    await Promise.all([...StormThread.all].map(thread => thread.terminate()))
  }
}
after(() => StormThread.terminateAll())

/** Removes a dead thread's buffers from the map and gives them back. Returns their number. */
async function inherit(pool: SharedPool, storm: Storm, { number, threadId }: Ended): Promise<number> {
  // A thread that held nothing may have lost its number to a new thread already.
  for (;;) {
    const known = pool.threads().find(({ thread }) => thread === number)
    if (known?.threadId !== threadId) return 0
    if (!known.alive) break
    await setImmediate() // the system still knows the thread
  }
  for (const { thread, ptr, byteLength } of pool.live()) {
    if (thread !== number) continue
    const start = (ptr - storm.base) / 256
    storm.map.fill(0, start, start + Math.ceil(byteLength / 256))
  }
  return pool.reclaim(number).buffers
}

test(`a storm (STORM_SEED=${SEED} STORM_TERMINATIONS=${TERMINATIONS})`, async () => {
  const random = new Random(SEED)
  const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
  const device: Device = openDevice(driver)
  const gate = device.createStream()
  const pool = device.createSharedPool({ maxPoolBytes: POOL_BYTES })
  const first = pool.allocate(256)
  const storm = newStorm(pool.share(), first.ptr, gate.share())
  first.free()
  const { progress } = storm
  const running = Array.from({ length: THREADS }, () => new StormThread(storm, random.next()))
  let found = 0
  for (let count = 0; count < TERMINATIONS; ) {
    const steps = Atomics.load(progress, Progress.steps)
    const held = driver.holdOperation(gate.handle)
    while (Atomics.load(progress, Progress.steps) < steps + 50) {
      const { liveBuffers, liveBytes, frees } = pool.stats()
      if (StormThread.errors.length > 0) throw StormThread.errors[0]
      assert.ok(liveBuffers >= 0 && frees >= 0, `${liveBuffers} live, ${frees} freed`)
      assert.ok(liveBytes >= 0 && liveBytes <= POOL_BYTES, `${liveBytes} bytes live`)
      await setImmediate()
    }
    for (let turns = random.below(30); turns > 0; turns--) await setImmediate()
    driver.releaseThrough(gate.handle, held)
    const victims = running.splice(0, 1 + random.below(2))
    for (const victim of victims) await victim.number
    const ended = await Promise.all(victims.map(victim => victim.terminate()))
    for (const dead of ended) found += await inherit(pool, storm, dead)
    for (const _ of victims) running.push(new StormThread(storm, random.next()))
    count += victims.length
  }
  const survivors = running.splice(0, THREADS / 2)
  const others = await Promise.all(survivors.map(thread => thread.number))
  for (const dead of await Promise.all(running.map(thread => thread.terminate()))) {
    found += await inherit(pool, storm, dead)
  }
  const held = survivors.map(thread => thread.held())
  Atomics.store(progress, Progress.stop, 1)
  const counts = await Promise.all(held)
  pool.check()
  const threads = pool.threads()
  for (const [index, number] of others.entries()) {
    const known = threads.find(({ thread }) => thread === number)
    // A thread without any memory is not listed.
    assert.equal(known?.liveBuffers ?? 0, counts[index], 'what a survivor holds is what the pool says')
  }
  for (const dead of await Promise.all(survivors.map(thread => thread.terminate()))) {
    found += await inherit(pool, storm, dead)
  }
  // The remaining buffers were on the board, or on their way there when a thread died.
  const strays = pool.live().filter(({ thread }) => thread !== 0)
  assert.equal(strays.length, 0, `left: ${JSON.stringify(strays)} beside ${JSON.stringify(pool.threads())}`)
  assert.equal(pool.stats().liveBuffers, pool.reclaim(0).buffers)

  pool.processDeferred()
  pool.check()
  const whole = pool.allocate(POOL_BYTES)
  whole.free()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  device.close()
  assert.ok(
    found > 0 && progress[Progress.adopted] > 0 && progress[Progress.cuts] > 0,
    `${found} held by the dead, ${progress[Progress.adopted]} adopted, ${progress[Progress.cuts]} cut short`,
  )
})
