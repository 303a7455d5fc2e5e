import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Event } from './event.js'
import { signal, TestOrder, twoThreads } from './order.fixture.js'
import { Stream } from './stream.js'
import { signalOf, type WaitOptions } from './wait-options.js'
import { Abortable, assertAbortable, turns } from './waits.fixture.js'

const KINDS = {
  'stream.finished': () => {
    const order = new TestOrder()
    const stream = order.createStream()
    const release = order.hold(stream)
    return { order, waitable: stream, release }
  },
  'event.finished': () => {
    const order = new TestOrder()
    const stream = order.createStream()
    const release = order.hold(stream)
    const waitable = new Event(order.context)
    waitable.record(stream)
    return { order, waitable, release }
  },
  'clocks.finished': () => {
    const order = new TestOrder()
    order.createStream() // idle
    const release = order.hold(order.createStream())
    const waitable = {
      finished: async (options: WaitOptions) => {
        await order.clocks.finished(signalOf('finished', options))
      },
    }
    return { order, waitable, release }
  },
}

for (const [kind, setUp] of Object.entries(KINDS)) {
  it(`${kind} ends with its work, or its signal`, { timeout: 10_000 }, async () => {
    const { waitable, release } = setUp()
    await assert.rejects(waitable.finished({ signal: AbortSignal.timeout(1) }), { name: 'TimeoutError' })
    await assertAbortable('finished', options => waitable.finished(options), release)
  })

  it(`${kind} asks the driver for nothing more after an abort`, { timeout: 10_000 }, async () => {
    const { order, waitable } = setUp()
    const controller = new Abortable()
    const waiting = assert.rejects(waitable.finished(controller.options), controller.reason)
    await turns(5)
    controller.abort()
    await waiting
    const asked = order.calls('cuEventQuery')
    assert.ok(asked > 0)
    await turns()
    assert.equal(order.calls('cuEventQuery'), asked)
  })
}

describe('the work of all streams of a thread', () => {
  it('includes what came before a capture, without later work', { timeout: 10_000 }, async () => {
    const order = new TestOrder()
    const [captured, open] = [order.createStream(), order.createStream()]
    const releases = [captured, open].map(stream => order.hold(stream))
    captured.beginCapture()
    let done = false
    const finished = order.clocks.finished().then(() => {
      done = true
    })
    order.hold(open)
    for (const release of releases) {
      await turns()
      assert.equal(done, false)
      release()
    }
    await finished
    assert.equal(open.query(), false, 'later work is still held')
    assert.equal(order.calls('cuCtxSynchronize') + order.calls('cuEventSynchronize'), 0, 'nothing blocked')
  })

  it('includes that of closed streams, and not that of other threads', { timeout: 10_000 }, async () => {
    const { there, here, hold } = twoThreads()
    const release = hold()
    await there.finished()
    const closed = Stream.create(there)
    signal(here, closed)
    closed.close()
    let done = false
    const finished = there.finished().then(() => {
      done = true
    })
    await turns()
    assert.equal(done, false)
    release()
    await finished
  })
})
