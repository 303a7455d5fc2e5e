// Streams and events that one thread hands to another thread. Two clocks over one order, in this thread, stand for
// the threads.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CU_STREAM_PER_THREAD } from '../driver/constants.js'
import { MOST_STREAMS } from './clocks.js'
import { Event } from './event.js'
import { borrow, twoThreads } from './order.fixture.js'
import { Stream } from './stream.js'

describe('lending', () => {
  it('a stream is lent by a descriptor, and refuses calls after its owner has closed it', () => {
    const { order, clocks, there, here, hold } = twoThreads()
    const lent = borrow(there, here)
    assert.deepEqual([lent.handle, lent.slot, lent.owned, lent.closed], [here.handle, here.slot, false, false])
    const release = hold()
    assert.equal(lent.query(), false)
    release()
    assert.equal(lent.query(), true)
    assert.throws(() => lent.beginCapture(), { name: 'PoolError', message: /another thread's; capture it there/ })
    assert.equal(there.registry.streamOf(here.slot), lent)
    lent.close()
    lent.close()
    assert.deepEqual([lent.closed, here.closed, there.registry.streamOf(here.slot)], [true, false, null])
    const again = borrow(there, here)
    const descriptor = here.share()
    here.close()
    assert.deepEqual([again.closed, there.registry.streamOf(again.slot)], [true, null])
    assert.throws(() => again.query(), {
      name: 'PoolError',
      message: /stream 0x\w+ is closed, here or where it was made; use an open/,
    })
    assert.throws(() => new Event(there.context).record(again), /is closed, here or where it was made/)
    assert.equal(Stream.borrow(there, descriptor), null)
    const next = order.createStream()
    assert.equal(next.slot, again.lastSlot)
    assert.throws(() => again.synchronize(), /is closed, here or where it was made/)
    again.close()
    assert.equal(clocks.registry.streamOf(next.slot), next)
  })

  it('a mark to come covers work submitted to a lent stream before its close', () => {
    for (const end of [() => {}, (owned: Stream) => owned.close(), (owned: Stream) => owned.beginCapture()]) {
      const { there, here, hold } = twoThreads()
      const lent = borrow(there, here)
      lent.synchronize()
      hold()
      const { slot } = lent
      lent.close()
      end(here)
      assert.deepEqual([lent.closed, lent.lastSlot], [true, slot])
      assert.equal(there.watcher.poll(slot), false)
      assert.ok(there.completed[slot] < lent.lastStamp)
      there.watcher.waitFor(slot, lent.lastStamp)
      assert.ok(there.completed[slot] >= lent.lastStamp)
    }
  })

  it('the per-thread default stream gets marks of its own thread only, and cannot be lent', () => {
    const { order, clocks, there } = twoThreads()
    const perThread = new Stream(clocks, CU_STREAM_PER_THREAD, false)
    const { slot } = perThread
    assert.throws(() => perThread.share(), { name: 'PoolError', message: /share: .* another one in each thread/ })
    clocks.tick(slot)
    const records = order.calls('cuEventRecord')
    assert.equal(there.watcher.poll(slot), false)
    there.watcher.waitFor(slot, there.watcher.mark(slot))
    assert.equal(order.calls('cuEventRecord'), records)
    assert.ok(there.completed[slot] < clocks.marked[slot])
    assert.equal(clocks.watcher.poll(slot), true)
    assert.equal(there.completed[slot], clocks.marked[slot])
  })

  it('a captured stream cannot be lent, takes no marks of other threads, and refuses calls where it was lent', () => {
    const { order, clocks, there, here, hold } = twoThreads()
    const lent = borrow(there, here)
    const other = Stream.create(there)
    const release = hold()
    const stamp = clocks.marked[here.slot] + 1
    here.beginCapture()
    assert.throws(() => here.share(), { name: 'PoolError', message: /being captured; end the capture first/ })
    assert.throws(() => lent.query(), {
      name: 'PoolError',
      message: /stream 0x\w+ is being captured.* in another thread/,
    })
    const records = order.calls('cuEventRecord')
    assert.equal(there.order(other.slot, here.lastSlot, stamp, true), true)
    assert.equal(order.calls('cuEventRecord'), records, 'its last mark will do')
    assert.equal(other.query(), false)
    release()
    assert.equal(other.query(), true)
    here.abortCapture()
    assert.equal(lent.query(), true)
    assert.equal(there.watcher.mark(here.slot), clocks.marked[here.slot])
  })

  it('an event is handed over with its vector time', () => {
    const { order, there, here, hold } = twoThreads()
    const event = new Event(order.context)
    assert.throws(() => event.transfer(), { name: 'PoolError', message: /never recorded/ })
    const release = hold()
    event.record(here)
    const covered = there.marked[here.slot]
    const descriptor = structuredClone(event.transfer())
    event.close()
    for (const use of [() => event.query(), () => event.record(here), () => event.transfer(), () => here.wait(event)]) {
      assert.throws(use, { name: 'PoolError', message: /handed to another thread; adopt it there/ })
    }
    const adopted = Event.adopt(there, descriptor)
    for (const copy of [descriptor, structuredClone(descriptor)]) {
      assert.throws(() => Event.adopt(there, copy), { name: 'PoolError', message: /^adoptEvent: .*adopted already/ })
    }
    const later = Stream.create(there)
    later.wait(adopted)
    assert.equal(there.known[later.slot * MOST_STREAMS + here.slot], covered)
    assert.equal(adopted.query(), false)
    release()
    assert.equal(adopted.query(), true)
    assert.equal(there.completed[here.slot], covered)
    const destroyed = order.calls('cuEventDestroy')
    adopted.close()
    assert.equal(order.calls('cuEventDestroy'), destroyed + 1)
  })
})
