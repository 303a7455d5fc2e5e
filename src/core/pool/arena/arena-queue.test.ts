import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { inspect } from 'node:util'
import { KiB, MiB } from '../../base/bytes.js'
import { RESULT } from '../../driver/constants.js'
import type { WaitOptions } from '../../order/wait-options.js'
import { Abortable, assertAbortable, turns } from '../../order/waits.fixture.js'
import { TestDevice } from '../pool.fixture.js'
import type { ArenaPool } from './arena-pool.js'
import { ArenaQueue, type ArenaQueueOptions } from './arena-queue.js'

function setUp(options: Partial<ArenaQueueOptions> = {}) {
  const device = new TestDevice()
  return { device, queue: new ArenaQueue(device.clocks, device.defaultStream, { bytes: '1MiB', count: 2, ...options }) }
}

describe('a queue of arenas', () => {
  it('lends each arena to one at a time, and resets it in between', async () => {
    const { queue } = setUp()
    const first = await queue.take()
    const second = await queue.take()
    assert.notEqual(first.arena, second.arena)
    assert.equal(queue.availableArenas, 0)
    const { arena } = first
    const buffer = arena.allocate(512 * KiB)
    first.close()
    first.close()
    assert.deepEqual([queue.availableArenas, buffer.freed, arena.availableBytes], [1, true, 1 * MiB])
    using third = await queue.take()
    assert.equal(third.arena, arena)
    second.close()
  })

  it('serves those who wait in turn', async () => {
    const { queue } = setUp()
    const order: number[] = []
    const busy = new Set<ArenaPool>()
    const works = Array.from({ length: 7 }, (_, number) =>
      queue.use(async arena => {
        assert.ok(!busy.has(arena), 'it is lent to one at a time')
        busy.add(arena)
        order.push(number)
        arena.allocate(1 * MiB)
        await setImmediate()
        busy.delete(arena)
        return number * 10
      }),
    )
    assert.deepEqual([queue.waiting, inspect(queue)], [5, 'ArenaQueue { 0 of 2 arenas available, 5 waiting }'])
    assert.deepEqual(await Promise.all(works), [0, 10, 20, 30, 40, 50, 60])
    assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6])
    assert.deepEqual([queue.waiting, queue.availableArenas], [0, 2])
  })

  for (const verb of ['take', 'use'] as const) {
    it(`ends a waiting request by its signal: ${verb}`, { timeout: 10_000 }, async () => {
      const { queue } = setUp({ count: 1 })
      const lease = await queue.take()
      const wait = async (options: WaitOptions) => {
        if (verb === 'take') (await queue.take(options)).close()
        else await queue.use(() => {}, options)
      }
      await assertAbortable(verb, wait, () => {
        assert.equal(queue.waiting, 1, 'aborted requests have left the line')
        lease.close()
      })
      assert.deepEqual([queue.waiting, queue.availableArenas], [0, 1])
    })
  }

  it('gives the turn of an aborted request to the next', { timeout: 10_000 }, async () => {
    const { queue } = setUp({ count: 1 })
    const lease = await queue.take()
    const controller = new Abortable()
    const given = assert.rejects(queue.take(controller.options), controller.reason)
    const next = queue.take()
    controller.abort()
    lease.close()
    await given
    ;(await next).close()
    assert.equal(queue.availableArenas, 1)
  })

  it('does no work for a request that is aborted as it gets its arena, and leaves work alone after that', async () => {
    const { queue } = setUp({ count: 1 })
    const lease = await queue.take()
    const [early, late] = [new Abortable(), new Abortable()]
    const refused = assert.rejects(
      queue.use(() => assert.fail('it works'), early.options),
      early.reason,
    )
    lease.close()
    early.abort()
    await refused
    assert.equal(queue.availableArenas, 1)
    const result = await queue.use(async () => {
      late.abort()
      await turns()
      return 5
    }, late.options)
    assert.equal(result, 5)
  })

  it('refuses one more request than may wait, at once', { timeout: 10_000 }, async () => {
    const { queue } = setUp({ count: 1, maxWaiting: 2 })
    const lease = await queue.take()
    const controller = new Abortable()
    const waiting = [queue.take(), queue.take(controller.options)]
    const full = { name: 'PoolError', message: /^take: 2 requests wait for an arena already, the most by maxWaiting; / }
    await assert.rejects(queue.take(), full)
    await assert.rejects(
      queue.use(() => {}),
      full,
    )
    controller.abort()
    await assert.rejects(waiting[1], controller.reason)
    const third = queue.take()
    lease.close()
    ;(await waiting[0]).close()
    ;(await third).close()
    const { queue: none } = setUp({ count: 1, maxWaiting: 0 })
    const only = await none.take()
    await assert.rejects(none.take(), { name: 'PoolError', message: /^take: 0 requests wait/ })
    only.close()
    ;(await none.take()).close()
  })

  it('gives the arena back when work throws', async () => {
    const { queue } = setUp({ count: 1 })
    await assert.rejects(
      queue.use(() => {
        throw new Error('mine')
      }),
      /mine/,
    )
    assert.equal(queue.availableArenas, 1)
  })

  it('rejects with the error of work, also if the device is lost', async () => {
    const { device, queue } = setUp({ count: 1 })
    const work = queue.use(arena => {
      for (let count = 0; count < 2; count++) arena.allocate(1 * KiB, device.createStream()).fill(1)
      device.driver.failCall({ call: 'cuMemsetD8Async', nth: 1, code: RESULT.CUDA_ERROR_ILLEGAL_ADDRESS })
      arena.allocate(1 * KiB).fill(1)
    })
    await assert.rejects(work, { name: 'CudaError', call: 'cuMemsetD8Async' })
  })

  it('refuses work that is no function before it waits for an arena', { timeout: 10_000 }, async () => {
    const { queue } = setUp({ count: 1 })
    using lease = await queue.take()
    await assert.rejects(queue.use(5 as never), { name: 'TypeError', message: /^use: work must be a function, not 5/ })
    assert.deepEqual([queue.waiting, lease.arena.closed], [0, false])
  })

  it('takes memory for an arena at its first need, and replaces one that its holder closed', async () => {
    const { device, queue } = setUp({ count: 3 })
    assert.equal(device.driver.usedBytes(), 1 * MiB)
    const leases = [await queue.take(), await queue.take(), await queue.take()]
    assert.equal(device.driver.usedBytes(), 3 * MiB)
    const waiting = queue.take()
    leases[0].arena.close()
    leases[0].close()
    const next = await waiting
    next.arena.allocate(1 * KiB)
    assert.equal(device.driver.usedBytes(), 3 * MiB)
  })

  it('rejects those who wait when it is closed, and when there is no room', async () => {
    const { device, queue } = setUp({ bytes: 40 * MiB })
    const lease = await queue.take()
    await assert.rejects(queue.take(), { name: 'OutOfMemoryError' })
    const { queue: small } = setUp({ count: 1 })
    await small.take()
    const waiting = small.take()
    small[Symbol.dispose]()
    const closed = { name: 'PoolError', message: /take: the arenas are closed/ }
    await assert.rejects(waiting, closed)
    await assert.rejects(small.take(), closed)
    assert.deepEqual([small.closed, small.availableArenas, inspect(small)], [true, 0, 'ArenaQueue { closed }'])
    queue[Symbol.dispose]()
    lease.close()
    assert.equal(device.driver.usedBytes(), 0)
  })

  it('drains when it is closed: lent arenas come back, and their work ends', { timeout: 10_000 }, async () => {
    const { device, queue } = setUp()
    const stream = device.createStream()
    const leases = [await queue.take(), await queue.take()]
    const refused = assert.rejects(queue.take(), { name: 'PoolError', message: /^take: the arenas are closed/ })
    let drained = false
    const closing = [queue.close(), queue.close()].map(async one => {
      await one
      drained = true
    })
    await refused
    await assert.rejects(queue.take(), { name: 'PoolError', message: /^take: the arenas are closed/ })
    const release = device.hold(stream)
    leases[0].arena.allocate(1 * KiB, stream).fill(1)
    for (const lease of leases) lease.close()
    await turns()
    assert.deepEqual([queue.closed, drained, device.driver.usedBytes()], [true, false, 2 * MiB], 'work is pending')
    assert.equal(device.driver.calls.get('cuCtxSynchronize') ?? 0, 0, 'nothing blocks')
    release()
    await Promise.all(closing)
    assert.equal(device.driver.usedBytes(), 0)
    await queue.close()
  })

  it('closes lent arenas when the signal of its close is aborted', { timeout: 10_000 }, async () => {
    const { device, queue } = setUp()
    const lease = await queue.take()
    await assert.rejects(queue.close({ signal: 5 as never }), { name: 'TypeError', message: /^close: signal must be/ })
    assert.equal(queue.closed, false, 'a refused close changes nothing')
    const [now, later] = [new Abortable(), new Abortable()]
    const closing = [queue.close(), assert.rejects(queue.close(later.options), later.reason)]
    await turns()
    assert.equal(lease.arena.closed, false)
    later.abort()
    await Promise.all(closing)
    assert.deepEqual([lease.arena.closed, device.driver.usedBytes()], [true, 0])
    lease.close()
    const { queue: other } = setUp()
    const { arena } = await other.take()
    now.abort()
    await assert.rejects(other.close(now.options), now.reason)
    assert.equal(arena.closed, true)
    now.assertForgotten()
    later.assertForgotten()
  })

  it('drains at the end of an await using block, and a using block closes lent arenas', async () => {
    const { device, queue } = setUp()
    const lease = await queue.take()
    const ended = queue[Symbol.asyncDispose]()
    await turns()
    assert.equal(lease.arena.closed, false)
    lease.close()
    await ended
    assert.equal(device.driver.usedBytes(), 0)
    const { queue: other } = setUp()
    const { arena } = await other.take()
    other[Symbol.dispose]()
    assert.equal(arena.closed, true)
  })

  it('rejects all waiting requests when the last arena cannot be replaced', { timeout: 10_000 }, async () => {
    const { device, queue } = setUp({ count: 1 })
    const lease = await queue.take()
    const waiting = Promise.allSettled([queue.take(), queue.take(), queue.take()])
    lease.arena.close()
    device.driver.failCall({ call: 'cuMemAlloc', nth: 1, onwards: true })
    lease.close()
    for (const result of await waiting) {
      assert.equal((result as PromiseRejectedResult).reason.name, 'OutOfMemoryError')
    }
  })

  it('keeps serving when the driver refuses a reset', { timeout: 10_000 }, async () => {
    const { device, queue } = setUp({ count: 1 })
    const refused = { name: 'CudaError', call: 'cuEventCreate' }
    const useTwoStreams = (arena: ArenaPool) => {
      for (let count = 0; count < 2; count++) arena.allocate(1 * KiB, device.createStream()).fill(1)
      device.driver.failCall({ call: 'cuEventCreate', nth: 1 })
    }
    const lease = await queue.take()
    useTwoStreams(lease.arena)
    assert.throws(() => lease.close(), refused)
    lease.close()
    assert.equal(queue.availableArenas, 1)
    const used = queue.use(useTwoStreams)
    const waiting = queue.take()
    await used // its work has ended well; the arena is replaced
    const next = await waiting
    next.arena.allocate(1 * MiB)
    next.close()
    await queue.close()
    assert.equal(device.driver.usedBytes(), 0)
  })

  it('refuses bad options by name', () => {
    for (const count of [0, -1, 1.5, '2' as never, undefined as never]) {
      assert.throws(() => setUp({ count }), { name: 'RangeError', message: /createArenaQueue: count must be/ })
    }
    for (const maxWaiting of [-1, 1.5, '2', null, Number.NaN]) {
      const refused = { name: 'RangeError', message: /createArenaQueue: maxWaiting must be a whole number or Infinity/ }
      assert.throws(() => setUp({ maxWaiting: maxWaiting as number }), refused)
    }
    assert.throws(() => setUp({ shared: true } as object), { name: 'TypeError', message: /unknown option 'shared'/ })
    assert.throws(() => setUp({ bytes: 0 }), { name: 'RangeError', message: /bytes/ })
  })
})
