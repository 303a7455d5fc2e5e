// Blocks, requests and numbers of threads that leave a shared pool, or die.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { MOST_WORKERS } from '../../threads/thread-registry.js'
import { TestDevice } from '../pool.fixture.js'
import type { SharedPool } from './shared-pool.js'
import type { SharedState } from './shared-state.js'

describe('a pool that threads share, after a thread has ended', () => {
  it('waits for the work on a buffer that a leaving thread held on a closing stream', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool()
    const second = attach()
    const [stream, other] = [device.createStream(), device.createStream()]
    const { ptr } = second.allocate(1 * MiB, stream)
    stream.synchronize()
    const release = device.hold(stream)
    device.clocks.slots.stop(stream.slot)
    second.close()
    device.clocks.slots.reopen(stream.slot)
    const next = pool.allocate(1 * MiB, other)
    assert.ok(next.ptr !== ptr || !other.query(), 'its work comes first')
    release()
    assert.equal(other.query(), true)
  })

  it('waits for the work on a block that a leaving thread had cached', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool()
    const stream = device.createStream()
    const other = attach()
    const block = other.allocate(100 * KiB, stream)
    const { ptr } = block
    const release = device.hold(stream)
    block.free()
    other.close()
    assert.notEqual(pool.allocate(100 * KiB).ptr, ptr)
    release()
    pool.check()
  })

  it('lists a thread whose death is noticed during the listing', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    other.allocate(1000)
    const { registry } = pool['state']
    const look = registry.hasDied.bind(registry)
    registry.hasDied = thread => {
      if (thread !== other.thread) return look(thread)
      registry.bury(thread) // another thread notices the death just after this look
      return false
    }
    const listed = pool.threads().find(({ thread }) => thread === other.thread)
    assert.equal(listed?.liveBuffers, 1)
  })

  it('gives a reclaimed thread no more blocks', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    server['sweptAt'] = Infinity // no sweep notices the death first
    const { channel, registry, thread } = attach()['state']
    const place = (channel['words'].length / (MOST_WORKERS + 1)) * thread
    channel['write'](place, { ask: 'allocate', units: 4, alignUnits: 1, slot: 0 })
    channel['words'][place] = 1 // the thread has asked, and dies
    registry.bury(thread)
    pool.reclaim(thread)
    assert.deepEqual([pool.stats().liveBuffers, pool.live()], [0, []])
    pool.check()
  })

  it('reuses the number of a leaving thread only after that thread has read the answer', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const leaving = attach()
    leaving.allocate(1000)
    const serve = server.serve.bind(server)
    const late: SharedPool[] = []
    server.serve = () => {
      server.serve = serve
      const answers = serve()
      late.push(attach())
      return answers
    }
    assert.deepEqual(leaving.close(), { heldBuffers: 1, heldBytes: 1000 })
    const number = leaving['state'].thread
    assert.notEqual(late[0]['state'].thread, number)
    assert.equal(attach()['state'].thread, number, 'now it is free')
    pool.check()
  })

  it('reuses the numbers of dead threads that hold no buffers', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const others = Array.from({ length: MOST_WORKERS - 2 }, attach)
    const { registry } = pool['state']
    for (const { state } of others.map(other => other as unknown as { state: SharedState })) registry.bury(state.thread)
    const late = Array.from({ length: MOST_WORKERS - 2 }, attach)
    for (const other of late) other.allocate(256)
    for (const { state } of late.map(other => other as unknown as { state: SharedState })) registry.bury(state.thread)
    const full = /^64 threads use this pool, which is the limit; 62 of them have ended: .*pool\.reclaim\(thread\)/
    assert.throws(attach, { name: 'PoolError', message: full })
    assert.deepEqual(pool.reclaim(late[5].thread), { buffers: 1, bytes: 256 })
    attach()
  })

  it('reclaims nothing by the name of an earlier thread of the same number', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const first = attach()
    first.close()
    const second = attach()
    assert.equal(second['state'].thread, first['state'].thread)
    second.allocate(1000)
    pool['state'].registry.bury(second['state'].thread)
    assert.deepEqual(pool.reclaim(first.thread), { buffers: 0, bytes: 0 })
    assert.deepEqual(pool.reclaim(second.thread), { buffers: 1, bytes: 1000 })
  })

  it('forgets the announced uses of a reclaimed buffer', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ maxPoolBytes: 32 * MiB, backing: 'segments' })
    const [stream, former, user] = Array.from({ length: 3 }, () => device.createStream())
    const lost = pool.allocate(32 * MiB, stream)
    const { ptr } = lost
    lost.recordUse(former)
    lost.transfer()
    assert.deepEqual(pool.reclaim(0), { buffers: 1, bytes: 32 * MiB })
    const next = pool.allocate(32 * MiB, stream)
    next.recordUse(user)
    device.hold(former)
    next.free()
    assert.equal(pool.allocate(32 * MiB, stream).ptr, ptr)
    assert.equal(stream.query(), true, 'it does not wait for what the lost buffer was announced to')
  })

  it('takes back cached blocks of a thread whose death is noticed when memory is short', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB, backing: 'segments' })
    const other = attach()
    const held = Array.from({ length: 12 }, () => other.allocate(2 * MiB))
    for (const buffer of held) buffer.free()
    other['state'].caches.biasedLock.enter() // stopped inside: its blocks are left alone while it lives
    server['sweptAt'] = Infinity
    const { registry } = server['state']
    registry.findDead = () => {
      registry.bury(other['state'].thread)
      return registry.dead()
    }
    assert.notEqual(pool.tryAllocate(24 * MiB), null)
  })

  it('drops the request of a dead thread before its number is reused', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const { channel, registry, thread } = attach()['state']
    const died = new RangeError('as it asked')
    const die = () => {
      throw died
    }
    assert.throws(() => channel.ask(thread, { ask: 'allocate', units: 4, alignUnits: 1, slot: 0 }, die), died)
    registry.bury(thread)
    server.sweep()
    const next = attach()
    assert.deepEqual([next['state'].thread, channel.isLate(thread)], [thread, false])
    next.processDeferred()
    assert.equal(pool.stats().liveBuffers, 0)
  })

  it('counts its blocks again after a thread died with the lock', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const buffer = other.allocate(3 * MiB)
    const { lock, caches, registry, thread } = other['state']
    lock.acquire()
    caches.handBack(buffer.record) // the thread dies before the heap has the block
    registry.bury(thread)
    pool.check()
  })

  it('keeps the blocks of a thread that was stopped inside its biased lock until it leaves', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const [stopped, other] = [attach(), attach()]
    stopped.allocate(3 * MiB).free()
    other.allocate(3 * MiB).free()
    const { cachedBytes } = pool.stats()
    stopped['state'].caches.biasedLock.enter()
    pool.trimTo(0)
    assert.deepEqual([pool.stats().cachedBytes, pool.stats().liveBuffers], [cachedBytes / 2, 0])
    pool.check()
    stopped.close()
    pool.trimTo(0)
    assert.deepEqual([pool.stats().cachedBytes, pool.stats().reservedBytes], [0, 0])
    pool.check()
  })
})
