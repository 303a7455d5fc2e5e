// Calls on shared pools that end early for want of stack, wherever in the call that shows. A cut allocation may leave a live
// buffer without an owner; all else is intact afterwards.
// The memory is taken from the device beforehand, since the simulated device itself is no part of what must survive.
//
// CUTS_SEED and CUTS_ROUNDS replay and lengthen; the names of the tests say them.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../src/base/bytes.js'
import { Random } from '../src/base/random.js'
import { openDevice } from '../src/device.js'
import { SimulatedDriver } from '../src/driver/simulated/simulated-driver.js'
import type { SharedPool } from '../src/pool/shared-pool.js'

const SEED = Number(process.env['CUTS_SEED'] ?? 1)
const ROUNDS = Number(process.env['CUTS_ROUNDS'] ?? 60)
const LIMIT = 64 * MiB

/** Fills the stack, and allocates and frees on so many levels on the way back, at first without room for the call. */
function overflow(pool: SharedPool, random: Random, levels: number): void {
  try {
    overflow(pool, random, levels)
  } catch (error) {
    if (!(error instanceof RangeError) || random.below(levels) === 0) throw error
    pool.allocate(4096 + 256 * random.below(64)).free()
    throw error
  }
}

describe(`calls that are cut short (CUTS_SEED=${SEED} CUTS_ROUNDS=${ROUNDS})`, () => {
  it('a full stack leaves a shared pool whole', () => {
    const driver = new SimulatedDriver({ capacityBytes: LIMIT })
    const device = openDevice(driver)
    const pool = device.createPool({ shared: true, maxPoolBytes: LIMIT })
    pool.allocate(32 * MiB).free()
    const random = new Random(SEED)
    for (let round = 0; round < ROUNDS; round++) {
      assert.throws(() => overflow(pool, random, 50), RangeError)
      for (const { ptr } of pool.live()) pool.deallocate(ptr)
      assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0], `after round ${round}`)
      pool.allocate(1 * MiB).free()
      pool.check()
    }
    pool.trimTo(0)
    device.synchronize()
    pool.trimTo(0)
    assert.equal(pool.stats().reservedBytes, 0)
    pool.allocate(48 * MiB).free()
    assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
    device.close()
    assert.equal(driver.usedBytes(), 0)
  })
})
