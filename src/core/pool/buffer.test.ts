// The contents of a buffer: copies, fills and reads, in the order of its stream.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { Event } from '../order/event.js'
import type { DeviceBuffer } from './buffer.js'
import { TestDevice } from './pool.fixture.js'

function setUp(options: ConstructorParameters<typeof TestDevice>[0] = {}) {
  const device = new TestDevice(options)
  const pool = device.createPool()
  return { device, pool, a: device.createStream(), b: device.createStream() }
}

/** Bytes 0, 1, 2 ... from `first` on. */
function rising(count: number, first = 0): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: count }, (_, index) => first + index)
}

/** The contents of the buffer when all work submitted to it has run. */
function contents(buffer: DeviceBuffer): number[] {
  return [...buffer.readSync()]
}

describe('buffer contents', () => {
  it('reads back written data: whole, parts, and every kind of source', async () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(16, a)
    buffer.write(rising(16))
    assert.deepEqual(contents(buffer), [...rising(16)])
    assert.deepEqual([...(await buffer.read())], [...rising(16)])
    buffer.write(rising(4, 100), 6)
    assert.deepEqual([...buffer.readSync(5, 6)], [5, 100, 101, 102, 103, 10])
    assert.deepEqual([...(await buffer.read(12))], [12, 13, 14, 15])
    assert.deepEqual([...(await buffer.read(3, 1))], [3])
    buffer.write(rising(64, 0).buffer.slice(10, 20), 0)
    buffer.write(rising(64).subarray(30, 32), 10)
    buffer.write(new DataView(rising(64).buffer, 40, 4), 12)
    assert.deepEqual(contents(buffer), [...rising(10, 10), 30, 31, ...rising(4, 40)])
    buffer.write(new Float64Array([1.5]), 8)
    assert.equal(new Float64Array(buffer.readSync(8, 8).buffer)[0], 1.5)
  })

  it('a copy of 0 bytes writes nothing, even at the very end', async () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(8, a)
    buffer.fill(7)
    buffer.write(new Uint8Array(0), 8)
    buffer.writeSync(new ArrayBuffer(0))
    buffer.fill(1, 8)
    buffer.fill(1, 3, 0)
    buffer.copyFrom(buffer, 8, 8)
    assert.deepEqual([...(await buffer.read(8))], [])
    assert.deepEqual([...buffer.readSync(8, 0)], [])
    assert.deepEqual(contents(buffer), Array(8).fill(7))
  })

  it('fills all, a part, and with every byte value', () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(10, a)
    buffer.fill(255)
    buffer.fill(1, 7)
    buffer.fill(2, 3, 2)
    assert.deepEqual(contents(buffer), [255, 255, 255, 2, 2, 255, 255, 1, 1, 1])
    for (const value of [-1, 256, 1.5, Number.NaN, '1', undefined]) {
      assert.throws(() => buffer.fill(value as number), { name: 'RangeError', message: /fill: value/ })
    }
  })

  it('copyFrom copies all, a part, and within one buffer', () => {
    const { pool, a } = setUp()
    const [source, target] = [pool.allocate(8, a), pool.allocate(12, a)]
    source.write(rising(8))
    target.fill(99)
    target.copyFrom(source)
    target.copyFrom(source, 9, 1, 2)
    target.copyFrom(source, 11, 7)
    assert.deepEqual(contents(target), [...rising(8), 99, 1, 2, 7])
    source.copyFrom(source, 4, 0, 2)
    assert.deepEqual(contents(source), [0, 1, 2, 3, 0, 1, 6, 7])
  })

  it('copyFrom and copyFromSync take an array, and a view as its part', () => {
    const { device, pool, a } = setUp()
    const array = pool.upload(rising(20), a)
    const words = pool.upload(Uint16Array.of(0x201, 0x403, 0x605), device.createStream())
    words.stream.synchronize()
    for (const call of ['copyFrom', 'copyFromSync'] as const) {
      const target = pool.allocate(12, a)
      target.fill(99)
      target[call](array.subarray(4, 8))
      target[call](array.subarray(10), 4, 1, 2)
      target[call](words.subarray(1), 6, 1)
      assert.deepEqual(contents(target), [4, 5, 6, 7, 11, 12, 4, 5, 6, 99, 99, 99])
      const message = new RegExp(`^${call}: bytes 3 to 5 do not lie in the array's 4`)
      assert.throws(() => target[call](array.subarray(4, 8), 0, 3, 2), { name: 'RangeError', message })
      assert.throws(() => target[call](array), { name: 'RangeError', message: /bytes 0 to 20 do not lie in/ })
    }
    assert.throws(() => array.buffer.copyFrom(array.subarray(4, 8), 6), { name: 'RangeError', message: /overlaps/ })
    array.free()
    const stale = { name: 'PoolError', message: /^copyFrom: the buffer was already freed/ }
    assert.throws(() => words.buffer.copyFrom(array), stale)
  })

  it('refuses to copy within one buffer where the ranges overlap', () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(8, a)
    buffer.write(rising(8))
    const message = /: source overlaps the target: 4 bytes from 0 on are to go to 3; copy through another buffer$/
    assert.throws(() => buffer.copyFrom(buffer, 3, 0, 4), { name: 'RangeError', message })
    assert.throws(() => buffer.copyFromSync(buffer, 3, 0, 4), { name: 'RangeError', message })
    assert.throws(() => buffer.copyFrom(buffer, 0, 1, 4), { name: 'RangeError' })
    assert.throws(() => buffer.copyFrom(buffer), { name: 'RangeError' })
    buffer.copyFrom(buffer, 4, 0, 4)
    buffer.copyFrom(buffer, 2, 2, 0)
    assert.deepEqual(contents(buffer), [...rising(4), ...rising(4)])
  })

  it('refuses ranges outside the buffer by call and range, and copies nothing', async () => {
    const { pool, a } = setUp()
    const [buffer, other] = [pool.allocate(100, a), pool.allocate(50, a)]
    buffer.fill(1)
    const outside: readonly [RegExp, () => unknown][] = [
      [/write: bytes 1 to 101/, () => buffer.write(rising(100), 1)],
      [/write: bytes 0 to 101/, () => buffer.write(rising(101))],
      [/writeSync: bytes 100 to 101/, () => buffer.writeSync(rising(1), 100)],
      [/write: byteOffset/, () => buffer.write(rising(1), -1)],
      [/write: byteOffset/, () => buffer.write(rising(1), 0.5)],
      [/write: byteOffset/, () => buffer.write(rising(1), Number.NaN)],
      [/readSync: bytes 90 to 110/, () => buffer.readSync(90, 20)],
      [/readSync: bytes 101 to 101/, () => buffer.readSync(101)],
      [/fill: bytes 0 to 101/, () => buffer.fill(0, 0, 101)],
      [/fill: byteLength/, () => buffer.fill(0, 0, -1)],
      [/copyFrom: bytes 0 to 100 do not lie in the buffer's 50/, () => other.copyFrom(buffer)],
      [/copyFrom: bytes 40 to 60 do not lie in the buffer's 50/, () => buffer.copyFrom(other, 0, 40, 20)],
      [/copyFromSync: bytes 60 to 110 do not lie in the buffer's 100/, () => buffer.copyFromSync(other, 60)],
    ]
    for (const [message, use] of outside) assert.throws(use, { name: 'RangeError', message }, `${use}`)
    await assert.rejects(buffer.read(1, 100), { name: 'RangeError', message: /read: bytes 1 to 101/ })
    await assert.rejects(buffer.read(101), { name: 'RangeError', message: /read: bytes 101 to 101/ })
    assert.deepEqual(new Set(contents(buffer)), new Set([1]))
  })

  it('names the offset of a copy that is no byte count', () => {
    const pool = new TestDevice().createPool()
    const [buffer, other] = [pool.allocate(100), pool.allocate(100)]
    for (const [bad, kind] of [
      [Number.NaN, 'RangeError'],
      [-1, 'RangeError'],
      [1.5, 'RangeError'],
      ['0', 'TypeError'],
      [10n, 'TypeError'],
    ] as const) {
      const offset = bad as number
      const source = { name: kind, message: /^copyFrom(Sync)?: sourceOffset must be/ }
      assert.throws(() => buffer.copyFrom(other, 0, offset), source)
      assert.throws(() => buffer.copyFromSync(other, 0, offset), source)
      const target = { name: kind, message: /^(copyFrom|fill|readSync): byteOffset must be/ }
      assert.throws(() => buffer.copyFrom(other, offset), target)
      assert.throws(() => buffer.fill(0, offset), target)
      assert.throws(() => buffer.readSync(offset), target)
    }
  })

  it('a freed buffer is refused in the name of the call', async () => {
    const { pool, a } = setUp()
    const [buffer, other] = [pool.allocate(100, a), pool.allocate(100, a)]
    buffer.free()
    for (const [call, use] of [
      ['fill', () => buffer.fill(0)],
      ['readSync', () => buffer.readSync()],
      ['copyFrom', () => other.copyFrom(buffer)],
      ['copyFrom', () => buffer.copyFrom(other)],
      ['copyFromSync', () => other.copyFromSync(buffer)],
      ['byteLength', () => buffer.byteLength],
    ] as const) {
      assert.throws(use, { name: 'PoolError', message: new RegExp(`^${call}: the buffer was already freed`) })
    }
    await assert.rejects(buffer.read(), { name: 'PoolError', message: /^read: / })
  })

  it('sources of the wrong kind are refused', () => {
    const { device, pool, a } = setUp()
    const buffer = pool.allocate(100, a)
    for (const source of [[1, 2, 3], 'text', null, undefined, 5, {}]) {
      assert.throws(() => buffer.write(source as unknown as ArrayBuffer), {
        name: 'TypeError',
        message: /^write: source/,
      })
      assert.throws(() => buffer.writeSync(source as unknown as ArrayBuffer), {
        name: 'TypeError',
        message: /^writeSync: source/,
      })
    }
    for (const source of [new Uint8Array(4), { byteLength: 4 }, null, undefined]) {
      const notDevice = source as unknown as DeviceBuffer
      assert.throws(() => buffer.copyFrom(notDevice), { name: 'TypeError', message: /copyFrom: source.*DeviceBuffer/ })
      assert.throws(() => buffer.copyFromSync(notDevice), { name: 'TypeError', message: /copyFromSync: source/ })
    }
    const elsewhere = new TestDevice().createPool().allocate(100)
    assert.throws(() => buffer.copyFrom(elsewhere), { name: 'PoolError', message: /another device/ })
    assert.equal(device.defaultStream.closed, false)
  })

  it('write takes the source as it is at the call', () => {
    const { device, pool, a } = setUp()
    const buffer = pool.allocate(4, a)
    device.hold(a)
    const source = rising(4)
    buffer.write(source)
    source.fill(0)
    assert.deepEqual(contents(buffer), [0, 1, 2, 3])
  })

  it('a read returns the contents as of the call, before later work of the stream', async () => {
    for (let seed = 1; seed <= 20; seed++) {
      const { pool, a } = setUp({ progress: 'seeded', seed })
      const buffer = pool.allocate(1000, a)
      const other = pool.allocate(1000, a)
      buffer.write(new Uint8Array(1000).fill(1))
      const early = buffer.read()
      buffer.write(new Uint8Array(1000).fill(2))
      const later = buffer.read(10, 20)
      buffer.fill(3)
      other.fill(4)
      buffer.copyFrom(other)
      const last = buffer.read()
      buffer.free()
      pool.allocate(1000, a).fill(5)
      assert.deepEqual(new Set(await last), new Set([4]))
      assert.deepEqual(new Set(await early), new Set([1]))
      assert.deepEqual(await later, new Uint8Array(20).fill(2))
    }
  })

  it('a read lets Node go on while work is pending', async () => {
    const { device, pool, a } = setUp()
    const buffer = pool.allocate(4, a)
    const release = device.hold(a)
    buffer.fill(6)
    let arrived = false
    const reading = buffer.read().then(bytes => {
      arrived = true
      return bytes
    })
    for (let turn = 0; turn < 10; turn++) await new Promise(resolve => setImmediate(resolve))
    assert.equal(arrived, false)
    release()
    assert.deepEqual([...(await reading)], [6, 6, 6, 6])
  })

  it('many reads at a time return arrays of their own', async () => {
    const { pool, a, b } = setUp({ progress: 'seeded' })
    const buffers = Array.from({ length: 20 }, (_, index) => pool.allocate(50 * KiB, index % 2 === 0 ? a : b))
    for (const [index, buffer] of buffers.entries()) buffer.fill(index)
    const results = await Promise.all(buffers.map(buffer => buffer.read()))
    for (const [index, result] of results.entries()) {
      assert.equal(result.byteLength, 50 * KiB)
      assert.deepEqual(new Set(result), new Set([index]))
      result.fill(200)
    }
    for (const [index, buffer] of buffers.entries()) assert.equal((await buffer.read())[9], index)
  })

  it('very large reads work, and leave no host memory registered', async () => {
    const { device, pool, a } = setUp()
    const buffer = pool.allocate(33 * MiB, a)
    buffer.fill(1, 33 * MiB - 1)
    const [first, second] = await Promise.all([buffer.read(), buffer.read()])
    assert.deepEqual([first.at(-1), second.at(-1)], [1, 1])
    const count = (call: string) => device.driver.calls.get(call) ?? 0
    assert.equal(count('cuMemHostRegister'), 2)
    assert.equal(count('cuMemHostUnregister'), 1)
  })

  it('a read completes when stream and device are closed meanwhile', { timeout: 5000 }, async () => {
    const { device, pool, a } = setUp()
    const [first, second] = [pool.allocate(4, a), pool.allocate(4, a)]
    device.hold(a)
    first.fill(1)
    second.fill(2)
    const reads = [first.read(), second.read()]
    a.close()
    device.clocks.close()
    assert.deepEqual(
      (await Promise.all(reads)).map(bytes => bytes[0]),
      [1, 2],
    )
  })

  it('the Sync methods are complete for every stream when they return', () => {
    for (let seed = 1; seed <= 30; seed++) {
      const { pool, a, b } = setUp({ progress: 'seeded', seed })
      const [source, target] = [pool.allocate(1000, a), pool.allocate(1000, b)]
      source.fill(1)
      source.writeSync(new Uint8Array(1000).fill(2))
      target.copyFrom(source) // in stream b, which has no order with stream a
      assert.deepEqual(new Set(target.readSync()), new Set([2]), `writeSync, seed ${seed}`)
      source.fill(3)
      target.fill(4)
      target.copyFromSync(source)
      source.fill(5)
      assert.deepEqual(new Set(target.readSync()), new Set([3]), `copyFromSync, seed ${seed}`)
      assert.equal(target.stream.query(), true)
    }
  })

  it('another stream sees a write when an event orders it', () => {
    for (let seed = 1; seed <= 20; seed++) {
      const { device, pool, a, b } = setUp({ progress: 'seeded', seed })
      const [source, target] = [pool.allocate(100, a), pool.allocate(100, b)]
      const event = new Event(device.context)
      source.fill(8)
      event.record(a)
      b.wait(event)
      target.copyFrom(source)
      assert.deepEqual(new Set(target.readSync()), new Set([8]))
    }
  })

  it('a buffer whose pool was closed, or that was freed, rejects a read', async () => {
    const { pool, a } = setUp()
    const [freed, held] = [pool.allocate(10, a), pool.allocate(10, a)]
    freed.free()
    await assert.rejects(freed.read(), PoolError)
    await assert.rejects(freed.read(0, 1), PoolError)
    await assert.rejects(freed.read(0, 0), PoolError)
    pool.close()
    await assert.rejects(held.read(), PoolError)
  })

  it('a refused copy keeps no host memory', async () => {
    const { device, pool, a } = setUp()
    const buffer = pool.allocate(10, a)
    await buffer.read()
    device.driver.failCall({ call: 'cuMemcpyDtoHAsync', code: 1 })
    await assert.rejects(buffer.read(), { name: 'CudaError' })
    await buffer.read()
    assert.equal(device.driver.calls.get('cuMemHostRegister'), 1, 'the memory of the first read serves the others')
  })
})
