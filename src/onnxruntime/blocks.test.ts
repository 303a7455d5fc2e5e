// The blocks of a device's pool that ONNX Runtime asks for, on the simulated device, without the library.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { loadKoffi } from '../core/libraries/koffi.js'
import { retrying } from '../core/pool/wrappers/retrying.js'
import { DeviceBlocks, type Scope } from './blocks.js'

const scopeOf = (name: string): Scope => ({ name, pool: null, uses: new Set(), failure: null })

describe('blocks of a device', () => {
  const driver = new SimulatedDriver()
  const device = openDevice(driver)
  after(() => device.close())

  it('go back to the pool if their name is too long for a label', () => {
    using pool = device.createSharedPool()
    const blocks = new DeviceBlocks(pool, true)
    const stream = device.createStream()
    for (const handle of [null, stream.handle]) {
      const scope = scopeOf('a session with a name that has more bytes than a label of a pool')
      assert.equal(
        blocks.scopes.run(scope, () => blocks.allocate(1000, handle)),
        0,
      )
      assert.match(String(scope.failure), /^RangeError: label must have at most 56 bytes/)
    }
    assert.deepEqual([pool.stats().liveBuffers, blocks.groups()], [0, []])
  })

  it('survive a wrapper that throws any value, and keep it for the run', () => {
    using upstream = device.createPool({ maxPoolBytes: 2 * MiB })
    const pool = retrying(upstream, () => {
      throw null
    })
    const blocks = new DeviceBlocks(pool, false)
    const scope = scopeOf('own')
    for (const run of [(work: () => number) => blocks.scopes.run(scope, work), (work: () => number) => work()]) {
      assert.equal(
        run(() => blocks.allocate(4 * MiB, null)),
        0,
      )
    }
    assert.deepEqual([scope.failure?.message, scope.failure?.cause], ['null', null])
  })

  it('without a stream are handed out after the work of the stream that their pool takes them on', () => {
    using stream = device.createStream()
    using pool = device.createPool()
    const blocks = new DeviceBlocks(pool, true)
    const scope = { ...scopeOf('own'), pool: device.poolFor(stream) }
    driver.holdOperation(stream.handle)
    const ptr = blocks.scopes.run(scope, () => blocks.allocate(1000, null))
    assert.ok(driver.cuStreamQuery(stream.handle))
    blocks.free(ptr)
  })

  it('are refused to another thread while scopes are under way, and to no call of this thread', async () => {
    const koffi = loadKoffi()
    const compare = koffi.pointer(koffi.proto('int cudaMempoolTestCompare(const void *, const void *)'))
    const sort = koffi.load('libc.so.6').func('qsort', 'void', ['void *', 'size_t', 'size_t', compare])
    const pool = device.createPool()
    const blocks = new DeviceBlocks(pool, true)
    let got: number[] = []
    const callback = (): number => {
      got.push(blocks.allocate(1000, null, callback))
      return 0
    }
    const registered = koffi.register(callback, compare)
    const inThisThread = () => sort(new Uint8Array(2), 2, 1, registered)
    const inAnother = () =>
      new Promise<void>((resolve, reject) => {
        sort.async(new Uint8Array(2), 2, 1, registered, (error: Error | null) => (error ? reject(error) : resolve()))
      })
    const taken = async (sorting: () => unknown) => {
      got = []
      await sorting()
      for (const ptr of got) blocks.free(ptr)
      return got.map(ptr => ptr !== 0)
    }
    assert.deepEqual(await taken(inAnother), [true], 'no scope could be meant')
    const scope = scopeOf('translator')
    blocks.underWay.add(scope)
    assert.deepEqual(await blocks.scopes.run(scope, () => taken(inThisThread)), [true])
    assert.deepEqual(await taken(inThisThread), [true])
    assert.equal(scope.failure, null)
    assert.deepEqual(await blocks.scopes.run(scope, () => taken(inAnother)), [false])
    assert.match(String(scope.failure), /^PoolError: as: ONNX Runtime asked for memory in another thread/)
    blocks.underWay.delete(scope)
    assert.deepEqual(await taken(inAnother), [true], 'work under way has ended')
    blocks.hasOtherPools = true
    blocks.warned = true
    assert.deepEqual(await taken(inAnother), [false], 'its work may be of another pool, and not under way any more')
    assert.deepEqual(await taken(inThisThread), [true])
    assert.equal(pool.stats().liveBuffers, 0)
    koffi.unregister(registered)
  })

  it('leave the default stream open when the streams of a session are forgotten', () => {
    using stream = device.createStream()
    const blocks = new DeviceBlocks(device.poolFor(stream), true)
    const [onDefault, weights] = [blocks.allocate(1000, device.defaultStream.handle), blocks.allocate(1000, null)]
    blocks.free(weights)
    blocks.free(onDefault)
    assert.ok(device.defaultStream.isOpen)
  })
})
