// Every operation of small heaps is stopped after each of its stores, as a thread's death stops it, and repaired.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Region } from '../threads/region.js'
import { rebuild } from './rebuild.js'
import { Double, RecordTable, State, Stride, Word } from './records.js'
import { SegregatedFit } from './segregated-fit.js'
import { stopsOf as stopsOfStores } from './stops.fixture.js'

const KEYS = 3
const RANGES = 2
const RECORDS = 16
const UNITS = 6
const GRANULE = 2

/** A heap whose whole state is one buffer, given or new. */
function heapIn(buffer: ArrayBuffer | null): { heap: SegregatedFit; bytes: number } {
  const region = new Region(buffer)
  const records = new RecordTable(region, RECORDS)
  const heap = new SegregatedFit(records, { region, keys: KEYS, ranges: RANGES })
  return { heap, bytes: region.bytes }
}
const BYTES = heapIn(null).bytes

/** The live block that a unit belongs to, or the dependency of a free unit. */
interface Unit {
  readonly state: State
  readonly block: number
  readonly key: number
  readonly stamp: number
}

/** The units by range and number. */
function unitsOf(heap: SegregatedFit): Unit[] {
  const { words, doubles } = heap.records
  return [...heap.firstRecords].flatMap(([, first]) => {
    const units: Unit[] = []
    for (let record = first; record !== 0; record = words[record * Stride.words + Word.next]) {
      const base = record * Stride.words
      const [block, key] = [words[base + Word.tag], words[base + Word.key]]
      const unit = { state: heap.records.state(record), block, key, stamp: doubles[record * 8 + Double.stamp] }
      for (let count = words[base + Word.units]; count > 0; count--) units.push(unit)
    }
    return units
  })
}

/** Runs `work` on a heap in `buffer`. Returns a copy of the buffer for each moment between two stores. */
function stopsOf(buffer: ArrayBuffer, work: (heap: SegregatedFit) => void): ArrayBuffer[] {
  const { heap } = heapIn(buffer)
  return stopsOfStores(buffer, [heap, heap.records, heap.firstRecords], () => work(heap))
}

type Operation =
  | { readonly kind: 'take'; readonly units: number; readonly key: number; readonly align: number }
  | { readonly kind: 'free'; readonly block: number; readonly key: number; readonly stamp: number }
  | { readonly kind: 'move'; readonly block: number }
  | { readonly kind: 'settle'; readonly key: number }
  | { readonly kind: 'map'; readonly units: number }
  | { readonly kind: 'unmap'; readonly start: number }

/** Live blocks, in the order of their records. */
function liveIn(heap: SegregatedFit): number[] {
  const records = Array.from(
    { length: heap.records.used - heap.records.first },
    (_, index) => index + heap.records.first,
  )
  return records.filter(record => heap.records.isLive(record))
}

function perform(heap: SegregatedFit, operation: Operation): void {
  const { records } = heap
  if (operation.kind === 'take') {
    const record = heap.allocate(operation.units, operation.align, operation.key)
    if (record !== 0) records.revive(record)
  } else if (operation.kind === 'free') heap.free(liveIn(heap)[operation.block], operation.key, operation.stamp)
  else if (operation.kind === 'move') heap.rehouse(liveIn(heap)[operation.block])
  else if (operation.kind === 'settle') heap.settle(operation.key, 2)
  else if (operation.kind === 'map') {
    const run = heap.findRun(operation.units, new Float64Array([Infinity, Infinity]), GRANULE)
    if (run !== null) records.revive(heap.keep(heap.takeRun(run, GRANULE), run.start, run.units))
  } else if (operation.kind === 'unmap') {
    const { words } = records
    for (const [, first] of heap.firstRecords) {
      for (let record = first; record !== 0; record = words[record * Stride.words + Word.next]) {
        const [start, units] = [words[record * Stride.words + Word.offset], words[record * Stride.words + Word.units]]
        if (records.state(record) !== State.free || words[record * Stride.words + Word.key] !== 0) continue
        if (start > operation.start || operation.start + GRANULE > start + units) continue
        heap.decommit(record, operation.start, GRANULE)
        return
      }
    }
  }
}

/**
 * Asserts that the repair loses nothing that the operation did not touch, and that a free unit keeps its dependency.
 */
function assertRepaired(
  before: readonly Unit[],
  buffer: ArrayBuffer,
  operation: Operation,
  after: readonly Unit[],
): void {
  const { heap } = heapIn(buffer)
  rebuild([heap])
  heap.check()
  const units = unitsOf(heap)
  assert.equal(units.length, before.length)
  for (const [index, unit] of units.entries()) {
    const [was, would] = [before[index], after[index]]
    if (was.state === State.live && would.state === State.live && operation.kind !== 'move') {
      assert.equal(unit.block, was.block, 'a live block stays what it is')
    }
    if (was.state === State.live && unit.state === State.free) {
      assert.equal(operation.kind, 'free')
      assert.deepEqual(
        [unit.key, unit.stamp >= would.stamp || would.key === 0],
        [would.key, true],
        'a free is in order',
      )
    }
    if (was.state !== State.live && unit.state === State.live) {
      assert.ok(operation.kind === 'take' || operation.kind === 'map', `${operation.kind} takes nothing`)
    }
    if (was.state === State.absent && unit.state === State.free) {
      assert.equal(operation.kind, 'map', 'memory comes from nowhere else')
    }
    if (was.state === State.free && unit.state === State.free && was.key !== 0 && operation.kind !== 'settle') {
      assert.equal(unit.key, was.key, 'a dependency stays')
      assert.ok(unit.stamp >= was.stamp, 'and does not come earlier')
    }
  }
  assert.equal(heap.records.inUse, [...new Set(blockStarts(heap))].length, 'no record is lost')
  for (const record of liveIn(heap)) heap.free(record, 0, 0)
  for (let key = 1; key < KEYS; key++) heap.settle(key, Infinity)
  heap.check()
  assert.equal(heap.freeUnits + heap.absentUnits, before.length, 'every unit comes back')
  if (heap.absentUnits === 0) assert.notEqual(heap.allocate(UNITS, 1, 0), 0, 'in one piece')
}

function blockStarts(heap: SegregatedFit): number[] {
  return [...heap.firstRecords].flatMap(([, first]) => {
    const blocks: number[] = []
    const { words } = heap.records
    for (let record = first; record !== 0; record = words[record * Stride.words + Word.next]) blocks.push(record)
    return blocks
  })
}

/** The possible next operations; `withHoles` includes memory that comes and goes. */
function operationsIn(heap: SegregatedFit, withHoles: boolean): Operation[] {
  const operations: Operation[] = [
    { kind: 'take', units: 1, key: 1, align: 1 },
    { kind: 'take', units: 2, key: 2, align: 1 },
    { kind: 'take', units: 3, key: 1, align: 2 },
  ]
  for (const [block] of liveIn(heap).entries()) {
    operations.push({ kind: 'free', block, key: 0, stamp: 0 })
    operations.push({ kind: 'free', block, key: 1, stamp: 1 + block })
    if (!withHoles) operations.push({ kind: 'free', block, key: 2, stamp: 3 - block })
    if (block === 0) operations.push({ kind: 'move', block })
  }
  for (let key = 1; key < KEYS; key++) if (heap.unitsByKey[key] > 0) operations.push({ kind: 'settle', key })
  if (!withHoles) return operations
  for (const units of [1, 3]) operations.push({ kind: 'map', units })
  for (const start of [0, 2]) operations.push({ kind: 'unmap', start })
  return operations
}

/** Tries every sequence of `depth` operations, and stops the last one after each store. */
function stopEverywhere(withHoles: boolean, depth: number, repairsToo: boolean): number {
  let stopped = 0
  const extend = (buffer: ArrayBuffer, left: number) => {
    const { heap } = heapIn(buffer)
    for (const operation of operationsIn(heap, withHoles)) {
      const copy = buffer.slice(0)
      const before = unitsOf(heap)
      const stops = stopsOf(copy, watched => perform(watched, operation))
      const after = unitsOf(heapIn(copy).heap)
      for (const stop of stops) {
        if (repairsToo) {
          for (const again of stopsOf(stop.slice(0), watched => rebuild([watched]))) {
            assertRepaired(before, again, operation, after)
            stopped++
          }
        }
        assertRepaired(before, stop, operation, after)
        stopped++
      }
      if (left > 1 && stops.length > 0) extend(copy, left - 1)
    }
  }
  const buffer = new ArrayBuffer(BYTES)
  heapIn(buffer).heap.addRange(0, 0, UNITS, withHoles ? 'absent' : 'free')
  extend(buffer, depth)
  return stopped
}

test('every sequence of five operations is repaired, stopped after every store', () => {
  const stopped = stopEverywhere(false, 5, false)
  assert.ok(stopped > 50_000, `${stopped} stops`)
})

test('every sequence of five operations over memory that comes and goes is repaired, stopped after every store', () => {
  const stopped = stopEverywhere(true, 5, false)
  assert.ok(stopped > 50_000, `${stopped} stops`)
})

test('a repair that is stopped itself is repaired', () => {
  const stopped = stopEverywhere(false, 3, true) + stopEverywhere(true, 3, true)
  assert.ok(stopped > 10_000, `${stopped} stops`)
})

test('ranges that come and go are repaired, stopped after every store', () => {
  const buffer = new ArrayBuffer(BYTES)
  heapIn(buffer).heap.addRange(0, 0, UNITS, 'free')
  const stops = stopsOf(buffer, heap => heap.removeRange(heap.addRange(1, 100, 4, 'free')))
  for (const stop of stops) {
    const { heap } = heapIn(stop)
    rebuild([heap])
    heap.check()
    assert.equal(heap.freeUnits, heap.totalUnits)
    assert.equal(heap.records.inUse, [...heap.firstRecords].length)
  }
  assert.ok(stops.length > 20)
})

test('a block that a dead thread had taken for the first stream of a key is free again', () => {
  const { heap } = heapIn(new ArrayBuffer(BYTES))
  heap.addRange(0, 0, UNITS, 'free')
  heap.records.setKey(heap.allocate(2, 1, 0), KEYS - 1)
  rebuild([heap])
  heap.check()
  assert.deepEqual([heap.freeUnits, heap.unitsByKey[KEYS - 1]], [UNITS, UNITS])
  heap.settle(KEYS - 1, Infinity)
  heap.check()
  assert.equal(heap.unitsByKey[0], UNITS)
})

test('two views of one buffer are one heap, which does not outgrow the buffer', () => {
  const buffer = new SharedArrayBuffer(BYTES) as unknown as ArrayBuffer
  const [a, b] = [heapIn(buffer).heap, heapIn(buffer).heap]
  a.addRange(0, 0, UNITS, 'free')
  const record = b.allocate(2, 1, 1)
  a.records.setState(record, State.live)
  a.check()
  const room = RECORDS - 2
  assert.deepEqual([a.freeUnits, b.freeUnits, a.records.available], [UNITS - 2, UNITS - 2, room])
  b.free(record, 2, 5)
  a.settle(2, 5)
  a.check()
  assert.throws(() => a.free(a.allocate(1, 1, 0), KEYS, 1), /a key is one that a fixed heap has room for/)
  assert.throws(() => a.addRange(RANGES, 100, 1, 'free'), /2 ranges, which is the limit/)
})
