// A device in several threads.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { attachDevice } from '../src/core/device/attach.js'
import { openDevice } from '../src/core/device/open.js'
import type { SharedDevice } from '../src/core/device/shared-pools.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { MOST_STREAMS } from '../src/core/order/clocks.js'
import { open, start } from './device-threads.fixture.js'

describe('a device in several threads', () => {
  it('no tick is lost when two threads tick one clock', async () => {
    const device = open()
    const stream = device.createStream()
    const before = device.clocks.marked[stream.slot]
    const times = 500_000
    const other = start(device, 'tick', stream.slot, times)
    await once(other.thread, 'online')
    for (let count = 0; count < times; count++) device.clocks.tick(stream.slot)
    await other.done
    assert.equal(device.clocks.marked[stream.slot], before + 2 * times)
  })

  it('streams and events of one thread order work of another', async () => {
    const driver = new SimulatedDriver({ progress: 'eager' })
    const device = openDevice(driver)
    const [a, b] = [device.createStream(), device.createStream()]
    const tickets = [a, b].map(({ handle }) => driver.holdOperation(handle))
    const event = device.createEvent()
    event.record(b)
    const { thread, done } = start(device, 'use', a.share(), event.transfer())
    const { waiting, isSame } = await done
    assert.equal(isSame, true)
    const lent = device.adoptStream(waiting)
    assert.equal(device.adoptStream(lent.handle), lent)
    for (const earlier of [a, b]) assert.ok(device.clocks.known[lent.slot * MOST_STREAMS + earlier.slot] > 0)
    assert.equal(lent.query(), false)
    driver.releaseThrough(a.handle, tickets[0])
    assert.equal(lent.query(), false)
    driver.releaseThrough(b.handle, tickets[1])
    assert.equal(lent.query(), true)
    assert.throws(() => device.close(), { name: 'PoolError', message: /close: other threads have the device attached/ })
    assert.equal(device.createStream().query(), true, 'nothing is closed')
    const closed = once(thread, 'message')
    thread.postMessage('close')
    await closed
    assert.throws(() => lent.query(), /is closed, here or where it was made/)
    device.close()
    assert.equal(driver.calls.get('cuEventCreate'), driver.calls.get('cuEventDestroy')! + 1, 'but for the adopted one')
    assert.equal(driver.calls.get('cuStreamCreate'), driver.calls.get('cuStreamDestroy'))
  })

  it('is one object in a thread, and anything but a device of this process is refused', () => {
    const device = open()
    const shared = structuredClone(device.share())
    assert.equal(attachDevice(shared), device)
    for (const wrong of [undefined, null, 1, {}, { ...shared, order: 1 }, { ...shared, order: {} }]) {
      assert.throws(() => attachDevice(wrong as SharedDevice), { name: 'TypeError' })
    }
    const version = shared.version + 1
    assert.throws(() => attachDevice({ ...shared, version }), { name: 'PoolError', message: /version 2, not 1/ })
    const other = { ...shared, process: shared.process + 1 }
    assert.throws(() => attachDevice(other), { name: 'PoolError', message: /opened by another process/ })
    const stream = device.createStream().share()
    const second = open()
    second.share()
    assert.throws(() => second.adoptStream(stream), { name: 'PoolError', message: /belongs to another device/ })
    assert.throws(() => device.adoptStream({ ...stream, slot: MOST_STREAMS }), { name: 'TypeError' })
    assert.throws(() => device.adoptStream({ ...stream, generation: 99 }), {
      name: 'PoolError',
      message: /^adoptStream: the stream is closed where it was made/,
    })
    assert.throws(() => device.adoptEvent({} as never), { name: 'TypeError' })
    device.close()
    assert.throws(() => device.share(), { name: 'PoolError', message: /the device is closed/ })
    assert.throws(() => attachDevice(shared), { name: 'PoolError', message: /was closed by the thread that opened it/ })
  })
})
