import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { runInNewContext } from 'node:vm'
import { PoolError } from '../base/errors.js'
import type { DeviceArray, TypedArrayConstructor } from './array.js'
import { TestDevice } from './pool.fixture.js'
import type { Pool } from './pool.js'

const TYPES: readonly TypedArrayConstructor[] = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  BigInt64Array,
  BigUint64Array,
]

function floats(count: number): DeviceArray<Float32Array<ArrayBuffer>> {
  const device = new TestDevice()
  return device.createPool().allocateArray(Float32Array, count, device.createStream())
}

describe('device array', () => {
  it('writes and reads every type of element', async () => {
    const pool = new TestDevice().createPool()
    for (const type of TYPES) {
      const bytes = new Uint8Array(type.BYTES_PER_ELEMENT * 5).map((_, index) => (index * 37) & 63)
      const elements = new type(bytes.buffer)
      const array = pool.allocateArray(type, 5)
      array.write(elements)
      assert.deepEqual(array.readSync(), elements, type.name)
      assert.deepEqual(await array.read(), elements, type.name)
      assert.deepEqual([array.length, array.byteLength], [5, bytes.byteLength])
      array.free()
    }
    assert.equal(pool.stats().liveBuffers, 0)
  })

  it('takes the arrays and buffers of another realm, such as those of a test in Jest', () => {
    const realm = runInNewContext(
      '({ floats: Float32Array.of(1, 2), memory: Uint8Array.of(3, 4).buffer, view: new DataView(new ArrayBuffer(2)) })',
    )
    const pool = new TestDevice().createPool()
    const array: DeviceArray<Float32Array> = pool.upload(realm.floats)
    array.write(realm.floats)
    assert.deepEqual(array.readSync(), Float32Array.of(1, 2))
    const buffer = pool.allocate(2)
    buffer.write(realm.memory)
    assert.deepEqual([...buffer.readSync()], [3, 4])
    buffer.write(realm.view)
    assert.deepEqual([...buffer.readSync()], [0, 0])
    assert.throws(() => pool.upload(realm.view), { name: 'TypeError', message: /not a DataView/ })
    assert.throws(() => array.write(realm.view), { name: 'TypeError', message: /must be a Float32Array/ })
  })

  it('upload makes an array of the type, the length and the elements of its source', () => {
    const device = new TestDevice()
    const pool = device.createPool()
    const stream = device.createStream()
    for (const type of TYPES) {
      const source = new type(new Uint8Array(type.BYTES_PER_ELEMENT * 3).map((_, index) => index).buffer)
      using array = pool.upload(source, stream)
      assert.deepEqual(array.readSync(), source)
      assert.equal(array.stream, stream)
    }
    const part = new Float32Array([1, 2, 3, 4]).subarray(1, 3)
    assert.deepEqual(pool.upload(part).readSync(), new Float32Array([2, 3]))
    const bytes = pool.upload(Buffer.from('abc')).readSync()
    assert.deepEqual(bytes, new Uint8Array([97, 98, 99]), 'not a Buffer')
    // @ts-expect-error: nor a Buffer by its type
    assert.equal(bytes.readUInt8, undefined)
  })

  it('has types by the elements alone, whatever buffer they lie in', () => {
    const pool = new TestDevice().createPool()
    using array = pool.allocateArray(Float32Array, 2)
    const source: Float32Array = new Float32Array(new SharedArrayBuffer(8)).fill(3)
    array.write(source)
    const named: DeviceArray<Float32Array> = array
    using uploaded: DeviceArray<Float32Array> = pool.upload(source)
    array.copyFrom(uploaded)
    uploaded.copyFrom(array)
    assert.deepEqual(named.readSync(), new Float32Array([3, 3]))
    // @ts-expect-error: other elements
    assert.throws(() => array.write(new Int32Array(2)), TypeError)
    // @ts-expect-error: other elements
    assert.throws(() => named.write(new Float64Array(2)), TypeError)
  })

  it('upload refuses anything but a typed array with elements, and keeps nothing', () => {
    const device = new TestDevice()
    const pool = device.createPool()
    for (const bad of [[1, 2], new ArrayBuffer(4), new DataView(new ArrayBuffer(4)), 'abc', null, undefined]) {
      assert.throws(() => pool.upload(bad as never), { name: 'TypeError', message: /upload: source must be a typed/ })
    }
    assert.throws(() => pool.upload(new Float32Array(0)), { name: 'RangeError', message: /upload: source is empty/ })
    device.driver.failCall({ call: 'cuMemcpyHtoDAsync', code: 999 })
    assert.throws(() => pool.upload(new Float32Array(4)), { name: 'CudaError' })
    assert.equal(pool.stats().liveBuffers, 0)
  })

  it('writes elements at an offset, and copies between arrays', () => {
    const [array, other] = [floats(6), floats(2)]
    array.fill(0)
    array.write(new Float32Array([1, 2, 3]), 3)
    assert.deepEqual([...array.readSync()], [0, 0, 0, 1, 2, 3])
    array.writeSync(new Float32Array([9]), 5)
    assert.deepEqual([...array.readSync()], [0, 0, 0, 1, 2, 9])
    assert.throws(() => other.copyFrom(array), RangeError)
    assert.throws(() => array.copyFrom(other), { name: 'PoolError', message: /another device/ })
    const same = (array.buffer.pool as Pool).allocateArray(Float32Array, 2, array.stream)
    same.write(new Float32Array([7, 8]))
    array.copyFrom(same, 1)
    assert.deepEqual([...array.readSync()], [0, 7, 8, 1, 2, 9])
    array.copyFrom(same.subarray(1))
    assert.deepEqual([...array.readSync()], [8, 7, 8, 1, 2, 9])
  })

  it('subarray counts as Array.slice does, and views the same memory', () => {
    const array = floats(10)
    array.write(Float32Array.from({ length: 10 }, (_, index) => index))
    const model = [...Array(10).keys()]
    const bounds = [undefined, 0, 1, 3, 9, 10, 11, -1, -3, -10, -11, 2.7, Number.NaN, Infinity, -Infinity]
    for (const begin of bounds) {
      for (const end of bounds) {
        const view = array.subarray(begin, end)
        assert.deepEqual([...view.readSync()], model.slice(begin, end), `subarray(${begin}, ${end})`)
      }
    }
    const view = array.subarray(2, 8).subarray(1, -1)
    assert.deepEqual([view.length, view.byteOffset, view.byteLength], [4, 12, 16])
    assert.equal(view.ptr, array.ptr + 12)
    view.write(new Float32Array([-1]), 3)
    view.subarray(0, 2).fill(0)
    assert.deepEqual([...array.readSync()], [0, 1, 2, 0, 0, 5, -1, 7, 8, 9])
    assert.deepEqual([...view.readSync()], [0, 0, 5, -1])
  })

  it('a view reads its own elements only, with and without blocking', async () => {
    const array = floats(4)
    array.write(new Float32Array([1, 2, 3, 4]))
    assert.deepEqual([...(await array.subarray(1, 3).read())], [2, 3])
    assert.deepEqual([...(await array.subarray(4).read())], [])
  })

  it('refuses a copy within its buffer that overlaps, and counts in elements', () => {
    const array = floats(8)
    array.write(new Float32Array([0, 1, 2, 3, 4, 5, 6, 7]))
    const overlap = (text: string) => ({
      name: 'RangeError',
      message: `copyFrom: source overlaps the target by ${text}`,
    })
    const remedy = '; copy through another array'
    assert.throws(() => array.copyFrom(array.subarray(0, 4), 3), overlap(`1 element${remedy}`))
    assert.throws(() => array.subarray(2).copyFrom(array.subarray(0, 5)), overlap(`3 elements${remedy}`))
    assert.throws(() => array.copyFrom(array), overlap(`8 elements${remedy}`))
    array.copyFrom(array.subarray(3, 3), 3)
    array.copyFrom(array.subarray(0, 4), 4)
    assert.deepEqual([...array.readSync()], [0, 1, 2, 3, 0, 1, 2, 3])
  })

  it('refuses elements of another type, and too many elements', () => {
    const array = floats(4)
    for (const source of [new Float64Array(1), new Uint8Array(4), [1], undefined, new ArrayBuffer(4)]) {
      const wrong = source as unknown as Float32Array<ArrayBuffer>
      assert.throws(() => array.write(wrong), { name: 'TypeError', message: /write: source.*Float32Array/ })
      assert.throws(() => array.writeSync(wrong), { name: 'TypeError', message: /writeSync: source.*Float32Array/ })
    }
    for (const offset of [-1, 0.5, Number.NaN, 3, 5]) {
      assert.throws(() => array.write(new Float32Array(2), offset), { name: 'RangeError', message: /write/ })
    }
    assert.throws(() => array.subarray(1, 3).write(new Float32Array(3)), RangeError)
    const integers = (array.buffer.pool as Pool).allocateArray(Int32Array, 4)
    assert.throws(() => array.copyFrom(integers as unknown as typeof array), { name: 'TypeError', message: /copyFrom/ })
    assert.throws(() => array.copyFrom(array.buffer as unknown as typeof array), TypeError)
  })

  it('a view cannot free; once the array is freed, no view works', async () => {
    const array = floats(4)
    const view = array.subarray(1)
    assert.throws(() => view.free(), { name: 'PoolError', message: /view/ })
    view[Symbol.dispose]()
    assert.equal(array.buffer.freed, false)
    array.free()
    for (const use of [() => view.ptr, () => view.readSync(), () => view.fill(0), () => array.free()]) {
      assert.throws(use, PoolError)
    }
    await assert.rejects(view.read(), PoolError)
    array[Symbol.dispose]()
  })

  it('has the stream of its buffer, and frees on another', () => {
    const device = new TestDevice()
    const pool = device.createPool()
    const [a, b] = [device.createStream(), device.createStream()]
    const array = pool.allocateArray(Float32Array, 4, a)
    assert.equal(array.stream, a)
    array.free(b)
    assert.equal(pool.stats().liveBuffers, 0)
  })
})
