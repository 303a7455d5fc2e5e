import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { SharedPool } from './shared-pool.js'

const KEPT = 64
const BATCH = 15
const BATCHES = 128
/** Blocks that a queue has room for. */
const ROOM = BATCHES * BATCH

/** A pool with one thread that allocates, and one that frees. */
function twoThreads() {
  const { pool, server, attach } = new TestDevice().createSharedPool()
  const [producer, consumer] = [attach(), attach()]
  return { pool, server, attach, producer, consumer, remoteFrees: server['state'].caches.remoteFrees }
}

function send(producer: SharedPool, consumer: SharedPool, count = 1, bytes = 1000): void {
  const buffers = Array.from({ length: count }, () => producer.allocate(bytes))
  for (const buffer of buffers) consumer.adopt(buffer.transfer()).free()
}

/**
 * Runs `work` until it has made `count` plain stores to the named arrays, where its thread dies; returns whether it
 * did.
 */
function runUntil(count: number, arrays: [owner: object, name: string][], work: () => void): boolean {
  const death = new Error('death')
  let stores = 0
  const undo = arrays.map(([owner, name]) => {
    const array = Reflect.get(owner, name) as object
    const watched = new Proxy(array, {
      get: (target, key) => Reflect.get(target, key) as unknown,
      set: (target, key, value) => {
        if (stores++ === count) throw death
        return Reflect.set(target, key, value)
      },
    })
    Reflect.set(owner, name, watched)
    return () => Reflect.set(owner, name, array)
  })
  try {
    work()
    return false
  } catch (error) {
    assert.equal(error, death)
    return true
  } finally {
    for (const back of undo) back()
  }
}

describe('a queue of remote frees', () => {
  it('returns blocks to the thread that allocated them when many threads free them and end', () => {
    const { pool, producer, attach, remoteFrees } = twoThreads()
    const consumers = Array.from({ length: 5 }, attach)
    const held = Array.from({ length: 100 }, () => producer.allocate(1000))
    for (let round = 0; round < 300; round++) {
      const before = pool.stats()
      // The first two threads free few blocks, and so leave half full batches behind.
      const free = (buffer: DeviceBuffer, index: number) =>
        consumers[round === 3 ? index % 2 : 2 + (index % 3)].adopt(buffer.transfer()).free()
      held.forEach(free)
      held.splice(0, 100, ...Array.from({ length: 100 }, () => producer.allocate(1000)))
      const after = pool.stats()
      assert.deepEqual([after.cacheMisses, after.growths], [before.cacheMisses, before.growths], `round ${round}`)
    }
    assert.equal(remoteFrees.all().size, 0)
    for (const buffer of held) buffer.free()
    pool.check()
  })

  it('sends blocks to the heap when it is full', () => {
    const { pool, producer, consumer, remoteFrees } = twoThreads()
    send(producer, consumer, ROOM + 5)
    assert.equal(remoteFrees.all().size, ROOM)
    pool.check()
    assert.equal(pool.stats().cachedBytes, ROOM * 1024)
    const { cacheMisses } = pool.stats()
    send(producer, consumer, ROOM)
    assert.deepEqual([remoteFrees.all().size, pool.stats().cacheMisses], [ROOM, cacheMisses])
    const own = producer['state'].caches.remoteFrees
    assert.equal(own.oldest, own.seen, 'nothing is looked at twice')
    pool.check()
  })

  it('is emptied into the heap by its thread when the stacks have no room', () => {
    const { pool, producer, consumer, remoteFrees } = twoThreads()
    send(producer, consumer, 2 * KEPT)
    producer.allocate(5000).free()
    assert.equal(remoteFrees.all().size, 0)
    assert.equal(pool.stats().cachedBytes, KEPT * 1024 + 5120)
    pool.check()
  })

  it('gets no blocks once its thread has died, even before the cleanup', () => {
    const { pool, server, producer, consumer, remoteFrees } = twoThreads()
    const adopted = consumer.adopt(producer.allocate(5000).transfer())
    send(producer, consumer, 3)
    server['state'].registry.bury(producer['state'].thread)
    adopted.free()
    assert.equal(remoteFrees.all().size, 3)
    server.sweep()
    assert.deepEqual([remoteFrees.all().size, pool.stats().cachedBytes], [0, 0])
    pool.check()
  })

  it('is left alone while its thread is stopped inside its biased lock', () => {
    const { pool, producer, consumer, remoteFrees } = twoThreads()
    send(producer, consumer, 3)
    producer['state'].caches.biasedLock.enter()
    pool.trimTo(0)
    assert.equal(remoteFrees.all().size, 3)
    producer['state'].caches.biasedLock.leave()
    pool.trimTo(0)
    assert.deepEqual([remoteFrees.all().size, pool.stats().reservedBytes], [0, 0])
  })

  it('passes to the next thread of its number', () => {
    const { pool, producer, consumer, attach, remoteFrees } = twoThreads()
    send(producer, consumer, 2 * ROOM)
    const { thread } = producer['state']
    const kept = consumer.adopt(producer.allocate(1000).transfer())
    producer.close()
    assert.equal(remoteFrees.all().size, 0)
    const next = attach()
    assert.equal(next['state'].thread, thread)
    kept.free()
    assert.equal(remoteFrees.all().size, 1)
    const { cacheMisses } = pool.stats()
    next.allocate(1000).free()
    assert.equal(pool.stats().cacheMisses, cacheMisses)
    pool.check()
  })

  it('has room again after its senders left or died', () => {
    const { server, producer, attach, remoteFrees } = twoThreads()
    for (let round = 0; round < 2 * BATCHES; round++) {
      const consumer = attach()
      send(producer, consumer)
      assert.equal(remoteFrees.all().size, 1)
      if (round % 2 === 0) consumer.close()
      else server['state'].registry.bury(consumer['state'].thread)
      server.sweep()
    }
  })

  for (const begun of [2 ** 31 - 2, -(2 ** 31) + 2, -2]) {
    it(`works when its counter wraps around, at ${begun}`, () => {
      const { pool, attach, remoteFrees } = twoThreads()
      remoteFrees['begun'].fill(begun)
      const [producer, consumer] = [attach(), attach()]
      for (let round = 0; round < 9; round++) {
        send(producer, consumer, BATCH)
        assert.equal(remoteFrees.all().size, BATCH)
      }
      assert.equal(pool.stats().cacheMisses, BATCH)
    })
  }

  const skip = process.arch !== 'x64' && 'stores are plain on x64 only'
  for (const dies of ['frees', 'allocates'] as const) {
    it(`loses no block when a thread that ${dies} dies between two stores`, { skip }, () => {
      for (let count = 0, died = true; died; count++) {
        const { pool, server, producer, consumer, remoteFrees } = twoThreads()
        const adopted = Array.from({ length: BATCH }, () => producer.allocate(1000)).map(buffer =>
          consumer.adopt(buffer.transfer()),
        )
        adopted.pop()!.free() // begins a batch
        if (dies === 'frees') {
          const own = consumer['state'].caches.remoteFrees
          const free = () => {
            for (const buffer of adopted) buffer.free()
          }
          died = runUntil(
            count,
            [
              [consumer, 'words'],
              [own, 'ownerWords'],
              [own, 'words'],
            ],
            free,
          )
        } else {
          for (const buffer of adopted) buffer.free()
          const cache = producer['cache']
          const arrays: [object, string][] = [
            [cache, 'words'],
            [producer['state'].caches.remoteFrees, 'words'],
          ]
          died = runUntil(count, arrays, () => cache.receive(0, 4, 4))
        }
        assert.ok(died || count >= 2 * (BATCH - 1), `${count} stores`)
        const [dead, alive] = dies === 'frees' ? [consumer, producer] : [producer, consumer]
        server['state'].registry.bury(dead['state'].thread)
        server.sweep()
        pool.reclaim(dead.thread)
        pool.check()
        assert.ok(pool.live().every(({ thread }) => thread === alive.thread))
        alive.close()
        pool.check()
        pool.processDeferred()
        pool.trimTo(0)
        const { liveBuffers, cachedBytes, reservedBytes } = pool.stats()
        assert.deepEqual([liveBuffers, cachedBytes, reservedBytes, remoteFrees.all().size], [0, 0, 0, 0], `${count}`)
      }
    })
  }
})
