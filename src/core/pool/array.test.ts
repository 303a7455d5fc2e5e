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

  it('fill repeats an element, which a value becomes as in a typed array', () => {
    const pool = new TestDevice().createPool()
    const values = [0, 1, -1, 0.5, 300, -0, 2 ** 40 + 5, Number.NaN, Infinity]
    const wide = [0n, 1n, -1n, 2n ** 40n + 5n, 2n ** 64n + 7n, -(2n ** 63n)]
    for (const type of TYPES) {
      for (const value of type.name.startsWith('Big') ? wide : values) {
        for (const [begin, end] of [[], [1], [2, 9], [-3, -1], [5, 5], [7, 3], [0.9, 100], [4, 5]] as number[][]) {
          const model = new type(new ArrayBuffer(11 * type.BYTES_PER_ELEMENT))
          using array: DeviceArray = pool.upload(model)
          array.fill(value, begin, end)
          Reflect.apply(model.fill, model, [value, begin, end])
          assert.deepEqual(array.readSync(), model, `${type.name}.fill(${value}, ${begin}, ${end})`)
        }
      }
    }
  })

  it('fill takes a view as its part, and fills in stream order', () => {
    const device = new TestDevice()
    const [a, b] = [device.createStream(), device.createStream()]
    const array = device.createPool().upload(new Float64Array(100), a)
    const begin = device.hold(a)
    array.subarray(10, 20).fill(0.1, 2)
    assert.deepEqual([a.query(), b.query()], [false, true], 'the host does not wait')
    begin()
    const model = new Float64Array(100).fill(0.1, 12, 20)
    assert.deepEqual(array.readSync(), model)
  })

  it('a capture records the fill of every type', () => {
    const device = new TestDevice()
    const stream = device.createStream()
    const pool = device.createPool()
    for (const type of TYPES) {
      const wide = type.name.startsWith('Big')
      const array: DeviceArray = pool.upload(new type(new ArrayBuffer(7 * type.BYTES_PER_ELEMENT)), stream)
      stream.beginCapture()
      array.fill(wide ? 77n : 77)
      using graph = stream.endCapture()
      assert.ok(array.readSync().every(element => Number(element) === 0))
      graph.launch(stream)
      assert.ok(
        array.readSync().every(element => Number(element) === 77),
        type.name,
      )
    }
  })

  it('fill refuses a value of the wrong kind, and bounds that are no numbers', () => {
    const pool = new TestDevice().createPool()
    const [numbers, wide] = [pool.zeros(Float32Array, 4), pool.zeros(BigInt64Array, 4)]
    for (const bad of ['1', null, undefined, 1n, true, {}]) {
      const message = /^fill: value must be a number for elements of Float32Array, not /
      assert.throws(() => numbers.fill(bad as never), { name: 'TypeError', message })
    }
    for (const bad of ['1', null, undefined, 1, true, {}]) {
      const message = /^fill: value must be a bigint such as 1n for elements of BigInt64Array, not /
      assert.throws(() => wide.fill(bad as never), { name: 'TypeError', message })
    }
    for (const bad of ['1', null, 1n, {}]) {
      assert.throws(() => numbers.fill(1, bad as never), {
        name: 'TypeError',
        message: /^fill: begin must be a number/,
      })
      assert.throws(() => numbers.fill(1, 0, bad as never), { name: 'TypeError', message: /^fill: end must be/ })
      assert.throws(() => numbers.subarray(bad as never), { name: 'TypeError', message: /^subarray: begin must be/ })
    }
    assert.deepEqual([...numbers.readSync()], [0, 0, 0, 0])
  })

  it('zeros gives the memory back if it cannot be filled', () => {
    const device = new TestDevice()
    const pool = device.createPool()
    device.driver.failCall({ call: 'cuMemsetD8Async', code: 999 })
    assert.throws(() => pool.zeros(Float32Array, 4), { name: 'CudaError' })
    assert.equal(pool.stats().liveBuffers, 0)
  })

  it('has what its buffer has: pool, device, label, freed', () => {
    const device = new TestDevice()
    const pool = device.createPool()
    const array = pool.allocateArray(Float32Array, 4)
    array.label = 'weights'
    const view = array.subarray(1)
    for (const one of [array, view]) {
      assert.deepEqual([one.pool, one.device, one.label, one.freed], [pool, array.buffer.device, 'weights', false])
    }
    assert.equal(array.buffer.label, 'weights')
    assert.match(`${view}`, /^DeviceArray \{ 'weights', 3 Float32Array elements, 12 B at/)
    assert.equal(JSON.parse(JSON.stringify(array)).label, 'weights')
    array.free()
    assert.deepEqual([array.freed, view.freed], [true, true])
  })

  it('copyFrom takes a buffer of whole elements', () => {
    const pool = new TestDevice().createPool()
    const [array, buffer] = [pool.zeros(Float32Array, 6), pool.upload(Float32Array.of(1, 2, 3)).buffer]
    array.copyFrom(buffer, 2)
    assert.deepEqual([...array.readSync()], [0, 0, 1, 2, 3, 0])
    assert.throws(() => array.copyFrom(buffer, 4), { name: 'RangeError', message: /3 elements from 4 do not fit/ })
    const message = /^copyFrom: the 6 bytes of source are no whole number of Float32Array elements; copy a part/
    assert.throws(() => array.copyFrom(pool.allocate(6)), { name: 'RangeError', message })
    for (const bad of [null, undefined, {}, new Float32Array(1)]) {
      const expected = { name: 'TypeError', message: /^copyFrom: source must be a DeviceBuffer or a DeviceArray, not/ }
      assert.throws(() => array.copyFrom(bad as never), expected)
    }
    assert.throws(() => array.copyFrom(array.buffer), { name: 'RangeError', message: /overlaps/ })
    buffer.free()
    assert.throws(() => array.copyFrom(buffer), {
      name: 'PoolError',
      message: /^copyFrom: the buffer was already freed/,
    })
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

  it('knows typed arrays by their own kind, not by the name in a derived class', () => {
    class Named extends Float32Array {
      override get [Symbol.toStringTag](): 'Float32Array' {
        return 'Tensor' as never
      }
    }
    class Long extends Float32Array {
      override get byteLength(): number {
        return 4096
      }
    }
    const pool = new TestDevice().createPool()
    assert.deepEqual(pool.upload(new Named([1, 2])).readSync(), new Float32Array([1, 2]))
    const wrong = { name: 'TypeError', message: /: source has 8 bytes, and its byteLength says 4096$/ }
    const before = pool.stats()
    assert.throws(() => pool.upload(new Long([1, 2])), wrong)
    assert.deepEqual(pool.stats(), before)
    assert.throws(() => pool.allocate(4096).write(new Long([1, 2])), wrong)
    const proxy = new Proxy(new Float32Array(2), {})
    const array = pool.allocateArray(Float32Array, 2)
    assert.throws(() => array.write(proxy), { name: 'TypeError', message: /^write: source must be a Float32Array/ })
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
    const same = (array.pool as Pool).allocateArray(Float32Array, 2, array.stream)
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
    const integers = (array.pool as Pool).allocateArray(Int32Array, 4)
    assert.throws(() => array.copyFrom(integers as unknown as typeof array), {
      name: 'TypeError',
      message: /^copyFrom: source must be a DeviceArray of Float32Array, not of Int32Array; pass its buffer/,
    })
  })

  it('a view cannot free; once the array is freed, no view works', async () => {
    const array = floats(4)
    const view = array.subarray(1)
    assert.throws(() => view.free(), { name: 'PoolError', message: /view/ })
    view[Symbol.dispose]()
    assert.equal(array.freed, false)
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
