import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../core/base/random.js'
import { LatencyMeter } from './latency.js'

test('the total is the median of the sums of the passes, and the longest is of all passes', () => {
  const meter = new LatencyMeter()
  for (const [allocations, frees] of [
    [[5, 6], [1]],
    [[700, 1], [2]],
    [[10, 20], [60]],
  ]) {
    meter.startPass()
    for (const ns of allocations) meter.noteAllocation(ns)
    for (const ns of frees) meter.noteFree(ns)
  }
  const { totalNs, max, runs, hits } = meter.allocateNs()!
  assert.deepEqual({ totalNs, max, runs, hits }, { totalNs: 30, max: 700, runs: 3, hits: null })
  assert.equal(meter.freeNs()!.totalNs, 2)
})

test('percentiles are those of the sorted values', () => {
  const random = new Random(1)
  for (const count of [1, 2, 10, 1000, 5000]) {
    const values = Array.from({ length: count }, () => random.below(count))
    const meter = new LatencyMeter()
    meter.startPass()
    for (const ns of values) meter.noteAllocation(ns)
    const sorted = values.toSorted((a, b) => a - b)
    const at = (share: number) => sorted[Math.min(count - 1, Math.floor(share * count))]
    const { p50, p90, p99, p999, max } = meter.allocateNs()!
    assert.deepEqual([p50, p90, p99, p999, max], [at(0.5), at(0.9), at(0.99), at(0.999), at(1)])
  }
})

test('without a pass there are no times', () => {
  assert.deepEqual([new LatencyMeter().allocateNs(), new LatencyMeter().freeNs()], [null, null])
})
