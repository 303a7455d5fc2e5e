import assert from 'node:assert/strict'
import { test } from 'node:test'
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

test('without a pass there are no times', () => {
  assert.deepEqual([new LatencyMeter().allocateNs(), new LatencyMeter().freeNs()], [null, null])
})
