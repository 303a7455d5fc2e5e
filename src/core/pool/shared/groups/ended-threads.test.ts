// Threads with a graph group that leave their pool or die, the end of the pool server, and requests that are cut short.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { Stream } from '../../../order/stream.js'
import { endsOf } from '../../caching/captures/graph-group.fixture.js'
import { type GroupThread, GroupThreads } from './group-threads.fixture.js'

describe('a thread that leaves a pool with a graph group', () => {
  it('gives its buffers back in the order of their streams, and cannot launch its graphs', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    const graph = other.group.capture(other.stream, () => other.pool.allocate(4 * MiB, other.stream))
    const second = other.createStream()
    graph.result.recordUse(second)
    const release = device.hold(second)
    second.submit('fill', handle => device.driver.cuMemsetD8Async(graph.result.ptr, 9, 4 * MiB, handle))
    assert.deepEqual(other.pool.close(), { heldBuffers: 1, heldBytes: 4 * MiB })
    assert.throws(() => graph.launch(), { code: 'ERR_BUFFER_FREED' })
    graph.close()
    assert.equal(graph.result.freed, true)
    assert.equal(maker.group.stats().graphs, 0)
    using next = maker.write(1, 2 * MiB)
    next.launch()
    assert.equal(maker.stream.query(), false, 'the launch waits for the work on the buffer')
    release()
    assert.deepEqual(endsOf(next.result), [1, 1])
    assert.equal(maker.pool.stats().liveBuffers, 0)
    maker.pool.check()
  })

  it('ends its capture', () => {
    const threads = new GroupThreads()
    const { maker } = threads
    const other = threads.join()
    other.group.beginCapture(other.stream)
    const scratch = other.pool.allocate(1 * MiB, other.stream)
    other.pool.close()
    assert.equal(scratch.freed, true)
    using graph = maker.write(1)
    const late = other.stream.endCapture()
    assert.throws(() => late.launch(), { code: 'ERR_BUFFER_FREED' })
    late.close()
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [1, 1])
    assert.equal(maker.group.stats().graphs, 1)
  })

  it('closes the pool of its maker with all of it', () => {
    const { device, maker } = new GroupThreads()
    const graph = maker.group.capture(maker.stream, () => maker.pool.allocate(1 * MiB, maker.stream))
    assert.deepEqual(maker.pool.close(), { heldBuffers: 1, heldBytes: 1 * MiB })
    assert.throws(() => graph.launch(), { code: 'ERR_BUFFER_FREED' })
    assert.throws(() => graph.result.ptr, { code: 'ERR_POOL_CLOSED' })
    assert.equal(maker.group.stats().scratchBytes, 0)
    graph.close()
    maker.group.close()
    assert.equal(device.freeBytes(), 64 * MiB)
  })
})

describe('a thread that dies beside a graph group', () => {
  it('in a capture: its blocks are free, and the group accepts a new capture', () => {
    const threads = new GroupThreads()
    const { maker } = threads
    const other = threads.join()
    other.group.beginCapture(other.stream)
    const { ptr } = other.pool.allocate(1 * MiB, other.stream)
    other.group.allocateOutput(1 * MiB, other.stream, 'own')
    assert.equal(maker.pool.stats().liveBuffers, 2)
    other.die()
    threads.sweep()
    assert.equal(maker.pool.stats().liveBuffers, 0)
    const graph = maker.group.capture(maker.stream, () => {
      const buffer = maker.pool.allocate(1 * MiB, maker.stream)
      const { ptr: next } = buffer
      buffer.free()
      return next
    })
    assert.equal(graph.result, ptr)
    assert.equal(maker.pool.threads().length, 2)
    maker.pool.check()
  })

  it('after it: its graphs no longer count, and its buffers stay until they are reclaimed', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    const graph = other.group.capture(other.stream, () => other.pool.allocate(1 * MiB, other.stream))
    const own = other.write(2, 1 * MiB, 'own')
    const { ptr } = graph.result
    assert.notEqual(own.result.ptr, ptr)
    const lent = maker.createStream()
    const release = device.hold(lent)
    own.launch(Stream.borrow(other.clocks, lent.share())!)
    other.die()
    threads.sweep()
    assert.equal(maker.group.stats().graphs, 0)
    assert.equal(maker.group.stats().pinnedBytes, 1 * MiB)
    assert.equal(maker.group.trim(), 0, 'the launch of the dead thread is under way')
    using next = maker.write(3, 2 * MiB)
    next.launch()
    assert.equal(maker.stream.query(), false, 'it counts for the order')
    const dead = maker.pool.threads().find(({ alive }) => !alive)!
    assert.deepEqual([dead.liveBuffers, dead.liveBytes], [2, 2 * MiB])
    assert.deepEqual(maker.pool.reclaim(dead.thread), { buffers: 2, bytes: 2 * MiB })
    release()
    assert.deepEqual(endsOf(next.result), [3, 3])
    assert.equal(maker.pool.stats().liveBuffers, 0)
    assert.equal(maker.group.stats().pinnedBytes, 0)
    assert.equal(maker.pool.threads().length, 2)
    maker.pool.check()
  })

  it('after it: the next launch waits for all work that was submitted before its buffers were reclaimed', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    other.group.capture(other.stream, () => other.pool.allocate(1 * MiB, other.stream))
    const user = maker.createStream()
    const release = device.hold(user)
    other.die()
    threads.sweep()
    maker.pool.reclaim(maker.pool.threads().find(({ alive }) => !alive)!.thread)
    using graph = maker.write(1)
    graph.launch()
    assert.equal(maker.stream.query(), false)
    release()
    assert.deepEqual(endsOf(graph.result), [1, 1])
  })

  it('while it launches: the next launch of another thread takes its lock over, and waits', () => {
    const threads = new GroupThreads()
    const { device, maker } = threads
    const other = threads.join()
    using first = maker.write(1)
    const theirs = other.write(2)
    const release = device.hold(other.stream)
    const { order } = other.group['captures']
    order.enter('launch', theirs['memory'], other.stream)
    other.stream.submit('launch', handle => device.driver.cuGraphLaunch(theirs['executable'], handle))
    other.die()
    first.launch()
    assert.equal(maker.stream.query(), false)
    release()
    assert.deepEqual(endsOf(first.result), [1, 1])
    threads.sweep()
    const late = threads.join()
    assert.equal(late.pool['state'].thread, other.pool['state'].thread, 'its number serves again')
    late.write(4).launch()
    maker.pool.check()
  })
})

describe('a graph group whose pool server has ended', () => {
  it('lets a thread end its capture, launch its graphs, and give everything up', () => {
    const threads = new GroupThreads()
    const other = threads.join()
    const graph = other.write(1, 1 * MiB, 'own')
    other.group.beginCapture(other.stream)
    const scratch = other.pool.allocate(1 * MiB, other.stream)
    other.group.allocateOutput(1 * MiB, other.stream)
    threads.endServer()
    const refusal = (call: string) => ({
      code: 'ERR_POOL_CLOSED',
      message: new RegExp(`^${call}: the pool is closed, or`),
    })
    assert.throws(() => other.pool.allocate(1 * MiB, other.stream), refusal('allocate'))
    assert.throws(() => other.stream.endCapture(), refusal('endCapture'))
    scratch.free()
    other.stream.abortCapture()
    assert.equal(other.stream.capture, null)
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [1, 1])
    assert.throws(() => other.group.beginCapture(other.stream), refusal('beginCapture'))
    assert.throws(() => other.group.close(), refusal('close'))
    graph.result.free()
    graph.close()
    other.pool.close()
  })
})

describe('a request about a graph group that is cut short', () => {
  /** The thread asks, and is cut short before it has the answer. */
  function cut(threads: GroupThreads, thread: GroupThread, work: () => void): void {
    const channel = thread.pool['state'].channel as unknown as { await?: () => never }
    channel.await = () => {
      delete channel.await // that of its class is back
      throw new RangeError('cut')
    }
    assert.throws(work, /cut/)
    threads.server.serve()
  }

  it('leaves no capture, no block and no group behind', () => {
    const threads = new GroupThreads()
    const { maker } = threads
    const other = threads.join()
    cut(threads, other, () => other.group.beginCapture(other.stream))
    assert.equal(other.stream.capture, null)
    other.write(1).close()
    other.group.beginCapture(other.stream)
    cut(threads, other, () => other.pool.allocate(1 * MiB, other.stream))
    other.stream.endCapture().close()
    assert.equal(maker.pool.stats().liveBuffers, 0)
    const { server } = threads
    cut(threads, other, () => other.pool.createGraphGroup())
    other.pool.processDeferred()
    maker.pool.trimTo(0)
    assert.equal(server['groups']['open']().length, 1)
    maker.pool.check()
  })

  it('ends the capture when its end was cut short', () => {
    const threads = new GroupThreads()
    const { maker } = threads
    const other = threads.join()
    other.group.beginCapture(other.stream)
    const buffer = other.pool.allocate(1 * MiB, other.stream)
    buffer.free()
    const { store } = other.group['captures']
    cut(threads, other, () => store.end(1, true))
    other.stream.abortCapture()
    assert.equal(maker.group.stats().graphs, 0)
    using graph = maker.write(2)
    graph.launch()
    assert.deepEqual(endsOf(graph.result), [2, 2])
    maker.pool.check()
  })
})
