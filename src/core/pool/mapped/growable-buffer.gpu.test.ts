// A growable buffer on a GPU: memory is mapped and unmapped beside running kernels, and kernels verify its contents.
// Fails without a GPU.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import { Event } from '../../order/event.js'
import { GpuDevice } from '../gpu-device.fixture.js'

const gpu = new GpuDevice()
gpu.driver.countCalls()
after(() => gpu.close())

const freeBytes = () => gpu.context.activate().cuMemGetInfo().freeBytes

describe('a growable buffer on a GPU', () => {
  it('address and contents stay while kernels run and it grows', () => {
    using stream = gpu.createStream()
    using buffer = gpu.createGrowableBuffer({ bytes: 1 * MiB, stream })
    const { ptr } = buffer
    assert.ok(buffer.granularityBytes >= 64 * 1024 && buffer.capacityBytes >= gpu.totalBytes)
    gpu.stamp(buffer, 1)
    let stamp = 1
    for (const bytes of [1 * MiB + 4, 2 * MiB, 7 * MiB, 100 * MiB, 101 * MiB, 1 * GiB]) {
      using before = buffer.array(Uint32Array)
      gpu.spin(stream, 2)
      buffer.grow(bytes)
      assert.deepEqual([buffer.ptr, before.ptr, buffer.byteLength], [ptr, ptr, bytes])
      gpu.compare(before.buffer, stamp)
      gpu.stamp(buffer, ++stamp)
    }
    gpu.compare(buffer, stamp)
    assert.deepEqual(gpu.damages(), [])
    buffer.check()
  })

  it('a growth by a granule makes three driver calls, whatever the length', () => {
    using buffer = gpu.createGrowableBuffer({ bytes: 1 * GiB })
    const before = new Map(gpu.driver.calls)
    buffer.grow(1 * GiB + buffer.granularityBytes)
    const made = [...gpu.driver.calls]
      .filter(([call, count]) => count !== (before.get(call) ?? 0))
      .map(([call]) => call)
    assert.deepEqual(made.sort(), ['cuMemCreate', 'cuMemMap', 'cuMemSetAccess'])
  })

  it('a shrink waits for work that may use the memory, without blocking Node', async () => {
    using stream = gpu.createStream()
    using other = gpu.createStream()
    using buffer = gpu.createGrowableBuffer({ bytes: 256 * MiB, stream })
    const full = freeBytes()
    for (const each of [stream, other]) {
      const release = gpu.hold(each)
      gpu.stamp(buffer, 7, each)
      if (each === other) buffer.recordUse(other)
      buffer.shrink(32 * MiB)
      for (let turn = 0; turn < 20; turn++) assert.equal(buffer.allocation.settle(), false)
      assert.equal(buffer.mappedBytes, 256 * MiB)
      release()
      await buffer.settled()
      assert.ok(buffer.mappedBytes < 48 * MiB && freeBytes() >= full + 200 * MiB, `${freeBytes() - full} came back`)
      gpu.compare(buffer, 7)
      assert.deepEqual(gpu.damages(), [])
      buffer.grow(256 * MiB)
    }
    gpu.hold(stream)()
    gpu.stamp(buffer, 8)
    buffer.shrink(0)
    buffer.settleSync()
    assert.equal(buffer.mappedBytes, 0)
  })

  it('a growth takes back memory that a pending shrink has not given back', () => {
    using stream = gpu.createStream()
    using buffer = gpu.createGrowableBuffer({ bytes: 128 * MiB, stream })
    const release = gpu.hold(stream)
    gpu.stamp(buffer, 3)
    buffer.shrink(2 * MiB)
    const creates = gpu.driver.calls.get('cuMemCreate')
    buffer.grow(128 * MiB)
    assert.equal(gpu.driver.calls.get('cuMemCreate'), creates)
    release()
    buffer.settleSync()
    gpu.compare(buffer, 3)
    assert.deepEqual([gpu.damages(), buffer.mappedBytes], [[], 128 * MiB])
  })

  it('a full device and the end of the reservation change nothing', () => {
    using buffer = gpu.createGrowableBuffer({ bytes: 3 * MiB, capacityBytes: 2 * gpu.totalBytes })
    gpu.stamp(buffer, 5)
    gpu.synchronize()
    const state = () => [buffer.ptr, buffer.byteLength, buffer.mappedBytes]
    const [before, free] = [state(), freeBytes()]
    assert.throws(
      () => buffer.grow(gpu.totalBytes),
      (error: unknown) => {
        assert.ok(error instanceof OutOfMemoryError, `${error}`)
        assert.ok(error.figures.deviceFreeBytes > 0 && error.figures.largestFreeBytes <= gpu.totalBytes)
        return true
      },
    )
    assert.throws(() => buffer.grow(2 * gpu.totalBytes + buffer.granularityBytes), RangeError)
    assert.deepEqual(state(), before)
    assert.ok(Math.abs(freeBytes() - free) <= 64 * MiB, `${free - freeBytes()} bytes are missing`)
    gpu.compare(buffer, 5)
    assert.deepEqual(gpu.damages(), [])
    buffer.grow(64 * MiB)
    buffer.check()
  })

  it('a free gives memory back when pending work is done', async () => {
    using stream = gpu.createStream()
    const buffer = gpu.createGrowableBuffer({ bytes: 512 * MiB, stream })
    const full = freeBytes()
    const release = gpu.hold(stream)
    gpu.stamp(buffer, 1)
    buffer.free()
    assert.equal(buffer.mappedBytes, 512 * MiB)
    release()
    await buffer.settled()
    assert.equal(buffer.mappedBytes, 0)
    assert.ok(freeBytes() >= full + 500 * MiB)
    gpu.synchronize()
  })

  it('contents survive random growths and shrinks under kernels on two streams', () => {
    const random = new Random(1)
    using stream = gpu.createStream()
    using other = gpu.createStream()
    using event = new Event(gpu.context)
    using buffer = gpu.createGrowableBuffer({ bytes: 4, stream })
    let stamp = 1
    gpu.stamp(buffer, stamp)
    for (let step = 0; step < 400; step++) {
      const bytes = 4 * random.logUniform(1, 64 * MiB)
      gpu.spin(random.below(2) === 0 ? stream : other, random.fraction() / 2)
      if (bytes <= buffer.byteLength) buffer.shrink(bytes)
      else {
        using before = buffer.array(Uint32Array)
        buffer.grow(bytes)
        gpu.compare(before.buffer, stamp)
        gpu.stamp(buffer, ++stamp)
      }
      // The other stream compares, and only the buffer knows of it. Nothing is written before that is done.
      event.record(stream)
      other.wait(event)
      gpu.compare(buffer, stamp, other)
      buffer.recordUse(other)
      event.record(other)
      if (random.below(3) === 0) buffer.allocation.settle()
      stream.wait(event)
    }
    assert.deepEqual(gpu.damages(), [])
    buffer.settleSync()
    buffer.check()
  })
})
