import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../base/errors.js'
import { setUp } from '../growable.fixture.js'
import { isFilled, refuseEach } from '../pool.fixture.js'
import type { GrowableBuffer } from './growable-buffer.js'

const CAPACITY = 64 * MiB

function assertFilled(buffer: GrowableBuffer, value: number, bytes = buffer.byteLength): void {
  const found = buffer.readSync(0, bytes)
  assert.ok(found.length === bytes && isFilled(found, value), `all bytes are ${value}`)
}

describe('a growable buffer that sleeps', () => {
  it('gives its memory back, and grows on at the same addresses after wake', async () => {
    const { device, buffer } = setUp()
    buffer.grow(9 * MiB)
    buffer.fill(5)
    const { ptr } = buffer
    using view = buffer.array(Float32Array, 100)
    await buffer.sleep()
    assert.equal(device.freeBytes(), CAPACITY)
    assert.deepEqual([buffer.asleep, buffer.ptr, buffer.byteLength, buffer.mappedBytes], [true, ptr, 9 * MiB, 0])
    for (const [call, use] of [
      ['grow', () => buffer.grow(10 * MiB)],
      ['shrink', () => buffer.shrink(1)],
      ['array', () => buffer.array(Uint8Array)],
      ['fill', () => buffer.fill(1)],
      ['readSync', () => view.buffer.readSync()],
    ] as const) {
      const message = `${call}: the buffer is asleep; await its wake() before it is used`
      assert.throws(use, { name: 'PoolError', message })
    }
    await assert.rejects(buffer.sleep(), /sleep: the buffer is asleep already/)
    buffer.check()
    await buffer.wake()
    assert.equal(buffer.ptr, ptr)
    assertFilled(buffer, 5)
    buffer.grow(20 * MiB)
    assertFilled(buffer, 5, 9 * MiB)
    await assert.rejects(buffer.wake(), /wake: the buffer is awake/)
    buffer.check()
    buffer.free()
    buffer.settleSync()
    assert.equal(device.freeBytes(), CAPACITY)
    await assert.rejects(buffer.sleep(), /sleep: the buffer was already freed/)
  })

  it('is refused in a capture that uses it, and so is a launch while it sleeps', async () => {
    const { stream, buffer } = setUp()
    stream.beginCapture()
    buffer.fill(3)
    await assert.rejects(buffer.sleep(), /work that is being captured uses the buffer/)
    using graph = stream.endCapture()
    await buffer.sleep({ keep: 'nothing' })
    assert.throws(
      () => graph.launch(stream),
      /launch: a pool or buffer that the graph uses is asleep; await its wake\(\) first/,
    )
    await buffer.wake()
    graph.launch(stream)
    assertFilled(buffer, 3)
    await buffer.sleep()
    buffer.free()
    assert.throws(
      () => graph.launch(stream),
      /launch: a pool or buffer that the graph uses is closed, freed or shorter; capture it/,
    )
  })

  it('cannot be used by a graph while it is shorter than in the capture', () => {
    const { stream, buffer } = setUp()
    buffer.grow(8 * MiB)
    const view = buffer.array(Uint8Array, 1 * MiB)
    const graphs = [buffer, view.buffer].map(used => {
      stream.beginCapture()
      used.fill(6)
      return stream.endCapture()
    })
    buffer.shrink(4 * MiB)
    assert.throws(
      () => graphs[0].launch(stream),
      /launch: a pool or buffer that the graph uses is closed, freed or short/,
    )
    graphs[1].launch(stream)
    assertFilled(buffer, 6, 1 * MiB)
    buffer.grow(8 * MiB)
    graphs[0].launch(stream)
    assertFilled(buffer, 6)
    for (const graph of graphs) graph.close()
  })

  it('is not used by a graph because it was shown or named during the capture', () => {
    const { stream, buffer } = setUp()
    const other = buffer.array(Uint8Array, 1)
    stream.beginCapture()
    buffer.label = 'shown'
    for (const shown of [buffer, other]) assert.ok(`${shown}${JSON.stringify(shown)}`.includes('live'))
    using graph = stream.endCapture()
    buffer.free()
    graph.launch(stream)
  })

  it('cannot be used by a graph through a typed view while it sleeps', async () => {
    const { stream, buffer } = setUp()
    const view = buffer.array(Uint8Array, 1 * MiB)
    stream.beginCapture()
    view.buffer.fill(4)
    using graph = stream.endCapture()
    await buffer.sleep()
    assert.throws(() => graph.launch(stream), /launch: a pool or buffer that the graph uses is asleep/)
    await buffer.wake()
    graph.launch(stream)
    assert.equal(buffer.readSync(0, 1)[0], 4)
  })

  it('is read by a stream that was captured during its wake, and by a new one, after the copies', async () => {
    for (const isNew of [false, true]) {
      const { device, buffer } = setUp()
      buffer.fill(7)
      await buffer.sleep()
      const captured = device.createStream()
      captured.beginCapture()
      const copy = device.driver.cuMemcpyHtoDAsync.bind(device.driver)
      let release = () => {}
      device.driver.cuMemcpyHtoDAsync = (target, source, handle) => {
        const ticket = device.driver.holdOperation(handle)
        release = () => device.driver.releaseThrough(handle, ticket)
        copy(target, source, handle)
      }
      await buffer.wake({ wait: 'streams' })
      captured.endCapture().close()
      const reader = device.createGrowableBuffer({
        bytes: buffer.byteLength,
        stream: isNew ? device.createStream() : captured,
      })
      reader.copyFrom(buffer)
      release()
      assertFilled(reader, 7)
    }
  })

  it('can be freed while it sleeps or changes', async () => {
    for (const free of ['asleep', 'fallingAsleep', 'waking'] as const) {
      const { device, buffer } = setUp()
      buffer.fill(1)
      let changing = buffer.sleep()
      if (free !== 'fallingAsleep') await changing
      if (free === 'waking') changing = buffer.wake()
      buffer.free()
      if (free === 'asleep') await changing
      else await assert.rejects(changing, /the buffer was closed meanwhile/)
      await buffer.settled()
      assert.equal(device.freeBytes(), CAPACITY, free)
    }
  })

  it('settles while it changes if nothing was cut off, and else says what to await', async () => {
    const { device, buffer } = setUp()
    const changing = buffer.sleep()
    buffer.settleSync()
    buffer.free()
    assert.throws(() => buffer.settleSync(), { name: 'PoolError', message: /a sleep or wake copies.*await settled/ })
    await assert.rejects(changing, /the buffer was closed meanwhile/)
    buffer.settleSync()
    assert.equal(device.freeBytes(), CAPACITY)
  })

  it('sleeps on if the device is full, and loses nothing when any driver call fails', async () => {
    const { device, buffer } = setUp()
    buffer.grow(40 * MiB)
    await buffer.sleep()
    const other = device.createGrowableBuffer({ bytes: 30 * MiB })
    await assert.rejects(buffer.wake(), (error: unknown) => error instanceof OutOfMemoryError)
    assert.equal(device.freeBytes(), 34 * MiB)
    other.free()
    other.settleSync()
    await buffer.wake()
    await refuseEach(
      () => {
        const small = setUp()
        small.buffer.grow(9 * MiB)
        small.buffer.fill(7)
        return small
      },
      async small => {
        for (const change of ['sleep', 'wake'] as const) {
          await small.buffer[change]().catch((error: unknown) => {
            assert.ok(error instanceof CudaError || error instanceof PoolError, `${error}`)
          })
        }
      },
      async small => {
        if (small.buffer.asleep) await small.buffer.wake()
        small.buffer.check()
        assertFilled(small.buffer, 7)
        small.buffer.free()
        await small.buffer.settled() // copies that the driver refused to wait for may go on
        assert.equal(small.device.freeBytes(), CAPACITY)
      },
    )
  })
})
