// One pool in several threads: mistakes are refused in the thread that makes them, and memory of ended threads comes
// back.

import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { after, describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { attachPool } from '../src/core/device/attach.js'
import { openDevice } from '../src/core/device/open.js'
import type { SharedPoolDescriptor } from '../src/core/device/shared-pools.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { PoolOptions } from '../src/core/pool/caching/options.js'
import type { ReservedChange } from '../src/core/pool/reserved-watch.js'
import { SharedState } from '../src/core/pool/shared/shared-state.js'
import { MOST_WORKERS, ThreadRegistry } from '../src/core/threads/thread-registry.js'
import type { Outcome, tasks } from './shared-pool.worker.js'
import { threadProgram } from './thread-program.fixture.js'

type Tasks = typeof tasks

const MODULE = new URL('./shared-pool.worker.js', import.meta.url)
const PROGRAM = threadProgram(MODULE)

class PoolThread {
  private static readonly all: PoolThread[] = []
  readonly worker: Worker

  constructor(program = PROGRAM) {
    this.worker = new Worker(program, { workerData: { does: 'tasks' } })
    PoolThread.all.push(this)
  }

  /** A thread that has attached the pool, and its number there. */
  static async attach(shared: SharedPoolDescriptor): Promise<{ thread: PoolThread; number: number }> {
    const thread = new PoolThread()
    return { thread, number: await thread.do('attach', shared) }
  }

  async do<T extends keyof Tasks>(task: T, ...args: Parameters<Tasks[T]>): Promise<ReturnType<Tasks[T]>> {
    this.worker.postMessage([task, ...args])
    const [outcome] = (await once(this.worker, 'message')) as [Outcome]
    if ('error' in outcome) throw Object.assign(new Error(), outcome.error)
    return outcome.value as ReturnType<Tasks[T]>
  }

  static async terminateAll(): Promise<void> {
    await Promise.all(PoolThread.all.map(({ worker }) => worker.terminate()))
  }
}
after(() => PoolThread.terminateAll())

function open(options: PoolOptions = {}) {
  const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
  const device = openDevice(driver)
  const pool = device.createSharedPool({ maxPoolBytes: 32 * MiB, ...options })
  return { driver, device, pool }
}

const handed = { name: 'PoolError', message: /already freed, or handed to another thread/ }
const notOnItsWay = { name: 'PoolError', message: /adopt: the buffer is not on its way to another thread/ }

describe('a pool in several threads', () => {
  it('takes registrable segments, also for another thread', async () => {
    const { pool, driver } = open({ backing: 'registrable' })
    const { thread } = await PoolThread.attach(pool.share())
    await thread.do('hold', 4 * MiB, 2)
    using mine = pool.allocate(9 * MiB)
    mine.fill(3)
    assert.equal(mine.readSync(9 * MiB - 1)[0], 3)
    const sizes = pool.segments().map(({ bytes }) => bytes / MiB)
    assert.deepEqual([pool.isRegistrable, sizes.sort()], [true, [10, 4, 4]])
    await thread.do('close')
    pool.close()
    assert.equal(driver.usedBytes(), 0)
  })

  it('tells its maker of growth for another thread, whose labels and limit it sees', async () => {
    const changes = new EventEmitter()
    const grown = once(changes, 'grow') as Promise<[ReservedChange]>
    const trimmed = once(changes, 'trim') as Promise<[ReservedChange]>
    using pool = open({
      onGrow: change => changes.emit('grow', change),
      onTrim: change => changes.emit('trim', change),
    }).pool
    const { thread } = await PoolThread.attach(pool.share())
    await thread.do('hold', 4 * MiB, 2)
    await thread.do('label', 'weights')
    await thread.do('setLimit', 16 * MiB)
    const [{ bytes, reservedBytes }] = await grown
    assert.equal(bytes, reservedBytes)
    assert.ok(bytes >= 4 * MiB)
    assert.deepEqual(pool.liveByLabel(), [{ name: 'weights', buffers: 2, bytes: 8 * MiB }])
    assert.equal(pool.maxPoolBytes, 16 * MiB)
    const waiting = pool.whenAvailable(12 * MiB)
    await thread.do('close')
    await waiting
    pool.allocate(12 * MiB).free()
    pool.trimTo(0)
    assert.ok((await trimmed)[0].bytes > 0)
  })

  it('is refused without a descriptor of an open pool of this process and version', async () => {
    const { device, pool } = open()
    const shared = pool.share()
    const thread = new PoolThread()
    const refused = (other: unknown, name: string, message: RegExp) =>
      assert.rejects(thread.do('attachOther', other), { name, message })
    for (const other of [undefined, null, 7, {}, [], { ...shared, buffer: new ArrayBuffer(8) }, shared.device]) {
      await refused(other, 'TypeError', /attachPool: shared must come from pool.share\(\)/)
    }
    await refused({ ...shared, version: shared.version + 1 }, 'PoolError', /layout \d+, not \d+; use one version/)
    await refused({ ...shared, process: shared.process + 1 }, 'PoolError', /belongs to another process/)
    assert.equal(pool.threads().filter(({ alive }) => alive).length, 2, 'the pool server and this thread')
    pool.close()
    await refused(shared, 'PoolError', /attachPool: the pool is closed/)
    assert.throws(() => attachPool(shared), { name: 'PoolError', message: /attachPool: the pool is closed/ })
    assert.throws(() => pool.share(), { name: 'PoolError', message: /share: the pool is closed/ })
    await thread.worker.terminate()
    device.close()
  })

  it('has room for so many threads, and says so', async () => {
    const { pool } = open()
    const shared = pool.share()
    const others = Array.from({ length: MOST_WORKERS - 2 }, () => new SharedState(shared, pool.clocks))
    const thread = new PoolThread()
    const full = { name: 'PoolError', message: /^64 threads use this pool, which is the limit; close the pool in one/ }
    await assert.rejects(thread.do('attachOther', shared), full)
    others[0].registry.forget(others[0].thread)
    assert.equal(ThreadRegistry.numberIn(await thread.do('attach', shared)), others[0].thread)
    for (const { registry, thread: number } of others.slice(1)) registry.forget(number)
    await thread.do('close')
    pool.close()
  })

  it('is one object in each thread until it is closed there', () => {
    const { device, pool } = open()
    const shared = pool.share()
    for (let time = 0; time < 2 * MOST_WORKERS; time++) assert.equal(attachPool(structuredClone(shared)), pool)
    device.close()
  })

  it('has room for so many blocks, and says so', () => {
    const { device, pool } = open()
    const { records, registry, thread } = new SharedState(pool.share(), pool.clocks)
    pool.allocate(1 * KiB).free()
    const taken: number[] = []
    while (records.available > 1024) taken.push(records.acquire())
    assert.ok(taken.length > 500_000)
    const full = { name: 'PoolError', message: /allocate: the pool has 5\d{5} blocks, which is the limit/ }
    assert.throws(() => pool.tryAllocate(4 * KiB), full)
    pool.allocate(1 * KiB).free()
    for (const record of taken) records.release(record)
    pool.allocate(4 * KiB).free()
    registry.forget(thread)
    pool.close()
    device.close()
  })

  it('gives a buffer to one thread at a time', async () => {
    const { device, pool } = open()
    const other = device.createSharedPool({ maxPoolBytes: 8 * MiB })
    const { thread } = await PoolThread.attach(pool.share())
    const buffer = pool.allocate(4 * KiB)
    const { ptr } = buffer
    const transferred = buffer.transfer()
    for (const use of [
      () => buffer.ptr,
      () => buffer.byteLength,
      () => buffer.fill(0),
      () => buffer.readSync(),
      () => buffer.recordUse(device.defaultStream),
      () => buffer.transfer(),
      () => buffer.free(),
      () => pool.deallocate(ptr),
    ]) {
      assert.throws(use, { name: 'PoolError' })
    }
    assert.throws(() => buffer.free(), handed)
    assert.equal(buffer.freed, true)
    buffer[Symbol.dispose]()
    const alike = other.allocate(4 * KiB).transfer()
    assert.deepEqual([alike.record, alike.tag], [transferred.record, transferred.tag], 'the pool alone differs')
    assert.throws(() => other.adopt(transferred), { name: 'PoolError', message: /belongs to another pool/ })
    assert.equal(await thread.do('adopt', structuredClone(transferred)), ptr)
    await assert.rejects(thread.do('adopt', transferred), notOnItsWay)
    assert.throws(() => pool.adopt(transferred), notOnItsWay)
    assert.throws(() => buffer.free(), handed)
    await thread.do('free')
    assert.throws(() => pool.adopt(transferred), notOnItsWay)
    for (const wrong of [undefined, null, 1, {}, { record: 1 }, { record: '1', tag: 1 }]) {
      assert.throws(() => pool.adopt(wrong as never), { name: 'TypeError', message: /must come from buffer.transfer/ })
    }
    for (const record of [-1, 0, 1, 2 ** 30])
      assert.throws(() => pool.adopt({ ...transferred, record, tag: 12 }), notOnItsWay)
    using local = device.createPool()
    assert.throws(() => local.allocate(1).transfer(), { name: 'PoolError', message: /make it with createSharedPool/ })

    await thread.do('hold', 4 * KiB, 1)
    const back = pool.adopt(await thread.do('transfer'))
    await thread.do('closeDevice')
    assert.equal(back.freed, false, 'what it has handed over is no more a thread’s that closes the pool')
    back.free()
    pool.check()
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
    device.close()
  })

  it('cannot be closed while other threads use it, which can close it for themselves', async () => {
    const { device, pool } = open()
    const { thread } = await PoolThread.attach(pool.share())
    await thread.do('hold', 4 * KiB, 3)
    for (const close of [() => pool.close(), () => device.close()]) {
      const message = new RegExp(`close: the pool is in use by 1 other thread \\(${thread.worker.threadId}\\)`)
      assert.throws(close, { name: 'PoolError', message })
    }
    pool.allocate(1).free()
    assert.deepEqual(await thread.do('close'), { heldBuffers: 3, heldBytes: 12 * KiB })
    assert.deepEqual(await thread.do('close'), { heldBuffers: 0, heldBytes: 0 })
    await assert.rejects(thread.do('hold', 1, 1), { name: 'PoolError', message: /allocate: the pool is closed/ })
    await assert.rejects(thread.do('free'), { name: 'PoolError', message: /free: the buffer's pool is closed/ })
    assert.equal(pool.stats().liveBuffers, 0)
    pool.close()
    assert.throws(() => device.close(), { name: 'PoolError', message: /other threads have the device attached/ })
    await thread.do('closeDevice')
    device.close()
  })

  for (const end of ['fail', 'exit'] as const) {
    it(`gets back what a thread held that ended by ${end === 'fail' ? 'an error' : 'process.exit'}`, async () => {
      const { pool } = open()
      const { thread, number } = await PoolThread.attach(pool.share())
      const { threadId } = thread.worker
      await thread.do('hold', 4 * KiB, 3)
      await thread.do('cache', 1 * KiB, 3)
      await thread.do('transfer')
      const ended = once(thread.worker, 'exit').catch(error => error)
      thread.do(end).catch(() => {})
      await ended
      const find = () => pool.threads().find(each => each.thread === number)
      while (find()!.alive) await setImmediate() // the system still knows the thread
      assert.deepEqual(find(), { thread: number, threadId, alive: false, liveBuffers: 2, liveBytes: 8 * KiB })
      assert.deepEqual(
        pool
          .live()
          .map(each => each.thread)
          .sort(),
        [0, number, number],
      )
      for (const wrong of [-1, 1.5, MOST_WORKERS + 1, '1']) {
        assert.throws(() => pool.reclaim(wrong as number), { name: 'RangeError' })
      }
      assert.deepEqual(pool.reclaim(number), { buffers: 2, bytes: 8 * KiB })
      assert.deepEqual(pool.reclaim(number), { buffers: 0, bytes: 0 })
      assert.deepEqual(pool.reclaim(0), { buffers: 1, bytes: 4 * KiB })
      assert.equal(find(), undefined)
      pool.processDeferred()
      pool.check()
      pool.allocate(32 * MiB).free()
      assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
    })
  }

  it('gives a refused thread an OutOfMemoryError with the figures', async () => {
    const { pool } = open()
    const { thread } = await PoolThread.attach(pool.share())
    const mine = pool.allocate(24 * MiB)
    await assert.rejects(thread.do('figures', 16 * MiB), (error: Error & { figures: Record<string, number> }) => {
      assert.equal(error.name, 'OutOfMemoryError')
      assert.match(error.message, /16 MiB/)
      const { requestedBytes, liveBytes, maxPoolBytes } = error.figures
      assert.deepEqual([requestedBytes, liveBytes, maxPoolBytes], [16 * MiB, 24 * MiB, 32 * MiB])
      return true
    })
    assert.equal(await thread.do('tryAllocate', 16 * MiB), false)
    mine.free()
    assert.equal(await thread.do('tryAllocate', 16 * MiB), true)
    for (const [bytes, name] of [
      [0, 'RangeError'],
      [1.5, 'RangeError'],
      ['1', 'TypeError'],
    ] as const) {
      await assert.rejects(thread.do('tryAllocate', bytes as number), { name })
    }
  })

  it('serves no captures outside of groups, no debug mode and no other devices', async () => {
    const { device, pool } = open()
    const { thread } = await PoolThread.attach(pool.share())
    for (const verb of ['allocate', 'free', 'recordUse'] as const) {
      const message = new RegExp(`^${verb}: .*captured stream .*; (capture it by pool.createGraphGroup|hold it until)`)
      await assert.rejects(thread.do('capture', verb), { name: 'PoolError', message })
    }
    await assert.rejects(thread.do('setAccess'), { name: 'PoolError', message: /^setAccess: .* use one of createPool/ })
    pool.check()
    assert.equal(pool.stats().liveBuffers, 0)
    const meant = { name: 'TypeError', message: /unknown option 'shared'.*call createSharedPool for that$/ }
    assert.throws(() => device.createPool({ shared: true } as object), meant)
  })

  it('is trimmed, settled and counted from every thread', async () => {
    const { pool } = open()
    const { thread } = await PoolThread.attach(pool.share())
    await thread.do('hold', 4 * MiB, 1)
    const mine = pool.allocate(1 * MiB)
    const stats = await thread.do('stats')
    assert.deepEqual(stats, pool.stats())
    assert.deepEqual([stats.liveBuffers, stats.allocations, stats.liveBytes], [2, 2, 5 * MiB])
    mine.free()
    await thread.do('free')
    assert.ok((await thread.do('processDeferred')) >= 0)
    const { reservedBytes } = pool.stats()
    assert.ok(reservedBytes >= 5 * MiB)
    assert.equal(await thread.do('trimTo', 0), reservedBytes)
    assert.equal(pool.stats().reservedBytes, 0)
    await assert.rejects(thread.do('trimTo', -1), { name: 'RangeError', message: /trimTo/ })
  })

  it('lets two threads use a buffer in the order of an event', async () => {
    const { driver, pool } = open()
    const shared = pool.share()
    const [{ thread: first }, { thread: second }] = await Promise.all([
      PoolThread.attach(shared),
      PoolThread.attach(shared),
    ])
    const handle = await first.do('handle')
    const ticket = driver.holdOperation(handle)
    const produced = await first.do('produce', 4 * KiB, 7)
    const copy = pool.adopt(await second.do('consume', produced))
    const again = pool.adopt((await first.do('produce', 4 * KiB, 9)).buffer) // as large as the buffer freed meanwhile
    const read = copy.read()
    assert.equal(copy.stream.query(), false, 'nothing has run')
    driver.releaseThrough(handle, ticket)
    assert.deepEqual([...new Set(await read)], [7])
    assert.deepEqual([...new Set(await again.read())], [9])
    copy.free()
    again.free()
    pool.check()
  })

  it('serves 150 streams of three threads', async () => {
    const { device, pool } = open()
    const threads = await Promise.all([1, 2, 3].map(() => PoolThread.attach(pool.share())))
    const held = (await Promise.all(threads.map(({ thread }) => thread.do('holdOnStreams', 4 * KiB, 50)))).flat()
    assert.equal(new Set(held.map(({ slot }) => slot)).size, 150)
    assert.equal(new Set(held.map(({ ptr }) => ptr)).size, 150)
    await Promise.all(threads.map(({ thread }) => thread.do('cycle', 20)))
    assert.equal(pool.stats().liveBuffers, 150)
    const [{ thread: first }, { thread: second }] = threads
    for (let count = 0; count < 5; count++) {
      await second.do('adopt', await first.do('transfer')) // of the last streams of the first thread
      await second.do('free')
    }
    await Promise.all(threads.map(({ thread }) => thread.do('cycle', 20)))
    assert.equal(pool.stats().liveBuffers, 145)
    pool.check()
    for (const { thread } of threads) await thread.do('closeDevice')
    assert.equal(pool.stats().liveBuffers, 0)
    assert.ok(pool.trimTo(0) > 0)
    assert.equal(pool.stats().reservedBytes, 0)
    pool.check()
    assert.equal(device.createStream().slot, 1, 'the slots of ended streams are free')
    device.close()
  })

  it('is not made, and leaves nothing, where its pool server cannot attach the device', () => {
    for (const call of ['cuDeviceGet', 'cuDevicePrimaryCtxRetain', 'cuCtxSetCurrent'] as const) {
      const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
      const device = openDevice(driver)
      device.createPool().close()
      driver.failCall({ call, code: 999 })
      const refused = { name: 'CudaError', message: new RegExp(`^${call} failed`) }
      assert.throws(() => device.createSharedPool(), refused)
      device.createSharedPool().close()
      device.close()
      assert.equal(driver.usedBytes(), 0)
    }
  })

  it('is not made, and leaves nothing, where the device does not have what its options ask for', () => {
    const device = openDevice(new SimulatedDriver({ virtualMemory: false }))
    for (let time = 0; time < 2; time++) {
      const refused = { name: 'PoolError', message: /backing 'virtual' is not possible here/ }
      assert.throws(() => device.createSharedPool({ backing: 'virtual' }), refused)
    }
    device.close()
  })

  it('has one pool server with the other pools of the thread that made it, which has the device attached while there is one', () => {
    const { device, pool } = open()
    const { registry } = device.clocks.slots as unknown as { registry: ThreadRegistry }
    const others = [device.createSharedBlockPool({ blockBytes: 4 * KiB, count: 4 }), device.createSharedHostPool()]
    assert.equal(registry.living, 2)
    for (const other of others) other.close()
    pool.allocate(1 * MiB).free()
    pool.close()
    assert.equal(registry.living, 1)
    device.createSharedPool().close()
    device.close()
  })

  it('is lost with the thread that made it, for a clear error', async () => {
    const { device, pool } = open()
    const thread = new PoolThread(MODULE) // a bundle has no file of a pool server beside it
    const lost = attachPool(await thread.do('create', pool.share()))
    lost.allocate(1 * KiB)
    await thread.worker.terminate()
    assert.throws(() => lost.allocate(8 * MiB), { name: 'PoolError', message: /the thread that made it has ended/ })
    const calls: Record<string, () => void> = {
      processDeferred: () => lost.processDeferred(),
      trimTo: () => lost.trimTo(0),
      maxPoolBytes: () => {
        lost.maxPoolBytes = '1GiB'
      },
      reclaim: () => void lost.reclaim(0),
    }
    for (const [name, call] of Object.entries(calls))
      assert.throws(call, { message: new RegExp(`^${name}: the pool is`) })
    assert.deepEqual(lost.close(), { heldBuffers: 1, heldBytes: 1 * KiB })
    pool.allocate(8 * MiB).free() // made by a different thread, so with a pool server of its own
    pool.close()
    device.close()
  })
})
