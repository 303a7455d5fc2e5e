import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CudaError, PoolError } from '../base/errors.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import type { Capture, CaptureMode } from './capture.js'
import { Event } from './event.js'
import { signal, TestOrder } from './order.fixture.js'
import { Stream } from './stream.js'

const BYTES = 256

/** A device with two streams and a piece of memory. */
function setUp(options: SimulatedOptions = {}) {
  const order = new TestOrder(options)
  const { driver, clocks, context } = order
  const legacy = new Stream(clocks, 0, false)
  const [a, b] = [order.createStream(), order.createStream()]
  const ptr = driver.cuMemAlloc(BYTES)
  const fill = (value: number, stream: Stream) => driver.cuMemsetD8Async(ptr, value, BYTES, stream.handle)
  const first = () => {
    const bytes = new Uint8Array(1)
    clocks.synchronize()
    driver.cuMemcpyDtoH(bytes, ptr)
    return bytes[0]
  }
  const mark = (stream: Stream) => {
    const event = new Event(context)
    event.record(stream)
    return event
  }
  return { order, driver, clocks, context, legacy, a, b, fill, first, mark }
}

function capturesOf(stream: Stream): Capture {
  assert.ok(stream.capture !== null)
  return stream.capture
}

describe('a capture', () => {
  it('records submitted work, and a graph runs it at each launch, in the order of the launching stream', () => {
    for (const progress of ['eager', 'seeded'] as const) {
      const { a, b, fill, first } = setUp({ progress })
      fill(1, a)
      a.beginCapture()
      fill(2, a)
      using graph = a.endCapture()
      assert.equal(first(), 1)
      graph.launch(a)
      assert.equal(first(), 2)
      fill(3, b)
      graph.launch(b)
      assert.equal(first(), 2)
    }
  })

  it('takes in streams that wait for it, along events, and lets them go at its end', () => {
    const { a, b, mark, fill, first, driver } = setUp()
    a.beginCapture()
    fill(1, a)
    b.wait(mark(a))
    assert.equal(b.capture, a.capture)
    fill(2, b)
    a.wait(mark(b))
    const graph = a.endCapture()
    assert.deepEqual([a.capture, b.capture, b.closed], [null, null, false])
    graph.launch(b)
    assert.equal(first(), 2)
    assert.equal(driver.cuStreamIsCapturing(b.handle), false)
    graph.close()
    graph.close()
    assert.throws(() => graph.launch(a), /launch: the graph is closed/)
  })

  it('knows the captured order, over streams and in its own clocks only', () => {
    const { order, a, b, mark, clocks } = setUp()
    const c = order.createStream()
    a.beginCapture()
    const capture = capturesOf(a)
    const before = Float64Array.from(clocks.known)
    b.wait(mark(a))
    c.wait(mark(b))
    const known = (later: Stream, earlier: Stream) => capture.known[later.lastSlot * capture.stride + earlier.lastSlot]
    assert.deepEqual([known(b, a), known(c, b), known(c, a), known(a, b)], [1, 1, 1, 0])
    assert.deepEqual(clocks.known, before)
    a.abortCapture()
  })

  it('keeps the captured order when a stream joins that was opened after many others', () => {
    const { order, a, b, mark } = setUp()
    const [late] = Array.from({ length: 40 }, () => order.createStream()).slice(-1)
    a.beginCapture()
    const capture = capturesOf(a)
    b.wait(mark(a))
    const known = (later: Stream, earlier: Stream) => capture.known[later.lastSlot * capture.stride + earlier.lastSlot]
    const before = [capture.marked[a.lastSlot], known(b, a), known(a, b)]
    late.wait(mark(b))
    assert.ok(capture.stride > late.lastSlot)
    assert.deepEqual([capture.marked[a.lastSlot], known(b, a), known(a, b)], before)
    assert.deepEqual([known(late, a), known(late, b), known(b, late)], [1, 1, 0])
    a.abortCapture()
  })

  it('teaches the first stream of the device nothing either', () => {
    const order = new TestOrder()
    const [first, other] = [order.createStream(), order.createStream()]
    assert.equal(first.slot, 0)
    const before = Float64Array.from(order.clocks.known)
    other.beginCapture()
    signal(other, first)
    assert.deepEqual(order.clocks.known, before)
    other.abortCapture()
    assert.deepEqual(order.clocks.known, before)
  })

  it('gets no marks, no queries and no waits of this library', () => {
    const { a, b, mark, clocks, order } = setUp()
    a.beginCapture()
    b.wait(mark(a))
    const calls = () => ['cuEventRecord', 'cuStreamWaitEvent', 'cuStreamQuery'].map(name => order.calls(name))
    const before = calls()
    for (let slot = 0; slot < clocks.slotLimit; slot++) {
      clocks.watcher.poll(slot)
      clocks.watcher.waitForAll(slot)
    }
    const [records, waits, queries] = calls()
    assert.deepEqual(
      [records - before[0], waits - before[1], queries - before[2]],
      [1, 0, 0],
      'one, of the default stream',
    )
    a.wait(mark(b))
    a.endCapture().close()
  })

  it('is covered by a last mark, so that work before it is waited for and noticed', () => {
    const { order, a, b, clocks, mark } = setUp()
    const release = order.hold(a)
    const { slot } = a
    const stamp = clocks.marked[slot] + 1
    a.beginCapture()
    assert.deepEqual(a.covering, [slot, stamp])
    assert.equal(clocks.order(b.slot, slot, stamp, false), true)
    assert.equal(b.query(), false)
    release()
    clocks.watcher.poll(slot)
    assert.equal(clocks.completed[slot], stamp)
    a.endCapture().close()
    assert.deepEqual(a.covering, [slot, stamp + 1])
    mark(a).close()
  })

  it('refuses what it cannot record, and goes on', () => {
    const { a, b, legacy, mark, clocks, context, fill, first } = setUp()
    const outside = mark(b)
    a.beginCapture()
    const inside = mark(a)
    const other = setUp()
    const foreign = other.a
    for (const [refused, pattern] of [
      [() => a.beginCapture(), /beginCapture: the stream is being captured/],
      [() => a.query(), /query: the stream is being captured; end the capture first/],
      [() => a.synchronize(), /being captured/],
      [() => a.close(), /close: the stream is being captured/],
      [() => a.wait(outside), /recorded outside of the capture/],
      [() => inside.query(), /recorded in a capture/],
      [() => inside.synchronize(), /recorded in a capture/],
      [() => foreign.wait(inside), /another device/],
      [() => legacy.wait(inside), /default stream cannot be captured/],
      [() => clocks.synchronize(), /would break/],
      [() => b.endCapture(), /endCapture: the stream is not being captured/],
      [() => b.abortCapture(), /not being captured/],
      [() => legacy.beginCapture(), /default stream cannot be captured/],
    ] as const) {
      assert.throws(refused, error => error instanceof PoolError && pattern.test(error.message), `${refused}`)
    }
    assert.throws(() => b.beginCapture('fast' as CaptureMode), TypeError)
    b.beginCapture()
    assert.throws(() => b.wait(inside), /another capture/)
    b.endCapture().close()
    b.wait(inside)
    assert.throws(() => b.endCapture(), /began on another stream/)
    a.wait(mark(b))
    fill(7, a)
    const graph = a.endCapture()
    assert.throws(() => b.wait(inside), /which has ended; record it again/)
    assert.throws(() => inside.query(), /has ended/)
    graph.launch()
    assert.equal(first(), 7)
    assert.throws(() => graph.launch(foreign), PoolError)
    for (const wrong of [null, { stream: a }])
      assert.throws(() => graph.launch(wrong as never), /stream must be a Stream/)
    b.beginCapture()
    assert.throws(() => graph.launch(b), /being captured/)
    b.abortCapture()
    inside.record(b)
    assert.equal(inside.query(), true)
    assert.equal(context.released, false)
  })

  it('keeps the default stream idle while a captured stream is ordered with it', () => {
    const { order, driver, clocks, legacy, fill, first } = setUp()
    const blocking = new Stream(clocks, driver.cuStreamCreate(0), false)
    const release = order.hold(legacy)
    blocking.beginCapture()
    fill(4, blocking)
    for (const refused of [() => legacy.query(), () => new Event(legacy.context).record(legacy), () => legacy.end()]) {
      assert.throws(refused, /ordered with the default stream is being captured/)
    }
    for (let slot = 0; slot < clocks.slotLimit; slot++) clocks.watcher.poll(slot)
    const graph = blocking.endCapture()
    assert.equal(legacy.query(), false, 'it has its place again')
    release()
    graph.launch(legacy)
    assert.equal(first(), 4)
  })

  it('leaves nothing behind when it is broken or not joined', () => {
    const { a, b, mark, driver, clocks } = setUp()
    for (const [spoil, code] of [
      [() => assert.throws(() => driver.cuStreamSynchronize(a.handle), CudaError), 901],
      [
        () => {
          b.wait(mark(a))
          driver.cuMemsetD8Async(driver.cuMemAlloc(BYTES), 1, BYTES, b.handle)
        },
        904,
      ],
    ] as const) {
      a.beginCapture()
      spoil()
      assert.throws(
        () => a.endCapture(),
        (error: unknown) => error instanceof CudaError && error.result === code,
      )
      assert.deepEqual([a.capture, b.capture, clocks.captures.size], [null, null, 0])
      a.synchronize()
      b.synchronize()
    }
  })

  it('any refused driver call leaves a capture that can be ended, or none', () => {
    for (let nth = 1; nth <= 12; nth++) {
      const { a, b, mark, driver, clocks, fill, first } = setUp()
      let made = false
      driver.failCall({ call: '*', nth, code: 999 })
      try {
        a.beginCapture()
        b.wait(mark(a))
        fill(5, b)
        a.wait(mark(b))
        const graph = a.endCapture()
        made = true
        graph.launch(a)
      } catch (error) {
        assert.ok(error instanceof CudaError, `${error}`)
      }
      driver.clearFaults()
      if (a.capture !== null) a.abortCapture()
      assert.deepEqual([a.capture, b.capture, clocks.captures.size, clocks.registry.suspended.size], [null, null, 0, 0])
      assert.equal(made || clocks.graphs.size === 0, true)
      assert.equal(driver.cuStreamIsCapturing(a.handle), false, `call ${nth}`)
      fill(6, b)
      assert.equal(first(), 6)
    }
  })

  it('goes on after the driver refused to abort it, and can be aborted then', () => {
    const { driver, clocks, a, fill, first } = setUp()
    a.beginCapture()
    driver.failCall({ call: 'cuStreamEndCapture', code: 999 })
    assert.throws(() => a.abortCapture(), { name: 'CudaError', result: 999 })
    assert.equal(clocks.captures.size, 1)
    assert.throws(() => a.synchronize(), { name: 'PoolError', message: /is being captured; end the capture first/ })
    a.abortCapture()
    assert.equal(clocks.captures.size, 0)
    fill(3, a)
    assert.equal(first(), 3)
  })

  it("runs the library's calls in relaxed mode while one is open, and leaves the thread as before afterwards", () => {
    const { a, b, driver } = setUp()
    const mode = () => {
      const before = driver.cuThreadExchangeStreamCaptureMode(0)
      driver.cuThreadExchangeStreamCaptureMode(before)
      return before
    }
    driver.cuThreadExchangeStreamCaptureMode(1)
    a.beginCapture('global')
    b.beginCapture('threadLocal')
    a.endCapture().close()
    assert.equal(mode(), 2)
    b.endCapture().close()
    assert.equal(mode(), 1)
  })
})
