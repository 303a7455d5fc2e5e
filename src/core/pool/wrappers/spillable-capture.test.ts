// Spillable buffers beside captures: captured work cannot use them, and everything else goes on.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { registerSimulatedKernel } from '../../driver/simulated-kernels.js'
import { Module } from '../../kernel/module.js'
import { Event } from '../../order/event.js'
import { Stream } from '../../order/stream.js'
import { isFilled, TestDevice } from '../pool.fixture.js'
import { spillable } from './spillable.js'

const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry spill_test(.param .u64 target) { ret; }`

registerSimulatedKernel('spill_test', () => {})

function open() {
  const device = new TestDevice()
  const pool = device.createPool({ maxPoolBytes: 16 * MiB })
  const host = device.createHostPool()
  const set = spillable(pool, { host })
  const [own, other] = [device.createStream(), device.createStream()]
  const buffer = set.allocate(4 * MiB, own)
  return { device, pool, host, set, own, other, buffer }
}

/** A stream that is ordered with the default stream. Its capture keeps the default stream idle. */
function blockingStream(device: TestDevice): Stream {
  return new Stream(device.clocks, device.context.activate().cuStreamCreate(0), false)
}

const REFUSED = {
  name: 'PoolError',
  message: /^\w+: the stream is being captured, .* a spillable buffer, which moves; capture .* pool\.allocate\(\)$/,
}

describe('a spillable buffer beside a capture', () => {
  it('is refused by all captured work, in a use from before', () => {
    const { device, pool, host, own, other, buffer } = open()
    using use = buffer.use(own)
    const plain = pool.allocate(4 * MiB, own)
    const pinned = host.allocate(1 * MiB)
    const kernel = new Module(device.context, device.defaultStream, PTX).kernel('spill_test')
    use.fill(5)
    own.beginCapture()
    const fork = new Event(device.context)
    fork.record(own)
    const works: [string, () => void][] = [
      ['fill', () => use.fill(6)],
      ['fill of a part', () => use.fill(6, 10, 10)],
      ['copyFrom to it', () => use.copyFrom(plain)],
      ['copyFrom out of it', () => plain.copyFrom(use)],
      ['a launch', () => kernel.launch({ grid: 1, block: 1, stream: own }, use)],
      ['a copy from pinned memory', () => pinned.copyTo(use)],
      ['a copy to pinned memory', () => pinned.copyFrom(use, 0, 0, 100)],
      ['work of another library', () => use.noteUse(own, 'launch')],
    ]
    for (const [what, work] of works) assert.throws(work, REFUSED, what)
    assert.throws(
      () => use.recordUse(own),
      /^PoolError: recordUse: the stream is being captured; end the capture first/,
    )
    own.endCapture().launch(own)
    assert.ok(isFilled(use.readSync(), 5))
    use.fill(6)
    assert.ok(isFilled(use.readSync(), 6), 'the use goes on after the capture')
    assert.equal(other.capture, null)
  })

  it('is refused by a stream that joins a capture', () => {
    const { device, pool, own, other, buffer } = open()
    const target = pool.allocate(4 * MiB, other)
    using use = buffer.use(own)
    const origin = device.createStream()
    origin.beginCapture()
    const [fork, join] = [new Event(device.context), new Event(device.context)]
    fork.record(origin)
    other.wait(fork)
    assert.throws(() => target.copyFrom(use), REFUSED)
    use.fill(3) // its own stream is not captured
    join.record(other)
    origin.wait(join)
    origin.endCapture().launch(origin)
    assert.ok(isFilled(use.readSync(), 3))
  })

  it('is refused by an announced capture', () => {
    const { pool, own, buffer } = open()
    using use = buffer.use(own)
    pool.beginCapture(own)
    assert.throws(() => use.fill(1), REFUSED)
    pool.endCapture(own).close()
    use.fill(1)
  })

  it('is freed although no stream of it takes work, and its memory waits for all uses', () => {
    for (const free of ['free', 'dispose', 'close'] as const) {
      const { device, pool, set } = open()
      const stream = blockingStream(device)
      const user = device.createStream()
      const buffer = set.allocate(12 * MiB, stream)
      const use = buffer.use(user)
      const release = device.hold(user)
      use.fill(1)
      use.free()
      stream.beginCapture()
      assert.equal(device.defaultStream.isOpen, false)
      if (free === 'free') buffer.free()
      else if (free === 'dispose') buffer[Symbol.dispose]()
      else set.close()
      assert.deepEqual([buffer.freed, set.stats().onDeviceBytes], [true, free === 'close' ? 0 : 4 * MiB])
      stream.abortCapture()
      const { slotLimit } = device.clocks
      const next = pool.allocate(12 * MiB, device.createStream())
      next.fill(2)
      release()
      assert.ok(isFilled(next.readSync(), 2), 'the fill of the use comes first')
      device.createStream()
      assert.ok(device.clocks.slotLimit <= slotLimit + 1, 'no stream is left')
      pool.check()
    }
  })

  it('stays as it was if the driver refuses the free', () => {
    const { device, set, pool } = open()
    const stream = blockingStream(device)
    const user = device.createStream()
    const buffer = set.allocate(1 * MiB, stream)
    const use = buffer.use(user)
    device.hold(user)
    use.fill(1)
    use.free()
    stream.beginCapture()
    for (const call of ['cuStreamCreate', 'cuStreamWaitEvent'] as const) {
      device.driver.failCall({ call, code: 999 })
      assert.throws(() => buffer.free(), { name: 'CudaError' }, call)
      assert.deepEqual([buffer.freed, pool.stats().liveBuffers], [false, 2])
    }
    buffer.free()
    stream.abortCapture()
    set.close()
    assert.equal(pool.stats().liveBytes, 0)
  })

  it('says that a capture is in the way, and of no other thread', () => {
    const { device } = open()
    const stream = blockingStream(device)
    stream.beginCapture()
    const { clocks, defaultStream } = device
    for (const [slot, message] of [
      [stream.lastSlot, /^PoolError: wait: the stream is being captured; end the capture first/],
      [defaultStream.lastSlot, /^PoolError: wait: the default stream is kept idle by a capture; end the capture first/],
    ] as const) {
      assert.throws(() => clocks.delay(slot, 0, []), message)
    }
  })
})
