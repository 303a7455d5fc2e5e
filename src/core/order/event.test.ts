import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PoolError } from '../base/errors.js'
import { Event } from './event.js'
import { TestOrder } from './order.fixture.js'

function setUp() {
  const order = new TestOrder()
  return { order, event: new Event(order.context), stream: order.createStream() }
}

describe('the time between two events', () => {
  const timed = (order: TestOrder) => new Event(order.context, true)

  it('is in milliseconds of the simulated clock, at which their records complete', () => {
    const { order, stream } = setUp()
    const [start, end] = [timed(order), timed(order)]
    start.record(stream)
    order.driver.passTime(0.25)
    const release = order.hold(stream)
    end.record(stream)
    order.driver.passTime(1)
    release()
    assert.equal(end.query(), true)
    const elapsed = end.elapsedSince(start)
    assert.ok(elapsed >= 1250 && elapsed < 1251, `${elapsed} ms: the work was held for a second`)
    assert.equal(start.elapsedSince(end), -elapsed)
  })

  it('is of the last records, also if an earlier record completes later', () => {
    const { order, stream } = setUp()
    const [start, end] = [timed(order), timed(order)]
    const late = order.createStream()
    const release = order.hold(late)
    start.record(stream)
    end.record(late)
    end.record(stream)
    order.driver.passTime(60)
    release()
    late.synchronize()
    assert.ok(end.elapsedSince(start) < 1)
  })

  it('needs timing and a complete record of both events, of one device', () => {
    const { order, event, stream } = setUp()
    const [start, end] = [timed(order), timed(order)]
    const refused = (call: () => unknown, message: RegExp) => assert.throws(call, { name: 'PoolError', message })
    start.record(stream)
    refused(() => end.elapsedSince(start), /never recorded/)
    event.record(stream)
    refused(() => start.elapsedSince(event), /createEvent\(\{ timing: true \}\)/)
    refused(() => event.elapsedSince(start), /createEvent\(\{ timing: true \}\)/)
    order.hold(stream)
    end.record(stream)
    refused(() => end.elapsedSince(start), /not complete; await event\.finished\(\)/)
    refused(() => start.elapsedSince(end), /not complete/)
    end.synchronize()
    assert.ok(end.elapsedSince(start) >= 0)
    const other = new TestOrder()
    const foreign = timed(other)
    foreign.record(other.createStream())
    refused(() => end.elapsedSince(foreign), /two devices/)
    assert.throws(() => end.elapsedSince(7 as never), { name: 'TypeError', message: /earlier must be an Event, not 7/ })
    start.close()
    refused(() => end.elapsedSince(start), /is closed/)
  })

  it('survives a transfer to another thread', () => {
    const { order, stream } = setUp()
    const [start, end] = [timed(order), timed(order)]
    start.record(stream)
    end.record(stream)
    const moved = Event.adopt(order.clocks, start.transfer())
    assert.equal(moved.timing, true)
    assert.ok(end.elapsedSince(moved) >= 0)
  })
})

describe('event', () => {
  it('is complete when all work before its record is', () => {
    const { order, event, stream } = setUp()
    const release = order.hold(stream)
    event.record(stream)
    order.hold(stream)
    assert.equal(event.query(), false)
    release()
    assert.equal(event.query(), true)
    assert.equal(stream.query(), false)
  })

  it('teaches the clocks exactly what it covers', () => {
    for (const learn of [(event: Event) => event.query(), (event: Event) => event.synchronize()]) {
      const { order, event, stream } = setUp()
      event.record(stream)
      const covered = order.clocks.marked[stream.slot]
      order.hold(stream)
      learn(event)
      assert.equal(order.clocks.completed[stream.slot], covered, 'not the next free')
    }
  })

  it('the last record counts, whichever stream it is on', () => {
    const { order, event, stream } = setUp()
    const other = order.createStream()
    const release = order.hold(other)
    event.record(stream)
    assert.equal(event.query(), true)
    event.record(other)
    assert.equal(event.query(), false)
    const { completed } = order.clocks
    assert.equal(completed[other.slot], 0)
    release()
    event.synchronize()
    assert.equal(completed[other.slot], 1)
  })

  it('a record that the driver refuses leaves the earlier one', () => {
    const { order, event, stream } = setUp()
    event.record(stream)
    const covered = order.clocks.marked[stream.slot]
    const other = order.createStream()
    order.hold(other)
    order.driver.failCall({ call: 'cuEventRecord', code: 999 })
    assert.throws(() => event.record(other), { name: 'CudaError' })
    assert.equal(event.query(), true)
    assert.equal(order.clocks.completed[stream.slot], covered)
    assert.equal(order.clocks.completed[other.slot], 0)
  })

  it('synchronize waits for its record and no more', () => {
    const { order, event, stream } = setUp()
    order.hold(stream)
    event.record(stream)
    order.hold(stream)
    event.synchronize()
    assert.equal(event.query(), true)
    assert.equal(stream.query(), false)
  })

  it('finished resolves without blocking', async () => {
    const { order, event, stream } = setUp()
    const release = order.hold(stream)
    event.record(stream)
    let done = false
    const finished = event.finished().then(() => {
      done = true
    })
    for (let turn = 0; turn < 60; turn++) await new Promise(resolve => setImmediate(resolve))
    assert.equal(done, false)
    release()
    await finished
    assert.equal(order.calls('cuEventSynchronize'), 0)
  })

  it('a query of an event that was never recorded is an error', async () => {
    const { event } = setUp()
    const refused = { name: 'PoolError', message: /never recorded; call record/ }
    assert.throws(() => event.query(), refused)
    assert.throws(() => event.synchronize(), refused)
    await assert.rejects(event.finished(), refused)
  })

  it('a closed event refuses everything but another close', async () => {
    const { order, event, stream } = setUp()
    event.record(stream)
    event.close()
    event.close()
    event[Symbol.dispose]()
    assert.equal(order.calls('cuEventDestroy'), 1)
    const refused = { name: 'PoolError', message: /event is closed/ }
    assert.throws(() => event.query(), refused)
    assert.throws(() => event.synchronize(), refused)
    assert.throws(() => event.record(stream), refused)
    assert.throws(() => stream.wait(event), refused)
    await assert.rejects(event.finished(), refused)
  })

  it('awaiting an event that is closed meanwhile ends in an error', async () => {
    const { order, event, stream } = setUp()
    order.hold(stream)
    event.record(stream)
    const finished = event.finished()
    event.close()
    await assert.rejects(finished, PoolError)
  })

  it('outlives its stream', () => {
    const { order, event, stream } = setUp()
    order.hold(stream)
    event.record(stream)
    stream.close()
    assert.equal(event.query(), false)
    event.synchronize()
    assert.equal(event.query(), true)
  })
})
