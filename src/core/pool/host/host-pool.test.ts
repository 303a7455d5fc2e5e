// Pools of pinned host memory. The file is long because all cases share one set-up.

import assert from 'node:assert/strict'
import { totalmem } from 'node:os'
import { describe, it } from 'node:test'
import { MessageChannel } from 'node:worker_threads'
import { formatBytes, KiB, MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError } from '../../base/errors.js'
import { signal } from '../../order/order.fixture.js'
import { Stream } from '../../order/stream.js'
import { assertAbortable } from '../../order/waits.fixture.js'
import { TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'
import type { HostArray } from './host-array.js'
import type { HostBuffer } from './host-buffer.js'
import type { HostPoolOptions } from './host-options.js'

const PAGE = 64 * KiB

function setUp(options: HostPoolOptions = {}) {
  const device = new TestDevice()
  const pool = device.createHostPool({ maxPoolBytes: 8 * MiB, segmentBytes: 1 * MiB, ...options })
  const stream = device.createStream()
  const target = device.createPool().allocate(1 * MiB, stream)
  return { device, pool, stream, target }
}

function sameMemory(a: { readonly bytes: Uint8Array } | Uint8Array, b: HostBuffer): boolean {
  const bytes = a instanceof Uint8Array ? a : a.bytes
  return bytes.buffer === b.bytes.buffer && bytes.byteOffset === b.bytes.byteOffset
}

const callsOf = (device: TestDevice) => JSON.stringify([...device.driver.calls])

describe('host pool', () => {
  it('programs fill the arrays, and copies run both ways in stream order', async () => {
    const { device, pool, stream, target } = setUp()
    using up = pool.allocateArray(Float32Array, 1000)
    using down = pool.allocateArray(Float32Array, 1000)
    assert.deepEqual([up.length, up.byteLength, up.elements.length], [1000, 4000, 1000])
    assert.equal(up.elements, up.elements)
    assert.equal(up.bytes, up.bytes)
    up.elements.forEach((_, index) => {
      up.elements[index] = index / 2
    })
    down.elements.fill(-1)
    const release = device.hold(stream)
    up.copyTo(target)
    down.buffer.copyFrom(target, 0, 0, 4000)
    assert.equal(down.elements[999], -1, 'nothing has run yet')
    release()
    await stream.finished()
    assert.deepEqual(down.elements, up.elements)
  })

  it('serves a list of sizes whole, or none of it', () => {
    for (const pool of [setUp().pool, new TestDevice().createSharedHost({ maxPoolBytes: 8 * MiB }).pool]) {
      const buffers = pool.allocateMany([1 * MiB, '64 KiB', 300], { label: 'batch' })
      assert.deepEqual(
        buffers.map(({ byteLength, label }) => [byteLength, label]),
        [1 * MiB, 64 * KiB, 300].map(bytes => [bytes, 'batch']),
      )
      const tooMuch = [1 * MiB, 16 * MiB, 4 * KiB]
      assert.throws(
        () => pool.allocateMany(tooMuch),
        (error: unknown) => error instanceof OutOfMemoryError && error.figures.requestedBytes === 17 * MiB + 4 * KiB,
      )
      assert.equal(pool.tryAllocateMany(tooMuch), null)
      const neverInAll = { name: 'OutOfMemoryError', remedy: 'askForLess' }
      assert.throws(() => pool.allocateMany([4 * MiB, 4 * MiB, 4 * MiB]), neverInAll)
      const refused = { name: 'RangeError', message: /^allocateMany: sizes\[1\] must be/ }
      assert.throws(() => pool.allocateMany([4096, 0]), refused)
      assert.throws(() => pool.allocateMany([]), { name: 'RangeError', message: /sizes must have 1 to/ })
      assert.equal(pool.stats().liveBuffers, 3)
      for (const buffer of buffers) buffer.free()
      pool.check()
    }
  })

  it('copies take parts at any two offsets, of buffers and of arrays', () => {
    const { device, pool, stream } = setUp()
    const words = device.createPool().allocateArray(Uint32Array, 64, stream)
    const array = pool.allocateArray(Uint32Array, 64)
    array.elements.forEach((_, index) => {
      array.elements[index] = index
    })
    const host = array.buffer
    host.copyTo(words)
    host.copyTo(words.subarray(10, 20), 4, 8, 12)
    host.copyFrom(words.subarray(10, 14), 40 * 4)
    host.copyFrom(words.buffer, 0, 63 * 4, 4)
    host.copyTo(words, 0, 0, 0)
    stream.synchronize()
    assert.deepEqual([...words.readSync().subarray(9, 16)], [9, 10, 2, 3, 4, 14, 15])
    assert.deepEqual([...array.elements.subarray(39, 45)], [39, 10, 2, 3, 4, 44])
    assert.equal(array.elements[0], 63)
  })

  it('arrays copy in elements, to and from arrays of their type and buffers', () => {
    const { device, pool, stream, target } = setUp({ mapped: true })
    const words = device.createPool().zeros(Uint32Array, 8, stream)
    const used = pool.allocateArray(Uint32Array, 6)
    const { elements } = used
    used.fill(7)
    used.free()
    const array = pool.zeros(Uint32Array, 6)
    assert.equal(array.elements.byteOffset, elements.byteOffset, 'the same memory')
    assert.deepEqual(array.elements, new Uint32Array(6))
    array.elements.set([1, 2, 3, 4, 5, 6])
    array.copyTo(words, 2)
    array.subarray(1, 3).copyTo(words)
    array.copyTo(target, 1)
    stream.synchronize()
    assert.deepEqual([...words.readSync()], [2, 3, 1, 2, 3, 4, 5, 6])
    assert.deepEqual([...target.readSync(4, 8)], [1, 0, 0, 0, 2, 0, 0, 0])
    array.copyFrom(words.subarray(6), 1)
    array.subarray(4).copyFrom(words.subarray(0, 1), 1)
    stream.synchronize()
    assert.deepEqual([...array.elements], [1, 5, 6, 4, 5, 2])
    array.fill(9, 1, -3)
    array.subarray(4).fill(-1)
    assert.deepEqual([...array.elements], [1, 9, 9, 4, 2 ** 32 - 1, 2 ** 32 - 1])
    const view = array.subarray(2, 4)
    assert.deepEqual([view.length, view.byteLength, view.byteOffset, view.bytes.length], [2, 8, 8, 8])
    assert.deepEqual([view.elements, view.pool, view.freed], [Uint32Array.of(9, 4), pool, false])
    assert.deepEqual([view.devicePtr - array.devicePtr, array.devicePtr], [8, array.buffer.devicePtr])
    assert.throws(() => view.free(), { name: 'PoolError', message: /^free: this is a view/ })
    view[Symbol.dispose]()
    assert.equal(array.freed, false)
    array.free()
    assert.equal(view.freed, true)
  })

  it('arrays refuse other elements, what does not fit, and parts of elements', () => {
    const { device, pool } = setUp()
    const devicePool = device.createPool()
    const [array, other] = [pool.zeros(Uint32Array, 6), devicePool.zeros(Float32Array, 6)]
    const type =
      /^copy(To|From): (target|source) must be a DeviceArray of Uint32Array, not of Float32Array; pass its buffer/
    // @ts-expect-error: other elements
    assert.throws(() => array.copyTo(other), { name: 'TypeError', message: type })
    // @ts-expect-error: other elements
    assert.throws(() => array.copyFrom(other), { name: 'TypeError', message: type })
    for (const bad of [null, undefined, {}, new Uint32Array(6), array]) {
      const expected = { name: 'TypeError', message: /DeviceBuffer or DeviceArray/ }
      assert.throws(() => array.copyTo(bad as never), expected)
      assert.throws(() => array.copyFrom(bad as never), expected)
    }
    for (const offset of [-1, 0.5, Number.NaN, 1, '0']) {
      const expected = { name: 'RangeError', message: /^copy(To|From): 6 elements from .* do not fit into 6 elements$/ }
      assert.throws(() => array.copyTo(other.buffer, offset as number), expected)
      assert.throws(() => array.copyFrom(other.buffer, offset as number), expected)
    }
    const part = { name: 'RangeError', message: /^copyFrom: the 6 bytes of source are no whole number of Uint32Array/ }
    assert.throws(() => array.copyFrom(devicePool.allocate(6)), part)
    assert.throws(() => array.fill(1n as never), { name: 'TypeError', message: /^fill: value must be a number/ })
    assert.throws(() => pool.zeros(Uint32Array, 0), { name: 'RangeError', message: /^zeros: count must be/ })
    assert.equal(pool.stats().pendingBytes, 0, 'nothing was noted')
  })

  it('addresses are aligned to 256 bytes or as asked for, and segments have whole pages', () => {
    const { device, pool } = setUp()
    const addressOf = (buffer: HostBuffer) => device.driver.hostAddress(buffer.bytes)
    for (const bytes of [1, 255, 257, 70_001]) assert.equal(addressOf(pool.allocate(bytes)) % 256, 0)
    for (let alignment = 1; alignment <= 2 * MiB; alignment *= 2) {
      using buffer = pool.allocate(100, undefined, alignment)
      assert.equal(addressOf(buffer) % alignment, 0)
    }
    const whole = pool.allocate(1 * MiB)
    assert.equal(addressOf(whole) % PAGE, 0)
    assert.equal(pool.allocate(1 * MiB + 1).byteLength, 1 * MiB + 1)
    pool.check()
  })

  it('views have as many whole elements as fit', () => {
    const { pool } = setUp()
    const buffer = pool.allocate(1003)
    buffer.view(Uint16Array)[500] = 0x0102
    assert.deepEqual([buffer.view(Float64Array).length, buffer.view(Uint8Array).length], [125, 1003])
    assert.deepEqual([buffer.bytes[1000], buffer.bytes.length], [2, 1003])
    assert.notEqual(buffer.view(Uint16Array), buffer.view(Uint16Array))
  })

  it('a pair without pending work makes no driver call, and reuses the same memory', () => {
    const { device, pool } = setUp({ maxPoolBytes: 64 * MiB, segmentBytes: 4 * MiB })
    const first = pool.allocate(1 * MiB)
    const memory = first.bytes
    first.free()
    const before = callsOf(device)
    for (let round = 0; round < 1000; round++) pool.allocate(1 * MiB).free()
    assert.equal(callsOf(device), before)
    assert.ok(sameMemory(memory, pool.allocate(1 * MiB)))
    assert.equal(pool.stats().cacheMisses, 1)
  })

  for (const isShared of [false, true]) {
    it(`${isShared ? 'shared by threads: ' : ''}memory stays back while the default stream, or one that precedes it, uses it`, () => {
      const device = new TestDevice()
      const options = { maxPoolBytes: 1 * MiB, segmentBytes: 1 * MiB }
      const pool = isShared ? device.createSharedHost(options).pool : device.createHostPool(options)
      const earlier = device.createStream()
      for (const stream of [device.defaultStream, earlier]) {
        const buffer = pool.allocate(1 * MiB, stream)
        device.hold(stream)
        buffer.free()
        if (stream === earlier) {
          signal(earlier, device.defaultStream)
        }
        const before = device.calls('cuEventSynchronize')
        pool.allocate(1 * MiB).free()
        assert.equal(device.calls('cuEventSynchronize') - before, 1, 'the host has waited')
      }
    })
  }

  it('device addresses exist on request, at the offsets of the host addresses', () => {
    const { device, pool } = setUp({ mapped: true })
    const [a, b] = [pool.allocate(1000), pool.allocate(5000)]
    const { driver } = device
    assert.equal(b.devicePtr - a.devicePtr, driver.hostAddress(b.bytes) - driver.hostAddress(a.bytes))
    assert.equal(a.devicePtr % 256, 0)
    assert.equal(device.driver.calls.get('cuMemHostGetDevicePointer'), 1, 'asked once for each segment')
    assert.throws(() => setUp().pool.allocate(8).devicePtr, {
      name: 'PoolError',
      message: /not mapped.*mapped: true/,
    })
  })

  it('the size may be text, and the rest options; a share is of the host', () => {
    const { pool, stream } = setUp()
    const buffer = pool.allocate('1MiB', { stream, alignment: '4KiB', label: 'staging' })
    assert.deepEqual([buffer.byteLength, buffer.label], [1 * MiB, 'staging'])
    const array = pool.tryAllocate(64, { label: 'small' })!
    assert.equal(array.label, 'small')
    assert.throws(() => pool.allocate('100%'), {
      name: 'OutOfMemoryError',
      message: new RegExp(`no room for ${formatBytes(totalmem())} of pinned`),
    })
    for (const options of [{ labels: 'x' }, { label: 5 }, { stream: 5 }]) {
      assert.throws(() => pool.allocate(64, options as object), { name: 'TypeError' })
    }
    assert.equal(pool.stats().liveBuffers, 2)
    pool.check()
  })

  it('its limit can be set at any time', () => {
    const { pool } = setUp()
    const held = pool.allocate(6 * MiB)
    assert.equal(pool.maxPoolBytes, 8 * MiB)
    pool.maxPoolBytes = '9MiB'
    const more = pool.allocate(3 * MiB)
    assert.equal(pool.stats().maxPoolBytes, 9 * MiB)
    more.free()
    pool.maxPoolBytes = 6 * MiB
    assert.equal(pool.stats().reservedBytes, 6 * MiB)
    assert.equal(pool.tryAllocate(1), null)
    assert.throws(() => Object.assign(pool, { maxPoolBytes: 0 }), { name: 'RangeError', message: /^maxPoolBytes/ })
    held.free()
    pool.check()
    pool.close()
    assert.throws(() => Object.assign(pool, { maxPoolBytes: 1 }), { name: 'PoolError', message: /pool is closed/ })
  })

  it('an out of memory error names its cause and figures, and the pool works on', () => {
    const { device, pool } = setUp()
    const held = pool.allocate(6 * MiB)
    assert.throws(() => pool.allocate(3 * MiB), {
      name: 'OutOfMemoryError',
      message:
        /3 MiB of pinned host memory: 6 MiB live in 6 MiB pinned, limit 8 MiB; raise maxPoolBytes by at least 1 MiB or free that much \(pool\.maxPoolBytes = '9 MiB'\)$/,
    })
    const small = device.createHostPool({ maxPoolBytes: 4 * MiB, segmentBytes: 1 * MiB })
    small.allocate(1 * KiB)
    assert.throws(() => small.allocate(8 * MiB), { message: /by at least 4\.01 MiB \(5 MiB if no idle piece fits\)/ })
    const enough = device.createHostPool({ maxPoolBytes: 9 * MiB, segmentBytes: 1 * MiB })
    enough.allocate(1 * KiB)
    enough.allocate(8 * MiB)
    const rest = Array.from({ length: 16 }, () => pool.allocate(128 * KiB))
    rest.forEach((buffer, index) => {
      if (index % 2 === 0) buffer.free()
    })
    assert.throws(() => pool.allocate(1 * MiB), { name: 'OutOfMemoryError', message: /not in one piece/ })
    held.free()
    device.driver.failCall({ call: 'cuMemHostRegister', onwards: true })
    assert.equal(pool.tryAllocate(7 * MiB), null)
    pool.trimTo(0)
    assert.throws(
      () => pool.allocate(4 * MiB),
      (error: unknown) => {
        assert.ok(error instanceof OutOfMemoryError)
        assert.match(error.message, /the system pins no more/)
        assert.deepEqual([error.figures.requestedBytes, error.figures.reservedBytes], [4 * MiB, 2 * MiB])
        return true
      },
    )
    device.driver.clearFaults()
    pool.allocate(4 * MiB).free()
    assert.equal(pool.tryAllocate(2 ** 50), null)
    assert.equal(setUp({ maxPoolBytes: Infinity }).pool.tryAllocate(2 ** 50), null)
    pool.check()
  })

  it('if memory cannot be pinned, the error names an alternative', () => {
    const { device, pool } = setUp()
    device.driver.failCall({ call: 'cuMemHostRegister', code: 801 })
    assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /cannot pin.*801.*buffer\.write and readSync/ })
    assert.equal(pool.stats().reservedBytes, 0)
    pool.allocate(1)
  })

  it('idle memory goes back to the system, and is pinned again at need', () => {
    const { device, pool, stream, target } = setUp()
    const buffers = Array.from({ length: 4 }, () => pool.allocate(1 * MiB))
    const release = device.hold(stream)
    buffers[0].copyTo(target)
    for (const buffer of buffers.slice(0, 3)) buffer.free()
    assert.equal(pool.trimTo(0), 2 * MiB, 'one is live and one has work pending')
    release()
    assert.equal(pool.trimTo(1 * MiB), 1 * MiB)
    buffers[3].free()
    assert.equal(pool.trimTo(0), 1 * MiB)
    assert.deepEqual([pool.stats().reservedBytes, pool.stats().peakReservedBytes], [0, 4 * MiB])
    pool.allocate(1).free()
    pool.check()
  })

  it('pinned memory stays pinned where sizes vary, until the limit is reached', () => {
    const { device, pool } = setUp({ maxPoolBytes: 256 * MiB, segmentBytes: 16 * MiB })
    for (const mib of [20, 30, 40, 50, 25, 35, 45]) pool.allocate(mib * MiB).free()
    assert.equal(pool.stats().reservedBytes, (20 + 30 + 40 + 50) * MiB)
    assert.equal(device.calls('cuMemHostUnregister'), 0)
    pool.allocate(60 * MiB).free()
    assert.equal(device.calls('cuMemHostUnregister'), 0)
    pool.allocate(70 * MiB).free()
    assert.ok(device.calls('cuMemHostUnregister') > 0)
    assert.ok(pool.stats().reservedBytes <= 256 * MiB)
  })

  it('allocation works while a capture keeps the default stream idle', () => {
    const device = new TestDevice()
    const blocking = new Stream(device.clocks, device.driver.cuStreamCreate(0), false)
    for (const pool of [device.createHostPool(), device.createSharedHost().pool]) {
      const before = pool.allocate(1000)
      blocking.beginCapture()
      before.free()
      for (let count = 0; count < 2; count++) {
        using beside = pool.allocate(1000)
        beside.bytes.fill(1)
      }
      blocking.endCapture().close()
      pool.allocate(1000).free()
      pool.check()
      pool.close()
    }
    assert.deepEqual(
      device.clocks.streams.filter(stream => stream !== null),
      [device.defaultStream, blocking],
      'no stream is left open',
    )
  })

  it('the pool keeps its memory when an array is transferred', () => {
    const { pool } = setUp()
    const { buffer } = pool.allocate(1000).bytes
    const { port1, port2 } = new MessageChannel()
    try {
      port1.postMessage(buffer, [buffer as ArrayBuffer])
    } catch {
      // later versions of Node refuse, earlier ones copy
    }
    port1.close()
    port2.close()
    assert.notEqual(buffer.byteLength, 0)
  })

  it('every use of a freed buffer throws, and a second free does not count', () => {
    const { pool, stream, target } = setUp()
    const stale = pool.allocateArray(Int32Array, 100)
    const { elements } = stale
    assert.equal(stale.freed, false)
    stale.free()
    const live = pool.allocateArray(Int32Array, 100)
    assertStale(stale, target, stream)
    stale[Symbol.dispose]()
    assert.deepEqual([stale.freed, live.freed, pool.stats().liveBuffers], [true, false, 1])
    live.elements.fill(7)
    assert.equal(elements.length, 100)
    pool.check()
  })

  it('close waits for pending work, reports live buffers, and leaves arrays as ordinary memory', () => {
    const { device, pool, stream, target } = setUp()
    const held = pool.allocateArray(Uint8Array, 1000)
    const { elements } = held
    elements.fill(5)
    device.hold(stream)
    held.copyTo(target)
    assert.deepEqual(pool.close(), { heldBuffers: 1, heldBytes: 1000 })
    assert.equal(stream.query(), true)
    assert.equal(target.readSync(999, 1)[0], 5)
    elements.fill(6)
    assert.equal(elements[999], 6)
    assertStale(held, target, stream)
    held[Symbol.dispose]()
    assert.equal(pool.closed, true)
    pool.close()
    for (const use of [() => pool.allocate(1), () => pool.tryAllocate(1, stream), () => pool.trimTo(0)]) {
      assert.throws(use, { name: 'PoolError', message: /closed/ })
    }
    device.driver.cuMemHostRegister(elements, 0) // a program may register the memory itself once it is unpinned
  })

  it('close on a lost device does not throw', () => {
    const { device, pool } = setUp()
    const { bytes } = pool.allocate(100)
    device.driver.failCall({ call: 'cuCtxSynchronize', code: 700 })
    assert.throws(() => device.context.activate().cuCtxSynchronize(), CudaError)
    pool.close()
    assert.equal(bytes.fill(1)[99], 1)
  })
})

describe('host pool: refusals', () => {
  it('bad options are refused by name', () => {
    const bad: readonly [unknown, 'RangeError' | 'TypeError', RegExp][] = [
      [null, 'TypeError', /createHostPool: options must be an object/],
      [{ maxBytes: 1 }, 'TypeError', /unknown option 'maxBytes'.*segmentBytes/],
      [{ maxPoolBytes: 0 }, 'RangeError', /maxPoolBytes/],
      [{ maxPoolBytes: '120%' }, 'RangeError', /maxPoolBytes/],
      [{ maxPoolBytes: true }, 'TypeError', /maxPoolBytes/],
      [{ maxPoolBytes: 1000 }, 'RangeError', /maxPoolBytes must be at least 64 KiB/],
      [{ segmentBytes: 0 }, 'RangeError', /segmentBytes/],
      [{ segmentBytes: Infinity }, 'RangeError', /segmentBytes/],
      [{ segmentBytes: '1' }, 'TypeError', /segmentBytes/],
      [{ segmentBytes: 2 * MiB, maxPoolBytes: 1 * MiB }, 'RangeError', /segmentBytes \(2 MiB\) is above maxPoolBytes/],
      [{ shared: 1 }, 'TypeError', /unknown option 'shared'.*call createSharedHostPool for that/],
      [{ mapped: 'yes' }, 'TypeError', /mapped must be/],
    ]
    for (const [options, name, message] of bad) {
      assert.throws(() => new TestDevice().createHostPool(options as HostPoolOptions), { name, message }, `${message}`)
    }
    assert.equal(new TestDevice().createHostPool().stats().maxPoolBytes, 1024 * MiB)
    assert.equal(new TestDevice().createHostPool({ maxPoolBytes: 100 * KiB }).allocate(1).byteLength, 1)
  })

  it('bad sizes, alignments, types and counts are refused, with no change', () => {
    const { pool } = setUp()
    const before = pool.stats()
    for (const bytes of [0, -1, 1.5, Number.NaN, Infinity, 2 ** 53]) {
      assert.throws(() => pool.allocate(bytes), { name: 'RangeError', message: /bytes/ })
      assert.throws(() => pool.tryAllocate(bytes), { name: 'RangeError', message: /bytes/ })
    }
    assert.throws(() => pool.allocate('64' as never), { name: 'TypeError', message: /bytes/ })
    for (const alignment of [0, 3, 4 * MiB, -1]) {
      assert.throws(() => pool.allocate(1, undefined, alignment), { name: 'RangeError', message: /alignment/ })
    }
    for (const count of [0, 1.5, 2 ** 51]) {
      assert.throws(() => pool.allocateArray(Float64Array, count), { name: 'RangeError', message: /count/ })
    }
    assert.throws(() => pool.allocateArray(DataView as never, 1), { name: 'TypeError', message: /typed array/ })
    assert.deepEqual({ ...pool.stats(), cacheMisses: 0 }, { ...before, cacheMisses: 0 })
    assert.throws(() => pool.allocate(1).view(Array as never), { name: 'TypeError', message: /view: type/ })
    assert.throws(() => pool.trimTo(-1), { name: 'RangeError', message: /trimTo/ })
  })

  it('copies out of range, or with anything but device memory, are refused', () => {
    const { device, pool, stream } = setUp()
    const host = pool.allocate(100)
    const words = device.createPool().allocateArray(Uint32Array, 64, stream)
    const part = words.subarray(8, 16)
    const elsewhere = new TestDevice().createPool().allocate(100)
    device.context.activate()
    const before = callsOf(device)
    const ranges: readonly (readonly number[])[] = [
      [0, 0, 101],
      [0, 101],
      [-1],
      [0.5],
      [0, -4, 8],
      [200, 0, 100],
      [0, 0, -1],
    ]
    for (const range of ranges) {
      const message = /byteOffset|byteLength|bytes/
      assert.throws(() => host.copyTo(words.buffer, ...range), { name: 'RangeError', message }, `${range}`)
      assert.throws(() => host.copyFrom(words.buffer, ...range), { name: 'RangeError', message }, `${range}`)
    }
    for (const range of [
      [0, 0, 33],
      [32, 0, 1],
      [-4, 0, 4],
    ]) {
      assert.throws(() => host.copyTo(part, ...range), { name: 'RangeError' }, `${range}`)
    }
    assert.throws(() => host.copyFrom(part, 0, 0, 33), { name: 'RangeError' })
    for (const bad of [Number.NaN, -1, 1.5, '0', 10n] as number[]) {
      for (const place of [words, words.buffer]) {
        assert.throws(() => host.copyTo(place, 0, bad), { message: /^copyTo: sourceOffset must be/ })
        assert.throws(() => host.copyTo(place, bad), { message: /^copyTo: byteOffset must be/ })
        assert.throws(() => host.copyFrom(place, 0, bad), { message: /^copyFrom: sourceOffset must be/ })
        assert.throws(() => host.copyFrom(place, bad), { message: /^copyFrom: byteOffset must be/ })
      }
    }
    const outside = { name: 'RangeError', message: /bytes 300 to 300 do not lie in/ }
    assert.throws(() => host.copyTo(words, 0, 300), outside)
    assert.throws(() => host.copyFrom(words, 0, 300), outside)
    assert.throws(() => host.copyFrom(words), { name: 'RangeError' }, 'all of it is too much')
    for (const bad of [null, undefined, {}, new Uint8Array(4), host]) {
      const expected = { name: 'TypeError', message: /DeviceBuffer or DeviceArray/ }
      assert.throws(() => host.copyTo(bad as never), expected)
      assert.throws(() => host.copyFrom(bad as never), expected)
    }
    for (const copy of [() => host.copyTo(elsewhere), () => host.copyFrom(elsewhere)]) {
      assert.throws(copy, { name: 'PoolError', message: /another device/ })
    }
    words.buffer.free()
    assert.throws(() => host.copyTo(words), { name: 'PoolError', message: /freed/ })
    assert.equal(callsOf(device), before)
    host.free()
    assert.equal(pool.stats().pendingBytes, 0, 'nothing was noted')
  })

  it('a closed stream, a stream of another device, and anything but a stream are refused', () => {
    const { device, pool } = setUp()
    const host = pool.allocate(100)
    const elsewhere = new TestDevice().createStream()
    const closed = device.createStream()
    const target = device.createPool().allocate(100, closed)
    closed.close()
    const foreign = { name: 'PoolError', message: /another device/ }
    assert.throws(() => pool.allocate(1, elsewhere), foreign)
    const none = { name: 'TypeError', message: /stream must be a Stream/ }
    assert.throws(() => pool.allocate(1, null as never), none)
    assert.throws(() => pool.tryAllocate(1, [] as never), none)
    assert.throws(() => host.free({} as never), none)
    assert.throws(() => host.recordUse(elsewhere), foreign)
    assert.throws(() => host.free(elsewhere), foreign)
    assert.throws(() => host.recordUse({} as never), { name: 'TypeError', message: /recordUse: stream/ })
    const over = { name: 'PoolError', message: /stream is closed/ }
    assert.throws(() => pool.allocate(1, closed), over)
    assert.throws(() => host.recordUse(closed), over)
    assert.throws(() => host.copyTo(target), over)
    assert.throws(() => host.copyFrom(target), over)
    assert.equal(host.freed, false)
    host.free(closed)
    assert.equal(pool.stats().liveBuffers, 0)
  })

  for (const shared of [false, true]) {
    const name = shared ? 'a shared pool' : 'a pool'
    it(`${name} waits for memory: for the copies of freed buffers, and not for the device's`, {
      timeout: 10_000,
    }, async t => {
      const device = new TestDevice()
      const options = { maxPoolBytes: 8 * MiB, segmentBytes: 1 * MiB }
      const pool = shared ? device.createSharedHost(options).pool : device.createHostPool(options)
      t.after(() => pool.close()) // ends waits that would not
      const stream = device.createStream()
      const target = device.createPool().allocate(60 * MiB, stream) // the device is nearly full
      await pool.whenAvailable(8 * MiB)
      const held = pool.allocate(8 * MiB)
      const before = pool.stats()
      let release = () => {}
      await assertAbortable(
        'whenAvailable',
        options => pool.whenAvailable(5 * MiB, options),
        () => {
          assert.deepEqual(pool.stats(), before)
          release = device.hold(stream)
          held.copyTo(target)
          held.free()
          setImmediate(release)
        },
      )
      pool.allocate(5 * MiB).free()
      pool.check()
      const never = {
        name: 'OutOfMemoryError',
        message: /of pinned host memory: .* limit 8 MiB; ask for less, or raise maxPoolBytes/,
      }
      await assert.rejects(pool.whenAvailable(9 * MiB), never)
      pool.close()
      await assert.rejects(pool.whenAvailable(1), { name: 'PoolError', message: /^whenAvailable: the pool is closed/ })
    })
  }
})

function assertStale(
  array: HostArray,
  target: ReturnType<typeof setUp>['target'],
  stream: ReturnType<typeof setUp>['stream'],
): void {
  const stale = array.buffer
  const small = (target.pool as Pool).allocate(8)
  const uses: readonly [name: string, use: () => unknown][] = [
    ['elements', () => array.elements],
    ['bytes', () => array.bytes],
    ['bytes', () => array.subarray(1).bytes],
    ['fill', () => array.fill(0)],
    ['devicePtr', () => array.devicePtr],
    ['copyTo', () => array.copyTo(target)],
    ['copyFrom', () => array.copyFrom(small)],
    ['recordUse', () => array.recordUse(stream)],
    ['free', () => array.free()],
    ['bytes', () => stale.bytes],
    ['view', () => stale.view(Uint8Array)],
    ['byteLength', () => stale.byteLength],
    ['devicePtr', () => stale.devicePtr],
    ['copyTo', () => stale.copyTo(target)],
    ['copyTo', () => stale.copyTo(target, 0, 0, 0)],
    ['copyFrom', () => stale.copyFrom(target)],
    ['recordUse', () => stale.recordUse(stream)],
    ['free', () => stale.free()],
    ['free', () => stale.free(stream)],
  ]
  for (const [name, use] of uses) assert.throws(use, { name: 'PoolError', message: new RegExp(`^${name}: `) }, `${use}`)
}
