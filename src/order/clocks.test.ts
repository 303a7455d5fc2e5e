import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CudaError, PoolError } from '../base/errors.js'
import { MOST_STREAMS } from './clocks.js'
import { Event } from './event.js'
import { TestOrder } from './order-fixture.suite.js'

describe('clocks', () => {
  it('a stamp is complete once a mark that covers it is', () => {
    const { clocks, ...order } = setUp()
    const { stream } = order
    const { slot } = stream
    const release = order.hold()
    assert.equal(clocks.mark(slot), 1)
    assert.equal(clocks.poll(slot), false)
    assert.equal(clocks.completed[slot], 0)
    release()
    const releaseLater = order.hold()
    assert.equal(clocks.mark(slot), 2)
    assert.equal(clocks.poll(slot), true)
    assert.deepEqual([clocks.marked[slot], clocks.completed[slot]], [2, 1])
    releaseLater()
    assert.equal(clocks.poll(slot), true)
    assert.equal(clocks.poll(slot), false)
    assert.equal(clocks.completed[slot], 2)
  })

  it('a mark covers what was submitted before it, and nothing after', () => {
    const { clocks, stream, hold } = setUp()
    const stamp = clocks.mark(stream.slot)
    hold()
    clocks.poll(stream.slot)
    assert.equal(clocks.completed[stream.slot], stamp)
    assert.equal(clocks.poll(stream.slot), false)
  })

  it('waitFor waits for the first mark that covers the stamp, no longer', () => {
    const { clocks, stream, hold, driver } = setUp()
    const { slot } = stream
    for (let count = 0; count < 3; count++) {
      hold()
      clocks.mark(slot)
    }
    clocks.waitFor(slot, 2)
    assert.equal(clocks.completed[slot], 2)
    assert.equal(driver.cuStreamQuery(stream.handle), false)
    const waits = driver.calls.get('cuEventSynchronize')
    clocks.waitFor(slot, 1)
    assert.equal(driver.calls.get('cuEventSynchronize'), waits, 'what is known is not waited for')
  })

  it('ticks without a mark are covered by one when somebody asks or waits', () => {
    const asks: readonly ((order: ReturnType<typeof setUp>) => void)[] = [
      ({ stream }) => assert.equal(stream.query(), false),
      ({ stream, context }) => new Event(context).record(stream),
      ({ stream, clocks, driver }) => {
        driver.failCall({ call: 'cuEventRecord', code: 999 })
        assert.throws(() => clocks.mark(stream.slot), CudaError)
      },
    ]
    for (const ask of asks) {
      const order = setUp()
      const { clocks, stream } = order
      const release = order.hold()
      ask(order)
      const { slot } = stream
      assert.equal(clocks.marked[slot], 1)
      assert.equal(clocks.poll(slot), false)
      release()
      assert.equal(clocks.poll(slot), true)
      assert.ok(clocks.completed[slot] >= 1)
      order.hold()
      ask(order)
      const stamp = clocks.marked[slot]
      clocks.waitFor(slot, stamp)
      assert.ok(clocks.completed[slot] >= stamp)
    }
  })

  it('order makes a stream wait for what a stamp covers, by the first mark that does', () => {
    const { clocks, stream, hold, order } = setUp()
    const { slot } = stream
    const [first, second] = [order.createStream(), order.createStream()]
    const release = hold()
    clocks.mark(slot)
    const releaseLater = hold()
    clocks.order(slot, 1, first)
    clocks.order(slot, 2, second)
    assert.equal(clocks.marked[slot], 2, 'a mark for what none covered')
    assert.deepEqual([first.query(), second.query()], [false, false])
    release()
    assert.deepEqual([first.query(), second.query()], [true, false])
    releaseLater()
    assert.equal(second.query(), true)
  })

  it('order asks the driver for nothing on the stream itself, or when the stamp is known complete', () => {
    const { clocks, stream, hold, order } = setUp()
    const other = order.createStream()
    hold()
    clocks.order(stream.slot, clocks.marked[stream.slot] + 1, stream)
    clocks.order(stream.slot, 0, other)
    assert.equal(order.calls('cuEventRecord') + order.calls('cuStreamWaitEvent'), 0)
    assert.equal(other.query(), true)
  })

  it('order knows the last mark of a closed stream, and what a refused call leaves is done by the next', () => {
    const { clocks, stream, hold, driver, order } = setUp()
    const other = order.createStream()
    hold()
    driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    assert.throws(() => clocks.order(stream.slot, 1, other), CudaError)
    stream.close()
    clocks.order(stream.lastSlot, stream.lastStamp, other)
    assert.equal(other.query(), false)
    clocks.waitFor(stream.lastSlot, stream.lastStamp)
    assert.equal(other.query(), true)
  })

  it('any number of marks: the driver is given 64 events at most, and all complete', () => {
    const { clocks, stream, hold, driver } = setUp()
    const { slot } = stream
    const releases: (() => void)[] = []
    for (let count = 1, latest = 0; count <= 200; count++) {
      releases.push(hold())
      const stamp = clocks.mark(slot)
      assert.ok(stamp > latest && stamp === clocks.marked[slot])
      latest = stamp
      if (count % 7 === 0) stream.query()
      if (count % 5 === 0) assert.equal(clocks.poll(slot), false)
    }
    assert.ok(driver.calls.get('cuEventCreate')! <= 64)
    releases[30]()
    clocks.poll(slot)
    const reached = clocks.completed[slot]
    assert.ok(reached >= 30 && reached < clocks.marked[slot], `completed ${reached}`)
    for (const release of releases) release()
    const { marked, completed } = clocks
    while (clocks.poll(slot));
    assert.equal(completed[slot], marked[slot])
    for (let count = 0; count < 50; count++) clocks.mark(slot)
    assert.ok(driver.calls.get('cuEventCreate')! <= 64, 'events are used again')
  })

  it('a refused mark keeps its event, and the clock stays ahead', () => {
    const { clocks, stream, driver } = setUp()
    clocks.mark(stream.slot)
    clocks.poll(stream.slot)
    for (let count = 0; count < 10; count++) {
      driver.failCall({ call: 'cuEventRecord', code: 1 })
      assert.throws(() => clocks.mark(stream.slot), CudaError)
    }
    clocks.mark(stream.slot)
    assert.equal(driver.calls.get('cuEventCreate'), 1)
    clocks.poll(stream.slot)
    assert.equal(clocks.completed[stream.slot], clocks.marked[stream.slot])
  })

  it('64 streams at a time, and a clear refusal of the next', () => {
    const order = new TestOrder()
    const streams = Array.from({ length: MOST_STREAMS }, () => order.createStream())
    assert.deepEqual(new Set(streams.map(({ slot }) => slot)).size, MOST_STREAMS)
    const handle = order.driver.cuStreamCreate(1)
    assert.throws(() => order.createStream(), { name: 'PoolError', message: /64 streams are open.*close one first/ })
    order.driver.cuStreamDestroy(handle)
    streams[17].close()
    assert.equal(order.createStream().slot, 17)
    assert.throws(() => order.createStream(), PoolError)
  })

  it('the slot of a closed stream is used again only when all of its work is done', () => {
    const order = new TestOrder()
    const pending = order.createStream()
    order.hold(pending)
    const { slot } = pending
    pending.close()
    assert.deepEqual([pending.lastSlot, pending.lastStamp], [slot, order.clocks.marked[slot]])
    const others = Array.from({ length: MOST_STREAMS - 1 }, () => order.createStream())
    assert.ok(others.every(other => other.slot !== slot))
    assert.ok(order.clocks.completed[slot] < pending.lastStamp)
    const next = order.createStream() // no other slot is left: it waits
    assert.equal(next.slot, slot)
    assert.ok(order.clocks.completed[slot] >= pending.lastStamp)
    assert.ok(order.clocks.marked[slot] >= pending.lastStamp, 'stamps of a slot only grow')
  })

  it('thousands of streams over time', () => {
    const order = new TestOrder()
    for (let round = 0; round < 1000; round++) {
      const stream = order.createStream()
      if (round % 3 === 0) order.hold(stream)
      stream.close()
    }
    assert.ok(order.calls('cuEventCreate') <= MOST_STREAMS)
    assert.equal(order.calls('cuStreamCreate'), order.calls('cuStreamDestroy'))
  })

  it('close gives all events back, and whoever still awaits learns that all is done', async () => {
    const { clocks, stream, hold, driver } = setUp()
    hold()
    clocks.mark(stream.slot)
    hold()
    const finished = stream.finished()
    clocks.close()
    await finished
    assert.equal(driver.calls.get('cuEventCreate'), driver.calls.get('cuEventDestroy'))
  })
})

function setUp() {
  const order = new TestOrder()
  const stream = order.createStream()
  const { clocks, driver, context } = order
  return { order, clocks, driver, context, stream, hold: () => order.hold(stream) }
}
