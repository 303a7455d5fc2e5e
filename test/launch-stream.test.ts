// Launches and copies that name no stream: they run on the stream of their buffers, or are refused, and never race.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import type { Device } from '../src/core/device/device.js'
import { openDevice, openDevices } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import type { Stream } from '../src/core/order/stream.js'

const SOURCE = `
extern "C" __global__ void increment(int *values) {}
extern "C" __global__ void add(int *target, const int *source) {}
extern "C" __global__ void nothing() {}`
const ONE = { grid: 1, block: 1 }

function setUp() {
  const driver = new SimulatedDriver()
  const device = openDevice(driver)
  const pool = device.createPool()
  const module = device.compileKernels(SOURCE, {
    simulated: {
      increment: ({ args, memory }) => {
        const [value] = memory.load(Int32Array, args.pointer(0), 1)
        memory.store(args.pointer(0), Int32Array.of(value + 1))
      },
      add: ({ args, memory }) => {
        const [value] = memory.load(Int32Array, args.pointer(0), 1)
        memory.store(args.pointer(0), Int32Array.of(value + memory.load(Int32Array, args.pointer(1), 1)[0]))
      },
      nothing: () => {},
    },
  })
  const kernels = Object.fromEntries(['increment', 'add', 'nothing'].map(name => [name, module.kernel(name)]))
  const [a, b] = [device.createStream(), device.createStream()]
  const upload = (value: number, stream?: Stream) => pool.upload(Int32Array.of(value), stream)
  return { driver, device, pool, kernels, a, b, upload }
}

function signal(device: Device, from: Stream, to: Stream): void {
  using event = device.createEvent()
  event.record(from)
  to.wait(event)
}

const UNKNOWN = {
  name: 'PoolError',
  message: /^launch: the buffers are of .*, and their order is not known; pass stream, and let it wait/,
}

describe('a launch without a stream', () => {
  it('runs on the stream of its buffers, after the work on them', async () => {
    const { kernels, upload, a } = setUp()
    for (let round = 0; round < 20; round++) {
      using array = upload(round, a)
      kernels.increment.launch(ONE, array)
      kernels.increment.launch(ONE, array.buffer)
      assert.equal((await array.read())[0], round + 2)
    }
  })

  it('runs on the default stream without buffers, and with plain addresses', () => {
    const { kernels, upload, device } = setUp()
    const array = upload(1)
    kernels.nothing.launch(ONE)
    kernels.increment.launch(ONE, { ptr: array.ptr })
    device.defaultStream.synchronize()
    assert.equal(array.readSync()[0], 2)
  })

  const ways: Record<string, (opened: ReturnType<typeof setUp>) => void | Promise<void>> = {
    'an event': ({ device, a, b }) => {
      signal(device, b, a)
      device.createEvent().record(b) // no work
    },
    'events over a third stream': ({ device, a, b }) => {
      const third = device.createStream()
      signal(device, b, third)
      signal(device, third, a)
    },
    'the host': ({ b }) => b.synchronize(),
    'a promise': ({ b }) => b.finished(),
    'a wait for all work': ({ device }) => device.synchronize(),
    'the close of the other stream, which nothing can follow': ({ b }) => b.close(),
  }
  for (const [way, order] of Object.entries(ways)) {
    it(`with buffers of two streams runs where the work on both is known to come first, by ${way}`, async () => {
      const opened = setUp()
      const { kernels, upload, a, b } = opened
      const [target, source] = [upload(1, a), upload(2, b)]
      assert.throws(() => kernels.add.launch(ONE, target, source), UNKNOWN)
      await order(opened)
      kernels.add.launch(ONE, target, source)
      assert.equal((await target.read())[0], 3)
    })
  }

  it('is refused after further work on the other stream', () => {
    const { kernels, upload, device, a, b } = setUp()
    const [target, source] = [upload(1, a), upload(2, b)]
    signal(device, b, a)
    source.write(Int32Array.of(5))
    assert.throws(() => kernels.add.launch(ONE, target, source), UNKNOWN)
    signal(device, b, a)
    kernels.add.launch(ONE, target, source)
    assert.equal(target.readSync()[0], 6)
  })

  it('knows that memory on a stream may be that of a stream which this one waited for', () => {
    const { kernels, pool, device, upload, a, b } = setUp()
    const target = upload(1)
    const first = pool.allocate(1000, a)
    first.fill(0)
    first.free()
    signal(device, a, b)
    using second = pool.allocate(1000, b)
    assert.throws(() => kernels.add.launch(ONE, target, second), UNKNOWN, 'work on a may still write the memory')
  })

  it('keeps the memory of other streams until it has run', () => {
    const { kernels, pool, device, upload, a, b } = setUp()
    const [target, source] = [upload(1, a), upload(2, b)]
    signal(device, b, a)
    kernels.add.launch(ONE, target, source)
    const { ptr } = source
    source.free()
    assert.notEqual(pool.allocate(4, b).ptr, ptr)
  })

  it('knows nothing of work that other libraries submit', () => {
    const { driver, kernels, upload, device, a } = setUp()
    const foreign = device.adoptStream(driver.cuStreamCreate(1))
    const [target, source] = [upload(1, a), upload(2, foreign)]
    signal(device, foreign, a)
    assert.throws(() => kernels.add.launch(ONE, target, source), UNKNOWN)
  })

  it('is refused on a stream that is not captured, during a capture', () => {
    const { kernels, upload, device, a, b } = setUp()
    const [inside, outside] = [upload(1, a), upload(2)]
    device.synchronize()
    const refusal = {
      name: 'PoolError',
      message: /^launch: a stream is being captured, and the default stream, where .* is not; pass stream$/,
    }
    for (const lost of [() => kernels.increment.launch(ONE, outside), () => kernels.nothing.launch(ONE)]) {
      assert.throws(() => device.capture(a, lost), refusal)
    }
    using graph = device.capture(a, () => {
      kernels.add.launch(ONE, inside, outside)
      kernels.increment.launch({ ...ONE, stream: b }, outside) // named, so meant
    })
    graph.launch()
    b.synchronize()
    assert.deepEqual([inside.readSync()[0], outside.readSync()[0]], [4, 3])
  })

  it('in a capture follows the order of its streams', () => {
    const { kernels, upload, device, a, b } = setUp()
    for (let mark = 0; mark < 10; mark++) device.synchronize() // those of the capture are counted anew
    const [first, second, third, other] = [upload(1, a), upload(2, b), upload(0), upload(0, a)]
    device.synchronize()
    using graph = device.capture(a, () => {
      signal(device, a, b)
      kernels.add.launch(ONE, second, first) // no captured work on a yet
      kernels.increment.launch(ONE, other)
      kernels.increment.launch(ONE, second)
      assert.throws(() => kernels.add.launch(ONE, first, second), UNKNOWN)
      signal(device, b, a)
      kernels.add.launch(ONE, first, second)
    })
    first.write(Int32Array.of(1))
    device.capture(a, () => {}).close()
    third.write(Int32Array.of(0))
    assert.throws(() => kernels.add.launch(ONE, third, first), UNKNOWN, 'the work from before the capture counts')
    graph.launch()
    assert.equal(first.readSync()[0], 5)
  })

  it('with memory of another device needs a stream until that work is complete', () => {
    const [first, second] = openDevices('simulated')
    const source = 'extern "C" __global__ void touch(int *values) {}'
    const kernel = second.compileKernels(source, { simulated: { touch: () => {} } }).kernel('touch')
    const pool = first.createPool()
    pool.setAccess(second, 'readWrite')
    const array = pool.upload(Int32Array.of(1), first.createStream())
    assert.throws(() => kernel.launch(ONE, array), UNKNOWN)
    array.stream.synchronize()
    kernel.launch(ONE, array)
  })
})

describe('a copy from another stream', () => {
  it('is refused unless it comes after the work there, and the source waits for it', () => {
    const { device, upload, pool, a, b } = setUp()
    const [target, source] = [upload(1, a), upload(2, b)]
    assert.throws(() => target.copyFrom(source), {
      name: 'PoolError',
      message:
        /^copyFrom: the copy on stream 0x\w+ may come before work on stream 0x\w+, the stream of the source; let it/,
    })
    signal(device, b, a)
    target.copyFrom(source)
    const { ptr } = source
    source.free()
    assert.notEqual(pool.allocate(4, b).ptr, ptr)
    assert.equal(target.readSync()[0], 2)
  })

  it('waits for a stream that is closed', () => {
    const { upload, pool, a, b } = setUp()
    const [target, source] = [upload(1, a), upload(2, b)]
    b.close()
    target.copyFrom(source)
    const { ptr } = source
    source.free()
    assert.notEqual(pool.allocate(4).ptr, ptr, 'the copy still reads it')
    assert.equal(target.readSync()[0], 2)
  })

  it('is not judged on streams of other libraries', () => {
    const { driver, device, upload, a } = setUp()
    const foreign = device.adoptStream(driver.cuStreamCreate(1))
    const target = upload(1, foreign)
    target.copyFrom(upload(2, a))
  })
})
