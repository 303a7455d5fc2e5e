import assert from 'node:assert/strict'
import { it } from 'node:test'
import { Event } from './event.js'
import { TestOrder } from './order.fixture.js'
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
