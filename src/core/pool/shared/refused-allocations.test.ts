// No kind of pool counts an allocation that is refused, for its arguments or for want of memory.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CU_STREAM_PER_THREAD } from '../../driver/constants.js'
import { Stream } from '../../order/stream.js'
import { TestDevice, twoDevices } from '../pool.fixture.js'
import type { PoolStats } from '../pool.js'

interface AnyPool {
  allocate(bytes: number, stream?: Stream, alignment?: number): { free(stream?: Stream): void }
  tryAllocate(bytes: number, stream?: Stream, alignment?: number): { free(): void } | null
  stats(): PoolStats
  check?(): void
}

const OWN: Record<string, (device: TestDevice) => AnyPool> = {
  'caching pool': device => device.createPool(),
  'caching pool of segments': device => device.createPool({ backing: 'segments' }),
  'debug pool': device => device.createPool({ debug: true }),
  'block pool': device => device.createBlockPool({ blockBytes: 4096, count: 16 }),
  'growing block pool': device => device.createBlockPool({ blockBytes: 1 * MiB, count: 16, maxCount: 256 }),
  arena: device => device.createArenaPool({ bytes: 1 * MiB }),
  'growing arena': device => device.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 128 * MiB }),
  'plain pool': device => device.createPlainPool(),
  'driver pool': device => device.createDriverPool(),
  'host pool': device => device.createHostPool({ maxPoolBytes: 8 * MiB }),
}

const SHARED: typeof OWN = {
  'shared pool': device => device.createSharedPool().pool,
  'shared block pool': device => device.createSharedBlocks({ blockBytes: 4096, count: 16 }).pool,
  'shared arena': device => device.createSharedArena({ bytes: 1 * MiB }).pool,
  'shared host pool': device => device.createSharedHost({ maxPoolBytes: 8 * MiB }).pool,
}

const REFUSAL = /^(TypeError|RangeError|PoolError)$/

for (const [kind, create] of Object.entries({ ...OWN, ...SHARED })) {
  describe(`${kind}: an allocation with a bad argument`, () => {
    it('is refused and not counted', () => {
      const [device, second] = twoDevices()
      const pool = create(device)
      const closed = device.createStream()
      closed.close()
      const streams = [null, [], closed, second.createStream()] as unknown as Stream[]
      if (kind in SHARED) streams.push(new Stream(device.clocks, CU_STREAM_PER_THREAD, false))
      const [stream] = [device.createStream()]
      const bad: [bytes: number, stream?: Stream, alignment?: number][] = [
        ...[0, -1, 1.5, Number.NaN, Infinity, '5' as never].map(bytes => [bytes, stream] as [number, Stream]),
        ...[3, 0, 2 ** 40].map(alignment => [1000, stream, alignment] as [number, Stream, number]),
        ...streams.map(one => [1000, one] as [number, Stream]),
      ]
      pool.allocate(1000, stream).free() // cached for the next allocation
      const before = pool.stats()
      for (const args of bad) {
        for (const call of ['allocate', 'tryAllocate'] as const) {
          assert.throws(() => pool[call](...args), { name: REFUSAL }, `${call}(${args.map(String)})`)
          assert.deepEqual(pool.stats(), before, `${call}(${args.map(String)})`)
        }
      }
      pool.check?.()
    })
  })

  if (kind in SHARED)
    it(`${kind}: a free on a stream of another device is refused without advice that does not apply`, () => {
      const [device, second] = twoDevices()
      const buffer = create(device).allocate(1000)
      const message = /^\w+: the stream belongs to another device; pass one of this$/
      assert.throws(() => buffer.free(second.createStream()), { name: 'PoolError', message })
    })

  it(`${kind}: a request without room is no miss and no growth`, () => {
    const pool = create(new TestDevice())
    const bytes = pool.tryAllocate(1 * MiB) === null ? 4096 : 1 * MiB
    while (pool.tryAllocate(bytes) !== null) {}
    const counts = () => {
      const { allocations, cacheMisses, growths } = pool.stats()
      return { allocations, cacheMisses, growths }
    }
    const before = counts()
    for (let count = 0; count < 9; count++) {
      assert.equal(pool.tryAllocate(bytes), null)
      assert.throws(() => pool.allocate(bytes), { name: 'OutOfMemoryError' })
    }
    assert.deepEqual(counts(), before)
    assert.ok(before.cacheMisses <= before.allocations, `${before.cacheMisses} of ${before.allocations} missed`)
    assert.ok(before.growths <= before.allocations + 1, `${before.growths} growths`) // one may have made the pool
    pool.check?.()
  })
}
