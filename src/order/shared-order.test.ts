// Several clocks over one order, in this thread. `test/device-threads.test.ts` has real threads.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CU_STREAM_PER_THREAD } from '../driver/constants.js'
import { Context } from '../driver/context.js'
import { MOST_WORKERS } from '../threads/thread-registry.js'
import { Clocks, MOST_STREAMS } from './clocks.js'
import { Event } from './event.js'
import { TestOrder } from './order.fixture.js'
import type { SharedOrder } from './shared-order.js'
import { Stream } from './stream.js'

/** An order, and the clocks of a second thread of the same device. */
function setUp() {
  const order = new TestOrder()
  const here = order.createStream()
  const there = new Clocks(Context.open(order.driver, 0), order.clocks.share())
  return { order, clocks: order.clocks, there, here, hold: () => order.hold(here) }
}

const borrow = (clocks: Clocks, stream: Stream) => Stream.borrow(clocks, structuredClone(stream.share()))!

describe('shared order', () => {
  it('a thread attaches in the place of a dead one if the registry is full, and ends its streams', () => {
    const { order, clocks } = setUp()
    const attach = () => new Clocks(Context.open(order.driver, 0), clocks.share())
    const others = Array.from({ length: MOST_WORKERS - 2 }, attach)
    assert.throws(attach, { name: 'PoolError', message: /^64 threads share this device, which is the limit/ })
    const { me } = others[9].slots
    const stream = Stream.create(others[9])
    const { slot, handle } = stream
    others[9].mark(slot)
    others[9].slots.pin(clocks.slots.ownedBy(handle)) // the thread died while it called the driver
    clocks.slots['registry'].bury(me)
    order.driver.failCall({ call: 'cuEventRecord' })
    order.driver.failCall({ call: 'cuCtxSynchronize' })
    assert.throws(attach, { name: 'CudaError' })
    assert.equal(clocks.slots['registry'].isDead(me), true, 'another thread will clear up')
    const heir = attach()
    assert.equal(heir.slots.me, me)
    assert.deepEqual([heir.slots.isOpen(slot), order.driver.calls.get('cuStreamDestroy')], [false, 1])
    const own = Stream.create(heir)
    heir.buryStreams()
    assert.equal(heir.slots.isOpen(own.slot), true)
    assert.throws(attach, { name: 'PoolError', message: /64 threads/ })
  })

  it("a wait for a closed stream covers a free that came too late to see the stream's last tick", () => {
    const { clocks, there, here } = setUp()
    const lent = borrow(there, here)
    const { slot } = lent
    clocks.mark(slot)
    here.close()
    const late = clocks.marked[slot] + 1 // as a thread stamps a free that does not know of the close
    assert.equal(there.poll(slot), true)
    there.waitForAll(slot)
    assert.ok(there.waited[slot] >= late, `waited up to ${there.waited[slot]}, the free is ${late}`)
  })

  it('a late free on a dead thread’s stream is covered although the stream could not be marked', () => {
    const { order, clocks, there } = setUp()
    const { slot } = Stream.create(there)
    clocks.slots['registry'].bury(there.slots.me)
    order.driver.failCall({ call: 'cuEventRecord' })
    assert.equal(clocks.buryStreams(), 1)
    const late = clocks.marked[slot] + 1
    clocks.poll(slot)
    assert.ok(clocks.completed[slot] >= late, `complete up to ${clocks.completed[slot]}, the free is ${late}`)
  })

  it('a wait for a closed stream completes while its slot has a stream that only its own thread can mark', () => {
    const { clocks, there, here } = setUp()
    const { slot } = here
    clocks.mark(slot)
    here.close()
    const late = clocks.marked[slot] + 1
    clocks.synchronize()
    clocks.slots.free(slot)
    const next = new Stream(clocks, CU_STREAM_PER_THREAD, false)
    assert.equal(next.slot, slot)
    assert.ok(clocks.completed[slot] >= late, `complete up to ${clocks.completed[slot]}, the free is ${late}`)
    there.waitForAll(slot)
    assert.ok(there.waited[slot] >= late, `waited up to ${there.waited[slot]}, the free is ${late}`)
  })

  it('any thread can mark, poll and wait for a stream', () => {
    const { order, clocks, there, here, hold } = setUp()
    const other = Stream.create(there)
    assert.notEqual(other.slot, here.slot)
    assert.deepEqual([there.handles[here.slot], there.slotLimit], [here.handle, 2])
    const release = hold()
    const stamp = clocks.marked[here.slot] + 1
    assert.equal(there.mark(here.slot), stamp)
    assert.equal(there.poll(here.slot), false)
    release()
    assert.equal(there.poll(here.slot), true)
    assert.equal(clocks.completed[here.slot], stamp, 'what one learns all know')
    const releaseLater = hold()
    assert.equal(there.order(other.slot, here.slot, stamp + 1, false), true)
    assert.ok(clocks.known[other.slot * MOST_STREAMS + here.slot] >= stamp + 1)
    assert.equal(other.query(), false)
    releaseLater()
    assert.equal(other.query(), true)
    hold()
    there.waitFor(here.slot, there.mark(here.slot))
    assert.equal(order.driver.cuStreamQuery(here.handle), true)
  })

  it('a fresh mark covers ticks of another thread', () => {
    const { clocks, there, here, hold } = setUp()
    const first = there.mark(here.slot)
    const release = hold()
    const stamp = clocks.mark(here.slot)
    assert.equal(there.poll(here.slot), true)
    assert.ok(clocks.completed[here.slot] >= first && clocks.completed[here.slot] < stamp)
    release()
    there.poll(here.slot)
    assert.ok(there.completed[here.slot] >= stamp)
    assert.equal(clocks.watched(here.slot).length, 0, 'no mark is watched that another thread saw complete')
  })

  it('every thread finds the last mark of a closed stream, with its vector time', () => {
    for (const look of [
      (there: Clocks, slot: number, stamp: number) => there.waitFor(slot, stamp),
      (there: Clocks, slot: number) => there.waitForAll(slot),
      (there: Clocks, slot: number, stamp: number) => {
        const other = Stream.create(there)
        assert.equal(there.order(other.slot, slot, stamp, false), true)
        other.synchronize()
      },
    ]) {
      const { order, clocks, there, here } = setUp()
      const before = order.createStream()
      order.hold(before)
      const event = new Event(order.context)
      event.record(before)
      here.wait(event)
      const stamp = clocks.marked[here.slot] + 1
      here.close()
      assert.equal(there.poll(here.lastSlot), false)
      look(there, here.lastSlot, stamp)
      assert.ok(clocks.completed[here.lastSlot] >= stamp)
      assert.equal(order.driver.cuStreamQuery(before.handle), true)
      assert.ok(clocks.completed[before.slot] >= 1, 'the vector time came with it')
    }
  })

  it('the last mark covers a free that came too late to see it, and the stamps of the next stream begin above', () => {
    const { clocks, there, here, hold } = setUp()
    hold()
    const { slot } = here
    here.close()
    const late = there.marked[slot] + 1
    there.waitFor(slot, late)
    assert.ok(clocks.completed[slot] >= late)
    const next = Stream.create(there)
    assert.equal(next.slot, slot)
    assert.ok(there.marked[slot] + 1 > late && there.completed[slot] < there.marked[slot] + 1)
  })

  it('a slot is free for every thread when its work is done, and knows nothing then', () => {
    const { order, clocks, there, here } = setUp()
    const before = order.createStream()
    const event = new Event(order.context)
    event.record(before)
    here.wait(event)
    const { slot } = here
    assert.ok(clocks.known[slot * MOST_STREAMS + before.slot] > 0)
    here.close()
    const next = Stream.create(there)
    assert.equal(next.slot, slot)
    assert.equal(next.generation, here.generation + 1)
    assert.equal(there.known[slot * MOST_STREAMS + before.slot], 0)
    const rest = Array.from({ length: MOST_STREAMS - 2 }, () => order.createStream())
    for (const full of [clocks, there]) assert.throws(() => Stream.create(full), /64 streams are open/)
    rest[5].close()
    Stream.create(there)
  })

  it('a close that was cut short can be repeated, and blocks no call of its thread', () => {
    const { order, clocks, there } = setUp()
    const stream = Stream.create(there)
    const { slot, handle } = stream
    const next: (() => void)[] = [
      () => there.poll(slot),
      () => there.covering(slot),
      () => stream.synchronize(),
      () => there.slots.dropStale(),
    ]
    for (const call of next) {
      assert.ok(there.slots.stop(slot)) // the first step of a close
      call()
      assert.ok(clocks.isOpen(slot), `${call}`)
    }
    there.slots.stop(slot)
    stream.close()
    assert.throws(() => order.driver.cuStreamQuery(handle), /no such stream/)
  })

  it('a dead thread’s stream, whose end was cut short in a living thread, ends with that thread', () => {
    const { order, clocks, there } = setUp()
    const [stream, captured] = [Stream.create(there), Stream.create(there)]
    there.registry.suspend(captured)
    const { me } = there.slots
    const heir = new Clocks(Context.open(order.driver, 0), clocks.share())
    clocks.slots['registry'].bury(me)
    for (const { slot } of [stream, { slot: captured.lastSlot }]) heir.slots.inherit(slot, me)
    clocks.slots.forget(me)
    heir.slots.dropStale()
    assert.equal(clocks.isOpen(stream.slot), true)
    assert.equal(clocks.isOpen(captured.lastSlot), false, 'what was captured gets no marks')
    clocks.slots['registry'].bury(heir.slots.me)
    assert.equal(clocks.buryStreams(), 2)
    assert.throws(() => order.driver.cuStreamQuery(stream.handle), /no such stream/)
  })

  it('a free is covered although a dead thread ticked the clock for a stream that never came', () => {
    const { clocks, there, here } = setUp()
    const { slot } = here
    here.close()
    clocks.synchronize()
    clocks.slots.free(slot)
    there.slots.acquire()
    there.marked[slot]++ // the first step of a claim
    clocks.slots['registry'].bury(there.slots.me)
    const late = clocks.marked[slot] + 1
    clocks.poll(slot)
    assert.ok(clocks.completed[slot] >= late, `complete up to ${clocks.completed[slot]}, the free is ${late}`)
  })

  it('a stream is lent by a descriptor, and refuses calls after its owner has closed it', () => {
    const { order, clocks, there, here, hold } = setUp()
    const lent = borrow(there, here)
    assert.deepEqual([lent.handle, lent.slot, lent.owned, lent.closed], [here.handle, here.slot, false, false])
    const release = hold()
    assert.equal(lent.query(), false)
    release()
    assert.equal(lent.query(), true)
    assert.throws(() => lent.beginCapture(), { name: 'PoolError', message: /another thread's; capture it there/ })
    assert.equal(there.streamOf(here.slot), lent)
    lent.close()
    lent.close()
    assert.deepEqual([lent.closed, here.closed, there.streamOf(here.slot)], [true, false, null])
    const again = borrow(there, here)
    const descriptor = here.share()
    here.close()
    assert.deepEqual([again.closed, there.streamOf(again.slot)], [true, null])
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
    assert.equal(clocks.streamOf(next.slot), next)
  })

  it('a mark to come covers work submitted to a lent stream before its close', () => {
    for (const end of [() => {}, (owned: Stream) => owned.close(), (owned: Stream) => owned.beginCapture()]) {
      const { there, here, hold } = setUp()
      const lent = borrow(there, here)
      lent.synchronize()
      hold()
      const { slot } = lent
      lent.close()
      end(here)
      assert.deepEqual([lent.closed, lent.lastSlot], [true, slot])
      assert.equal(there.poll(slot), false)
      assert.ok(there.completed[slot] < lent.lastStamp)
      there.waitFor(slot, lent.lastStamp)
      assert.ok(there.completed[slot] >= lent.lastStamp)
    }
  })

  it('the per-thread default stream gets marks of its own thread only, and cannot be lent', () => {
    const { order, clocks, there } = setUp()
    const perThread = new Stream(clocks, CU_STREAM_PER_THREAD, false)
    const { slot } = perThread
    assert.throws(() => perThread.share(), { name: 'PoolError', message: /share: .* another one in each thread/ })
    clocks.tick(slot)
    const records = order.calls('cuEventRecord')
    assert.equal(there.poll(slot), false)
    there.waitFor(slot, there.mark(slot))
    assert.equal(order.calls('cuEventRecord'), records)
    assert.ok(there.completed[slot] < clocks.marked[slot])
    assert.equal(clocks.poll(slot), true)
    assert.equal(there.completed[slot], clocks.marked[slot])
  })

  it('a dead thread’s use of its per-thread default stream makes others wait for all work', () => {
    const { order, clocks, there } = setUp()
    const perThread = new Stream(there, CU_STREAM_PER_THREAD, false)
    order.hold(perThread)
    clocks.slots.dead = () => [there.slots.me]
    clocks.slots['registry'].isDead = worker => worker === there.slots.me
    const records = order.calls('cuEventRecord')
    assert.equal(clocks.buryStreams(), 1)
    assert.equal(order.calls('cuEventRecord'), records)
    assert.ok(clocks.completed[perThread.slot] >= clocks.marked[perThread.slot])
    assert.equal(order.driver.cuStreamQuery(CU_STREAM_PER_THREAD), true)
  })

  it('a mark to come covers a stream that another thread is about to end', () => {
    const { clocks, there, here } = setUp()
    const { slot } = here
    const before = there.marked[slot]
    clocks.slots.stop(slot)
    assert.equal(there.coveringSoon(slot), before + 1)
    clocks.slots.reopen(slot)
    here.close()
    assert.deepEqual([there.covering(slot), there.coveringSoon(slot)], [before + 1, before + 1])
  })

  it('a watched last mark is never replaced, since its event belongs to every thread', () => {
    const { order, clocks, there, here, hold } = setUp()
    const { slot } = here
    hold()
    for (let count = 0; count < 65; count++) there.mark(slot)
    here.close()
    assert.equal(there.poll(slot), false)
    clocks.synchronize()
    const next = Stream.create(clocks)
    assert.equal(next.slot, slot)
    there.mark(slot)
    next.close()
    there.close()
    clocks.close()
    assert.equal(order.calls('cuEventDestroy'), order.calls('cuEventCreate'))
  })

  it('a captured stream cannot be lent, takes no marks of other threads, and refuses calls where it was lent', () => {
    const { order, clocks, there, here, hold } = setUp()
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
    assert.equal(there.mark(here.slot), clocks.marked[here.slot])
  })

  it('the last mark before a capture covers a free that came too late to see it, and no work after the capture', () => {
    const { clocks, there, here, hold } = setUp()
    const other = Stream.create(there)
    const release = hold()
    here.beginCapture()
    const late = clocks.marked[here.lastSlot] + 1
    assert.equal(there.order(other.slot, here.lastSlot, late, false), true)
    assert.equal(other.query(), false)
    release()
    there.waitFor(here.lastSlot, late)
    assert.ok(clocks.completed[here.lastSlot] >= late)
    here.abortCapture()
    assert.ok(clocks.marked[here.slot] + 1 > late && there.completed[here.slot] < clocks.marked[here.slot] + 1)
  })

  it('an event is handed over with its vector time', () => {
    const { order, there, here, hold } = setUp()
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

  it('either thread can wait for all work, and each closes its own part', () => {
    const { order, clocks, there, here, hold } = setUp()
    const other = Stream.create(there)
    order.hold(other)
    hold()
    there.synchronize()
    for (const { slot } of [here, other])
      assert.ok(clocks.completed[slot] === clocks.marked[slot] && clocks.marked[slot] > 0)
    assert.equal(clocks.shut(), false)
    there.mark(here.slot)
    other.close()
    there.close()
    assert.equal(clocks.shut(), true)
    assert.throws(() => new Clocks(order.context, clocks.share()), { name: 'PoolError', message: /was closed/ })
    here.close()
    clocks.close()
    assert.equal(order.calls('cuEventCreate'), order.calls('cuEventDestroy'))
  })

  it('anything else than an order, and an order of another version, is refused', () => {
    const { order, clocks } = setUp()
    for (const wrong of [1, {}, { version: 1, buffer: new ArrayBuffer(8) }]) {
      assert.throws(() => new Clocks(order.context, wrong as SharedOrder), { name: 'TypeError' })
    }
    const { version, buffer } = clocks.share()
    assert.throws(() => new Clocks(order.context, { version: version + 1, buffer }), {
      name: 'PoolError',
      message: /layout 4, not 3; use one version/,
    })
  })
})
