// What a shared pool promises, in one thread that plays several, so that each step is chosen; with threads of their own:
// test/shared-pool-threads.test.ts. One file, long as the list of promises, since all cases share one set-up.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { runInNewContext } from 'node:vm'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, DeviceLostError } from '../../base/errors.js'
import { CU_STREAM_PER_THREAD } from '../../driver/constants.js'
import { Context } from '../../driver/context.js'
import { ownerWordOf, Phase } from '../../heap/owner-word.js'
import { LAST_GENERATION, State, Word } from '../../heap/records.js'
import { loadKoffi } from '../../libraries/koffi.js'
import { Clocks } from '../../order/clocks.js'
import { Stream } from '../../order/stream.js'
import { MOST_WORKERS } from '../../threads/thread-registry.js'
import { TestDevice } from '../pool.fixture.js'
import { poolSuite } from '../pool.suite.js'

import type { TransferredBuffer } from '../transferred-buffer.js'
import { PoolServerGroup } from './pool-server-group.js'

import type { SharedPool } from './shared-pool.js'
import { CLOSED, Figure, type SharedState } from './shared-state.js'

for (const backing of ['virtual', 'segments'] as const) {
  poolSuite(`shared by threads, ${backing}`, () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ backing })
    return { device, pool, check: () => pool.check(), close: () => pool.close() }
  })
}

/** Stops a call that does not end, without any `finally` of it, once it has come so far. */
function cutShort(call: () => unknown, isSoFar: () => boolean): void {
  while (!isSoFar()) {
    assert.throws(() => runInNewContext('call()', { call }, { timeout: 5 }), { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' })
  }
}

describe('a pool that threads share', () => {
  it('gives back the same block', () => {
    const { pool } = new TestDevice().createSharedPool()
    const first = pool.allocate(1 * MiB)
    const { ptr } = first
    first.free()
    assert.equal(pool.allocate(1 * MiB).ptr, ptr)
    pool.check()
  })

  it('frees by address what is of a closed stream, though a captured one has its slot', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const stream = device.createStream()
    const { ptr } = pool.allocate(1 * MiB, stream)
    stream.close()
    const next = device.createStream()
    assert.equal(next.slot, stream.lastSlot)
    next.beginCapture()
    pool.deallocate(ptr)
    assert.equal(pool.stats().liveBuffers, 0)
    next.abortCapture()
    pool.check()
  })

  it('keeps what a thread held live when it closed the pool from others while that stream is being closed with work pending', () => {
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

  it('keeps what a thread had cached from the default stream, after the thread closed the pool, while work is pending', () => {
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

  it('waits for a stream whose first block comes while the driver is called, though an allocation on it failed before', () => {
    const device = new TestDevice()
    const { driver } = device
    const isCapturing = driver.cuStreamIsCapturing.bind(driver)
    let meanwhile = () => {}
    driver.cuStreamIsCapturing = handle => {
      meanwhile()
      meanwhile = () => {}
      return isCapturing(handle)
    }
    const { pool, attach } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    const [own, late, asking] = [0, 1, 2].map(() => device.createStream())
    const held = []
    for (let buffer = pool.tryAllocate(4 * MiB, own); buffer !== null; buffer = pool.tryAllocate(4 * MiB, own))
      held.push(buffer)
    assert.equal(pool.tryAllocate(8 * MiB, late), null)
    const freed = held.pop()!
    const { ptr } = freed
    meanwhile = () => {
      device.hold(late)
      freed.free(late)
    }
    assert.equal(other.tryAllocate(4 * MiB, asking)?.ptr, ptr)
    assert.equal(pool.stats().insertedWaits, 1)
  })

  it('is repaired after a call was cut short in the middle of a change, by the same thread or by another one', () => {
    const { pool, attach } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    pool.allocate(1000).free()
    for (const next of [pool, other]) {
      const { memory } = pool['state']
      const handOut = memory.small.allocate.bind(memory.small)
      memory.small.allocate = (...of) => {
        handOut(...of)
        throw new RangeError('Maximum call stack size exceeded')
      }
      assert.throws(() => pool.allocate(4000), RangeError)
      memory.small.allocate = handOut
      next.allocate(5000).free()
      next.check()
    }
    assert.equal(pool.stats().liveBuffers, 0)
  })

  it('is repaired by a thread whose script was stopped while it held the lock', () => {
    const { pool } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB })
    const hold = () => {
      pool['state'].acquire()
      for (;;);
    }
    const { lock, thread } = pool['state']
    cutShort(hold, () => lock.owner === thread)
    pool.allocate(5000).free()
    pool.check()
    assert.equal(pool['state'].repairs, 1)
    cutShort(hold, () => lock.owner === thread)
    pool.processDeferred() // of the pool server, which needs the lock
    pool.check()
  })

  it('is not made where its pool server is refused what it was laid out for', () => {
    const device = new TestDevice()
    device.driver.failCall({ call: 'cuMemSetAccess', nth: 2, code: 999, onwards: true }) // the first is its maker's
    assert.throws(() => device.createSharedPool(), { name: 'PoolError', message: /'virtual' is not possible here/ })
    device.driver.clearFaults()
    device.createSharedPool().pool.allocate(1000).free()
  })

  it('has its records on pages', { skip: process.platform !== 'linux' }, () => {
    const { pool } = new TestDevice().createSharedPool()
    const { buffer, byteOffset } = pool['state'].records.words
    assert.equal(Number(loadKoffi().address(new Uint8Array(buffer, byteOffset))) % 4096, 0)
  })

  it('moves a block that another thread used to a record of its own', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const { records } = pool['state']
    for (const each of [pool, other, pool, other]) {
      assert.equal(records.ownerOf(each.allocate(2 * MiB).record), each.thread)
    }
    pool.check()
  })

  it('breaks a larger block that it has cached without asking its pool server', () => {
    const { pool } = new TestDevice().createSharedPool({ maxPoolBytes: 256 * MiB })
    const halves = [pool.allocate(MiB / 2)]
    const { reservedBytes } = pool.stats()
    while (halves.length < reservedBytes / (MiB / 2)) halves.push(pool.allocate(MiB / 2))
    const addresses = halves.map(({ ptr }) => ptr)
    for (const half of halves) half.free()
    assert.equal(pool.stats().cachedBytes, reservedBytes)
    const { rings } = pool['state'].channel.doorbell
    const eighths = halves.flatMap(() => [0, 1, 2, 3].map(() => pool.allocate(MiB / 8)))
    assert.equal(pool['state'].channel.doorbell.rings, rings)
    assert.deepEqual(
      eighths.map(({ ptr }) => ptr).sort((one, other) => one - other),
      addresses.flatMap(ptr => [0, 1, 2, 3].map(index => ptr + (index * MiB) / 8)).sort((one, other) => one - other),
    )
    pool.check()
  })

  for (const bytes of [4096, 100 * 1024]) {
    it(`serves bursts of 64 blocks of ${bytes} bytes from what a thread caches`, () => {
      const { pool } = new TestDevice().createSharedPool({ maxPoolBytes: 128 * MiB })
      const burst = () => {
        const held = Array.from({ length: 64 }, () => pool.allocate(bytes))
        for (const buffer of held) buffer.free()
      }
      burst()
      const { cacheMisses } = pool.stats()
      burst()
      assert.equal(pool.stats().cacheMisses, cacheMisses)
      pool.check()
    })
  }

  it('keeps a handle stale whose buffer was transferred and has come back', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    for (const back of [
      (sent: TransferredBuffer) => pool.adopt(sent),
      (sent: TransferredBuffer) => pool.adopt(other.adopt(sent).transfer()),
      (sent: TransferredBuffer) => pool.adoptAll([other.adoptAll([sent])[0].transfer()])[0],
    ]) {
      const old = pool.allocate(1000)
      const sent = old.transfer()
      const adopted = back(sent)
      assert.deepEqual([old.freed, adopted.freed], [true, false])
      old[Symbol.dispose]()
      assert.throws(() => old.free(), { name: 'PoolError', message: /already freed, or handed to another thread/ })
      assert.throws(() => old.transfer(), { name: 'PoolError' })
      assert.throws(() => other.adopt(sent), { name: 'PoolError', message: /not on its way/ })
      assert.equal(adopted.freed, false)
      adopted.free()
    }
    pool.check()
  })

  it('keeps such a handle stale also in the last generation of its record', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const first = pool.allocate(1000)
    const { record } = first
    first.free()
    const { words } = pool['state'].records
    const block = pool['cache'].blocks.blockOf(record)
    block.tag = (LAST_GENERATION - 1) * 8 + State.cached
    words[record << 4] = (LAST_GENERATION - 1) * 8 + State.live
    words[(record << 4) | Word.owner] = ownerWordOf(block.tag, pool['state'].thread, Phase.cached)
    const last = pool.allocate(1000)
    assert.deepEqual([last.record, last.tag >> 3], [record, LAST_GENERATION])
    let sent = last.transfer()
    for (const back of [pool, other, pool]) {
      const held = back.adopt(sent)
      assert.deepEqual([last.freed, held.freed], [true, false])
      assert.throws(() => last.transfer(), { name: 'PoolError' })
      sent = held.transfer()
      assert.equal(held.freed, true)
    }
    pool.adopt(sent).free()
    pool.check()
  })

  it('adopts a transferred buffer once, also when the same record was transferred again', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const first = pool.allocate(1000).transfer()
    const second = other.adopt(first).transfer()
    assert.throws(() => pool.adopt(first), { name: 'PoolError', message: /not on its way/ })
    pool.adopt(second).free()
    pool.check()
  })

  it('finds a block that a thread passed on from one stream to another and then freed', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    const [first, second] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(1000, first)
    const { ptr } = buffer
    buffer.free()
    device.clocks.mark(first.slot)
    first.synchronize()
    const again = pool.allocate(1000, second) // out of what the thread caches for the first stream
    assert.equal(again.ptr, ptr)
    again.free()
    pool.check()
    assert.notEqual(other.tryAllocate(32 * MiB), null)
    pool.check()
  })

  it('goes on with what is left when cached blocks were taken away, however often', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    const take = (count: number, bytes: number) => Array.from({ length: count }, () => pool.allocate(bytes))
    for (let round = 0; round < 4; round++) {
      for (const buffer of [...take(70, 3000), ...take(3, 1 * MiB)]) buffer.free()
      other.allocate(32 * MiB).free()
      pool.check()
      const held = [...take(round + 1, 3000), ...take(round, 1 * MiB)]
      assert.equal(new Set(held.map(({ ptr }) => ptr)).size, held.length)
      for (const buffer of held) buffer.free()
      pool.check()
      assert.ok(pool.stats().cachedBytes <= 32 * MiB)
    }
    pool.trimTo(0)
    assert.equal(pool.stats().reservedBytes, 0)
  })

  it('frees by address what begins there, and nothing else', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const [own, foreign] = [pool.allocate(1000), other.allocate(1000)]
    for (const ptr of [foreign.ptr, own.ptr + 256, 1, -1, Number.NaN])
      assert.throws(() => pool.deallocate(ptr), { name: 'PoolError', message: /not the start of a live buffer/ })
    pool.deallocate(own.ptr)
    assert.equal(own.freed, true)
    const adopted = pool.adopt(foreign.transfer())
    pool.deallocate(adopted.ptr)
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
  })

  it('frees by address though the first look misses the block', () => {
    const { pool } = new TestDevice().createSharedPool()
    const { ptr } = pool.allocate(1000)
    const addresses = pool['addresses']
    const rangeAt = addresses['rangeAt'].bind(addresses)
    let looks = 0
    // As where the first record of the range changes between the two loads that look for it.
    addresses['rangeAt'] = address => (looks++ === 0 ? -1 : rangeAt(address))
    pool.deallocate(ptr)
    assert.equal(looks, 2)
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
  })

  it('leaves a large block cached that would make no room for a small one', () => {
    const { pool } = new TestDevice({ capacityBytes: 1024 * MiB }).createSharedPool()
    pool.allocate(2 * MiB).free()
    assert.equal(pool.stats().cachedBytes, 2 * MiB)
    pool.allocate(1000)
    assert.equal(pool.stats().cachedBytes, 2 * MiB)
    pool.check()
  })

  it('has so many driver allocations at most, says so, and loses none', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ backing: 'segments' }, { ranges: 4 })
    const held = Array.from({ length: 4 }, () => pool.allocate(5 * MiB))
    const { reservedBytes } = pool.stats()
    const full = { name: 'PoolError', message: /allocate: the pool has 4 driver allocations, which is the limit/ }
    assert.throws(() => pool.tryAllocate(5 * MiB), full)
    assert.deepEqual([pool.stats().reservedBytes, pool.stats().liveBuffers], [reservedBytes, 4])
    pool.check()
    held.pop()!.free()
    device.clocks.synchronize()
    held.push(pool.allocate(7 * MiB)) // in the place of the idle one
    for (const buffer of held) buffer.free()
    pool.check()
    pool.trimTo(0)
    assert.equal(pool.stats().reservedBytes, 0)
  })

  it('counts each block once while others come and go', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const held = Array.from({ length: 8 }, () => other.allocate(1000))
    for (const buffer of held) buffer.free()
    const { records } = pool['state']
    const looksLive = records.isLive.bind(records)
    const deeds: (() => unknown)[] = [
      () => pool.allocate(1000).free(),
      () => pool.trimTo(0),
      () => held.fill(other.allocate(3 * MiB)),
      () => pool.adopt(held[0].transfer()).free(),
    ]
    for (const deed of deeds) {
      let looks = 0
      // Cached blocks, which the pool server takes away in the middle of a look.
      for (const buffer of Array.from({ length: 8 }, () => other.allocate(1000))) buffer.free()
      records.isLive = record => {
        if (++looks === 3) {
          delete (records as Partial<typeof records>).isLive
          deed()
        }
        return looksLive(record)
      }
      const { liveBuffers, liveBytes, requestedBytes, cachedBytes, frees } = pool.stats()
      assert.equal(looks, 3)
      for (const few of [liveBuffers, liveBytes / (4 * MiB), requestedBytes / (4 * MiB)])
        assert.ok(few >= 0 && few <= 1)
      assert.ok(cachedBytes >= 0 && frees >= 8)
    }
    const { liveBuffers, liveBytes, requestedBytes } = pool.stats()
    assert.deepEqual([liveBuffers, liveBytes, requestedBytes], [0, 0, 0])
    pool.check()
  })

  it('frees what waits for a stream of which another thread, which knew less, wrote last how far it has come', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const stream = device.createStream()
    const { slot } = stream
    const held = [pool.allocate(4 * MiB, stream), pool.allocate(1000), pool.allocate(1000, stream)]
    for (const buffer of held) buffer.free() // the small ones, which share a granule, stay cached
    stream.close()
    pool.processDeferred()
    device.clocks.completed[slot] = 0
    pool.trimTo(0)
    assert.deepEqual([pool.stats().pendingBytes, pool.stats().reservedBytes], [0, 0])
    pool.check()
  })

  it('refuses whoever comes while it is closed', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool()
    const { driver } = device
    const synchronize = driver.cuCtxSynchronize.bind(driver)
    let attempts = 0
    driver.cuCtxSynchronize = () => {
      attempts++
      assert.throws(attach, { name: 'PoolError', message: /attachPool: the pool is closed; create another/ })
      synchronize()
    }
    pool.close()
    assert.equal(attempts, 1)
    assert.throws(attach, { name: 'PoolError', message: /attachPool: the pool is closed/ })
  })

  it('refuses a buffer after it was closed, also one that another thread allocated', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const adopted = pool.adopt(other.allocate(1000).transfer())
    other.close()
    assert.equal(pool.close().lostBuffers, 1)
    assert.throws(() => adopted.free(), { name: 'PoolError', message: /the buffer's pool is closed/ })
  })

  it('hands out the block that was asked for where more memory ahead is refused', () => {
    const device = new TestDevice({ granularityBytes: 64 * KiB })
    const { pool } = device.createSharedPool({ backing: 'virtual', maxPoolBytes: 32 * MiB })
    device.driver.failCall({ call: 'cuMemCreate', nth: 2, code: 999 })
    pool.allocate(1000).free()
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
    assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
  })

  it('takes a buffer of a closed stream back by its address', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const stream = device.createStream()
    const { ptr } = pool.allocate(1000, stream)
    stream.close()
    pool.deallocate(ptr)
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
  })

  it('gives a buffer to the default stream, not to the own default stream of a thread that has its stream’s slot now', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const [here, stream] = [new Clocks(Context.open(device.driver, 0), device.clocks.share()), device.createStream()]
    const sent = [pool.allocate(1000, stream).transfer(), pool.allocate(1000, stream).transfer()]
    stream.close()
    device.clocks.synchronize()
    for (const clocks of [device.clocks, here]) {
      const own = new Stream(clocks, CU_STREAM_PER_THREAD, false)
      assert.equal(own.slot, stream.lastSlot)
      const adopted = pool.adopt(sent.pop()!)
      assert.equal(adopted.stream, device.defaultStream)
      adopted.free()
      own.close()
      clocks.synchronize()
    }
    pool.check()
  })

  it('lists a thread whose death is noticed by another one while it is looked at', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    other.allocate(1000)
    const { registry } = pool['state']
    const look = registry.look.bind(registry)
    registry.look = thread => {
      if (thread !== other.thread) return look(thread)
      registry.bury(thread) // the other one sees it just after this look
      return false
    }
    const listed = pool.threads().find(({ thread }) => thread === other.thread)
    assert.equal(listed?.liveBuffers, 1)
  })

  it('gives nothing more to a thread that has been reclaimed', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    server['sweptAt'] = Infinity // no sweep sees it first
    const { channel, registry, thread } = attach()['state']
    const place = (channel['words'].length / (MOST_WORKERS + 1)) * thread
    channel['write'](place, { ask: 'allocate', units: 4, alignUnits: 1, slot: 0 })
    channel['words'][place] = 1 // it has asked, and dies
    registry.bury(thread)
    pool.reclaim(thread)
    assert.deepEqual([pool.stats().liveBuffers, pool.live()], [0, []])
    pool.check()
  })

  it('is not waited for when its pool server dies while it closes', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    const { figures, registry } = pool['state']
    pool.begin()
    server.serve = () => {
      registry.bury(figures[Figure.server])
      figures[Figure.server] = CLOSED
      server.serve = () => 0
      return 0
    }
    assert.throws(() => pool.close(), { name: 'PoolError', message: /the thread that made it has ended/ })
  })

  it('gives the number of a thread that closes it away only after that has read the answer', () => {
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
    assert.deepEqual(leaving.close(), { lostBuffers: 1, lostBytes: 1000 })
    const number = leaving['state'].thread
    assert.notEqual(late[0]['state'].thread, number)
    assert.equal(attach()['state'].thread, number, 'now it is free')
    pool.check()
  })

  it('survives a refused driver call that no thread has asked for', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    const refused = new CudaError('cuEventRecord', 2, 'CUDA_ERROR_OUT_OF_MEMORY')
    let refusals = 0
    server['clocks'].buryStreams = () => {
      refusals++
      throw refused
    }
    server['sweptAt'] = -Infinity
    pool.processDeferred()
    assert.equal(refusals, 1)
    pool.check()
  })

  it('survives a refused mark that no thread has asked for', () => {
    const device = new TestDevice({ capacityBytes: 1024 * MiB })
    const { pool, server } = device.createSharedPool()
    const buffers = Array.from({ length: 100 }, () => pool.allocate(2 * MiB))
    for (const buffer of buffers) buffer.free()
    assert.ok(server['central'].wantsMarks)
    const records = () => device.driver.calls.get('cuEventRecord') ?? 0
    const before = records()
    device.driver.failCall({ call: 'cuEventRecord', code: 2 })
    server.serve()
    assert.equal(records(), before + 1, 'the pool server has placed a mark, which was refused')
    assert.equal(pool.processDeferred(), 1, 'the next mark covers what was freed')
    pool.check()
  })

  it('tells every thread that asks, and each that comes, why its pool server has ended', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const lost = new DeviceLostError(new CudaError('cuEventQuery', 700, 'CUDA_ERROR_ILLEGAL_ADDRESS'))
    server.serve = () => {
      throw lost
    }
    const servers = new PoolServerGroup(() => {})
    servers.add(server)
    servers.serve()
    assert.equal(servers.count, 0)
    server.serve = () => 0
    for (const ask of [() => pool.processDeferred(), () => other.trimTo(0), () => pool.allocate(8 * MiB), attach]) {
      assert.throws(ask, { name: 'DeviceLostError', message: lost.message })
    }
    assert.deepEqual(other.close(), { lostBuffers: 0, lostBytes: 0 })
    assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
  })

  it('gives no late answer to the next request of a thread whose call was cut short, and loses no block by it', () => {
    const { pool, server } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB })
    const serve = server.serve.bind(server)
    server.serve = () => {
      for (;;);
    }
    const { channel, thread } = pool['state']
    cutShort(
      () => pool.allocate(24 * MiB),
      () => channel.isLate(thread),
    )
    server.serve = serve
    assert.equal(pool.processDeferred(), 1, 'the block of the call that was cut short')
    assert.equal(pool.stats().liveBuffers, 0)
    pool.allocate(24 * MiB).free()
    pool.check()
  })

  it('reports what was lost by a close that was cut short once it is closed again', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    pool.allocate(1000)
    const serve = server.serve.bind(server)
    const cut = new RangeError('while it waits, just when the answer is there')
    server.serve = () => {
      serve()
      throw cut
    }
    assert.throws(() => pool.close(), cut)
    server.serve = serve
    assert.deepEqual(pool.close(), { lostBuffers: 1, lostBytes: 1000 })
  })

  it('is attached in the place of dead threads, unless they still hold buffers', () => {
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

  it('reclaims nothing by the name of a thread whose number another one had since', () => {
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

  it('forgets the announced uses of a buffer that is reclaimed, so that the next one in its memory waits for its own uses alone', () => {
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

  it('takes back what a thread had cached whose death is noticed only when there is no memory', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool({ maxPoolBytes: 32 * MiB, backing: 'segments' })
    const other = attach()
    const held = Array.from({ length: 12 }, () => other.allocate(2 * MiB))
    for (const buffer of held) buffer.free()
    other['state'].caches.biasedLock.enter() // it was stopped there: its places are left alone while it lives
    server['sweptAt'] = Infinity
    const { registry } = server['state']
    registry.lookAtAll = () => {
      registry.bury(other['state'].thread)
      return registry.dead()
    }
    assert.notEqual(pool.tryAllocate(24 * MiB), null)
  })

  it('keeps no request of a thread that has ended for the next one of its number', () => {
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

  it('counts what is handed out anew after it was taken over from a dead thread', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const buffer = other.allocate(3 * MiB)
    const { lock, caches, registry, thread } = other['state']
    lock.acquire()
    caches.handBack(buffer.record) // and it dies, with the block still taken
    registry.bury(thread)
    pool.check()
  })

  it('tells what the backing knows before the next thread has the lock', () => {
    const { pool, server } = new TestDevice().createSharedPool()
    const { state } = server as unknown as { state: SharedState }
    const release = state.release.bind(state)
    state.release = () => {
      assert.equal(state.figures[Figure.reservedBytes], server['central'].backing.reservedBytes)
      release()
    }
    pool.allocate(3 * MiB)
    pool.trimTo(0)
    assert.ok(pool.stats().reservedBytes > 0)
  })

  it('is looked after less and less often while nothing happens, and not at all while its maker alone uses it', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const { caches, channel } = server['state']
    const other = attach()
    let now = 1e6
    let looks = 0
    const look = caches.look.bind(caches)
    caches.look = () => {
      looks++
      look()
    }
    const naps = (count: number) =>
      Array.from({ length: count }, () => {
        server.serve(now)
        const restMs = server.restMs(now)
        now += restMs
        return restMs
      })
    const growing = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert.deepEqual(naps(9), growing)
    assert.equal(looks, 1, 'the blocks are looked at once')
    other.allocate(1 * MiB).free() // which asks
    now += 50
    assert.deepEqual(naps(9), growing)
    assert.equal(looks, 2)
    other.close()
    now += 50
    assert.deepEqual(naps(1), [Infinity])
    now = 2e6
    const { rings } = channel.doorbell
    attach()
    assert.ok(channel.doorbell.rings > rings, 'a thread that comes wakes the pool server')
    assert.deepEqual(naps(2), [200, 400])
    pool.check()
  })

  it('is not closed when somebody comes before the pool server has begun to', () => {
    const { pool, server, attach } = new TestDevice().createSharedPool()
    const serve = server.serve.bind(server)
    const late: ReturnType<typeof attach>[] = []
    server.serve = () => {
      server.serve = serve
      late.push(attach())
      return serve()
    }
    assert.throws(() => pool.close(), { name: 'PoolError', message: /close: the pool is in use by 1 other threads/ })
    late[0].allocate(1000).free()
    late[0].close()
    pool.allocate(1000).free()
    pool.check()
    assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
  })

  it('leaves a thread what it has that was stopped inside its biased lock, until that has come out or leaves', () => {
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

  for (const backing of ['virtual', 'segments'] as const) {
    it(`a repair while the pool server calls the driver counts a block once: ${backing}`, () => {
      const device = new TestDevice()
      const { pool } = device.createSharedPool({ backing })
      const { driver } = device
      const state = pool['state']
      const exchange = driver.cuThreadExchangeStreamCaptureMode.bind(driver)
      let repairs = 0
      driver.cuThreadExchangeStreamCaptureMode = mode => {
        state.locked(() => state.caches.recount())
        repairs++
        return exchange(mode)
      }
      const buffer = pool.allocate(3 * MiB)
      assert.ok(repairs > 0)
      assert.equal(pool.stats().liveBuffers, 1)
      pool.check()
      buffer.free()
    })
  }
})
