// What a deterministic pool does not let the device decide.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { CachingPool } from './caching-pool.js'
import { orderCalls, setUp, signal } from './central/cross-stream.fixture.js'
import type { PoolOptions } from './options.js'

describe('a deterministic pool', () => {
  /** Where everything went in a random program, relative to the first. */
  const placements = (options: PoolOptions, progress: 'eager' | 'seeded', seed: number): number[] => {
    const device = new TestDevice({ progress, seed })
    const pool: CachingPool = device.createPool({ maxPoolBytes: 48 * MiB, ...options })
    const streams = Array.from({ length: 3 }, () => device.createStream())
    const random = new Random(5)
    const held: DeviceBuffer[] = []
    const placed: number[] = []
    for (let step = 0; step < 1500; step++) {
      const [stream, other] = [streams[random.below(3)], streams[random.below(3)]]
      const dice = random.below(100)
      const bytes = random.logUniform(256, 8 * MiB)
      if (dice < 45) {
        const buffer = pool.tryAllocate(bytes, stream)
        placed.push(buffer === null ? -1 : buffer.ptr)
        if (buffer !== null) held.push(buffer)
        buffer?.fill(1)
      } else if (dice < 85) held.splice(random.below(held.length), 1)[0]?.free()
      else if (dice < 88) signal(stream, other)
      else if (dice < 90) held[0]?.recordUse(other)
      else if (dice < 94) stream.query()
      else if (dice < 95) stream.synchronize()
      else if (dice < 97) device.hold(stream)
      else pool.processDeferred()
    }
    return placed.map(ptr => ptr - placed[0])
  }

  it('places the same calls the same way, however fast the device is', () => {
    for (const backing of ['virtual', 'segments'] as const) {
      for (const crossStreamReuse of ['wait-before-oom', 'wait-before-grow', 'ordered'] as const) {
        const options = { backing, crossStreamReuse }
        const runs = (['eager', 'seeded', 'seeded'] as const).map((progress, index) =>
          placements({ ...options, deterministic: true }, progress, index),
        )
        assert.deepEqual(runs[1], runs[0])
        assert.deepEqual(runs[2], runs[0])
        assert.notDeepEqual(placements(options, 'eager', 0), placements(options, 'seeded', 1))
      }
    }
  })

  it('makes no query to the device', () => {
    const { device, pool, a, b } = setUp({ deterministic: true })
    const calls = orderCalls(device, () => {
      for (let count = 0; count < 50; count++) {
        pool.allocate(3 * MiB, a).free()
        pool.allocate(5 * MiB, b).free()
      }
      pool.processDeferred()
      pool.trimTo(0)
    })
    assert.deepEqual(calls, {})
  })
})
