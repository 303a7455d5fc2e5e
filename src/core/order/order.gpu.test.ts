// Streams and events on a real GPU, with work that is really pending. The tests fail without a GPU.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { CU_STREAM_PER_THREAD } from '../driver/constants.js'
import { Event } from './event.js'
import { TestGpu } from './gpu.fixture.js'
import { Stream } from './stream.js'

const gpu = new TestGpu()
after(() => gpu.close())

/** A word of device memory, 0 at first. */
class Word implements Disposable {
  private readonly ptr = gpu.context.activate().cuMemAlloc(4)

  constructor() {
    gpu.driver.cuMemsetD8Async(this.ptr, 0, 4, 0)
    gpu.driver.cuCtxSynchronize()
  }

  set(value: number, stream: Stream): void {
    gpu.driver.cuMemsetD32Async(this.ptr, value, 1, stream.handle)
  }

  copyFrom(source: Word, stream: Stream): void {
    gpu.driver.cuMemcpyDtoDAsync(this.ptr, source.ptr, 4, stream.handle)
  }

  value(): number {
    const host = new Uint32Array(1)
    gpu.driver.cuMemcpyDtoH(host, this.ptr)
    return host[0]
  }

  [Symbol.dispose](): void {
    gpu.driver.cuMemFree(this.ptr)
  }
}

/** Opens a gate by a timer, which never runs if the call under test blocks Node. Returns whether it has run. */
function openSoon(release: () => void): () => boolean {
  let opened = false
  setTimeout(() => {
    opened = true
    release()
  }, 5)
  return () => opened
}

describe('streams on a GPU', () => {
  it('query says whether all work has completed', () => {
    using stream = gpu.createStream()
    assert.equal(stream.query(), true)
    const release = gpu.hold(stream)
    assert.equal(stream.query(), false)
    release()
    stream.synchronize()
    assert.equal(stream.query(), true)
  })

  it('synchronize waits for all submitted work', () => {
    using stream = gpu.createStream()
    using target = new Word()
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
    using target = new Word()
    const release = gpu.hold(held)
    target.set(7, other)
    other.synchronize()
    assert.equal(held.query(), false)
    release()
    assert.equal(target.value(), 7)
  })

  it('finished resolves when earlier work has completed, does not wait for later work, and does not block Node', async () => {
    using stream = gpu.createStream()
    const opened = openSoon(gpu.hold(stream))
    const finished = stream.finished()
    const releaseLater = gpu.hold(stream)
    await finished
    assert.equal(opened(), true)
    assert.equal(stream.query(), false, 'later work is still held')
    releaseLater()
    await stream.finished()
    assert.equal(stream.query(), true)
  })

  it('finished resolves though the stream is closed meanwhile', async () => {
    const stream = gpu.createStream()
    const opened = openSoon(gpu.hold(stream))
    const finished = stream.finished()
    stream.close()
    await finished
    assert.equal(opened(), true)
  })

  it('200 streams come and go with work pending, 63 of them open at a time', () => {
    using target = new Word()
    for (let count = 1; count <= 200; count++) {
      const stream = gpu.createStream()
      gpu.spin(stream, 0.2)
      target.set(count, stream)
      stream.close()
      assert.throws(() => stream.query(), { name: 'PoolError', message: /stream is closed/ })
    }
    const open = Array.from({ length: 63 }, () => gpu.createStream())
    assert.equal(new Set(open.map(stream => stream.slot)).size, 63)
    for (const stream of open) {
      assert.equal(stream.query(), true)
      stream.close()
    }
    gpu.driver.cuCtxSynchronize()
    assert.ok(target.value() > 0)
  })

  it("adopted streams, and the driver's two default streams, are ordinary ones", async () => {
    const made = gpu.context.activate().cuStreamCreate(0)
    const adopted = [new Stream(gpu.clocks, made, false), new Stream(gpu.clocks, CU_STREAM_PER_THREAD, false)]
    using target = new Word()
    for (const [index, stream] of [...adopted, gpu.defaultStream].entries()) {
      const opened = openSoon(gpu.hold(stream))
      target.set(index + 1, stream)
      assert.equal(stream.query(), false)
      await stream.finished()
      assert.equal(opened(), true)
      assert.equal(target.value(), index + 1)
    }
    for (const stream of adopted) stream.close()
    assert.equal(gpu.driver.cuStreamQuery(made), true, 'it is left to its owner')
    gpu.driver.cuStreamDestroy(made)
  })
})

describe('events on a GPU', () => {
  it('query, synchronize and finished refer to the last record', async () => {
    using stream = gpu.createStream()
    using event = new Event(gpu.context)
    const release = gpu.hold(stream)
    event.record(stream)
    assert.equal(event.query(), false)
    release()
    event.synchronize()
    assert.equal(event.query(), true)

    const opened = openSoon(gpu.hold(stream))
    event.record(stream)
    assert.equal(event.query(), false)
    const finished = event.finished()
    const releaseLater = gpu.hold(stream)
    await finished
    assert.equal(opened(), true)
    assert.equal(stream.query(), false, 'later work is still held')
    releaseLater()
    stream.synchronize()
  })

  it('a stream that waits for an event runs after everything that the event covers, and nothing waits on the host', () => {
    using earlier = gpu.createStream()
    using later = gpu.createStream()
    using event = new Event(gpu.context)
    using source = new Word()
    using copy = new Word()
    const release = gpu.hold(earlier)
    source.set(1, earlier)
    event.record(earlier)
    const releaseLater = gpu.hold(earlier)
    source.set(2, earlier)
    later.wait(event)
    copy.copyFrom(source, later)
    assert.equal(later.query(), false)
    release()
    later.synchronize()
    assert.equal(earlier.query(), false, 'what came after the record is not waited for')
    assert.equal(copy.value(), 1)
    releaseLater()
    earlier.synchronize()
  })

  it('outlives its stream', () => {
    const stream = gpu.createStream()
    using event = new Event(gpu.context)
    using target = new Word()
    const release = gpu.hold(stream)
    target.set(5, stream)
    event.record(stream)
    stream.close()
    assert.equal(event.query(), false)
    release()
    event.synchronize()
    assert.equal(target.value(), 5)
  })
})
