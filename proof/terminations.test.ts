// Threads terminated at chosen points of a call on a shared pool: during a driver call or its refusal, or while they
// wait for used memory, for the lock, or for another thread's reset. The simulated device runs in this thread, which
// so knows when a driver call begins. The storms in test/ terminate threads at random moments.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { KiB, MiB } from '../src/core/base/bytes.js'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { SharedArenaPool } from '../src/core/pool/arena/shared-arena-pool.js'
import type { ArenaState } from '../src/core/pool/arena/shared-arena-state.js'
import type { SharedHostPool } from '../src/core/pool/host/shared-host-pool.js'
import type { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import type { SharedState } from '../src/core/pool/shared/shared-state.js'
import { ThreadRegistry } from '../src/core/threads/thread-registry.js'
import { replacePrivate } from './replace-method.js'
import { type TerminationWork, Told } from './termination.worker.js'

type Kept = Pick<SharedPool, 'threads' | 'reclaim' | 'check' | 'stats' | 'processDeferred' | 'trimTo' | 'close'>

const LIMIT = 16 * MiB
const NO_LOSS = { heldBuffers: 0, heldBytes: 0 }
/** Bit of the lock's word: some thread waits. */
const WAITERS = 128

const workers: Worker[] = []
after(() => Promise.all(workers.map(worker => worker.terminate())))

/** A thread that has attached the pool, and its number there. */
async function start(
  shared: { readonly device: unknown },
  work: Pick<TerminationWork, 'call' | 'bytes' | 'count'>,
  word = new Int32Array(new SharedArrayBuffer(4)),
): Promise<{ worker: Worker; number: number }> {
  const terminationWork = { shared, gate: gate.share(), word, ...work }
  const worker = new Worker(new URL('./termination.worker.js', import.meta.url), { workerData: { terminationWork } })
  workers.push(worker)
  const [number] = await once(worker, 'message')
  return { worker, number }
}

/** Terminates the thread in its next call of a driver function, which returns only after the thread has ended. */
async function terminateIn(
  call: string,
  { registry }: SharedState | ArenaState,
  { worker, number }: { worker: Worker; number: number },
): Promise<void> {
  const word = new Int32Array(new SharedArrayBuffer(4))
  let mend = () => {}
  const called = new Promise<void>(resolve => {
    mend = replacePrivate(driver, call, original => {
      return function (this: never, ...args: never[]) {
        mend()
        void worker.terminate()
        // The event loop does not run here, so the thread's exit event cannot arrive.
        while (!registry.hasDied(ThreadRegistry.numberIn(number))) Atomics.wait(word, 0, 0, 1)
        resolve()
        return original.apply(this, args)
      }
    })
  })
  worker.postMessage('go')
  await Promise.race([called, once(worker, 'error').then(([error]) => Promise.reject(error))])
}

/** Takes back the buffers of a dead thread, and asserts that nothing is lost. */
async function bury(pool: Kept, number: number, takeAll: () => void): Promise<void> {
  while (pool.threads().some(({ thread, alive }) => thread === number && alive)) await setImmediate()
  pool.reclaim(number)
  pool.reclaim(0)
  pool.processDeferred()
  pool.check()
  assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0])
  takeAll()
  pool.processDeferred()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  pool.check()
  assert.deepEqual(pool.close(), NO_LOSS)
}

interface Kind {
  readonly open: (device: Device) => SharedPool | SharedHostPool
  /** the driver function that allocates new memory */
  readonly obtains: 'cuMemCreate' | 'cuMemAlloc' | 'cuMemHostRegister'
  /** a part of the pool without memory as yet */
  readonly bytes: number
  readonly count: number
}

const KINDS: Readonly<Record<string, Kind>> = {
  caching: {
    open: device => device.createSharedPool({ maxPoolBytes: LIMIT }),
    obtains: 'cuMemCreate',
    bytes: 10 * MiB,
    count: 1,
  },
  block: {
    open: device => device.createSharedBlockPool({ blockBytes: 1 * MiB, count: 4, maxCount: LIMIT / MiB }),
    obtains: 'cuMemAlloc',
    bytes: 1 * MiB,
    count: 10,
  },
  host: {
    open: device => device.createSharedHostPool({ maxPoolBytes: LIMIT, segmentBytes: 1 * MiB }),
    obtains: 'cuMemHostRegister',
    bytes: 1 * MiB,
    count: 10,
  },
}

/** One device, and so one pool server, for all tests. */
const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
const device = openDevice(driver)
const gate = device.createStream()
after(() => {
  device.close()
  assert.deepEqual([driver.usedBytes(), driver.usedHostBytes()], [0, 0])
})

function open({ open: openPool, bytes }: Kind) {
  const pool = openPool(device) as SharedPool
  const { blocks } = pool as unknown as { blocks?: SharedPool } // of a host pool
  const state = (blocks ?? pool)['state']
  const takeAll = () => {
    const all = Array.from({ length: Math.floor(LIMIT / bytes) }, () => pool.allocate(bytes))
    for (const buffer of all) buffer.free()
  }
  return { pool, state, takeAll }
}

describe('a thread is terminated', () => {
  for (const [name, kind] of Object.entries(KINDS)) {
    const { bytes, count, obtains } = kind
    for (const [moment, code] of [
      ['is called', 0],
      ['refuses', 999],
    ] as const) {
      it(`while the driver ${moment} to get memory for its ${name} pool`, async () => {
        const { pool, state, takeAll } = open(kind)
        const thread = await start(pool.share(), { call: 'allocate', bytes, count })
        if (code !== 0) driver.failCall({ call: obtains, code })
        await terminateIn(obtains, state, thread)
        await bury(pool, thread.number, takeAll)
      })
    }

    it(`while it waits for the lock of its ${name} pool`, async () => {
      const { pool, state, takeAll } = open(kind)
      const { worker, number } = await start(pool.share(), { call: 'allocate', bytes, count })
      const { lock } = state
      assert.equal(lock.acquire(), 0)
      worker.postMessage('go')
      while ((Atomics.load(lock['words'], 0) & WAITERS) === 0) await setImmediate()
      await worker.terminate()
      lock.release()
      await bury(pool, number, takeAll)
    })
  }

  for (const name of ['caching', 'block']) {
    it(`while its ${name} pool waits for work that uses the memory`, async () => {
      const kind = KINDS[name]
      const { pool, state, takeAll } = open(kind)
      const { bytes, count } = kind
      const thread = await start(pool.share(), { call: 'free and allocate', bytes, count })
      const ticket = driver.holdOperation(gate.handle)
      const before = pool.stats().reservedBytes
      await terminateIn('cuEventQuery', state, thread)
      assert.ok(pool.stats().reservedBytes >= before)
      driver.releaseThrough(gate.handle, ticket)
      await bury(pool, thread.number, takeAll)
    })
  }

  const openArena = () => {
    const pool = device.createSharedArenaPool({ bytes: 1 * MiB })
    pool.allocate(1000)
    return pool
  }
  /** Asserts that the whole arena can be allocated, so that none of it is lost. */
  const settleArena = (pool: SharedArenaPool) => {
    pool.allocate(64 * KiB)
    pool.reset()
    assert.deepEqual([pool.availableBytes, pool.stats().liveBuffers], [1 * MiB, 0])
    pool.allocate(1 * MiB).free()
    assert.deepEqual(pool.close(), NO_LOSS)
  }

  for (const [moment, code] of [
    ['is called', 0],
    ['refuses', 999],
  ] as const) {
    it(`while the driver ${moment} in its reset of an arena`, async () => {
      const pool = openArena()
      const thread = await start(pool.share(), { call: 'reset', bytes: 1, count: 1 })
      if (code !== 0) driver.failCall({ call: 'cuStreamWaitEvent', code })
      driver.holdOperation(gate.handle) // which the reset must wait for
      await terminateIn('cuStreamWaitEvent', pool['state'], thread)
      settleArena(pool)
    })
  }

  it('while it waits for another thread to reset an arena', async () => {
    const pool = openArena()
    const word = new Int32Array(new SharedArrayBuffer(4))
    const { worker } = await start(pool.share(), { call: 'allocate when told', bytes: 1000, count: 1 }, word)
    worker.postMessage('go')
    driver.holdOperation(gate.handle)
    const mend = replacePrivate(driver, 'cuStreamWaitEvent', original => {
      return function (this: never, ...args: never[]) {
        mend()
        Atomics.store(word, 0, Told.go)
        Atomics.notify(word, 0)
        Atomics.wait(word, 0, Told.go)
        void worker.terminate()
        return original.apply(this, args)
      }
    })
    pool.reset()
    await once(worker, 'exit')
    assert.equal(Atomics.load(word, 0), Told.going)
    settleArena(pool)
  })
})
