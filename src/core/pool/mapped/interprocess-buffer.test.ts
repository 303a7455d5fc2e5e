// Shared buffers on the simulated device, where the opening process is the process that made the buffer. A real socket
// passes the descriptor.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { CudaError, DescriptorError, OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { SimulatedOptions } from '../../driver/simulated/options.js'
import { refuseEach, TestDevice } from '../pool.fixture.js'
import type { InterprocessBuffer } from './interprocess-buffer.js'

const PATH = '/tmp/shared-buffer-test'
const SHORT = { timeoutMs: 20 }
const GRANULE = 2 * MiB

async function opened(device: TestDevice, buffer: InterprocessBuffer): Promise<InterprocessBuffer> {
  const [other] = await Promise.all([device.importBuffer(PATH), buffer.exportTo(PATH)])
  return other
}

describe('interprocess buffers', () => {
  it('both handles are the same memory at two addresses, of the requested length', async () => {
    const device = new TestDevice({ progress: 'seeded' })
    const stream = device.createStream()
    const buffer = device.createInterprocessBuffer(3 * MiB, stream)
    buffer.fill(1)
    const [other] = await Promise.all([device.importBuffer(PATH, { stream }), buffer.exportTo(PATH)])
    assert.notEqual(other.ptr, buffer.ptr)
    assert.deepEqual([other.byteLength, other.mappedBytes, other.stream], [3 * MiB, 2 * GRANULE, stream])
    assert.equal(device.freeBytes(), device.totalBytes - 2 * GRANULE, 'there is one memory')
    assert.equal((await other.read())[3 * MiB - 1], 1)
    other.write(Uint8Array.of(7, 8), 5)
    assert.deepEqual([...buffer.readSync(4, 4)], [1, 7, 8, 1])
    const array = buffer.array(Float32Array, 4)
    array.write(Float32Array.of(1, 2, 3, 4))
    assert.deepEqual([...other.array(Float32Array, 2).readSync()], [1, 2])
    other.check()
    buffer.check()
  })

  for (const first of ['maker', 'opener'] as const) {
    it(`the memory lives until both have freed it, the ${first} first`, async () => {
      const device = new TestDevice()
      const buffer = device.createInterprocessBuffer(1 * MiB)
      const other = await opened(device, buffer)
      const [gone, kept] = first === 'maker' ? [buffer, other] : [other, buffer]
      gone.free()
      gone.settleSync()
      assert.equal(device.freeBytes(), device.totalBytes - GRANULE)
      kept.fill(9)
      assert.equal(kept.readSync(1 * MiB - 1)[0], 9)
      assert.throws(() => gone.fill(1), { name: 'PoolError', message: /already freed/ })
      kept[Symbol.dispose]()
      await kept.settled()
      assert.equal(device.freeBytes(), device.totalBytes)
    })
  }

  it('a free keeps stream order, without a wait', async () => {
    const device = new TestDevice()
    const stream = device.createStream()
    const buffer = device.createInterprocessBuffer(1 * MiB)
    buffer.recordUse(stream)
    const release = device.hold(stream)
    buffer.free()
    assert.equal(device.freeBytes(), device.totalBytes - GRANULE)
    release()
    await buffer.settled()
    assert.equal(device.freeBytes(), device.totalBytes)
  })

  it('share waits for the work on the buffer, also on a closed stream', async () => {
    const device = new TestDevice()
    const stream = device.createStream()
    const buffer = device.createInterprocessBuffer(1 * MiB, stream)
    const release = device.hold(stream)
    buffer.fill(3)
    const sharing = buffer.exportTo(PATH)
    await assert.rejects(device.importBuffer(PATH, SHORT), { name: 'DescriptorError', resultName: 'ETIMEDOUT' })
    release()
    const [other] = await Promise.all([device.importBuffer(PATH), sharing])
    assert.equal(other.readSync(0, 1)[0], 3)
    other.free()
    other.settleSync()
    device.hold(stream)
    device.context.activate().cuMemsetD8Async(buffer.ptr, 4, 1, stream.handle)
    stream.close()
    assert.equal((await opened(device, buffer)).readSync(0, 1)[0], 4)
  })

  it('a buffer can be shared again and again, each time with one process', async () => {
    const device = new TestDevice()
    const buffer = device.createInterprocessBuffer(4)
    for (let round = 0; round < 3; round++) {
      const other = await opened(device, buffer)
      other.free()
      other.settleSync()
    }
    const racing = [device.importBuffer(PATH, { timeoutMs: 50 }), device.importBuffer(PATH, { timeoutMs: 50 })]
    await buffer.exportTo(PATH)
    const results = await Promise.allSettled(racing)
    assert.deepEqual(results.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  })

  it('a process can open a buffer only once at a time', async () => {
    const device = new TestDevice()
    const buffer = device.createInterprocessBuffer(4)
    const other = await opened(device, buffer)
    const sharing = buffer.exportTo(PATH)
    await assert.rejects(device.importBuffer(PATH), {
      name: 'PoolError',
      message: /has opened the buffer.*already; use that/,
    })
    await sharing
    assert.equal(device.freeBytes(), device.totalBytes - GRANULE)
    other.fill(1)
    other.free()
    other.settleSync()
    await opened(device, buffer)
  })

  it('only the maker can share a buffer, and only before its free', async () => {
    const device = new TestDevice()
    const buffer = device.createInterprocessBuffer(4)
    const other = await opened(device, buffer)
    await assert.rejects(other.exportTo(PATH), { name: 'PoolError', message: /let the process that made it share it/ })
    buffer.free()
    await assert.rejects(buffer.exportTo(PATH), { name: 'PoolError', message: /exportTo: .*already freed/ })
    const late = device.createInterprocessBuffer(4)
    late.fill(6)
    const sharing = late.exportTo(PATH)
    await new Promise(setImmediate)
    late.free()
    late.settleSync()
    assert.equal((await device.importBuffer(PATH)).readSync()[0], 6, 'the descriptor on its way keeps the memory')
    await sharing
    device.driver.failCall({ call: 'cuMemImportFromShareableHandle', code: 1 })
    const last = device.createInterprocessBuffer(4).exportTo(PATH)
    await assert.rejects(device.importBuffer(PATH), {
      name: 'PoolError',
      message: /importBuffer: .*its owner has freed or closed it/,
    })
    await last
    const freed = device.createInterprocessBuffer(4)
    const before = freed.exportTo(PATH, SHORT)
    freed.free()
    await assert.rejects(before, { name: 'PoolError', message: /already freed/ })
  })

  it('without a second process share and open time out, and leave nothing behind', async () => {
    const device = new TestDevice()
    const buffer = device.createInterprocessBuffer(4)
    await assert.rejects(buffer.exportTo(PATH, SHORT), {
      name: 'DescriptorError',
      call: 'accept',
      resultName: 'ETIMEDOUT',
    })
    await assert.rejects(device.importBuffer(PATH, SHORT), {
      name: 'DescriptorError',
      call: 'connect',
      resultName: 'ETIMEDOUT',
    })
    const sharing = [buffer.exportTo(PATH), buffer.exportTo(PATH)]
    await assert.rejects(sharing[1], { name: 'DescriptorError', resultName: 'EADDRINUSE', message: /choose another/ })
    await device.importBuffer(PATH)
    await sharing[0]
  })

  it('a bad size, stream, path or option is refused by name', async () => {
    const device = new TestDevice()
    const buffer = device.createInterprocessBuffer(4)
    for (const bytes of [0, -1, 0.5, Number.NaN, Infinity, 2 ** 53]) {
      assert.throws(() => device.createInterprocessBuffer(bytes), {
        name: 'RangeError',
        message: /createInterprocessBuffer: bytes/,
      })
    }
    assert.throws(() => device.createInterprocessBuffer('4' as never), { name: 'TypeError', message: /bytes/ })
    const closed = device.createStream()
    closed.close()
    for (const [stream, name, message] of [
      [5, 'TypeError', /stream must be a Stream/],
      [null, 'TypeError', /stream must be a Stream/],
      [new TestDevice().createStream(), 'PoolError', /another device/],
      [closed, 'PoolError', /stream is closed/],
    ] as const) {
      assert.throws(() => device.createInterprocessBuffer(4, stream as never), { name, message })
      await assert.rejects(device.importBuffer(PATH, { stream: stream as never }), { name, message })
    }
    for (const path of ['', 'a\0b', 'x'.repeat(108)]) {
      await assert.rejects(buffer.exportTo(path), { name: 'RangeError', message: /path/ })
      await assert.rejects(device.importBuffer(path), { name: 'RangeError', message: /path/ })
    }
    for (const path of [5, undefined, null] as never[]) {
      await assert.rejects(buffer.exportTo(path), { name: 'TypeError', message: /path/ })
      await assert.rejects(device.importBuffer(path), { name: 'TypeError', message: /path/ })
    }
    for (const [options, name, message] of [
      [{ timeoutMs: -1 }, 'RangeError', /timeoutMs/],
      [{ timeoutMs: '5' }, 'TypeError', /timeoutMs/],
      [null, 'TypeError', /options must be an object/],
      [5, 'TypeError', /options must be an object/],
    ] as const) {
      await assert.rejects(buffer.exportTo(PATH, options as never), { name, message })
      await assert.rejects(device.importBuffer(PATH, options as never), { name, message })
    }
    assert.throws(() => device.createPool().free(buffer), { name: 'PoolError', message: /use buffer.free/ })
  })

  it('a pool is refused as a buffer, and a buffer as a pool', async () => {
    const device = new TestDevice()
    const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
    const sharing = pool.exportTo(PATH)
    await assert.rejects(device.importBuffer(PATH), {
      name: 'PoolError',
      message: /is a pool; have it exported again and use importPool/,
    })
    await sharing
    const buffer = device.createInterprocessBuffer(4).exportTo(PATH)
    await assert.rejects(device.importPool(PATH), {
      name: 'PoolError',
      message: /is a buffer; have it exported again and use importBuffer$/,
    })
    await buffer
    pool.close()
  })

  it('a buffer that does not fit is an out of memory with its figures', () => {
    const device = new TestDevice()
    device.createInterprocessBuffer(30 * MiB)
    for (const bytes of [36 * MiB, 1024 * MiB, Number.MAX_SAFE_INTEGER]) {
      assert.throws(
        () => device.createInterprocessBuffer(bytes),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          assert.match(error.message, /^no room for /)
          assert.deepEqual([error.figures.requestedBytes, error.figures.deviceFreeBytes], [bytes, 34 * MiB])
          return true
        },
      )
    }
    assert.equal(device.freeBytes(), 34 * MiB)
  })

  it('without virtual memory or descriptors the error names an alternative', async () => {
    const instead = /share a driver pool, if there is one: createDriverPool\(\{ handleTypes: 'posixFileDescriptor' \}\)/
    for (const [options, message] of [
      [{ virtualMemory: false }, /needs virtual memory management: the device does not offer it/],
      [{ posixDescriptors: false }, /exports no memory as file descriptors, which it does on Linux/],
    ] as const) {
      const device = new TestDevice(options)
      for (const expected of [message, instead]) {
        assert.throws(() => device.createInterprocessBuffer(4), { name: 'PoolError', message: expected })
        await assert.rejects(device.importBuffer(PATH, SHORT), { name: 'PoolError', message: expected })
      }
    }
    // The first memory made is the probe of virtual memory; the driver refuses the second, which is to be shared.
    const device = new TestDevice({ faults: [{ call: 'cuMemCreate', nth: 2, code: 801 }] } as SimulatedOptions)
    assert.throws(() => device.createInterprocessBuffer(4), {
      name: 'PoolError',
      message: /no memory that can be shared.*801/,
    })
    assert.equal(device.freeBytes(), device.totalBytes)
    const { calls } = device.driver
    assert.equal(calls.get('cuMemAddressFree'), calls.get('cuMemAddressReserve'))
  })
})

describe('driver failures: shared buffers', () => {
  /** Makes, shares, opens and frees; returns how many steps were refused. */
  async function run(device: TestDevice, timeoutMs: number): Promise<number> {
    let refusals = 0
    const held: InterprocessBuffer[] = []
    const attempt = async (step: () => unknown) => {
      try {
        await step()
      } catch (error) {
        const known = [CudaError, PoolError, OutOfMemoryError, DescriptorError].some(kind => error instanceof kind)
        if (!known) throw error
        refusals++
      }
    }
    await attempt(() => void held.push(device.createInterprocessBuffer(3 * MiB)))
    await attempt(() => held[0]?.fill(1))
    await attempt(async () => {
      const options = { timeoutMs }
      const results = await Promise.allSettled([device.importBuffer(PATH, options), held[0]?.exportTo(PATH, options)])
      const [other, sharing] = results
      if (other.status === 'fulfilled') held.push(other.value)
      for (const result of [other, sharing]) if (result.status === 'rejected') throw result.reason
    })
    await attempt(() => held[1]?.fill(2))
    for (const buffer of held) await attempt(() => buffer.free())
    for (const buffer of held) await attempt(() => buffer.settleSync())
    device.driver.clearFaults()
    for (const buffer of held) buffer.settleSync()
    return refusals
  }

  it('a failure of any call leaves nothing behind', async () => {
    const start = () => {
      const device = new TestDevice()
      device.createInterprocessBuffer(1 * KiB).free() // virtual memory has been probed
      return { device }
    }
    assert.equal(await run(start().device, 10_000), 0)
    let refusals = 0
    const calls = await refuseEach(
      start,
      async ({ device }) => {
        refusals += await run(device, 50)
      },
      async ({ device }) => {
        assert.equal(device.freeBytes(), device.totalBytes)
        const again = device.createInterprocessBuffer(device.totalBytes)
        const other = await opened(device, again)
        for (const buffer of [again, other]) {
          buffer.free()
          buffer.settleSync()
        }
      },
      { codes: [1, 2, 801, 999], onwards: [false] },
    )
    assert.ok(calls > 25 && refusals > calls, `${refusals} refusals of ${calls} calls`)
  })
})
