import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { Counters } from './counters.js'
import { type StatisticsScope, statistics } from './statistics.js'

const open = () => statistics(new TestDevice().createPool({ maxPoolBytes: 8 * MiB }))

/** Figures of bytes, then of allocations: current, peak, total. */
const figures = ({ bytes, allocations }: Counters) =>
  [bytes, allocations].map(({ current, peak, total }) => [current, peak, total])

describe('statistics', () => {
  it('requested bytes and allocations are counted: now, at the peak, in all', () => {
    const pool = open()
    assert.deepEqual(figures(pool.counters), [
      [0, 0, 0],
      [0, 0, 0],
    ])
    const first = pool.allocate(1000)
    pool.allocate(500)
    first.free()
    pool.tryAllocate(100)
    assert.deepEqual(figures(pool.counters), [
      [600, 1500, 1600],
      [2, 2, 3],
    ])
  })

  it('a scope counts from its start to its end, and can be read after that', () => {
    const pool = open()
    pool.allocate(5000)
    let after: StatisticsScope
    {
      using scope = pool.scope()
      pool.allocate(100).free()
      pool.allocate(30)
      after = scope
    }
    pool.allocate(7000)
    after.close()
    assert.deepEqual(figures(after), [
      [30, 100, 130],
      [1, 1, 2],
    ])
    assert.equal(pool.counters.bytes.peak, 12_030)
  })

  it('scopes nest: an inner peak counts from its own start, and outer scopes go on counting', () => {
    const pool = open()
    using outer = pool.scope()
    const kept = pool.allocate(1000)
    using inner = pool.scope()
    pool.allocate(200).free()
    kept.free()
    pool.allocate(300)
    assert.deepEqual(figures(inner), [
      [-700, 200, 500],
      [0, 1, 2],
    ])
    inner.close()
    pool.allocate(5000)
    assert.deepEqual(figures(inner)[0], [-700, 200, 500])
    assert.deepEqual(figures(outer), [
      [5300, 5300, 6500],
      [2, 2, 4],
    ])
    assert.deepEqual(figures(pool.counters), figures(outer))
  })

  it('scopes close in any order', () => {
    const pool = open()
    const [first, second] = [pool.scope(), pool.scope()]
    pool.allocate(10)
    first.close()
    pool.allocate(20)
    second.close()
    pool.allocate(40)
    assert.deepEqual([first.bytes.total, second.bytes.total, pool.counters.bytes.total], [10, 30, 70])
  })

  it('figures equal those of a stack of counters that are added up when popped', () => {
    const pool = open()
    const random = new Random(3)
    const held: DeviceBuffer[] = []
    const scopes = [pool.scope()]
    const stack = [{ current: 0, peak: 0, total: 0 }]
    const pop = () => {
      const scope = scopes.pop()!
      const { current, peak, total } = scope.bytes
      const mine = stack.pop()!
      assert.deepEqual({ current, peak, total }, mine)
      scope.close()
      const below = stack.at(-1)
      if (below === undefined) return
      below.peak = Math.max(below.peak, below.current + mine.peak)
      below.current += mine.current
      below.total += mine.total
    }
    for (let step = 0; step < 500; step++) {
      const action = random.below(10)
      if (action === 0 && stack.length < 6) {
        scopes.push(pool.scope())
        stack.push({ current: 0, peak: 0, total: 0 })
      } else if (action === 1 && stack.length > 1) pop()
      else if (action < 6 && held.length < 30) {
        const buffer = pool.allocate(1 + random.below(10_000))
        held.push(buffer)
        const top = stack.at(-1)!
        top.current += buffer.byteLength
        top.total += buffer.byteLength
        top.peak = Math.max(top.peak, top.current)
      } else if (held.length > 0) {
        const [buffer] = held.splice(random.below(held.length), 1)
        stack.at(-1)!.current -= buffer.byteLength
        buffer.free()
      }
    }
    while (stack.length > 0) pop()
  })
})
