// HEAP_FUZZ_SEED and HEAP_FUZZ_STEPS replay and lengthen.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../base/random.js'
import { Stride } from './records.js'
import { assertPristine, map, newHeap, offsetOf, only, take, unitsOf } from './segregated-fit.fixture.js'
import type { SegregatedFit } from './segregated-fit.js'

const SEED = Number(process.env['HEAP_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['HEAP_FUZZ_STEPS'] ?? 20_000)

test(`random programs agree with a shadow model, in phases (HEAP_FUZZ_SEED=${SEED} HEAP_FUZZ_STEPS=${STEPS})`, () => {
  const random = new Random(SEED)
  const GRANULE = 64
  const RANGE_UNITS = 4096
  const heap = newHeap(RANGE_UNITS, 'absent')
  const owner = new Int32Array(RANGE_UNITS)
  const mapped = new Uint8Array(RANGE_UNITS / GRANULE)
  const clock = [0, 1, 1, 1]
  const live: number[] = []
  const counts = { allocated: 0, freed: 0, mapped: 0, unmapped: 0, settled: 0 }

  const step = (allocating: number) => {
    const key = random.below(4)
    const dice = random.fraction()
    if (dice < allocating) {
      const units = random.logUniform(1, 300)
      let record = take(heap, units, key, random.below(8) === 0 ? 16 : 1)
      if (record === 0 && random.below(2) === 0) {
        const run = heap.findRun(units, only(key), GRANULE)
        record = map(heap, units, key, GRANULE)
        for (let unit = run?.start ?? 0; record !== 0 && unit < run!.start + units; unit++) {
          if (mapped[Math.floor(unit / GRANULE)]++ === 0) counts.mapped++
          mapped[Math.floor(unit / GRANULE)] = 1
        }
      }
      if (record === 0) return
      const start = offsetOf(heap, record)
      for (let unit = start; unit < start + units; unit++) {
        assert.equal(owner[unit], 0, 'no unit is given out twice')
        assert.equal(mapped[Math.floor(unit / GRANULE)], 1, 'only units with memory are given out')
        owner[unit] = record
      }
      live.push(record)
      counts.allocated++
    } else if (live.length > 0) {
      const [record] = live.splice(random.below(live.length), 1)
      const start = offsetOf(heap, record)
      owner.fill(0, start, start + unitsOf(heap, record))
      heap.free(record, key, key === 0 ? 0 : clock[key])
      counts.freed++
    }
    if (random.below(16) === 0) counts.settled += heap.settle(key, clock[key]++)
    if (random.below(64) === 0) counts.unmapped += unmapOne(heap, mapped, GRANULE)
  }
  for (const [share, steps] of [
    [0.7, STEPS / 2],
    [0.3, STEPS / 2],
  ]) {
    for (let count = 0; count < steps; count++) {
      step(share)
      if (count % 16 === 0 || STEPS <= 5000) heap.check()
    }
  }
  for (const record of live.splice(0)) heap.free(record, 0, 0)
  for (let key = 1; key < 4; key++) heap.settle(key, Infinity)
  if (heap.absentUnits > 0) {
    const whole = map(heap, RANGE_UNITS, 0, GRANULE)
    assert.notEqual(whole, 0)
    heap.free(whole, 0, 0)
  }
  assertPristine(heap)
  for (const [what, count] of Object.entries(counts)) assert.ok(count > 10, `${what}: ${count}`)
})

/** Takes the memory of one idle granule away, as a release does. */
function unmapOne(heap: SegregatedFit, mapped: Uint8Array, granuleUnits: number): number {
  for (let sizeClass = heap.nextClass(0, 0); sizeClass !== -1; sizeClass = heap.nextClass(0, sizeClass + 1)) {
    for (let block = heap.head(0, sizeClass); block !== 0; block = heap.records.words[block * Stride.words + 6]) {
      const granule = Math.ceil(offsetOf(heap, block) / granuleUnits)
      if ((granule + 1) * granuleUnits > offsetOf(heap, block) + unitsOf(heap, block)) continue
      heap.decommit(block, granule * granuleUnits, granuleUnits)
      mapped[granule] = 0
      return 1
    }
  }
  return 0
}
