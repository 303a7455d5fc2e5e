import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CudaError, PoolError } from '../base/errors.js'
import { type Clocks, MOST_STREAMS } from './clocks.js'
import { Event } from './event.js'
import { signal, TestOrder } from './order.fixture.js'
import type { Stream } from './stream.js'

describe('clocks', () => {
  it('a stamp is complete once a mark that covers it is', () => {
    const { clocks, ...order } = setUp()
    const { stream } = order
    const { slot } = stream
    const release = order.hold()
    assert.equal(clocks.watcher.mark(slot), 1)
    assert.equal(clocks.watcher.poll(slot), false)
    assert.equal(clocks.completed[slot], 0)
    release()
    const releaseLater = order.hold()
    assert.equal(clocks.watcher.mark(slot), 2)
    assert.equal(clocks.watcher.poll(slot), true)
    assert.deepEqual([clocks.marked[slot], clocks.completed[slot]], [2, 1])
    releaseLater()
    assert.equal(clocks.watcher.poll(slot), true)
    assert.equal(clocks.watcher.poll(slot), false)
    assert.equal(clocks.completed[slot], 2)
  })

  it('a mark covers what was submitted before it, and nothing after', () => {
    const { clocks, stream, hold } = setUp()
    const stamp = clocks.watcher.mark(stream.slot)
    hold()
    clocks.watcher.poll(stream.slot)
    assert.equal(clocks.completed[stream.slot], stamp)
    assert.equal(clocks.watcher.poll(stream.slot), false)
  })

  it('waitFor waits for the first mark that covers the stamp, no longer', () => {
    const { clocks, stream, hold, driver } = setUp()
    const { slot } = stream
    for (let count = 0; count < 3; count++) {
      hold()
      clocks.watcher.mark(slot)
    }
    clocks.watcher.waitFor(slot, 2)
    assert.equal(clocks.completed[slot], 2)
    assert.equal(driver.cuStreamQuery(stream.handle), false)
    const waits = driver.calls.get('cuEventSynchronize')
    clocks.watcher.waitFor(slot, 1)
    assert.equal(driver.calls.get('cuEventSynchronize'), waits, 'what is known is not waited for')
  })

  it('a query or a wait covers ticks without a mark by a new mark', () => {
    const asks: readonly ((order: ReturnType<typeof setUp>) => void)[] = [
      ({ stream }) => assert.equal(stream.query(), false),
      ({ stream, context }) => new Event(context).record(stream),
      ({ stream, clocks, driver }) => {
        driver.failCall({ call: 'cuEventRecord', code: 999 })
        assert.throws(() => clocks.watcher.mark(stream.slot), CudaError)
      },
    ]
    for (const ask of asks) {
      const order = setUp()
      const { clocks, stream } = order
      const release = order.hold()
      ask(order)
      const { slot } = stream
      assert.equal(clocks.marked[slot], 1)
      assert.equal(clocks.watcher.poll(slot), false)
      release()
      assert.equal(clocks.watcher.poll(slot), true)
      assert.ok(clocks.completed[slot] >= 1)
      order.hold()
      ask(order)
      const stamp = clocks.marked[slot]
      clocks.watcher.waitFor(slot, stamp)
      assert.ok(clocks.completed[slot] >= stamp)
    }
  })

  it('any number of marks takes at most 64 events, and all complete', () => {
    const { clocks, stream, hold, driver } = setUp()
    const { slot } = stream
    const releases: (() => void)[] = []
    for (let count = 1, latest = 0; count <= 200; count++) {
      releases.push(hold())
      const stamp = clocks.watcher.mark(slot)
      assert.ok(stamp > latest && stamp === clocks.marked[slot])
      latest = stamp
      if (count % 7 === 0) stream.query()
      if (count % 5 === 0) assert.equal(clocks.watcher.poll(slot), false)
    }
    assert.ok(driver.calls.get('cuEventCreate')! <= 64)
    releases[30]()
    clocks.watcher.poll(slot)
    const reached = clocks.completed[slot]
    assert.ok(reached >= 30 && reached < clocks.marked[slot], `completed ${reached}`)
    for (const release of releases) release()
    const { marked, completed } = clocks
    while (clocks.watcher.poll(slot));
    assert.equal(completed[slot], marked[slot])
    for (let count = 0; count < 50; count++) clocks.watcher.mark(slot)
    assert.ok(driver.calls.get('cuEventCreate')! <= 64, 'events are used again')
  })

  it('a stream that lags far behind is polled seldom, and finds room once it has caught up', () => {
    const { clocks, stream, hold, driver } = setUp()
    const { slot } = stream
    const release = hold()
    for (let count = 0; count < 1000; count++) clocks.watcher.mark(slot)
    assert.ok((driver.calls.get('cuEventQuery') ?? 0) <= 1000 / 8, `${driver.calls.get('cuEventQuery')} questions`)
    release()
    const stamp = clocks.marked[slot]
    for (let count = 0; count < 64; count++) clocks.watcher.mark(slot)
    assert.ok(clocks.completed[slot] >= stamp)
  })

  it('a poll of many incomplete marks asks the driver for the newest and the oldest', () => {
    const { clocks, stream, hold, driver } = setUp()
    const release = hold()
    for (let count = 0; count < 60; count++) clocks.watcher.mark(stream.slot)
    assert.equal(clocks.watcher.poll(stream.slot), false)
    assert.equal(driver.calls.get('cuEventQuery'), 2)
    release()
    assert.equal(clocks.watcher.poll(stream.slot), true)
    assert.equal(driver.calls.get('cuEventQuery'), 3)
  })

  it('a refused mark keeps its event, and the clock stays ahead', () => {
    const { clocks, stream, driver } = setUp()
    clocks.watcher.mark(stream.slot)
    clocks.watcher.poll(stream.slot)
    for (let count = 0; count < 10; count++) {
      driver.failCall({ call: 'cuEventRecord', code: 1 })
      assert.throws(() => clocks.watcher.mark(stream.slot), CudaError)
    }
    clocks.watcher.mark(stream.slot)
    assert.equal(driver.calls.get('cuEventCreate'), 1)
    clocks.watcher.poll(stream.slot)
    assert.equal(clocks.completed[stream.slot], clocks.marked[stream.slot])
  })

  it('2048 streams can be open at a time, and the next is refused with the reason', () => {
    const order = new TestOrder()
    const streams = Array.from({ length: MOST_STREAMS }, () => order.createStream())
    assert.deepEqual(new Set(streams.map(({ slot }) => slot)).size, MOST_STREAMS)
    const handle = order.driver.cuStreamCreate(1)
    assert.throws(() => order.createStream(), { name: 'PoolError', message: /2048 streams are open.*close one first/ })
    order.driver.cuStreamDestroy(handle)
    streams[17].close()
    assert.equal(order.createStream().slot, 17)
    assert.throws(() => order.createStream(), PoolError)
  })

  it('the slot of a closed stream serves again only when all of its work is done', () => {
    const order = new TestOrder()
    const pending = order.createStream()
    order.hold(pending)
    const { slot } = pending
    pending.close()
    assert.deepEqual([pending.lastSlot, pending.lastStamp], [slot, order.clocks.marked[slot]])
    const others = Array.from({ length: MOST_STREAMS - 1 }, () => order.createStream())
    assert.ok(others.every(other => other.slot !== slot))
    assert.ok(order.clocks.completed[slot] < pending.lastStamp)
    const next = order.createStream() // all slots are taken: open waits
    assert.equal(next.slot, slot)
    assert.ok(order.clocks.completed[slot] >= pending.lastStamp)
    assert.ok(order.clocks.marked[slot] >= pending.lastStamp, 'stamps of a slot only grow')
  })

  it('a waiter for a mark comes after everything before that mark, over any number of streams', () => {
    const { order, streams, stampOf, known } = setUpMany(4)
    const [a, b, c, d] = streams
    order.hold(a)
    const stamp = stampOf(a)
    signal(a, b)
    signal(b, c)
    signal(c, d)
    for (const later of [b, c, d]) assert.ok(known(later, a) >= stamp)
    assert.ok(known(d, b) > 0 && known(d, c) > 0 && known(a, d) === 0 && known(b, c) === 0)
  })

  it('an event passes on the knowledge at its record, and no later one', () => {
    const { order, streams, stampOf, known } = setUpMany(3)
    const [a, b, c] = streams
    const event = new Event(order.context)
    event.record(b)
    const stamp = stampOf(a)
    signal(a, b)
    c.wait(event)
    assert.ok(known(b, a) >= stamp && known(c, a) === 0)
    const later = stampOf(b)
    assert.ok(known(c, b) < later, 'what is freed on b after the record is not covered')
  })

  it('a mark teaches the host everything before it, by any kind of wait or query', () => {
    const ways: readonly ((order: TestOrder, last: Stream) => void)[] = [
      (_, last) => last.synchronize(),
      (_, last) => assert.equal(last.query(), true),
      ({ context }, last) => {
        const event = new Event(context)
        event.record(last)
        event.synchronize()
      },
      ({ context }, last) => {
        const event = new Event(context)
        event.record(last)
        assert.equal(event.query(), true)
      },
      ({ clocks }, last) => clocks.watcher.waitFor(last.slot, clocks.watcher.mark(last.slot)),
      ({ clocks }, last) => {
        clocks.watcher.mark(last.slot)
        clocks.watcher.poll(last.slot)
      },
      ({ clocks }) => clocks.synchronize(),
      ({ clocks }, last) => clocks.watcher.waitForAll(last.slot),
    ]
    for (const [index, learn] of ways.entries()) {
      const { order, streams, stampOf } = setUpMany(3)
      const [a, b, c] = streams
      const release = order.hold(a)
      const stamp = stampOf(a)
      signal(a, b)
      signal(b, c)
      const unseen = stampOf(a)
      assert.equal(order.clocks.completed[a.slot], 0)
      if ([1, 3, 5].includes(index)) release()
      learn(order, c)
      assert.ok(order.clocks.completed[a.slot] >= stamp, `way ${index}`)
      if (index !== 6) assert.ok(order.clocks.completed[a.slot] < unseen)
      assert.equal(order.clocks.waited[a.slot] >= stamp, ![1, 3, 5].includes(index), 'asking is not waiting')
    }
  })

  it('a call that the driver refuses teaches nothing', () => {
    const calls: readonly [string, (order: TestOrder, a: Stream, b: Stream, event: Event) => void][] = [
      ['cuStreamWaitEvent', (_, __, b, event) => b.wait(event)],
      ['cuStreamSynchronize', (_, a) => a.synchronize()],
      ['cuStreamQuery', (_, a) => a.query()],
      ['cuEventSynchronize', (_, __, ___, event) => event.synchronize()],
      ['cuEventQuery', (_, __, ___, event) => event.query()],
      ['cuCtxSynchronize', ({ clocks }) => clocks.synchronize()],
      ['cuStreamWaitEvent', ({ clocks }, a, b) => clocks.order(b.slot, a.slot, clocks.marked[a.slot] + 1, false)],
    ]
    for (const [call, refused] of calls) {
      const { order, streams } = setUpMany(2)
      const [a, b] = streams
      order.hold(a)
      const event = new Event(order.context)
      event.record(a)
      order.driver.failCall({ call: call as 'cuEventQuery', code: 999 })
      assert.throws(() => refused(order, a, b, event), CudaError)
      assert.ok(
        order.clocks.known.every(stamp => stamp === 0),
        call,
      )
      assert.ok(
        order.clocks.completed.every(stamp => stamp === 0),
        call,
      )
    }
  })

  it('a refused mark in the place of another leaves the older mark as it was', () => {
    const { order, streams, stampOf } = setUpMany(2)
    const [a, b] = streams
    order.hold(b)
    for (let count = 0; count < 64; count++) order.clocks.watcher.mark(b.slot)
    order.hold(a)
    const stamp = stampOf(a)
    signal(a, b)
    order.driver.failCall({ call: 'cuEventRecord', code: 999 })
    assert.throws(() => order.clocks.watcher.mark(b.slot), CudaError)
    const marks = order.clocks['watcher']['marks']
    while (marks[b.slot].length > 0) order.clocks.watcher.waitForMark(marks[b.slot][0])
    assert.equal(order.clocks.completed[b.slot], 64)
    assert.ok(order.clocks.completed[a.slot] < stamp)
  })

  it('order waits on the device for the oldest mark that covers, and for the last mark of a closed stream', () => {
    const { order, streams, stampOf, known } = setUpMany(3)
    const [a, b, c] = streams
    const { clocks } = order
    const release = order.hold(a)
    const stamp = stampOf(a)
    clocks.watcher.mark(a.slot)
    order.hold(a)
    clocks.watcher.mark(a.slot)
    assert.equal(clocks.order(b.slot, a.slot, stamp, false), true)
    assert.equal(known(b, a), stamp)
    assert.equal(clocks.order(c.slot, a.slot, stamp, true), true)
    assert.equal(known(c, a), clocks.marked[a.slot], 'afresh: a mark of now')
    assert.equal(b.query(), false)
    release()
    assert.equal(b.query(), true)
    assert.equal(c.query(), false)
    a.close()
    assert.equal(clocks.order(b.slot, a.lastSlot, a.lastStamp, false), true)
    assert.equal(knownBySlot(clocks, b.slot, a.lastSlot), a.lastStamp)
    c.synchronize()
    clocks.watcher.waitFor(a.lastSlot, a.lastStamp)
    const waits = order.calls('cuStreamWaitEvent')
    assert.equal(clocks.order(c.slot, a.lastSlot, a.lastStamp, true), false, 'nothing to wait for')
    assert.equal(order.calls('cuStreamWaitEvent'), waits)
  })

  it('a slot that is used again knows nothing of its former stream, and what others know of it stays true', () => {
    const { order, streams, known } = setUpMany(3)
    const [a, b, c] = streams
    signal(c, a)
    signal(a, b)
    const knownBefore = known(b, a)
    const { slot } = a
    a.close()
    const next = order.createStream()
    assert.equal(next.slot, slot)
    assert.equal(known(next, c), 0)
    assert.equal(known(b, next), knownBefore)
    assert.ok(order.clocks.marked[slot] + 1 > knownBefore, 'what the new stream frees is not covered')
  })

  it('a stream ordered after a closed stream, whose work is done, comes after everything before that', () => {
    const { order, streams } = setUpMany(3)
    const [a, b, c] = streams
    signal(a, b)
    const stamp = order.clocks.marked[a.slot]
    b.close()
    order.clocks.watcher.waitFor(b.lastSlot, b.lastStamp)
    assert.equal(order.clocks.order(c.slot, b.lastSlot, b.lastStamp, false), false)
    assert.equal(knownBySlot(order.clocks, c.slot, a.slot), stamp)
  })

  it('the last of 2048 streams is known like any other, on the device and on the host', () => {
    const { order, streams, known } = setUpMany(MOST_STREAMS)
    const [first, second] = streams
    const last = streams[MOST_STREAMS - 1]
    const { clocks } = order
    assert.equal(last.slot, MOST_STREAMS - 1)
    signal(last, first)
    signal(first, second)
    const stamp = clocks.marked[last.slot]
    assert.deepEqual([known(first, last), known(second, last)], [stamp, stamp])
    second.synchronize()
    assert.equal(clocks.completed[last.slot], stamp)
  })

  it('thousands of streams can come and go', () => {
    const order = new TestOrder()
    for (let round = 0; round < 1000; round++) {
      const stream = order.createStream()
      if (round % 3 === 0) order.hold(stream)
      stream.close()
    }
    assert.ok(order.calls('cuEventCreate') <= MOST_STREAMS)
    assert.equal(order.calls('cuStreamCreate'), order.calls('cuStreamDestroy'))
  })

  it('close destroys all events, and whatever is still awaited is known complete', async () => {
    const { clocks, stream, hold, driver } = setUp()
    hold()
    clocks.watcher.mark(stream.slot)
    hold()
    const finished = stream.finished()
    clocks.close()
    await finished
    assert.equal(driver.calls.get('cuEventCreate'), driver.calls.get('cuEventDestroy'))
  })
})

function setUpMany(count: number) {
  const order = new TestOrder()
  return {
    order,
    streams: Array.from({ length: count }, () => order.createStream()),
    /** of work that is freed on a stream now */
    stampOf: (stream: Stream) => order.clocks.marked[stream.slot] + 1,
    known: (later: Stream, earlier: Stream) => knownBySlot(order.clocks, later.slot, earlier.slot),
  }
}

const knownBySlot = (clocks: Clocks, later: number, earlier: number) => clocks.known[later * MOST_STREAMS + earlier]

function setUp() {
  const order = new TestOrder()
  const stream = order.createStream()
  const { clocks, driver, context } = order
  return { order, clocks, driver, context, stream, hold: () => order.hold(stream) }
}
