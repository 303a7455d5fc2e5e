// The blocks that ONNX Runtime asks for, on the simulated device, without the library.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { KiB, MiB } from '../core/base/bytes.js'
import { Random } from '../core/base/random.js'
import { openDevice } from '../core/device/open.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { loadKoffi } from '../core/libraries/koffi.js'
import { retrying } from '../core/pool/wrappers/retrying.js'
import { type AnyPool, DeviceBlocks, HostBlocks, type Scope } from './blocks.js'

const SEED = Number(process.env.CUDA_MEMPOOL_SEED ?? 1)

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

describe('blocks of the host', () => {
  const device = openDevice('simulated')
  after(() => device.close())
  const koffi = loadKoffi()
  const bytesAt = (ptr: number, bytes: number) => new Uint8Array(koffi.view(BigInt(ptr), bytes))

  it(`of several pools and segments are memory of their own, until their free (seed ${SEED})`, () => {
    const random = new Random(SEED)
    const pools = [1, 2].map(() => device.createHostPool({ segmentBytes: 64 * KiB }))
    const blocks = new HostBlocks(pools[0], koffi)
    const held: { ptr: number; bytes: number; value: number }[] = []
    const check = ({ ptr, bytes, value }: (typeof held)[number]) =>
      assert.ok(bytesAt(ptr, bytes).every(byte => byte === value))
    for (let step = 0; step < 600; step++) {
      if (random.below(2) === 0 && held.length > 0) {
        const [block] = held.splice(random.below(held.length), 1)
        check(block)
        blocks.free(block.ptr)
        continue
      }
      const pool: AnyPool = pools[random.below(2)]
      const bytes = Math.floor(random.logUniform(1, 100 * KiB))
      const ptr = blocks.scopes.run({ ...scopeOf('own'), pool }, () => blocks.allocate(bytes, null))
      assert.equal(ptr % 64, 0)
      const value = step % 256
      bytesAt(ptr, bytes).fill(value)
      held.push({ ptr, bytes, value })
    }
    assert.ok(pools.every(pool => pool.segments().length > 2))
    for (const pool of pools) pool.close()
    for (const block of held) check(block) // a session may still read its weights
    for (const { ptr } of held) blocks.free(ptr)
    assert.deepEqual([blocks.isEmpty, blocks['segment'].bytes.length], [true, 0])
  })
})
