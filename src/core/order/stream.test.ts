import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PoolError } from '../base/errors.js'
import { MOST_STREAMS } from './clocks.js'
import { Event } from './event.js'
import { TestOrder } from './order.fixture.js'
import { Stream } from './stream.js'

describe('stream', () => {
  it('query says whether all work has completed, and teaches the clocks', () => {
    const order = new TestOrder()
    const stream = order.createStream()
    const { slot } = stream
    assert.equal(stream.query(), true)
    const release = order.hold(stream)
    const before = order.clocks.completed[slot]
    assert.equal(stream.query(), false)
    assert.equal(order.clocks.completed[slot], before)
    release()
    assert.equal(stream.query(), true)
    assert.equal(order.clocks.completed[slot], order.clocks.marked[slot])
  })

  it('a query or a synchronise teaches nothing of later frees', () => {
    const order = new TestOrder()
    const stream = order.createStream()
    for (const learn of [() => stream.query(), () => stream.synchronize()]) {
      learn()
      const stampOfNextFree = order.clocks.marked[stream.slot] + 1
      order.hold(stream)
      assert.ok(order.clocks.completed[stream.slot] < stampOfNextFree)
      stream.synchronize()
    }
  })

  it('synchronize waits for all submitted work', () => {
    const order = new TestOrder()
    const stream = order.createStream()
    order.hold(stream)
    const stamp = order.clocks.marked[stream.slot] + 1
    stream.synchronize()
    assert.ok(order.clocks.completed[stream.slot] >= stamp)
    assert.equal(order.driver.cuStreamQuery(stream.handle), true)
  })

  it('finished resolves when earlier work has completed, and does not wait for later work', async () => {
    const order = new TestOrder()
    const stream = order.createStream()
    const release = order.hold(stream)
    let done = false
    const finished = stream.finished().then(() => {
      done = true
    })
    order.hold(stream)
    for (let turn = 0; turn < 5; turn++) await new Promise(resolve => setImmediate(resolve))
    assert.equal(done, false)
    release()
    await finished
    assert.equal(order.driver.cuStreamQuery(stream.handle), false, 'later work is still held')
    assert.equal(order.calls('cuStreamSynchronize') + order.calls('cuEventSynchronize'), 0, 'nothing blocked')
  })

  it('finished resolves though the stream is closed meanwhile', async () => {
    const order = new TestOrder()
    const stream = order.createStream()
    order.hold(stream)
    const finished = stream.finished()
    stream.close()
    order.driver.cuCtxSynchronize()
    await finished
  })

  it('wait orders work after an event', () => {
    const order = new TestOrder()
    const [earlier, later] = [order.createStream(), order.createStream()]
    const event = new Event(order.context)
    assert.throws(() => later.wait(event), {
      name: 'PoolError',
      message: /wait: the event was never recorded; call rec/,
    })
    const release = order.hold(earlier)
    event.record(earlier)
    later.wait(event)
    assert.equal(later.query(), false)
    release()
    assert.equal(later.query(), true)
    assert.equal(order.calls('cuStreamSynchronize') + order.calls('cuEventSynchronize'), 0, 'nothing blocked')
  })

  it('a closed stream refuses everything but another close, and its work still completes', async () => {
    const order = new TestOrder()
    const stream = order.createStream()
    const event = new Event(order.context)
    order.hold(stream)
    assert.equal(stream.closed, false)
    stream.close()
    stream.close()
    stream[Symbol.dispose]()
    assert.equal(stream.closed, true)
    assert.equal(order.calls('cuStreamDestroy'), 1)
    const refused = { name: 'PoolError', message: /stream is closed/ }
    assert.throws(() => stream.query(), refused)
    assert.throws(() => stream.synchronize(), refused)
    assert.throws(() => stream.wait(event), refused)
    assert.throws(() => event.record(stream), refused)
    await assert.rejects(stream.finished(), refused)
    order.driver.cuCtxSynchronize()
    order.clocks.watcher.poll(stream.lastSlot)
    assert.ok(order.clocks.completed[stream.lastSlot] >= stream.lastStamp)
  })

  it('closing an adopted stream leaves it open for its owner', () => {
    const order = new TestOrder()
    const handle = order.driver.cuStreamCreate(1)
    const stream = new Stream(order.clocks, handle, false)
    stream.close()
    assert.equal(order.calls('cuStreamDestroy'), 0)
    assert.equal(order.driver.cuStreamQuery(handle), true)
  })

  it('the default stream is an ordinary one', () => {
    const order = new TestOrder()
    const stream = new Stream(order.clocks, 0, false)
    const release = order.hold(stream)
    assert.equal(stream.query(), false)
    release()
    assert.equal(stream.query(), true)
  })

  it('a close that the driver refuses can be repeated', () => {
    const order = new TestOrder()
    const stream = order.createStream()
    order.driver.failCall({ call: 'cuEventRecord', code: 999 })
    assert.throws(() => stream.close(), { name: 'CudaError' })
    assert.equal(stream.closed, false)
    stream.close()
    assert.equal(order.calls('cuStreamDestroy'), 1)
  })

  it('a stream waits for an event of another device', () => {
    const here = new TestOrder({ devices: 2 })
    const there = new TestOrder(here.driver, 1)
    const [stream, other] = [here.createStream(), there.createStream()]
    const event = new Event(there.context)
    const release = there.hold(other)
    event.record(other)
    const releaseLater = there.hold(other)
    stream.wait(event)
    assert.equal(stream.query(), false)
    release()
    assert.deepEqual([stream.query(), other.query()], [true, false])
    assert.throws(() => event.record(stream), { name: 'PoolError', message: /another device/ })
    releaseLater()
  })

  it('the next mark covers its work so far, and the last mark once it is closed', () => {
    const order = new TestOrder()
    const stream = order.createStream()
    const [slot, stamp] = stream.covering
    assert.deepEqual([slot, stamp], [stream.slot, order.clocks.marked[stream.slot] + 1])
    stream.query()
    assert.equal(stream.covering[1], stamp + 1)
    stream.close()
    assert.deepEqual(stream.covering, [slot, stream.lastStamp])
  })

  it('a stream that cannot be made leaves nothing behind', () => {
    const order = new TestOrder()
    const streams = Array.from({ length: MOST_STREAMS }, () => order.createStream())
    assert.throws(() => Stream.create(order.clocks), { name: 'PoolError', message: /2048 streams/ })
    assert.equal(order.calls('cuStreamCreate') - order.calls('cuStreamDestroy'), streams.length)
  })

  it('anything else than a stream or an event is refused', () => {
    const order = new TestOrder()
    const [stream, event] = [order.createStream(), new Event(order.context)]
    for (const other of [null, undefined, {}, stream, order]) {
      const expected = { name: 'TypeError', message: /^wait: event must be an Event, not / }
      assert.throws(() => stream.wait(other as unknown as Event), expected)
    }
    for (const other of [null, undefined, {}, event, order]) {
      const expected = { name: 'TypeError', message: /^record: stream must be a Stream, not / }
      assert.throws(() => event.record(other as unknown as Stream), expected)
    }
    assert.throws(() => event.query(), { name: 'PoolError', message: /never recorded/ })
  })

  it('streams and events of another driver are refused', () => {
    const [order, other] = [new TestOrder(), new TestOrder()]
    const stream = order.createStream()
    const event = new Event(other.context)
    assert.throws(() => stream.wait(event), { name: 'PoolError', message: /another device/ })
    assert.throws(() => event.record(stream), { name: 'PoolError', message: /another device/ })
    event.close()
    assert.throws(() => other.createStream().wait(event), PoolError)
  })
})
