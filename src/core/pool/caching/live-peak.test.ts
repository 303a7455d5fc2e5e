// The peak of live memory against a model, with few and with many streams.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'

function run(seed: number, streams: number, sizes: number, steps: number): void {
  const random = new Random(seed)
  const device = new TestDevice()
  const pool = device.createPool()
  const all = Array.from({ length: streams }, () => device.createStream())
  const held: DeviceBuffer[] = []
  let [live, peak] = [0, 0]
  for (let step = 0; step < steps; step++) {
    const dice = random.below(1000)
    // The range of held buffers moves, so that the peak is reached, left and exceeded.
    const most = 20 + 180 * ((step >> 11) % 3)
    if (dice === 0) {
      pool.resetPeaks()
      peak = live
    } else if (dice < 4) pool.trimTo(random.below(8 * MiB))
    else if (dice < 6) pool.processDeferred()
    else if (dice < 8 && all.length > 2) {
      all.splice(random.below(all.length), 1, device.createStream())[0].close()
    } else if (held.length < most && random.below(2) === 0) {
      const bytes = 4 * KiB * (1 + random.below(sizes))
      held.push(pool.allocate(bytes, all[random.below(all.length)]))
    } else if (held.length > 0) {
      const [buffer] = held.splice(random.below(held.length), 1)
      buffer.free(random.below(8) === 0 ? all[random.below(all.length)] : undefined)
    }
    const { liveBytes, peakLiveBytes } = pool.stats()
    live = liveBytes
    peak = Math.max(peak, live)
    assert.equal(peakLiveBytes, peak, `step ${step}`)
  }
  assert.ok(pool.stats().cacheMisses < pool.stats().allocations, 'some requests are hits')
  pool.check()
}

describe('the peak of live memory', () => {
  for (const [streams, sizes, steps] of [
    [1, 4, 12_000],
    [5, 40, 12_000],
    [63, 8, 12_000],
    [70, 2, 12_000],
    [300, 20, 8000],
  ]) {
    for (const seed of [1, 2]) {
      it(`is exact with ${streams} streams and ${sizes} sizes, seed ${seed}`, () => run(seed, streams, sizes, steps))
    }
  }
})
