// A pool at its limit, whose blocks are freed one at a time, each to be replaced by two halves: whatever room there
// is must be found.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'

type Order = (blocks: readonly DeviceBuffer[]) => DeviceBuffer[][]

const ORDERS: Record<string, (random: Random) => Order> = {
  'one after another': () => blocks => blocks.map(block => [block]),
  'in random order': random => blocks =>
    blocks
      .map(block => ({ block, at: random.next() }))
      .sort((a, b) => a.at - b.at)
      .map(({ block }) => [block]),
  'all at once': () => blocks => [[...blocks]],
}

/** Halves every block down to `leastBytes`. */
function tile(pool: Pool, capacityBytes: number, leastBytes: number, order: Order): DeviceBuffer[] {
  let live = [pool.allocate(capacityBytes)]
  for (let bytes = capacityBytes / 2; bytes >= leastBytes; bytes /= 2) {
    const halves: DeviceBuffer[] = []
    for (const freed of order(live)) {
      for (const block of freed) block.free()
      for (let count = 0; count < 2 * freed.length; count++) halves.push(pool.allocate(bytes))
    }
    live = halves
  }
  return live
}

for (const backing of ['virtual', 'segments', 'managed', 'registrable'] as const) {
  describe(`perfect tiling: ${backing}`, () => {
    for (const [name, makeOrder] of Object.entries(ORDERS)) {
      for (const [capacityBytes, leastBytes] of [
        [16 * MiB, 64 * KiB],
        [16 * MiB, 4 * KiB],
        [2 * MiB, 256],
      ]) {
        it(`${capacityBytes / MiB} MiB down to ${leastBytes} bytes ${name}, without growth`, () => {
          const device = new TestDevice()
          const pool = device.createPool({ backing, maxPoolBytes: capacityBytes })
          const live = tile(pool, capacityBytes, leastBytes, makeOrder(new Random(1)))
          assertConsistent(pool)
          assert.equal(pool.tryAllocate(1), null)
          assert.equal(pool.stats().peakReservedBytes, capacityBytes)
          for (const block of live) block.free()
          pool.allocate(capacityBytes).free()
          assertConsistent(pool)
          pool.trimTo(0)
          assert.equal(pool.stats().reservedBytes, 0)
        })
      }
    }

    it('blocks taken from the heap of the other size class go back to that heap', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: 8 * MiB })
      const other = device.createStream()
      const large = Array.from({ length: 8 }, () => pool.allocate(1 * MiB))
      large[3].free()
      const small = Array.from({ length: 16 }, () => pool.allocate(64 * KiB))
      assert.equal(pool.tryAllocate(256), null)
      for (const block of [...large.filter(block => !block.freed), ...small]) block.free()
      const many = Array.from({ length: 8 * 16 }, () => pool.allocate(64 * KiB))
      for (const block of many.slice(0, 32)) block.free()
      const release = device.hold(other)
      const shared = many.slice(32, 64)
      for (const block of shared) block.recordUse(other)
      for (const block of shared) block.free()
      assertConsistent(pool)
      release()
      for (const block of many.slice(64)) block.free()
      pool.allocate(8 * MiB).free()
      assertConsistent(pool)
    })
  })
}

describe('perfect tiling: shared pools', () => {
  for (const backing of ['virtual', 'segments'] as const) {
    it(`8 MiB of ${backing} down to 4 KiB, without growth`, () => {
      const { pool } = new TestDevice().createSharedPool({ backing, maxPoolBytes: 8 * MiB })
      const live = tile(pool, 8 * MiB, 4 * KiB, ORDERS['one after another'](new Random(1)))
      pool.check()
      for (const block of live) block.free()
      pool.allocate(8 * MiB).free()
      pool.check()
    })
  }
})
