import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { DeviceArray, TypedArrayConstructor } from '../array.js'
import { assertRefused, callsDuring, GRANULE, setUp } from '../growable.fixture.js'
import { TestDevice } from '../pool.fixture.js'
import type { GrowableOptions } from './growable-buffer.js'

describe('growing', () => {
  it('address and contents stay, and memory comes in granules', () => {
    for (let seed = 1; seed <= 10; seed++) {
      const { device, buffer } = setUp({ progress: 'seeded', seed })
      const { ptr } = buffer
      assert.deepEqual([buffer.byteLength, buffer.mappedBytes, buffer.granularityBytes], [1 * MiB, GRANULE, GRANULE])
      buffer.fill(1)
      let before = 1 * MiB
      for (const [index, bytes] of [1 * MiB + 1, 3 * MiB, 3 * MiB + 1, 9 * MiB, 40 * MiB].entries()) {
        buffer.grow(bytes)
        assert.deepEqual([buffer.ptr, buffer.byteLength], [ptr, bytes])
        assert.equal(buffer.mappedBytes, Math.ceil(bytes / GRANULE) * GRANULE)
        assert.equal(device.freeBytes(), 64 * MiB - buffer.mappedBytes)
        buffer.fill(index + 2, before)
        before = bytes
      }
      for (const [offset, value] of [
        [0, 1],
        [1 * MiB - 1, 1],
        [1 * MiB, 2],
        [1 * MiB + 1, 3],
        [3 * MiB, 4],
        [3 * MiB + 1, 5],
        [9 * MiB - 1, 5],
        [9 * MiB, 6],
        [40 * MiB - 1, 6],
      ]) {
        assert.equal(buffer.readSync(offset, 1)[0], value, `byte ${offset}`)
      }
      buffer.check()
    }
  })

  it('a growth does not wait, and does not disturb pending work', async () => {
    const { device, stream, buffer } = setUp()
    const release = device.hold(stream)
    buffer.fill(7)
    const reading = buffer.read(1 * MiB - 4, 4)
    const calls = callsDuring(device, () => buffer.grow(30 * MiB))
    assert.deepEqual(Object.keys(calls).sort(), ['cuMemCreate', 'cuMemMap', 'cuMemSetAccess'])
    buffer.fill(8, 1 * MiB)
    release()
    assert.deepEqual([...(await reading)], [7, 7, 7, 7])
    assert.deepEqual([...buffer.readSync(1 * MiB - 1, 2)], [7, 8])
  })

  it('a growth takes three driver calls whatever the length, and none within the last granule', () => {
    const { device, buffer } = setUp({ capacityBytes: 8192 * MiB }, { bytes: 1024 * MiB })
    const { modelledSeconds } = device.driver
    assert.deepEqual(
      callsDuring(device, () => buffer.grow(1026 * MiB)),
      { cuMemCreate: 1, cuMemMap: 1, cuMemSetAccess: 1 },
    )
    const alone = (5.4 + 0.5 + 15.8) * 1e-6 // seconds for 2 MiB, whatever else is mapped
    assert.ok(device.driver.modelledSeconds - modelledSeconds < alone + 1e-9, 'only what is new is made accessible')
    buffer.grow(1026 * MiB + 1)
    assert.deepEqual(
      callsDuring(device, () => buffer.grow(1028 * MiB)),
      {},
    )
    const calls = callsDuring(device, () => buffer.grow(8192 * MiB))
    assert.equal(calls['cuMemSetAccess'], 1)
    assert.ok(calls['cuMemCreate'] < 150, `${calls['cuMemCreate']} pieces for 7 GiB`)
  })

  it('growth ends at the reservation in whole granules, by default as large as the device', () => {
    const { device, buffer } = setUp({}, { capacityBytes: 5 * MiB })
    assert.equal(buffer.capacityBytes, 6 * MiB)
    buffer.grow(6 * MiB)
    assertRefused(device, buffer, () => buffer.grow(6 * MiB + 1), {
      name: 'RangeError',
      message: /grow: 6291457 bytes are beyond the 6291456 reserved; .*capacityBytes/,
    })
    assert.equal(setUp().buffer.capacityBytes, 64 * MiB)
    const small = setUp({ granularityBytes: 64 * KiB }, { bytes: 1, capacityBytes: 1 }).buffer
    assert.deepEqual([small.granularityBytes, small.capacityBytes, small.mappedBytes], [64 * KiB, 64 * KiB, 64 * KiB])
  })

  it('growth on a full device throws with the figures, and succeeds when there is room', () => {
    const { device, stream, buffer } = setUp({}, { capacityBytes: 256 * MiB })
    const other = device.createPlainPool().allocate(30 * MiB, stream)
    buffer.fill(5)
    for (const bytes of [35 * MiB, 65 * MiB, 256 * MiB]) {
      assertRefused(device, buffer, () => buffer.grow(bytes), OutOfMemoryError)
    }
    try {
      buffer.grow(36 * MiB)
    } catch (error) {
      const { message, figures } = error as OutOfMemoryError
      assert.match(message, /no room to grow from 1 MiB to 36 MiB: 2 MiB are mapped, 32 MiB free on the device/)
      assert.deepEqual(figures, {
        requestedBytes: 36 * MiB,
        liveBytes: 1 * MiB,
        pendingBytes: 0,
        reservedBytes: 2 * MiB,
        largestFreeBytes: 34 * MiB,
        maxPoolBytes: 256 * MiB,
        deviceFreeBytes: 32 * MiB,
      })
    }
    device.hold(stream)
    const calls = callsDuring(device, () => {
      assert.throws(() => device.createGrowableBuffer({ bytes: 34 * MiB, stream }), OutOfMemoryError)
    })
    assert.equal(calls['cuMemAddressFree'], calls['cuMemAddressReserve'], 'at once: no work could use it')
    buffer.grow(34 * MiB)
    other.free()
    buffer.grow(64 * MiB)
    assert.equal(buffer.readSync(1 * MiB - 1, 1)[0], 5)
  })

  it('the length may be 0 at first and again later, at one address', () => {
    const { device, buffer } = setUp({}, { bytes: 0 })
    const { ptr } = buffer
    assert.deepEqual([buffer.byteLength, buffer.mappedBytes, buffer.readSync().length], [0, 0, 0])
    assert.throws(() => buffer.fill(0, 0, 1), RangeError)
    for (let round = 0; round < 3; round++) {
      buffer.grow(20 * MiB)
      buffer.fill(round)
      buffer.shrink(0)
      buffer.settleSync()
      assert.deepEqual([buffer.ptr, buffer.byteLength, buffer.mappedBytes], [ptr, 0, 0])
      assert.equal(device.freeBytes(), 64 * MiB)
    }
  })
})

describe('a growable buffer is a buffer', () => {
  it('reads, writes, fills and copies reach its present length', async () => {
    const { device, stream, buffer } = setUp({ progress: 'seeded' })
    const other = device.createPool().allocate(3 * MiB, stream)
    other.fill(9)
    buffer.grow(3 * MiB)
    buffer.copyFrom(other)
    buffer.write(new Uint8Array([1, 2, 3]), 2 * MiB - 1)
    assert.deepEqual([...(await buffer.read(2 * MiB - 2, 5))], [9, 1, 2, 3, 9])
    other.copyFrom(buffer, 0, 2 * MiB - 1, 3)
    assert.deepEqual([...other.readSync(0, 4)], [1, 2, 3, 9])
    other.writeSync(new Uint8Array(4))
    buffer.copyFromSync(other, 3 * MiB - 4, 0, 4)
    assert.deepEqual([...buffer.readSync(3 * MiB - 5)], [9, 0, 0, 0, 0])
    buffer.shrink(2 * MiB)
    for (const use of [
      () => buffer.write(new Uint8Array(3), 2 * MiB - 2),
      () => buffer.fill(0, 2 * MiB, 1),
      () => buffer.readSync(0, 2 * MiB + 1),
      () => buffer.copyFrom(other),
      () => other.copyFrom(buffer, 0, 0, 3 * MiB),
    ]) {
      assert.throws(use, { name: 'RangeError', message: /do not lie in the buffer's/ })
    }
    await assert.rejects(buffer.read(2 * MiB - 1, 2), RangeError)
    assert.deepEqual([buffer.context, buffer.device, buffer.stream], [device.context, 0, stream])
    assert.throws(() => device.createPool().free(buffer), { name: 'PoolError', message: /use buffer.free/ })
  })

  it('a bad length, option or stream is refused', () => {
    const { device, buffer } = setUp()
    const foreign = new TestDevice().createStream()
    const closed = device.createStream()
    closed.close()
    for (const bytes of [-1, 0.5, Number.NaN, Infinity, 2 ** 53]) {
      const refused = (argument: string) => ({ name: 'RangeError', message: new RegExp(`${argument} must be a whole`) })
      assertRefused(device, buffer, () => buffer.grow(bytes), refused('grow: bytes'))
      assertRefused(device, buffer, () => buffer.shrink(bytes), refused('shrink: bytes'))
      for (const options of [{ bytes }, { bytes: 1, capacityBytes: bytes }]) {
        assert.throws(() => device.createGrowableBuffer(options), { name: 'RangeError' })
      }
    }
    for (const bytes of ['1', null, undefined, 1n, {}] as unknown as number[]) {
      assertRefused(device, buffer, () => buffer.grow(bytes), { name: 'TypeError', message: /grow: bytes must/ })
      assertRefused(device, buffer, () => buffer.shrink(bytes), { name: 'TypeError', message: /shrink: bytes must/ })
      assert.throws(() => device.createGrowableBuffer({ bytes }), { name: 'TypeError', message: /bytes must/ })
    }
    assertRefused(device, buffer, () => buffer.grow(1), { name: 'RangeError', message: /use shrink/ })
    assertRefused(device, buffer, () => buffer.shrink(2 * MiB), { name: 'RangeError', message: /use grow/ })
    for (const [options, name, message] of [
      [undefined, 'TypeError', /options must be an object/],
      [null, 'TypeError', /options must be an object/],
      [4096, 'TypeError', /options must be an object/],
      [{}, 'TypeError', /bytes must be a number/],
      [{ bytes: 1, size: 2 }, 'TypeError', /unknown option 'size'; the options are bytes, capacityBytes, stream/],
      [{ bytes: 1, capacityBytes: 0 }, 'RangeError', /capacityBytes must/],
      [{ bytes: 1, capacityBytes: '1' }, 'TypeError', /capacityBytes must/],
      [{ bytes: 2, capacityBytes: 1 }, 'RangeError', /2 bytes are above capacityBytes, 1/],
      [{ bytes: 65 * MiB }, 'RangeError', /above capacityBytes/],
      [{ bytes: 1, capacityBytes: 2 ** 52 }, 'RangeError', /no 4096 TiB of addresses.*lower capacityBytes/],
      [{ bytes: 1, capacityBytes: 2 ** 53 - 1 }, 'RangeError', /lower capacityBytes/],
      [{ bytes: 1, stream: 0 }, 'TypeError', /stream must be a Stream/],
      [{ bytes: 1, stream: foreign }, 'PoolError', /another device/],
      [{ bytes: 1, stream: closed }, 'PoolError', /stream is closed/],
    ] as const) {
      assertRefused(device, buffer, () => device.createGrowableBuffer(options as unknown as GrowableOptions), {
        name,
        message,
      })
    }
    assertRefused(device, buffer, () => buffer.recordUse(foreign), { name: 'PoolError', message: /another device/ })
    assertRefused(device, buffer, () => buffer.free(foreign), { name: 'PoolError', message: /free: .*another device/ })
  })

  it('it needs virtual memory, and the error names an alternative', () => {
    assert.throws(() => setUp({ virtualMemory: false }), {
      name: 'PoolError',
      message: /needs virtual memory management: the device does not offer it; use pool\.allocate/,
    })
    const blocked = { call: 'cuMemCreate', code: 801, onwards: true } as const
    assert.throws(() => setUp({ faults: [blocked] }), { name: 'PoolError', message: /NOT_SUPPORTED.*use pool/ })
  })
})

describe('typed views of a growable buffer', () => {
  it('views stay valid while the buffer grows, with their length', async () => {
    const { buffer } = setUp({ progress: 'seeded' })
    using numbers = buffer.array(Float32Array, 1000)
    const all = buffer.array(Uint16Array)
    numbers.write(Float32Array.from({ length: 1000 }, (_, index) => index / 2))
    const { ptr } = numbers
    buffer.grow(30 * MiB)
    assert.deepEqual([numbers.ptr, numbers.length, all.length, numbers.stream], [ptr, 1000, MiB / 2, buffer.stream])
    assert.equal((await numbers.read())[999], 499.5)
    assert.deepEqual([...numbers.subarray(2, 4).readSync()], [1, 1.5])
    numbers.fill(0)
    numbers.copyFrom(buffer.array(Float32Array, 10).subarray(0, 5), 5)
    assert.equal(numbers.readSync()[999], 0)
    assert.equal(buffer.array(Float64Array).length, (30 * MiB) / 8)
    buffer.check()
  })

  it('views keep the buffer from shrinking below them until they are freed or disposed', () => {
    const { device, buffer } = setUp({}, { bytes: 10 * MiB })
    const [large, small] = [buffer.array(Uint8Array, 6 * MiB), buffer.array(Float64Array, 100)]
    assertRefused(device, buffer, () => buffer.shrink(6 * MiB - 1), {
      name: 'PoolError',
      message: /shrink: a typed view covers 6291456 bytes, more than 6291455; free the view first/,
    })
    buffer.shrink(6 * MiB)
    large.free()
    assertRefused(device, buffer, () => buffer.shrink(799), PoolError)
    buffer.shrink(800)
    small[Symbol.dispose]()
    buffer.shrink(0)
    buffer.grow(1 * MiB)
    assert.equal(buffer.freed, false)
    for (const use of [() => large.ptr, () => large.readSync(), () => small.fill(0), () => large.free()]) {
      assert.throws(use, { name: 'PoolError', message: /the view was already freed/ })
    }
    large[Symbol.dispose]()
  })

  it('views that do not fit, or of a bad type, are refused', () => {
    const { device, buffer } = setUp({}, { bytes: 100 })
    for (const [type, count, name, message] of [
      [Float32Array, 26, 'RangeError', /array: 104 bytes are more than the 100 there are; grow the buffer first/],
      [Float32Array, 0, 'RangeError', /array: count must/],
      [Float32Array, 1.5, 'RangeError', /array: count must/],
      [Float64Array, 2 ** 52, 'RangeError', /above 2\^53/],
      [undefined, 1, 'TypeError', /array: type must be a typed array class/],
      [undefined, undefined, 'TypeError', /array: type must be a typed array class/],
      [Array, 1, 'TypeError', /array: type must be a typed array class/],
    ] as const) {
      const make = () => buffer.array(type as unknown as TypedArrayConstructor, count)
      assertRefused(device, buffer, make, { name, message })
    }
    buffer.shrink(3) // refused views do not count
    assert.throws(() => buffer.array(Float32Array), { name: 'RangeError', message: /count must/ })
  })

  it('the buffer waits for work on other streams through a view, and ends all its views', async () => {
    const { device, buffer } = setUp({}, { bytes: 20 * MiB })
    const other = device.createStream()
    const [first, second] = [buffer.array(Uint8Array), buffer.array(Uint8Array)]
    for (const announce of [() => first.buffer.recordUse(other), () => second.free(other)]) {
      buffer.grow(20 * MiB)
      const release = device.hold(other)
      device.context.activate().cuMemsetD8Async(buffer.ptr, 1, 20 * MiB, other.handle)
      announce()
      if (!second.buffer.freed) continue
      first.free()
      buffer.shrink(2 * MiB)
      assert.equal(buffer.mappedBytes, 20 * MiB)
      release()
    }
    await buffer.settled()
    assert.equal(buffer.mappedBytes, 2 * MiB)
    const view: DeviceArray = buffer.array(Uint8Array, 5)
    buffer.free()
    assert.throws(() => view.readSync(), { name: 'PoolError', message: /the view was already freed/ })
    view[Symbol.dispose]()
  })
})
