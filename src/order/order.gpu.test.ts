// Streams and events on a real GPU, with work that is really pending. Without one it fails.

import assert from 'node:assert/strict'
import { setImmediate, setTimeout } from 'node:timers/promises'
import { after, describe, it } from 'node:test'
import { Event } from './event.js'
import { TestGpu } from './gpu-fixture.suite.js'
import { Stream } from './stream.js'

const gpu = new TestGpu()
after(() => gpu.close())

const PER_THREAD = 2

/** A word of device memory, set to 0. */
function word() {
  const driver = gpu.context.activate()
  const ptr = driver.cuMemAlloc(4)
  driver.cuMemsetD8(ptr, 0, 4)
  driver.cuCtxSynchronize()
  return {
    set: (value: number, stream: Stream) => gpu.context.activate().cuMemsetD32Async(ptr, value, 1, stream.handle),
    /** from `stream`, in its order */
    copyTo: (other: number, stream: Stream) =>
      gpu.context.activate().cuMemcpyDtoDAsync(other, ptr, 4, stream.handle),
    value: () => {
      const host = new Uint32Array(1)
      gpu.context.activate().cuMemcpyDtoH(host, ptr)
      return host[0]
    },
    ptr,
    [Symbol.dispose]: () => gpu.context.activate().cuMemFree(ptr),
  }
}

describe('streams on a GPU', () => {
  it('query says whether all has completed', () => {
    using stream = gpu.createStream()
    assert.equal(stream.query(), true)
    const release = gpu.hold(stream)
    assert.equal(stream.query(), false)
    release()
    stream.synchronize()
    assert.equal(stream.query(), true)
  })

  it('synchronize waits for what was submitted', () => {
    using stream = gpu.createStream()
    using target = word()
    for (let round = 1; round <= 20; round++) {
      gpu.spin(stream, 1)
      target.set(round, stream)
      stream.synchronize()
      assert.equal(gpu.driver.cuStreamQuery(stream.handle), true)
      assert.equal(gpu.clocks.completed[stream.slot], gpu.clocks.marked[stream.slot])
      assert.equal(target.value(), round)
    }
  })

  it('streams run beside each other', () => {
    using held = gpu.createStream()
    using other = gpu.createStream()
    using target = word()
    const release = gpu.hold(held)
    target.set(7, other)
    other.synchronize()
    assert.equal(held.query(), false)
    release()
    assert.equal(target.value(), 7)
  })

  it('finished resolves when what came before has completed, not what comes later, and does not block Node', async () => {
    using stream = gpu.createStream()
    const [release, releaseLater] = [gpu.hold(stream), gpu.hold(stream)]
    let resolved = false
    const all = stream.finished().then(() => {
      resolved = true
    })
    await setTimeout(20) // Node goes on meanwhile
    assert.equal(resolved, false)
    release()
    releaseLater()
    await all
    assert.equal(stream.query(), true)

    const first = gpu.hold(stream)
    const earlier = stream.finished()
    const second = gpu.hold(stream)
    first()
    await earlier
    assert.equal(stream.query(), false, 'later work is still held')
    second()
    stream.synchronize()
  })

  it('finished resolves though the stream is closed meanwhile', async () => {
    const stream = gpu.createStream()
    const release = gpu.hold(stream)
    const finished = stream.finished()
    stream.close()
    await setImmediate()
    release()
    await finished
  })

  it('200 streams come and go with work pending', () => {
    using target = word()
    for (let count = 1; count <= 200; count++) {
      const stream = gpu.createStream()
      gpu.spin(stream, 0.2)
      target.set(count, stream)
      stream.close()
      stream.close()
      assert.throws(() => stream.query(), { name: 'PoolError', message: /stream is closed/ })
    }
    gpu.context.activate().cuCtxSynchronize()
    assert.ok(target.value() > 0)
    const open = Array.from({ length: 63 }, () => gpu.createStream())
    assert.equal(new Set(open.map(stream => stream.slot)).size, 63)
    for (const stream of open) assert.equal(stream.query(), true)
    for (const stream of open) stream.close()
  })

  it('streams of the driver, made elsewhere or its own two, are ordinary ones', async () => {
    const made = gpu.context.activate().cuStreamCreate(0)
    const streams = [new Stream(gpu.clocks, made, false), new Stream(gpu.clocks, PER_THREAD, false), gpu.defaultStream]
    using target = word()
    for (const [index, stream] of streams.entries()) {
      const release = gpu.hold(stream)
      target.set(index + 1, stream)
      assert.equal(stream.query(), false)
      release()
      await stream.finished()
      assert.equal(target.value(), index + 1)
      assert.equal(stream.query(), true)
    }
    for (const stream of streams.slice(0, 2)) stream.close()
    assert.equal(gpu.context.activate().cuStreamQuery(made), true, 'it is left to its owner')
    gpu.context.activate().cuStreamDestroy(made)
  })
})

describe('events on a GPU', () => {
  it('query, synchronize and finished tell of the last record', async () => {
    using stream = gpu.createStream()
    using event = new Event(gpu.context)
    const release = gpu.hold(stream)
    event.record(stream)
    assert.equal(event.query(), false)
    release()
    event.synchronize()
    assert.equal(event.query(), true)

    const releaseNext = gpu.hold(stream)
    event.record(stream)
    assert.equal(event.query(), false)
    const later = gpu.hold(stream)
    let resolved = false
    const finished = event.finished().then(() => {
      resolved = true
    })
    await setTimeout(20)
    assert.equal(resolved, false)
    releaseNext()
    await finished
    assert.equal(stream.query(), false)
    later()
    stream.synchronize()
  })

  it('a stream that waits for an event runs after what the event covers, and nothing waits on the host', () => {
    using earlier = gpu.createStream()
    using later = gpu.createStream()
    using event = new Event(gpu.context)
    using [source, copy] = [word(), word()] as unknown as never
  })
})
