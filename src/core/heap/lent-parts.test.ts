// Every operation on a block in a view is stopped after each of its stores, as a thread's death stops it, and repaired.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Region } from '../threads/region.js'
import { blockOfPart, freeParts, joinParts, makeSlab, mendLent, partsOf, rehouseInView } from './lent-parts.js'
import { rebuild } from './rebuild.js'
import { RecordTable, State } from './records.js'
import { SegregatedFit } from './segregated-fit.js'
import { stopsOf } from './stops.fixture.js'

const [SMALL, HOME, VIEW] = [0, 1, 2]
const UNITS = 16

interface Heaps {
  readonly records: RecordTable
  readonly small: SegregatedFit
  readonly large: SegregatedFit
}

function heapsIn(buffer: ArrayBuffer | null): { heaps: Heaps; bytes: number } {
  const region = new Region(buffer)
  const records = new RecordTable(region, 32)
  const small = new SegregatedFit(records, { region, keys: 3, ranges: 3 })
  const large = new SegregatedFit(records, { region, keys: 3, ranges: 3 })
  return { heaps: { records, small, large }, bytes: region.bytes }
}
const BYTES = heapsIn(null).bytes

/** Takes four units at each of some places, of the free memory that begins there. */
function takeAt({ large, records }: Heaps, starts: readonly number[]): number[] {
  return starts.map(start => {
    const record = large.carve(large.recordAt(HOME, start), start, 4)
    records.claim(record)
    return record
  })
}

/** Heaps with a block in a view, of the units from 8 on and then those from 0 on, and a slab behind it if wanted. */
function withBlock(hasSlab = false): { buffer: ArrayBuffer; block: number } {
  const buffer = new ArrayBuffer(BYTES)
  const { heaps } = heapsIn(buffer)
  heaps.small.addRange(SMALL, 0, UNITS, 'absent')
  heaps.large.addRange(HOME, 0, UNITS, 'free')
  const block = joinParts(heaps.records, takeAt(heaps, [8, 0]), { range: VIEW, start: 2, units: 8 })
  if (hasSlab) {
    const [slab] = takeAt(heaps, [12])
    makeSlab(heaps.records, slab)
    heaps.small.commit(12, 4, 0, 0)
  }
  return { buffer, block }
}

/** Runs `work`; returns a copy of the buffer for each moment between two of its stores. */
function stopsIn(buffer: ArrayBuffer, work: (heaps: Heaps) => void): ArrayBuffer[] {
  const { heaps } = heapsIn(buffer)
  const { records, small, large } = heaps
  const parts = [records, small, large, small.firstRecords, large.firstRecords]
  return stopsOf(buffer, parts, () => work(heaps))
}

/** Repairs what a buffer contains, and asserts that lent records, blocks and heaps agree. */
function repaired(buffer: ArrayBuffer): Heaps & { blocks: number[] } {
  const { heaps } = heapsIn(buffer)
  const { records, small, large } = heaps
  const blocks = mendLent(small, large)
  rebuild([small, large], blocks)
  small.check()
  large.check()
  const lent = new Map<number, number>()
  for (let record = large.firstRecords.get(HOME); record !== 0; record = records.nextOf(record)) {
    if (records.state(record) === State.lent) lent.set(record, blockOfPart(records, record))
  }
  for (const block of blocks) {
    assert.ok(records.isLive(block))
    for (const part of partsOf(records, block)) {
      assert.equal(lent.get(part), block, 'a part is lent to its block')
      lent.delete(part)
    }
  }
  assert.deepEqual(
    [...lent.values()].filter(block => block !== 0),
    [],
    'no part belongs to no block',
  )
  return { ...heaps, blocks }
}

/** By unit of the home range: the state of the block there, and its dependency if it is free. */
function unitsOf({ large, records }: Heaps): [state: State, key: number, stamp: number][] {
  const units: [State, number, number][] = []
  for (let record = large.firstRecords.get(HOME); record !== 0; record = records.nextOf(record)) {
    const state = records.state(record)
    const [key, stamp] = state === State.free ? [records.keyOf(record), records.stampOf(record)] : [0, 0]
    for (let count = records.unitsOf(record); count > 0; count--) units.push([state, key, stamp])
  }
  return units
}

test('a block in a view has its parts in the order of its addresses, and they go back to their heap with it', () => {
  const { buffer, block } = withBlock()
  const { heaps } = heapsIn(buffer)
  const { records, large } = heaps
  const parts = partsOf(records, block)
  assert.deepEqual(
    parts.map(part => [records.offsetOf(part), records.unitsOf(part)]),
    [
      [8, 4],
      [0, 4],
    ],
  )
  assert.deepEqual(
    parts.map(part => [records.state(part), blockOfPart(records, part)]),
    [
      [State.lent, block],
      [State.lent, block],
    ],
  )
  assert.deepEqual([records.rangeOf(block), records.offsetOf(block), records.unitsOf(block)], [VIEW, 2, 8])
  large.check()
  freeParts(large, block, 1, 5)
  large.check()
  assert.deepEqual(
    unitsOf(heaps),
    Array.from({ length: UNITS }, () => [State.free, 1, 5]),
    'merged with what was free',
  )
  assert.equal(records.state(block), State.unused)
})

test('a free of a block in a view is done or undone as a whole, stopped after every store', () => {
  for (const [key, stamp] of [
    [0, 0],
    [1, 5],
  ]) {
    for (const hasSlab of [false, true]) {
      const { buffer, block } = withBlock(hasSlab)
      const stops = stopsIn(buffer, ({ large }) => freeParts(large, block, key, stamp))
      let [done, undone] = [0, 0]
      for (const stop of stops) {
        const heaps = repaired(stop)
        const units = unitsOf(heaps)
        for (const [unit, was] of [...units.slice(0, 4), ...units.slice(8, 12)].entries()) {
          const isFree = heaps.blocks.length === 0
          assert.equal(was[0], isFree ? State.free : State.lent, `unit ${unit}`)
          if (isFree) assert.ok(was[1] === key && was[2] >= stamp, 'a free is in order')
        }
        if (hasSlab) assert.deepEqual(units[12][0], State.lent, 'the slab stays')
        if (heaps.blocks.length === 0) done++
        else undone++
        if (heaps.blocks.length > 0) freeParts(heaps.large, heaps.blocks[0], 0, 0)
        heaps.large.settle(1, Infinity)
        assert.equal(heaps.large.freeUnits, hasSlab ? 12 : UNITS, 'no unit is lost')
        assert.equal(heaps.records.inUse, hasSlab ? 4 : 2, 'no record is lost')
      }
      assert.ok(done > 10 && undone > 3, `${done} done, ${undone} undone`)
    }
  }
})

test('a block in a view that moves to another record is one block, stopped after every store', () => {
  const { buffer, block } = withBlock()
  const stops = stopsIn(buffer, ({ records }) => rehouseInView(records, block))
  for (const stop of stops) {
    const { blocks, records, large } = repaired(stop)
    assert.equal(blocks.length, 1)
    assert.deepEqual(
      partsOf(records, blocks[0]).map(part => records.offsetOf(part)),
      [8, 0],
    )
    freeParts(large, blocks[0], 0, 0)
    assert.equal(large.freeUnits, UNITS)
    assert.equal(records.inUse, 2)
  }
  assert.ok(stops.length > 10)
})

test('a block in a view is made of all of its parts or does not exist, stopped after every store', () => {
  const buffer = new ArrayBuffer(BYTES)
  const { heaps } = heapsIn(buffer)
  heaps.small.addRange(SMALL, 0, UNITS, 'absent')
  heaps.large.addRange(HOME, 0, UNITS, 'free')
  const parts = takeAt(heaps, [8, 0])
  const stops = stopsIn(buffer, ({ records }) => joinParts(records, parts, { range: VIEW, start: 2, units: 8 }))
  for (const stop of stops) {
    const { blocks, records } = repaired(stop)
    assert.ok(blocks.length <= 1)
    if (blocks.length === 1) assert.deepEqual(partsOf(records, blocks[0]), parts)
  }
  assert.equal(repaired(stops[stops.length - 1]).blocks.length, 1)
})

test('a slab without memory in the heap for small blocks is free again, stopped after every store', () => {
  const { buffer } = withBlock()
  const { heaps } = heapsIn(buffer)
  const [taken] = takeAt(heaps, [12])
  const stops = stopsIn(buffer, ({ records, small }) => {
    makeSlab(records, taken)
    small.commit(12, 4, 0, 0)
  })
  let slabs = 0
  for (const stop of stops) {
    const { large, small, records } = repaired(stop)
    const state = records.state(large.recordAt(HOME, 12))
    const inside = records.state(small.recordAt(SMALL, 12))
    assert.equal(state === State.lent, inside !== State.absent, 'memory is in one of the heaps')
    if (state === State.lent) slabs++
  }
  assert.ok(slabs > 0 && slabs < stops.length)
})
