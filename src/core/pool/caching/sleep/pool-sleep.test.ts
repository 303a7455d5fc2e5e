// A caching pool that sleeps: contents, refusals, failures. The file is long because it tests one pair of methods, and
// the tests share their set-up and their checks of contents.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../../base/errors.js'
import type { DeviceBuffer } from '../../buffer.js'
import { isFilled, TestDevice, twoDevices } from '../../pool.fixture.js'
import type { SleepOptions, SleepProgress } from '../../sleep/sleep-options.js'
import type { CachingPool } from '../caching-pool.js'

function open(options: { maxPoolBytes?: number } = {}) {
  const device = new TestDevice({ capacityBytes: 64 * MiB })
  const pool = device.createPool({ backing: 'virtual', ...options })
  return { device, pool }
}

function filled(pool: CachingPool, bytes: number, value: number): DeviceBuffer {
  const buffer = pool.allocate(bytes)
  buffer.fill(value)
  return buffer
}

function assertFilled(buffer: DeviceBuffer, value: number): void {
  const bytes = buffer.readSync()
  assert.ok(isFilled(bytes, value), `all bytes are ${value}, not ${bytes[0]}`)
}

const sleepError = (call: string) => (error: unknown) =>
  error instanceof PoolError && error.message === `${call}: the pool is asleep; await its wake() before it is used`

describe('a pool that sleeps', () => {
  it('gives all memory back, and has the contents at the same addresses after wake', async () => {
    const { device, pool } = open()
    const buffers = [100, 300 * KiB, 3 * MiB, 9 * MiB].map((bytes, index) => filled(pool, bytes, index + 1))
    const addresses = buffers.map(({ ptr }) => ptr)
    const reserved = pool.stats().reservedBytes
    await pool.sleep()
    assert.equal(pool.asleep, true)
    assert.equal(device.freeBytes(), 64 * MiB)
    const { asleepBytes, hostCopyBytes, liveBuffers, reservedBytes } = pool.stats()
    assert.ok(asleepBytes > 12 * MiB && asleepBytes <= reserved, `${asleepBytes}`)
    assert.ok(hostCopyBytes > 12 * MiB && hostCopyBytes <= asleepBytes, `${hostCopyBytes}`)
    assert.deepEqual([liveBuffers, reservedBytes], [4, 0])
    assert.deepEqual(
      buffers.map(({ ptr }) => ptr),
      addresses,
      'addresses can be read',
    )
    await pool.wake()
    assert.equal(pool.asleep, false)
    const after = pool.stats()
    assert.deepEqual([after.asleepBytes, after.hostCopyBytes, after.reservedBytes], [0, 0, asleepBytes])
    for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
    pool.check()
    for (const buffer of buffers) buffer.free()
    pool.allocate(60 * MiB).free()
    pool.close()
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('refuses each use by one error, and takes frees', async () => {
    const { device, pool } = open()
    const stream = device.createStream()
    const kept = filled(pool, 2 * MiB, 7)
    const freed = filled(pool, 4 * MiB, 8)
    await pool.sleep()
    const before = pool.stats().hostCopyBytes
    const uses: [string, () => unknown][] = [
      ['allocate', () => pool.allocate(100)],
      ['allocate', () => pool.tryAllocate(100 * MiB)],
      ['write', () => kept.write(new Uint8Array(4))],
      ['fill', () => kept.fill(1)],
      ['readSync', () => kept.readSync()],
      ['recordUse', () => kept.recordUse(stream)],
      ['reserve', () => pool.reserve(4 * MiB)],
      ['observeSegments', () => pool.observeSegments({ ready() {}, leaving() {} })],
    ]
    for (const [call, use] of uses) assert.throws(use, sleepError(call), call)
    await assert.rejects(pool.whenAvailable(100), sleepError('whenAvailable'))
    await assert.rejects(kept.read(), sleepError('read'))
    await assert.rejects(pool.sleep(), /^PoolError: sleep: the pool is asleep already/)
    freed.free()
    assert.equal(before - pool.stats().hostCopyBytes, 4 * MiB, 'the copy of a freed buffer goes at once')
    assert.throws(() => freed.free(), /already freed/)
    assert.equal(pool.trimTo(0), 0)
    assert.equal(pool.processDeferred(), 0)
    pool.check()
    await pool.wake()
    assert.ok(pool.stats().reservedBytes <= 4 * MiB, 'memory of freed buffers is not taken again')
    assertFilled(kept, 7)
    await assert.rejects(pool.wake(), /^PoolError: wake: the pool is awake/)
    pool.close()
    await assert.rejects(pool.sleep(), /the pool is closed/)
    await assert.rejects(pool.wake(), /the pool is closed/)
  })

  it('has nothing cached or free while it sleeps, and keeps the copy of a slab until it wakes', async () => {
    const { device, pool } = open()
    const small = Array.from({ length: 40 }, (_, index) => filled(pool, 10 * KiB, index))
    const large = [filled(pool, 5 * MiB, 1), filled(pool, 3 * MiB, 2)]
    pool.allocate(2 * MiB).free()
    const figures = () => {
      const { cachedBytes, pendingBytes, largestFreeBytes, reservedBytes } = pool.stats()
      return [cachedBytes, pendingBytes, largestFreeBytes, reservedBytes]
    }
    await pool.sleep()
    assert.deepEqual(figures(), [0, 0, 0, 0])
    const slabBytes = pool.stats().hostCopyBytes - 8 * MiB
    assert.ok(slabBytes > 0)
    for (const buffer of [...small, ...large]) buffer.free()
    assert.deepEqual(figures(), [0, 0, 0, 0])
    assert.equal(pool.stats().hostCopyBytes, slabBytes)
    pool.check()
    await pool.wake()
    assert.deepEqual([pool.stats().hostCopyBytes, pool.stats().liveBuffers], [0, 0])
    assertFilled(filled(pool, 5 * MiB, 3), 3)
    pool.check()
    pool.close()
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('takes a free on a stream of another device', async () => {
    const [home, peer] = twoDevices()
    const pool = home.createPool({ backing: 'virtual' })
    pool.setAccess(peer, 'readWrite')
    const buffer = pool.allocate(1 * MiB)
    await pool.sleep()
    buffer.free(peer.createStream())
    await pool.wake()
    assert.deepEqual([buffer.freed, pool.stats().liveBuffers], [true, 0])
    pool.check()
  })

  it('ends a wait for memory that began before it slept', async () => {
    const { pool } = open({ maxPoolBytes: 8 * MiB })
    const held = pool.allocate(8 * MiB)
    const refused = assert.rejects(pool.whenAvailable(4 * MiB), sleepError('whenAvailable'))
    const sleeping = pool.sleep()
    held.free()
    await Promise.all([refused, sleeping])
    await pool.wake()
    await pool.whenAvailable(4 * MiB)
    pool.allocate(4 * MiB)
    pool.close()
  })

  it('takes the memory for copies from a host pool, and refuses one that is too small before anything moves', async () => {
    const { device, pool } = open()
    using host = device.createHostPool({ maxPoolBytes: 8 * MiB, segmentBytes: 1 * MiB })
    const buffer = filled(pool, 9 * MiB, 3)
    const calls = device.driver.calls.get('cuMemUnmap') ?? 0
    await assert.rejects(
      pool.sleep({ into: host }),
      (error: unknown) => error instanceof OutOfMemoryError && /raise its maxPoolBytes by 1 MiB/.test(error.message),
    )
    assert.equal(host.stats().liveBytes, 0)
    assert.equal(device.driver.calls.get('cuMemUnmap') ?? 0, calls)
    assert.equal(pool.asleep, false)
    assertFilled(buffer, 3)
    buffer.free()
    const fits = filled(pool, 5 * MiB, 4)
    await pool.sleep({ into: host })
    assert.equal(host.stats().liveBytes, 5 * MiB)
    await pool.wake()
    host.processDeferred()
    assert.equal(host.stats().liveBytes, 0)
    assertFilled(fits, 4)
    pool.close()
  })

  it('wakes with its contents although the host pool was closed first', async () => {
    const { device, pool } = open()
    const host = device.createHostPool()
    const buffer = filled(pool, 3 * MiB, 5)
    await pool.sleep({ into: host })
    host.close()
    await pool.wake()
    assertFilled(buffer, 5)
    pool.close()
  })

  it('copies nothing for buffers that are unchanged, and everything else', async () => {
    const { device, pool } = open()
    const buffers = [filled(pool, 4 * MiB, 1), filled(pool, 6 * MiB, 2)]
    await pool.sleep()
    await pool.wake({ keepCopy: true })
    assert.equal(pool.stats().hostCopyBytes, 10 * MiB)
    buffers.shift()!.free()
    assert.equal(pool.stats().hostCopyBytes, 6 * MiB, 'a free drops the copy that is kept')
    buffers.push(filled(pool, 4 * MiB, 3))
    const copied: SleepProgress[] = []
    const progress = (one: SleepProgress) => void copied.push(one)
    await pool.sleep({ unchanged: true, onProgress: progress })
    assert.deepEqual(copied, [{ copiedBytes: 4 * MiB, totalBytes: 4 * MiB }], 'only the new buffer is copied')
    await pool.wake({ keepCopy: true })
    buffers[0].fill(9) // a broken promise: the old contents come back
    await pool.sleep({ unchanged: true })
    await pool.wake({ keepCopy: true })
    assertFilled(buffers[0], 2)
    assertFilled(buffers[1], 3)
    buffers[0].fill(9)
    await pool.sleep()
    await pool.wake()
    assertFilled(buffers[0], 9)
    assert.equal(pool.stats().hostCopyBytes, 0)
    pool.close()
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('copies a slab again although it is said to be unchanged', async () => {
    const { pool } = open()
    const first = filled(pool, 10 * KiB, 1)
    await pool.sleep()
    await pool.wake({ keepCopy: true })
    const second = filled(pool, 10 * KiB, 2)
    await pool.sleep({ unchanged: true })
    await pool.wake()
    assertFilled(first, 1)
    assertFilled(second, 2)
    pool.close()
  })

  it('keeps nothing but addresses when asked', async () => {
    const { device, pool } = open()
    const buffer = filled(pool, 3 * MiB, 1)
    const { ptr } = buffer
    await pool.sleep({ keep: 'nothing' })
    assert.equal(device.driver.calls.get('cuMemcpyDtoHAsync') ?? 0, 0)
    assert.equal(pool.stats().hostCopyBytes, 0)
    assert.equal(device.freeBytes(), 64 * MiB)
    await pool.wake()
    assert.equal(buffer.ptr, ptr)
    buffer.fill(2)
    assertFilled(buffer, 2)
    pool.close()
  })

  it('sleeps on, whole, if the device is full at wake', async () => {
    const { device, pool } = open()
    const other = device.createPool({ backing: 'virtual' })
    const buffers = [filled(pool, 20 * MiB, 1), filled(pool, 20 * MiB, 2)]
    await pool.sleep()
    const taken = other.allocate(30 * MiB)
    const free = device.freeBytes()
    await assert.rejects(
      pool.wake(),
      (error: unknown) =>
        error instanceof OutOfMemoryError &&
        error.figures.requestedBytes === 40 * MiB &&
        /6 MiB too few; the pool sleeps on with its contents/.test(error.message),
    )
    assert.equal(pool.asleep, true)
    assert.equal(device.freeBytes(), free)
    taken.free()
    other.close()
    await pool.wake()
    assertFilled(buffers[0], 1)
    assertFilled(buffers[1], 2)
    pool.close()
  })

  it('waits for work of streams, and of other devices, without blocking Node', async () => {
    const [device, peer] = twoDevices()
    const { driver } = device
    const pool = device.createPool({ backing: 'virtual' })
    pool.setAccess(peer, 'readWrite')
    const buffer = filled(pool, 2 * MiB, 1)
    const own = device.createStream()
    const theirs = peer.createStream()
    const tickets = [own, theirs].map(stream => {
      stream.context.activate()
      const ticket = driver.holdOperation(stream.handle)
      buffer.recordUse(stream)
      stream.submit('fill', handle => driver.cuMemsetD8Async(buffer.ptr, 9, 100, handle))
      return ticket
    })
    let isDone = false
    const asleep = pool.sleep().then(() => {
      isDone = true
    })
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
    assert.equal(isDone, false)
    driver.releaseThrough(own.handle, tickets[0])
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
    assert.equal(isDone, false, 'work of the peer is waited for')
    driver.releaseThrough(theirs.handle, tickets[1])
    await asleep
    await pool.wake()
    assert.equal(buffer.readSync(0, 1)[0], 9)
    theirs.submit('fill', handle => {
      peer.context.activate()
      driver.cuMemsetD8Async(buffer.ptr, 4, 100, handle)
    })
    theirs.synchronize()
    assert.equal(buffer.readSync(0, 1)[0], 4, 'the peer has its access again')
    pool.close()
  })

  it('is refused, as its close is, while a device with access captures a stream, and leaves the capture whole', async () => {
    const [device, peer] = twoDevices()
    const pool = device.createPool({ backing: 'virtual' })
    pool.setAccess(peer, 'readWrite')
    const buffer = filled(pool, 2 * MiB, 1)
    const captured = peer.createStream()
    captured.beginCapture()
    const refusal = (call: string) => ({
      name: 'PoolError',
      message: new RegExp(`^${call}: a stream is being captured`),
    })
    await assert.rejects(pool.sleep(), refusal('sleep'))
    assertFilled(buffer, 1)
    assert.throws(() => pool.close(), refusal('close'))
    captured.endCapture().close()
    pool.close()
    assert.equal(device.freeBytes(), device.totalBytes)
  })

  it('lets streams wait for the contents instead of the host', async () => {
    const { device, pool } = open()
    const stream = device.createStream()
    const buffer = filled(pool, 2 * MiB, 6)
    await pool.sleep()
    const waits = device.driver.calls.get('cuStreamWaitEvent') ?? 0
    await pool.wake({ wait: 'streams' })
    assert.equal((device.driver.calls.get('cuStreamWaitEvent') ?? 0) - waits, 2, 'both open streams wait')
    buffer.recordUse(stream)
    assertFilled(buffer, 6)
    await pool.sleep()
    await pool.wake()
    assertFilled(buffer, 6)
    pool.close()
  })

  it('keeps the contents of a buffer whose address was freed while the last wake was copying', async () => {
    for (let seed = 1; seed <= 10; seed++) {
      const device = new TestDevice({ capacityBytes: 64 * MiB, progress: 'seeded', seed })
      const pool = device.createPool({ backing: 'virtual' })
      const freed = filled(pool, 4 * MiB, 1)
      const { ptr } = freed
      await pool.sleep()
      await pool.wake({ wait: 'streams' })
      freed.free()
      const next = filled(pool, 4 * MiB, 2)
      assert.equal(next.ptr, ptr)
      await pool.sleep()
      await pool.wake()
      assertFilled(next, 2)
      pool.close()
      assert.equal(device.freeBytes(), 64 * MiB, `seed ${seed}`)
    }
  })

  it('copies the first part of a long buffer back before the rest is mapped', async () => {
    const device = new TestDevice({ capacityBytes: 192 * MiB })
    const pool = device.createPool({ maxPoolBytes: 160 * MiB })
    const buffer = filled(pool, 160 * MiB, 3)
    buffer.write(Uint8Array.of(4), buffer.byteLength - 1)
    await pool.sleep()
    const { driver } = device
    const { cuMemMap, cuMemcpyHtoDAsync } = driver
    const calls: string[] = []
    driver.cuMemMap = (...args) => {
      calls.push('map')
      cuMemMap.apply(driver, args)
    }
    driver.cuMemcpyHtoDAsync = (...args) => {
      calls.push('copy')
      cuMemcpyHtoDAsync.apply(driver, args)
    }
    await pool.wake()
    const mapped =
      calls.slice(0, calls.indexOf('copy')).length * (buffer.byteLength / calls.filter(call => call === 'map').length)
    assert.ok(mapped >= 64 * MiB && mapped < 128 * MiB, `${mapped / MiB} MiB are mapped at the first copy`)
    assert.equal(calls.filter(call => call === 'copy').length, 3)
    assert.deepEqual([buffer.readSync(0, 1)[0], buffer.readSync(buffer.byteLength - 2).join()], [3, '3,4'])
    pool.close()
  })

  it('keeps blocks in views at their addresses', async () => {
    const { pool } = open({ maxPoolBytes: 32 * MiB })
    const pieces = Array.from({ length: 8 }, (_, index) => filled(pool, 4 * MiB, index + 1))
    for (const index of [1, 3, 5]) pieces[index].free()
    const joined = filled(pool, 11 * MiB, 50)
    assert.ok(pool.segments().length > 0)
    const { ptr } = joined
    await pool.sleep()
    pieces[0].free()
    await pool.wake()
    assert.equal(joined.ptr, ptr)
    assertFilled(joined, 50)
    for (const index of [2, 4, 6, 7]) assertFilled(pieces[index], index + 1)
    pool.check()
    await pool.sleep()
    joined.free()
    pool.check()
    await pool.wake()
    pool.check()
    for (const index of [2, 4, 6, 7]) assertFilled(pieces[index], index + 1)
    pool.close()
  })

  it('refuses a launch of each graph that uses the pool, until it is awake', async () => {
    const { device, pool } = open()
    const stream = device.createStream()
    const weights = pool.allocate(2 * MiB, stream)
    stream.beginCapture()
    await assert.rejects(
      (async () => {
        weights.fill(3)
        await pool.sleep()
      })(),
      /sleep: work that is being captured uses the pool; end the capture first/,
    )
    const inside = pool.allocate(1 * MiB, stream)
    inside.fill(4)
    using graph = stream.endCapture()
    const other = device.createStream()
    other.beginCapture()
    other.submit('fill', handle => device.driver.cuMemsetD8Async(0, 0, 0, handle))
    using foreign = other.endCapture()
    await pool.sleep()
    assert.throws(() => graph.launch(stream), /^PoolError: launch: a pool or buffer that the graph uses is asleep/)
    foreign.launch(other)
    await pool.wake()
    graph.launch(stream)
    assertFilled(weights, 3)
    assertFilled(inside, 4)
    graph.close()
    pool.close()
  })

  it('ends without a trace when the pool is closed meanwhile', async () => {
    for (const [setUp, run] of [
      [async () => {}, (pool: CachingPool) => pool.sleep()],
      [(pool: CachingPool) => pool.sleep(), (pool: CachingPool) => pool.wake()],
    ] as const) {
      const { device, pool } = open()
      const buffer = filled(pool, 3 * MiB, 1)
      await setUp(pool)
      const changing = run(pool)
      pool.close()
      await assert.rejects(changing, /was closed meanwhile/)
      assert.equal(buffer.freed, true)
      assert.equal(pool.stats().hostCopyBytes, 0)
      assert.equal(device.freeBytes(), 64 * MiB)
    }
  })

  it('frees during the copies are taken, and drop their copies', async () => {
    const { pool } = open()
    const buffers = [filled(pool, 3 * MiB, 1), filled(pool, 5 * MiB, 2)]
    const asleep = pool.sleep()
    buffers[0].free()
    await asleep
    assert.equal(pool.stats().hostCopyBytes, 5 * MiB)
    const awake = pool.wake()
    assert.throws(() => buffers[1].fill(1), sleepError('fill'))
    await awake
    assertFilled(buffers[1], 2)
    pool.close()
  })

  it('keeps memory that was freed until the copies of it are done', async () => {
    const device = new TestDevice({ capacityBytes: 512 * MiB, progress: 'eager' })
    const pool = device.createPool({ backing: 'virtual', releaseThresholdBytes: 0 })
    const buffers = [1, 2, 3, 4].map(value => filled(pool, 64 * MiB, value))
    await pool.sleep({
      onProgress: () => {
        if (buffers.length === 4) buffers.pop()!.free()
        pool.processDeferred()
        assert.equal(pool.trimTo(0), 0)
      },
    })
    await pool.wake()
    for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
    assert.equal(pool.stats().reservedBytes, 192 * MiB)
  })

  it('has one error for each wrong argument', async () => {
    const { device, pool } = open()
    const peer = new TestDevice({ capacityBytes: 64 * MiB })
    const closed = device.createHostPool()
    closed.close()
    const wrong: [unknown, RegExp][] = [
      [{ kep: 'host' }, /sleep: unknown option 'kep'.*did you mean keep/],
      [{ keep: 'disk' }, /sleep: keep must be 'host' or 'nothing', not 'disk'/],
      [{ into: pool }, /sleep: into must be a host pool/],
      [{ into: closed }, /sleep: the host pool is closed/],
      [{ into: peer.createHostPool() }, /belongs to another device/],
      [{ unchanged: 1 }, /sleep: unchanged must be true or false/],
      [{ keep: 'nothing', unchanged: true }, /leave out unchanged/],
      [{ onProgress: 3 }, /sleep: onProgress must be a function/],
      [null, /sleep: options must be an object/],
    ]
    for (const [options, message] of wrong) await assert.rejects(pool.sleep(options as SleepOptions), message)
    assert.equal(pool.asleep, false)
    await pool.sleep()
    await assert.rejects(pool.wake({ wait: 'never' as 'host' }), /wake: wait must be 'host' or 'streams', not 'never'/)
    await assert.rejects(pool.wake({ keepCopy: 1 as unknown as boolean }), /wake: keepCopy must be true or false/)
    pool.close()
    await assert.rejects(device.createPool({ backing: 'segments' }).sleep(), /make the pool with 'virtual'/)
    await assert.rejects(device.createPool({ debug: true }).sleep(), /make it without debug/)
    const observed = device.createPool({ backing: 'virtual' })
    const stop = observed.observeSegments({ ready() {}, leaving() {} })
    await assert.rejects(observed.sleep(), /the segments are registered, by an observer/)
    stop()
    await observed.sleep()
    observed.close()
  })

  it('each option is read once, since a getter may give another value the next time', async () => {
    const { pool } = open()
    filled(pool, 3 * MiB, 1)
    let reads = 0
    const once = {
      get onProgress() {
        return reads++ === 0 ? () => {} : 5
      },
    }
    await pool.sleep(once as never)
    await pool.wake()
    assert.equal(reads, 1)
  })

  it('an error of the progress callback leaves all as it was', async () => {
    const { pool } = open()
    const buffer = filled(pool, 3 * MiB, 1)
    const onProgress = () => {
      throw new RangeError('enough')
    }
    await assert.rejects(pool.sleep({ onProgress }), /enough/)
    assert.equal(pool.asleep, false)
    assertFilled(buffer, 1)
    await pool.sleep()
    await assert.rejects(pool.wake({ onProgress }), /enough/)
    assert.equal(pool.asleep, true)
    assert.equal(pool.stats().reservedBytes, 0)
    await pool.wake()
    assertFilled(buffer, 1)
    pool.close()
  })

  it('loses nothing when any driver call of sleep or wake fails, once or from then on', async () => {
    let reached = true
    for (let nth = 1; reached; nth++) {
      for (const code of [2, 999]) {
        for (const onwards of [false, true]) {
          const device = new TestDevice({ capacityBytes: 8 * MiB, granularityBytes: 256 * KiB })
          const pool = device.createPool({ backing: 'virtual', maxPoolBytes: 4 * MiB })
          const pieces = Array.from({ length: 4 }, (_, index) => filled(pool, 1 * MiB, index + 1))
          for (const index of [1, 3]) pieces[index].free()
          const live = [0, 2].map(index => pieces[index])
          live.push(filled(pool, 1.75 * MiB, 50)) // in both free pieces
          const fills = [1, 3, 50]
          const before = device.callCount
          device.driver.failCall({ call: '*', nth, code, onwards })
          const outcomes = [await attempt(() => pool.sleep()), pool.asleep && (await attempt(() => pool.wake()))]
          reached = device.callCount - before >= nth
          device.driver.clearFaults()
          try {
            if (pool.asleep) await pool.wake()
            pool.check()
            for (const [index, buffer] of live.entries()) assertFilled(buffer, fills[index])
            await pool.sleep()
            if (pool.stats().reservedBytes > 0) await pool.sleep()
            assert.equal(device.freeBytes(), 8 * MiB, 'all memory can be given back')
            await pool.wake()
            for (const [index, buffer] of live.entries()) assertFilled(buffer, fills[index])
            assert.equal(pool.stats().hostCopyBytes, 0)
            for (const buffer of live) buffer.free()
            pool.allocate(4 * MiB).free()
            pool.close()
            assert.equal(device.freeBytes(), 8 * MiB)
          } catch (error) {
            throw new Error(`after call ${nth} failed with ${code}${onwards ? ' onwards' : ''}; ${outcomes}`, {
              cause: error,
            })
          }
        }
      }
    }
  })

  it('keeps its host memory registered under a copy that no event can be recorded for', async () => {
    let failures = 0
    for (let seed = 1; seed <= 5; seed++) {
      for (let nth = 1; nth <= 4; nth++) {
        const device = new TestDevice({ capacityBytes: 16 * MiB, progress: 'seeded', seed })
        const pool = device.createPool({ backing: 'virtual' })
        const buffers = [1, 2, 3].map(value => filled(pool, 2 * MiB, value))
        device.driver.failCall({ call: 'cuEventRecord', nth, code: 999, onwards: true })
        if ((await attempt(() => pool.sleep())) !== '') failures++
        device.driver.clearFaults()
        if (pool.asleep) await pool.wake()
        for (const [index, buffer] of buffers.entries()) assertFilled(buffer, index + 1)
        pool.close()
      }
    }
    assert.ok(failures > 0)
  })
})

/** The name of the driver's refusal; '' for none. */
async function attempt(call: () => Promise<void>): Promise<string> {
  try {
    await call()
    return ''
  } catch (error) {
    if (!(error instanceof CudaError || error instanceof OutOfMemoryError || error instanceof PoolError)) throw error
    return error.message
  }
}
