// Graph groups that several threads share: their memory, the order of launches, and bad input. Threads that leave or
// end are in ended-threads.test.ts.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { CudaError, PoolError } from '../../../base/errors.js'
import { CU_STREAM_PER_THREAD } from '../../../driver/constants.js'
import { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { signal } from '../../caching/captures/graph-capture.fixture.js'
import { endsOf } from '../../caching/captures/graph-group.fixture.js'
import { twoDevices } from '../../pool.fixture.js'
import { GroupThreads } from './group-threads.fixture.js'

describe('a graph group that threads share', () => {
  it('gives the captures of all threads the same scratch', () => {
    const threads = new GroupThreads()
    const { maker } = threads
    const other = threads.join()
    using large = maker.write(1, 8 * MiB)
    const before = maker.pool.stats().reservedBytes
    using small = other.write(2, 6 * MiB)
    assert.equal(maker.pool.stats().reservedBytes, before)
    large.launch()
    assert.deepEqual(endsOf(large.result), [1, 1])
    small.launch()
    assert.deepEqual(endsOf(small.result), [2, 2])
    assert.equal(large.result.overwritten, true)
    assert.deepEqual([maker.group.stats(), other.group.stats()], [maker.group.stats(), maker.group.stats()])
    assert.equal(maker.group.stats().graphs, 2)
    assert.equal(maker.group.stats().launches, 2)
    maker.pool.check()
  })

  it('lets a launch wait for the launch of another thread', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    using first = maker.write(1)
    using second = other.write(2)
    const release = device.hold(maker.stream)
    first.launch()
    second.launch()
    assert.equal(other.stream.query(), false)
    release()
    assert.deepEqual(endsOf(second.result), [2, 2])
    assert.throws(() => first.result.readSync(), /^PoolError: readSync: the output has no contents of its graph/)
  })

  it('refuses such a launch with whenUnordered: refuse', () => {
    const threads = new GroupThreads({}, { whenUnordered: 'refuse' })
    const { device, maker } = threads
    const other = threads.join()
    using first = maker.write(1)
    using second = other.write(2)
    const release = device.hold(maker.stream)
    first.launch()
    assert.throws(() => second.launch(), { name: 'PoolError', code: 'ERR_STREAM_ORDER', message: /^launch: graph 2 / })
    release()
    maker.stream.synchronize()
    second.launch()
    assert.deepEqual(endsOf(second.result), [2, 2])
  })

  it('makes a launch wait for the use of an output in another thread', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    using first = maker.write(1)
    using second = other.write(2)
    const copy = maker.pool.allocate(1 * MiB, maker.stream)
    first.launch()
    const release = device.hold(maker.stream)
    copy.copyFrom(first.result)
    second.launch()
    assert.equal(other.stream.query(), false)
    release()
    assert.deepEqual([...endsOf(copy), ...endsOf(second.result)], [1, 1, 2, 2])
  })

  it('captures while the graph of another thread runs, and refuses a second capture', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    using first = maker.write(1)
    const release = device.hold(maker.stream)
    first.launch()
    other.group.beginCapture(other.stream)
    const scratch = other.pool.allocate(1 * MiB, other.stream)
    const refusal = {
      name: 'PoolError',
      code: 'ERR_STREAM_CAPTURED',
      message: /^capture: another capture of the group/,
    }
    assert.throws(() => maker.write(3), refusal)
    assert.throws(() => maker.group.close(), /^PoolError: close: a capture of the group is under way; end it first/)
    assert.equal(maker.stream.capture, null)
    scratch.fill(2)
    scratch.free()
    using second = other.stream.endCapture()
    maker.write(3).close()
    second.launch()
    assert.equal(other.stream.query(), false)
    release()
    assert.equal(other.stream.query(), true)
    maker.pool.check()
  })

  it('uses memory again in a capture along captured edges alone', () => {
    const { maker } = new GroupThreads()
    const { group, pool, stream: a } = maker
    const b = maker.createStream()
    const graph = group.capture(a, () => {
      signal(a, b)
      const first = pool.allocate(2 * MiB, a)
      const { ptr } = first
      first.free()
      const beside = pool.allocate(2 * MiB, b)
      assert.notEqual(beside.ptr, ptr)
      signal(a, b)
      const after = pool.allocate(2 * MiB, b)
      assert.equal(after.ptr, ptr)
      const used = pool.allocate(2 * MiB, b)
      const { ptr: spent } = used
      used.recordUse(a)
      used.free()
      assert.notEqual(pool.allocate(2 * MiB, b).ptr, spent, 'another stream uses it')
      for (const buffer of [beside, after]) buffer.free()
      signal(b, a)
    })
    graph.close()
    pool.check()
  })

  it('is closed for all threads, once no thread has open graphs', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    const graph = other.write(1)
    assert.throws(() => maker.group.close(), {
      code: 'ERR_POOL_IN_USE',
      message: /^close: 1 graph of the group can be/,
    })
    graph.close()
    maker.group.close()
    assert.equal(other.group.closed, true)
    assert.equal(other.group.stats().scratchBytes, 0)
    assert.throws(() => other.write(1), { code: 'ERR_POOL_CLOSED', message: /^capture: the graph group is closed/ })
    assert.throws(() => other.pool.attachGraphGroup({ ...maker.pool.createGraphGroup().share(), group: 1 }), {
      code: 'ERR_POOL_CLOSED',
    })
    device.clocks.synchronize()
    maker.pool.trimTo(0)
    assert.equal(maker.pool.stats().reservedBytes, 0)
  })

  it('fills idle scratch before each launch with poison, and asks again after a capture of another thread', () => {
    const threads = new GroupThreads({}, { poison: true })
    const { maker } = threads
    const other = threads.join()
    const graph = maker.group.capture(maker.stream, () => {
      using scratch = maker.pool.allocate(1 * MiB, maker.stream)
      const output = maker.group.allocateOutput(1 * MiB, maker.stream, 'own')
      output.copyFrom(scratch)
      return output
    })
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [255, 255])
    maker.group.reserve(16 * MiB)
    let held: DeviceBuffer | undefined
    const { order } = maker.group['captures']
    const look = order['poison']
    Object.assign(order, {
      poison: (stream: typeof maker.stream, number: number) => {
        Object.assign(order, { poison: look })
        const pinned = other.group.capture(other.stream, () => {
          using first = other.pool.allocate(1 * MiB, other.stream) // where the graph writes
          first.fill(1)
          return other.pool.allocate(4 * MiB, other.stream)
        })
        held = pinned.result
        const { driver } = threads.device
        driver.cuMemsetD8Async(held.ptr, 7, held.byteLength, stream.handle) // as a launch of that graph does
        look!(stream, number)
      },
    })
    graph.launch()
    assert.deepEqual(endsOf(held!), [7, 7])
    graph.launch()
    assert.deepEqual(endsOf(held!), [7, 7])
    maker.pool.check()
  })

  it('has at most 31 siblings at a time, and gives its place to a new one', () => {
    const { maker } = new GroupThreads()
    const { pool } = maker
    const more = Array.from({ length: 31 }, () => pool.createGraphGroup())
    assert.throws(() => pool.createGraphGroup(), /^PoolError: createGraphGroup: the pool has 32 graph groups, which is/)
    more[7].close()
    const next = pool.createGraphGroup()
    const graph = next.capture(maker.stream, () => pool.allocate(1 * MiB, maker.stream).free())
    graph.launch()
    assert.equal(more[7].closed, true)
    assert.equal(next.closed, false)
    assert.equal(next.stats().launches, 1)
    assert.deepEqual([more[7].stats().graphs, more[7].stats().launches], [0, 0])
  })

  it('gives its place back after its close, once its launches are complete', () => {
    const { maker, device } = new GroupThreads()
    const { pool, stream } = maker
    for (let made = 0; made < 64; made++) {
      const group = pool.createGraphGroup()
      const graph = group.capture(stream, () => pool.allocate(1 * KiB, stream).free())
      const release = device.hold(stream)
      graph.launch()
      graph.close()
      group.close()
      release()
    }
  })

  it('is closed for all threads even if the driver refuses to take its memory back', () => {
    const threads = new GroupThreads()
    const { maker, device } = threads
    const other = threads.join()
    maker.group.reserve(4 * MiB)
    device.driver.failCall({ call: 'cuMemUnmap', code: 999 })
    assert.throws(() => other.group.close(), CudaError)
    device.driver.clearFaults()
    assert.deepEqual([maker.group.closed, other.group.closed], [true, true])
    assert.throws(() => maker.group.reserve(4 * MiB), { code: 'ERR_POOL_CLOSED' })
    maker.group.close()
    maker.pool.trimTo(0)
    assert.equal(maker.pool.stats().reservedBytes, 0)
  })

  it('counts its memory and its held buffers in the figures of the pool', () => {
    const threads = new GroupThreads()
    const { maker } = threads
    const other = threads.join()
    const before = other.pool.stats()
    const graph = other.group.capture(other.stream, () => other.pool.allocate(1 * MiB, other.stream))
    const { result } = graph
    result.label = 'weights'
    const stats = maker.pool.stats()
    assert.equal(stats.reservedBytes - before.reservedBytes, 2 * MiB)
    assert.deepEqual([stats.liveBuffers, stats.liveBytes, stats.requestedBytes], [1, 1 * MiB, 1 * MiB])
    const mine = maker.pool.threads().find(({ thread }) => thread === other.pool.thread)
    assert.deepEqual([mine?.liveBuffers, mine?.liveBytes], [1, 1 * MiB])
    const [block] = other.pool.live()
    assert.deepEqual([block.ptr, block.byteLength, block.label], [result.ptr, 1 * MiB, 'weights'])
    other.pool.deallocate(result.ptr)
    assert.equal(result.freed, true)
    assert.equal(maker.pool.stats().liveBuffers, 0)
    assert.equal(other.pool.live().length, 0)
    graph.close()
  })
})

describe('refusals of a graph group in a pool of threads', () => {
  const refusal = (code: string, message: RegExp) => ({ name: 'PoolError', code, message })

  it('captures outside of groups', () => {
    const { maker } = new GroupThreads()
    const { pool, stream } = maker
    stream.beginCapture()
    const message = /^allocate: a pool that threads share serves .* pool\.createGraphGroup\(\), or use a pool of this/
    assert.throws(() => pool.allocate(1000, stream), refusal('ERR_STREAM_CAPTURED', message))
    stream.abortCapture()
  })

  it('buffers of the pool that are freed or announced on a captured stream', () => {
    const { maker } = new GroupThreads()
    const { pool, stream, group } = maker
    const [input, other] = [pool.allocate(1000), pool.allocate(1000)]
    const held = group.capture(stream, () => {
      const hold = (call: string) =>
        refusal(
          'ERR_STREAM_CAPTURED',
          new RegExp(`^${call}: a captured stream cannot have .*; hold it until the graph`),
        )
      assert.throws(() => input.free(stream), hold('free'))
      assert.throws(() => input.recordUse(stream), hold('recordUse'))
      pool.allocate(1000, stream).free()
      return pool.allocate(1000, stream)
    })
    const second = maker.createStream()
    second.beginCapture()
    assert.throws(() => held.result.free(second), /^PoolError: free: a captured stream cannot have the buffer/)
    assert.throws(() => held.result.recordUse(second), /^PoolError: recordUse: a captured stream cannot have the/)
    second.abortCapture()
    for (const buffer of [input, other, held.result]) buffer.free()
    assert.throws(() => held.result.free(), { code: 'ERR_BUFFER_FREED' })
    held.close()
    pool.check()
  })

  it('transfers of its buffers and outputs', () => {
    const { maker } = new GroupThreads()
    const { pool, stream } = maker
    const graph = maker.group.capture(stream, () => pool.allocate(1000, stream))
    const message = /^transfer: memory of a graph group stays in its thread; copy it to a buffer of the pool/
    assert.throws(() => graph.result.transfer(), { name: 'PoolError', message })
    assert.throws(() => pool.transfer(graph.result), { name: 'PoolError', message })
    const output = maker.write(1, 1000, 'own').result
    assert.throws(() => output.transfer(), /^PoolError: transfer: an output stays in the thread of its graph; copy it/)
    assert.throws(() => pool.transfer(output), PoolError)
    assert.equal(output.freed, false)
  })

  it('uses on other devices, and on the per-thread default stream', () => {
    const [device, peer] = twoDevices()
    const { maker } = new GroupThreads({}, {}, device)
    const graph = maker.group.capture(maker.stream, () => maker.pool.allocate(1000, maker.stream))
    const output = maker.write(1, 1000, 'own').result
    const perThread = new Stream(maker.clocks, CU_STREAM_PER_THREAD, false)
    for (const [stream, code] of [
      [peer.createStream(), 'ERR_OTHER_DEVICE'],
      [perThread, 'ERR_STREAM_ORDER'],
    ] as const) {
      for (const buffer of [graph.result, output]) {
        assert.throws(() => buffer.recordUse(stream), { name: 'PoolError', code })
        assert.throws(() => buffer.free(stream), { name: 'PoolError', code })
      }
      assert.throws(() => graph.launch(stream), { name: 'PoolError', code })
    }
    graph.result.free()
    output.free()
    maker.pool.check()
  })

  it('pools without virtual memory, and block pools', () => {
    const { device } = new GroupThreads()
    const message = /^createGraphGroup: threads share graph groups in a pool of createSharedPool with backing 'virtual'/
    const { pool } = device.createSharedPool({ backing: 'segments' })
    assert.throws(() => pool.createGraphGroup(), refusal('ERR_NOT_SUPPORTED', message))
    const blocks = device.createSharedBlocks({ blockBytes: 1 * MiB, count: 2 })
    assert.throws(() => blocks.pool.createGraphGroup(), refusal('ERR_NOT_SUPPORTED', message))
  })

  it('descriptors of other values, pools and groups', () => {
    const threads = new GroupThreads()
    const { maker, device } = threads
    const { pool, group } = maker
    assert.equal(pool.attachGraphGroup(group.share()), group, 'one object in each thread')
    for (const wrong of [null, undefined, {}, 5, 'group', { pool: 1, place: 0 }]) {
      const message = /^attachGraphGroup: shared must come from group\.share\(\), not be /
      assert.throws(() => pool.attachGraphGroup(wrong as never), { name: 'TypeError', message })
    }
    for (const [place, number] of [
      [0, 2],
      [1, 0],
      [-1, 1],
      [32, 1],
    ]) {
      const wrong = { ...group.share(), place, group: number }
      assert.throws(() => pool.attachGraphGroup(wrong), { code: 'ERR_POOL_CLOSED' })
    }
    const other = device.createSharedPool().pool
    assert.throws(() => other.attachGraphGroup(group.share()), /^PoolError: attachGraphGroup: the group is of another/)
    assert.throws(
      () => device.createPool().createGraphGroup().share(),
      /^PoolError: share: the pool of the group is one of this thread; make it with createSharedPool/,
    )
  })
})
