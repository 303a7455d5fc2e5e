// Several clocks over one order, in this thread. `test/device-threads.test.ts` has real threads.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CU_STREAM_PER_THREAD } from '../driver/constants.js'
import { Context } from '../driver/context.js'
import { MOST_WORKERS } from '../threads/thread-registry.js'
import { Clocks, MOST_STREAMS } from './clocks.js'
import { borrow, signal, twoThreads } from './order.fixture.js'
import type { SharedOrder } from './shared-order.js'
import { Stream } from './stream.js'

describe('shared order', () => {
  it('a thread attaches in the place of a dead one if the registry is full, and ends its streams', () => {
    const { order, clocks } = twoThreads()
    const attach = () => new Clocks(Context.open(order.driver, 0), clocks.share())
    const others = Array.from({ length: MOST_WORKERS - 2 }, attach)
    assert.throws(attach, { name: 'PoolError', message: /^64 threads share this device, which is the limit/ })
    const { me } = others[9].slots
    const stream = Stream.create(others[9])
    const { slot, handle } = stream
    others[9].watcher.mark(slot)
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
    const { clocks, there, here } = twoThreads()
    const lent = borrow(there, here)
    const { slot } = lent
    clocks.watcher.mark(slot)
    here.close()
    const late = clocks.marked[slot] + 1 // as a thread stamps a free that does not know of the close
    assert.equal(there.watcher.poll(slot), true)
    there.watcher.waitForAll(slot)
    assert.ok(there.waited[slot] >= late, `waited up to ${there.waited[slot]}, the free is ${late}`)
  })

  it('a late free on a dead thread’s stream is covered although the stream could not be marked', () => {
    const { order, clocks, there } = twoThreads()
    const { slot } = Stream.create(there)
    clocks.slots['registry'].bury(there.slots.me)
    order.driver.failCall({ call: 'cuEventRecord' })
    assert.equal(clocks.buryStreams(), 1)
    const late = clocks.marked[slot] + 1
    clocks.watcher.poll(slot)
    assert.ok(clocks.completed[slot] >= late, `complete up to ${clocks.completed[slot]}, the free is ${late}`)
  })

  it('a wait for a closed stream completes while its slot has a stream that only its own thread can mark', () => {
    const { clocks, there, here } = twoThreads()
    const { slot } = here
    clocks.watcher.mark(slot)
    here.close()
    const late = clocks.marked[slot] + 1
    clocks.synchronize()
    clocks.slots.free(slot)
    const next = new Stream(clocks, CU_STREAM_PER_THREAD, false)
    assert.equal(next.slot, slot)
    assert.ok(clocks.completed[slot] >= late, `complete up to ${clocks.completed[slot]}, the free is ${late}`)
    there.watcher.waitForAll(slot)
    assert.ok(there.waited[slot] >= late, `waited up to ${there.waited[slot]}, the free is ${late}`)
  })

  it('any thread can mark, poll and wait for a stream', () => {
    const { order, clocks, there, here, hold } = twoThreads()
    const other = Stream.create(there)
    assert.notEqual(other.slot, here.slot)
    assert.deepEqual([there.handles[here.slot], there.slotLimit], [here.handle, 2])
    const release = hold()
    const stamp = clocks.marked[here.slot] + 1
    assert.equal(there.watcher.mark(here.slot), stamp)
    assert.equal(there.watcher.poll(here.slot), false)
    release()
    assert.equal(there.watcher.poll(here.slot), true)
    assert.equal(clocks.completed[here.slot], stamp, 'what one learns all know')
    const releaseLater = hold()
    assert.equal(there.order(other.slot, here.slot, stamp + 1, false), true)
    assert.ok(clocks.known[other.slot * MOST_STREAMS + here.slot] >= stamp + 1)
    assert.equal(other.query(), false)
    releaseLater()
    assert.equal(other.query(), true)
    hold()
    there.watcher.waitFor(here.slot, there.watcher.mark(here.slot))
    assert.equal(order.driver.cuStreamQuery(here.handle), true)
  })

  it('a fresh mark covers ticks of another thread', () => {
    const { clocks, there, here, hold } = twoThreads()
    const first = there.watcher.mark(here.slot)
    const release = hold()
    const stamp = clocks.watcher.mark(here.slot)
    assert.equal(there.watcher.poll(here.slot), true)
    assert.ok(clocks.completed[here.slot] >= first && clocks.completed[here.slot] < stamp)
    release()
    there.watcher.poll(here.slot)
    assert.ok(there.completed[here.slot] >= stamp)
    assert.equal(clocks.watcher.watched(here.slot).length, 0, 'no mark is watched that another thread saw complete')
  })

  it('every thread finds the last mark of a closed stream, with its vector time', () => {
    for (const look of [
      (there: Clocks, slot: number, stamp: number) => there.watcher.waitFor(slot, stamp),
      (there: Clocks, slot: number) => there.watcher.waitForAll(slot),
      (there: Clocks, slot: number, stamp: number) => {
        const other = Stream.create(there)
        assert.equal(there.order(other.slot, slot, stamp, false), true)
        other.synchronize()
      },
    ]) {
      const { order, clocks, there, here } = twoThreads()
      const before = order.createStream()
      order.hold(before)
      signal(before, here)
      const stamp = clocks.marked[here.slot] + 1
      here.close()
      assert.equal(there.watcher.poll(here.lastSlot), false)
      look(there, here.lastSlot, stamp)
      assert.ok(clocks.completed[here.lastSlot] >= stamp)
      assert.equal(order.driver.cuStreamQuery(before.handle), true)
      assert.ok(clocks.completed[before.slot] >= 1, 'the vector time came with it')
    }
  })

  it('the last mark covers a free that came too late to see it, and the stamps of the next stream begin above', () => {
    const { clocks, there, here, hold } = twoThreads()
    hold()
    const { slot } = here
    here.close()
    const late = there.marked[slot] + 1
    there.watcher.waitFor(slot, late)
    assert.ok(clocks.completed[slot] >= late)
    const next = Stream.create(there)
    assert.equal(next.slot, slot)
    assert.ok(there.marked[slot] + 1 > late && there.completed[slot] < there.marked[slot] + 1)
  })

  it('a slot is free for every thread when its work is done, and knows nothing then', () => {
    const { order, clocks, there, here } = twoThreads()
    const before = order.createStream()
    signal(before, here)
    const { slot } = here
    assert.ok(clocks.known[slot * MOST_STREAMS + before.slot] > 0)
    here.close()
    const next = Stream.create(there)
    assert.equal(next.slot, slot)
    assert.equal(next.generation, here.generation + 1)
    assert.equal(there.known[slot * MOST_STREAMS + before.slot], 0)
    const rest = Array.from({ length: MOST_STREAMS - 2 }, () => order.createStream())
    for (const full of [clocks, there]) assert.throws(() => Stream.create(full), /2048 streams are open/)
    rest[5].close()
    Stream.create(there)
  })

  it('a close that was cut short can be repeated, and blocks no call of its thread', () => {
    const { order, clocks, there } = twoThreads()
    const stream = Stream.create(there)
    const { slot, handle } = stream
    const next: (() => void)[] = [
      () => there.watcher.poll(slot),
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
    const { order, clocks, there } = twoThreads()
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
    const { clocks, there, here } = twoThreads()
    const { slot } = here
    here.close()
    clocks.synchronize()
    clocks.slots.free(slot)
    there.slots.acquire()
    there.marked[slot]++ // the first step of a claim
    clocks.slots['registry'].bury(there.slots.me)
    const late = clocks.marked[slot] + 1
    clocks.watcher.poll(slot)
    assert.ok(clocks.completed[slot] >= late, `complete up to ${clocks.completed[slot]}, the free is ${late}`)
  })

  it('a dead thread’s use of its per-thread default stream makes others wait for all work', () => {
    const { order, clocks, there } = twoThreads()
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
    const { clocks, there, here } = twoThreads()
    const { slot } = here
    const before = there.marked[slot]
    clocks.slots.stop(slot)
    assert.equal(there.coveringSoon(slot), before + 1)
    clocks.slots.reopen(slot)
    here.close()
    assert.deepEqual([there.covering(slot), there.coveringSoon(slot)], [before + 1, before + 1])
  })

  it('a watched last mark is never replaced, since its event belongs to every thread', () => {
    const { order, clocks, there, here, hold } = twoThreads()
    const { slot } = here
    hold()
    for (let count = 0; count < 65; count++) there.watcher.mark(slot)
    here.close()
    assert.equal(there.watcher.poll(slot), false)
    clocks.synchronize()
    const next = Stream.create(clocks)
    assert.equal(next.slot, slot)
    there.watcher.mark(slot)
    next.close()
    there.close()
    clocks.close()
    assert.equal(order.calls('cuEventDestroy'), order.calls('cuEventCreate'))
  })

  it('the last mark before a capture covers a free that came too late to see it, and no work after the capture', () => {
    const { clocks, there, here, hold } = twoThreads()
    const other = Stream.create(there)
    const release = hold()
    here.beginCapture()
    const late = clocks.marked[here.lastSlot] + 1
    assert.equal(there.order(other.slot, here.lastSlot, late, false), true)
    assert.equal(other.query(), false)
    release()
    there.watcher.waitFor(here.lastSlot, late)
    assert.ok(clocks.completed[here.lastSlot] >= late)
    here.abortCapture()
    assert.ok(clocks.marked[here.slot] + 1 > late && there.completed[here.slot] < clocks.marked[here.slot] + 1)
  })

  it('either thread can wait for all work, and each closes its own part', () => {
    const { order, clocks, there, here, hold } = twoThreads()
    const other = Stream.create(there)
    order.hold(other)
    hold()
    there.synchronize()
    for (const { slot } of [here, other])
      assert.ok(clocks.completed[slot] === clocks.marked[slot] && clocks.marked[slot] > 0)
    assert.equal(clocks.slots.shut(), false)
    there.watcher.mark(here.slot)
    other.close()
    there.close()
    assert.equal(clocks.slots.shut(), true)
    assert.throws(() => new Clocks(order.context, clocks.share()), { name: 'PoolError', message: /was closed/ })
    here.close()
    clocks.close()
    assert.equal(order.calls('cuEventCreate'), order.calls('cuEventDestroy'))
  })

  it('anything else than an order, and an order of another version, is refused', () => {
    const { order, clocks } = twoThreads()
    for (const wrong of [1, {}, { version: 1, buffer: new ArrayBuffer(8) }]) {
      assert.throws(() => new Clocks(order.context, wrong as SharedOrder), { name: 'TypeError' })
    }
    const { version, buffer } = clocks.share()
    assert.throws(() => new Clocks(order.context, { version: version + 1, buffer }), {
      name: 'PoolError',
      message: /layout 5, not 4; use one version/,
    })
  })
})
