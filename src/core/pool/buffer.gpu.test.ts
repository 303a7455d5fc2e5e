// Copies between the host and a real GPU: in stream order, complete, and without blocking Node where the contract
// says so. Fails without a GPU.

import assert from 'node:assert/strict'
import { randomFillSync } from 'node:crypto'
import { after, describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { Event } from '../order/event.js'
import type { DeviceArray } from './array.js'
import { GpuDevice } from './gpu-device.fixture.js'

const gpu = new GpuDevice()
gpu.driver.countCalls()
const pool = gpu.createPool({ maxPoolBytes: 512 * MiB })
after(() => gpu.close())

const SIZES = [1, 255, 4 * KiB, 64 * KiB - 1, 64 * KiB, 64 * KiB + 1, 1 * MiB + 3, 64 * MiB, 65 * MiB + 5]

function randomBytes(count: number): Buffer {
  return randomFillSync(Buffer.alloc(count))
}

function calls(name: string): number {
  return gpu.driver.calls.get(name) ?? 0
}

describe('copies on a GPU', () => {
  it('uploads a list of any sizes, and takes the contents at once', () => {
    using stream = gpu.createStream()
    const sources = Array.from({ length: 400 }, (_, index) => randomBytes(1 + ((index * 7919) % (96 * KiB))))
    sources.push(randomBytes(65 * MiB + 5))
    const contents = sources.map(source => Buffer.from(source))
    const arrays = pool.uploadMany(sources, stream)
    for (const source of sources) source.fill(0)
    for (const [index, array] of arrays.entries()) {
      assert.ok(contents[index].equals(array.readSync()), `array ${index}`)
      array.free()
    }
  })

  it('reads all written bytes, for all sizes and methods', async () => {
    for (const bytes of SIZES) {
      using buffer = pool.allocate(bytes)
      const contents = randomBytes(bytes)
      buffer.write(contents)
      assert.ok(contents.equals(buffer.readSync()), `readSync of ${bytes}`)
      assert.ok(contents.equals(await buffer.read()), `read of ${bytes}`)
      const next = randomBytes(bytes)
      buffer.writeSync(next)
      assert.ok(next.equals(await buffer.read()), `read of ${bytes} after writeSync`)
    }
  })

  it('copies parts to their offsets', async () => {
    using buffer = pool.allocate(1 * MiB)
    const contents = Buffer.alloc(1 * MiB, 7)
    buffer.fill(7)
    const part = randomBytes(1000)
    for (const offset of [0, 1, 511, 512, 65_537, 1 * MiB - 1000]) {
      buffer.write(part, offset)
      part.copy(contents, offset)
    }
    buffer.fill(200, 300_001, 77_777)
    contents.fill(200, 300_001, 377_778)
    assert.ok(contents.equals(buffer.readSync()))
    assert.ok(contents.subarray(300_000, 300_011).equals(await buffer.read(300_000, 11)))
    assert.equal((await buffer.read(5, 0)).length, 0)
  })

  it('the source of a write may change after the call, even while the stream is busy', () => {
    using stream = gpu.createStream()
    for (const bytes of [16, 64 * KiB, 4 * MiB]) {
      using buffer = pool.allocate(bytes, stream)
      const source = randomBytes(bytes)
      const contents = Buffer.from(source)
      gpu.spin(stream, 20)
      buffer.write(source)
      source.fill(0)
      assert.ok(contents.equals(buffer.readSync()), `${bytes} bytes`)
    }
  })

  it('read does not block Node, and gives the contents as of its call', async () => {
    using stream = gpu.createStream()
    for (const bytes of [4, 64 * KiB, 65 * MiB]) {
      using buffer = pool.allocate(bytes, stream)
      const release = gpu.hold(stream)
      gpu.stamp(buffer, 1)
      const reading = buffer.read()
      gpu.stamp(buffer, 2)
      let opened = false
      setTimeout(() => {
        opened = true
        release()
      }, 5)
      const words = new Uint32Array((await reading).buffer, 0, Math.floor(bytes / 4))
      assert.equal(opened, true, 'a timer ran while the read waited for its stream')
      assert.ok(words.every(word => word === 1))
      assert.equal(new Uint32Array(buffer.readSync().buffer)[0], 2)
    }
  })

  it('many reads at a time return their own contents', async () => {
    const streams = [gpu.createStream(), gpu.createStream(), gpu.createStream()]
    const sizes = Array.from({ length: 24 }, (_, index) => [100, 64 * KiB, 200 * KiB, 3 * MiB][index % 4])
    const buffers = sizes.map((bytes, index) => pool.allocate(bytes, streams[index % 3]))
    const contents = buffers.map(({ byteLength }) => randomBytes(byteLength))
    const releases = streams.map(stream => gpu.hold(stream))
    for (const [index, buffer] of buffers.entries()) {
      if (index < 12) buffer.fill(index)
      else buffer.fill(255 - index)
    }
    const first = buffers.map(buffer => buffer.read())
    for (const release of releases) release()
    for (const [index, bytes] of (await Promise.all(first)).entries()) {
      assert.ok(bytes.every(byte => byte === (index < 12 ? index : 255 - index)))
    }
    for (const [index, buffer] of buffers.entries()) buffer.write(contents[index])
    const second = await Promise.all(buffers.map(buffer => buffer.read()))
    for (const [index, bytes] of second.entries()) assert.ok(contents[index].equals(bytes), `buffer ${index}`)
    for (const buffer of buffers) buffer.free()
    for (const stream of streams) stream.close()
  })

  it('registers host memory once for reads of one size, and keeps no very large memory', async () => {
    using small = pool.allocate(100)
    using large = pool.allocate(3 * MiB)
    using veryLarge = pool.allocate(65 * MiB)
    for (const buffer of [small, large]) {
      buffer.fill(1)
      await buffer.read()
    }
    const before = calls('cuMemHostRegister')
    for (let round = 2; round < 12; round++) {
      for (const buffer of [small, large]) {
        buffer.fill(round)
        const bytes = await buffer.read()
        assert.ok(bytes.every(byte => byte === round))
      }
    }
    assert.equal(calls('cuMemHostRegister'), before)
    const unregistered = calls('cuMemHostUnregister')
    veryLarge.fill(9)
    const bytes = await veryLarge.read()
    assert.deepEqual([bytes[0], bytes[65 * MiB - 1]], [9, 9])
    assert.deepEqual([calls('cuMemHostRegister'), calls('cuMemHostUnregister')], [before + 1, unregistered + 1])
  })

  it('every stream sees the data of writeSync', () => {
    using own = gpu.createStream()
    using other = gpu.createStream()
    for (const bytes of [256, 64 * KiB, 32 * MiB]) {
      using source = pool.allocate(bytes, own)
      using copy = pool.allocate(bytes, other)
      copy.fill(0)
      for (let round = 0; round < 5; round++) {
        const contents = randomBytes(bytes)
        source.writeSync(contents)
        copy.copyFrom(source)
        assert.ok(contents.equals(copy.readSync()), `${bytes} bytes, round ${round}`)
      }
    }
  })

  it('readSync waits for the work of its stream', () => {
    using stream = gpu.createStream()
    using buffer = pool.allocate(1 * MiB, stream)
    for (let round = 1; round <= 5; round++) {
      gpu.spin(stream, 3)
      gpu.stamp(buffer, round)
      assert.ok(new Uint32Array(buffer.readSync().buffer).every(word => word === round))
    }
  })

  it('copyFrom runs in the stream of the target, copyFromSync after the work on both', () => {
    using first = gpu.createStream()
    using second = gpu.createStream()
    using event = new Event(gpu.context)
    using source = pool.allocate(4 * MiB, first)
    using target = pool.allocate(5 * MiB, second)
    gpu.spin(first, 5)
    gpu.stamp(source, 1)
    event.record(first)
    second.wait(event)
    target.fill(9)
    target.copyFrom(source, 1 * MiB)
    target.copyFrom(source, 0, 1000, 24)
    const words = new Uint32Array(target.readSync().buffer)
    assert.ok(words.subarray(MiB / 4).every(word => word === 1))
    assert.ok(words.subarray(0, 6).every(word => word === 1))
    assert.ok(words.subarray(6, MiB / 4).every(word => word === 0x09090909))

    gpu.spin(first, 5)
    gpu.stamp(source, 2)
    gpu.spin(second, 5)
    gpu.stamp(target, 3)
    target.copyFromSync(source, 1 * MiB)
    using third = gpu.createStream()
    using result = pool.allocate(5 * MiB, third)
    result.copyFrom(target)
    const copied = new Uint32Array(result.readSync().buffer)
    assert.ok(copied.subarray(MiB / 4).every(word => word === 2))
    assert.ok(copied.subarray(0, MiB / 4).every(word => word === 3))
  })

  it('fills typed arrays with elements of every size', async () => {
    using stream = gpu.createStream()
    for (const [type, value] of [
      [Int8Array, -3],
      [Uint16Array, 0xf00d],
      [Float32Array, 0.5],
      [Float64Array, 0.1],
      [BigInt64Array, -1n],
      [BigUint64Array, 2n ** 63n + 5n],
    ] as const) {
      using array: DeviceArray = pool.zeros(type, 100_003, stream)
      array.fill(value, 1, -2)
      const elements = await array.read()
      assert.deepEqual(
        [0, 100_001, 100_002].map(index => Number(elements[index])),
        [0, 0, 0],
      )
      assert.ok(
        elements.subarray(1, -2).every((element: number | bigint) => element === value),
        type.name,
      )
    }
  })

  it('copies typed arrays and their parts', async () => {
    using stream = gpu.createStream()
    using doubles = pool.allocateArray(Float64Array, 1000, stream)
    const values = Float64Array.from({ length: 1000 }, (_, index) => Math.sqrt(index))
    doubles.write(values)
    const middle = doubles.subarray(100, -100)
    assert.deepEqual(await middle.read(), values.slice(100, 900))
    middle.subarray(0, 10).fill(0)
    middle.write(new Float64Array([1, 2, 3]), 797)
    values.fill(0, 100, 110)
    values.set([1, 2, 3], 897)
    assert.deepEqual(doubles.readSync(), values)

    using wide = pool.allocateArray(BigInt64Array, 4, stream)
    using copy = pool.allocateArray(BigInt64Array, 6, stream)
    wide.writeSync(new BigInt64Array([-1n, 2n ** 62n, 0n, -(2n ** 63n)]))
    copy.fill(0n)
    copy.copyFrom(wide.subarray(1, 3), 3)
    assert.deepEqual(await copy.read(), new BigInt64Array([0n, 0n, 0n, 2n ** 62n, 0n, 0n]))
  })
})
