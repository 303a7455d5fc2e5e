import assert from 'node:assert/strict'
import { it } from 'node:test'
import { KiB } from '../../base/bytes.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'
import { LiveTable } from './live-table.js'

/** Allocates and frees, and asserts that each live buffer has the value that it was given. */
function assertKept(table: LiveTable<number>, pools: readonly Pool[]): void {
  const live = new Map<DeviceBuffer, number>()
  for (let step = 0; step < 400; step++) {
    const buffer = pools[step % pools.length].allocate(1 * KiB)
    assert.ok(!live.has(buffer))
    table.set(buffer, step)
    live.set(buffer, step)
    for (const [each, value] of live) assert.equal(table.get(each), value, `step ${step}, buffer of step ${value}`)
    const [oldest] = live.keys()
    if (live.size > 20) {
      live.delete(oldest)
      oldest.free()
    }
  }
}

const device = new TestDevice()
const pools: Readonly<Record<string, () => Pool>> = {
  'a caching pool': () => device.createPool(),
  'a pool in debug mode': () => device.createPool({ debug: true }),
  'a shared pool': () => device.createSharedPool().pool,
  'a block pool': () => device.createBlockPool({ blockBytes: 1 * KiB, count: 40 }),
  'an arena': () => device.createArenaPool({ bytes: 512 * KiB }),
  'a shared arena': () => device.createSharedArena({ bytes: 512 * KiB }).pool,
  'a pool of the driver': () => device.createPlainPool(),
}

for (const [name, make] of Object.entries(pools)) {
  it(`every live buffer of ${name} keeps its value`, () => assertKept(new LiveTable(), [make()]))
}

it('every live buffer of several pools keeps its value', () => {
  assertKept(
    new LiveTable(),
    [...Object.values(pools)].map(make => make()),
  )
})

it('a buffer without a value has none, also in the place of a freed one with another pool', () => {
  const table = new LiveTable<number>()
  const [pool, other] = [device.createPool(), device.createPool()]
  assert.equal(table.get(pool.allocate(1)), null)
  table.set(pool.allocate(1), 1)
  assert.equal(table.get(other.allocate(1)), null)
})
