import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { keyOfSlot } from '../../heap/key.js'
import { signal } from '../../order/order.fixture.js'
import { TestDevice } from '../pool.fixture.js'

/**
 * A full pool with gaps of 3 MiB. Two streams have freed half of each gap, and their work is pending. A third stream
 * comes after both. From then on the heaps are repaired in the middle of each join, as after the death of a thread that
 * had the lock.
 */
function fragmented() {
  const device = new TestDevice()
  const { driver } = device
  let isFull = false
  const repairs = device.duringGrowth(() => {
    if (isFull) repair()
  })
  const { pool } = device.createSharedPool({ maxPoolBytes: 16 * MiB })
  const state = pool['state']
  const repair = () =>
    state.locked(() => {
      state.memory.rebuild()
      state.caches.recount()
    })
  const [first, second, asking] = [device.createStream(), device.createStream(), device.createStream()]
  const spacers = []
  const gaps = []
  for (let turn = 0; turn < 4; turn++) {
    spacers.push(pool.allocate(MiB))
    for (const stream of [first, second]) gaps.push(pool.allocate(1.5 * MiB, stream))
  }
  for (const stream of [first, second]) driver.holdOperation(stream.handle)
  isFull = true
  for (const gap of gaps) gap.fill(1)
  for (const gap of gaps) gap.free()
  for (const stream of [first, second]) {
    signal(stream, asking)
  }
  /** MiB of the large heap that wait for each of the two streams. */
  const waiting = () => [first, second].map(({ slot }) => state.memory.large.unitsByKey[keyOfSlot(slot)] / 4096)
  return { driver, pool, asking, spacers, repairs, waiting }
}

describe('memory joined in a shared pool', () => {
  it('is whole after a repair in the middle of the join', () => {
    const { driver, pool, asking, spacers, repairs } = fragmented()
    const [count, mappings] = [repairs(), driver.calls.get('cuMemMap')!]
    const buffer = pool.allocate(5 * MiB, asking)
    assert.ok(repairs() > count)
    assert.equal(driver.calls.get('cuMemMap'), mappings + 3, 'three pieces are mapped once more')
    pool.check()
    assert.equal(pool.stats().liveBuffers, 5)
    for (const each of [buffer, ...spacers]) each.free()
    pool.check()
  })

  for (const call of ['cuMemMap', 'cuMemSetAccess'] as const) {
    it(`keeps what each part waits for if ${call} is refused after a repair`, () => {
      const { driver, pool, asking, repairs, waiting } = fragmented()
      const count = repairs()
      driver.failCall({ call, code: 999 })
      assert.throws(() => pool.allocate(5 * MiB, asking), { name: 'CudaError' })
      assert.ok(repairs() > count)
      assert.deepEqual(waiting(), [6, 6])
      pool.check()
      pool.allocate(5 * MiB, asking).free()
    })
  }
})
