// Slabs between the two heaps of a pool. Every change is stopped after each of its stores, as a thread's death stops
// it, and repaired.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { RecordTable, State } from '../../../heap/records.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { stopsOf } from '../../../heap/stops.fixture.js'
import { MOST_STREAMS } from '../../../order/clocks.js'
import { Region } from '../../../threads/region.js'
import { HOME_RANGE, SMALL_RANGE, SMALL_UNITS } from '../../backing/backing.js'
import { policy } from '../../policy.js'
import type { BlockCache } from '../block-cache.js'
import { FreeMemory } from './free-memory.js'
import { addSlab, giveBackEmptySlabs, leastSlabUnits, slabsOf, slabUnits } from './slabs.js'

const NO_CACHES = { includeSlot() {}, drainAll: () => [] } as Partial<BlockCache> as BlockCache
const SLAB = MiB / UNIT_BYTES
const GRANULE = 2 * SLAB
/** units of the range, and of the memory at its start */
const [RANGE, MEMORY] = [16 * SLAB, 8 * SLAB]

function memoryIn(buffer: ArrayBuffer | null): { memory: FreeMemory; bytes: number } {
  const region = new Region(buffer)
  const records = new RecordTable(region, 32)
  const fixed = { region, ranges: 3, granules: RANGE / GRANULE, granuleUnits: GRANULE }
  const memory = new FreeMemory({ records, caches: NO_CACHES, seen: new Float64Array(MOST_STREAMS) }, fixed)
  return { memory, bytes: region.bytes }
}
const BYTES = memoryIn(null).bytes

/** Memory that is free in the heap for large blocks. */
function newMemory(): { buffer: ArrayBuffer; memory: FreeMemory } {
  const buffer = new ArrayBuffer(BYTES)
  const { memory } = memoryIn(buffer)
  memory.small.addRange(SMALL_RANGE, 0, RANGE, 'absent')
  memory.large.addRange(HOME_RANGE, 0, RANGE, 'absent')
  memory.large.commit(0, MEMORY, 0, 0)
  return { buffer, memory }
}

/** Adds a slab at the start of the free memory, and takes a small block at its start. */
function takeInSlab(memory: FreeMemory, key = 0, stamp = 0): number {
  const { small, large, records } = memory
  const slab = large.allocate(SLAB, 1, 0)
  records.claim(slab)
  const taken = addSlab(memory, slab, key, stamp)
  return small.keep(taken, records.offsetOf(taken), 4, key, stamp)
}

/** Asserts that each unit of memory is in exactly one of the heaps. */
function assertShared({ small, large, records }: FreeMemory): void {
  small.check()
  large.check()
  const slabs = slabsOf(large).map(slab => [records.offsetOf(slab), records.unitsOf(slab)] as const)
  for (let record = small.firstRecords.get(SMALL_RANGE); record !== 0; record = records.nextOf(record)) {
    const start = records.offsetOf(record)
    const end = start + records.unitsOf(record)
    const lent = slabs.reduce((sum, [at, units]) => {
      return sum + Math.max(0, Math.min(end, at + units) - Math.max(start, at))
    }, 0)
    assert.equal(lent, records.state(record) === State.absent ? 0 : end - start, 'small memory lies in slabs')
  }
  assert.equal(
    small.totalUnits - small.absentUnits,
    slabs.reduce((sum, [, units]) => sum + units, 0),
  )
}

function heapsOf(memory: FreeMemory): object[] {
  const { records, small, large } = memory
  return [records, small, large, small.firstRecords, large.firstRecords]
}

test('a slab has room for its first block, however long, and one as small as possible for a large block later', () => {
  const slab = policy.slabBytes / UNIT_BYTES
  assert.deepEqual([slabUnits(1), slabUnits(slab), slabUnits(slab + 1)], [slab, slab, slab + 1])
  assert.deepEqual([leastSlabUnits(1), leastSlabUnits(slab)], [SMALL_UNITS, slab])
})

test('a slab leaves the heap for large blocks, and comes back when it is empty', () => {
  const { memory } = newMemory()
  const { small, large } = memory
  const first = takeInSlab(memory)
  const second = takeInSlab(memory)
  assertShared(memory)
  assert.deepEqual([large.freeUnits, small.freeUnits], [MEMORY - 2 * SLAB, 2 * SLAB - 8])
  assert.equal(giveBackEmptySlabs(memory), 0)
  small.free(second, 0, 0)
  assert.equal(giveBackEmptySlabs(memory), 1)
  assertShared(memory)
  small.free(first, 0, 0)
  assert.equal(giveBackEmptySlabs(memory), 1)
  assertShared(memory)
  assert.deepEqual([large.freeUnits, small.freeUnits, slabsOf(large)], [MEMORY, 0, []])
})

test('merged slabs come back one by one, and their free memory keeps its dependency', () => {
  const { memory } = newMemory()
  const { small, large, records } = memory
  const blocks = [0, 1, 2].map(() => takeInSlab(memory))
  const kept = small.allocate(4, 1, 0)
  records.claim(kept)
  for (const block of blocks) small.free(block, 2, 7)
  const stays = records.offsetOf(kept) < SLAB ? 0 : 1
  assert.equal(giveBackEmptySlabs(memory), 2)
  assertShared(memory)
  assert.equal(stays, 0)
  const freed = large.recordAt(HOME_RANGE, 2 * SLAB)
  assert.deepEqual([records.state(freed), records.keyOf(freed), records.stampOf(freed)], [State.free, 2, 7])
})

test('a new slab is there or not, stopped after every store', () => {
  const { buffer, memory: start } = newMemory()
  takeInSlab(start)
  const { memory } = memoryIn(buffer)
  const [slab] = [memory.large.allocate(SLAB, 1, 0)]
  memory.records.claim(slab)
  const stops = stopsOf(buffer, heapsOf(memory), () => addSlab(memory, slab, 1, 5))
  let slabs = 0
  for (const stop of stops) {
    const repaired = memoryIn(stop).memory
    repaired.rebuild()
    assertShared(repaired)
    if (slabsOf(repaired.large).length === 2) slabs++
  }
  assert.ok(slabs > 0 && slabs < stops.length)
})

test('a slab is given back or not, and nothing of it is lost, stopped after every store', () => {
  const { buffer, memory: start } = newMemory()
  const blocks = [0, 1].map(() => takeInSlab(start))
  for (const block of blocks) start.small.free(block, 2, 7)
  const { memory } = memoryIn(buffer)
  const stops = stopsOf(buffer, heapsOf(memory), () => assert.equal(giveBackEmptySlabs(memory), 2))
  const left = new Set<number>()
  for (const stop of stops) {
    const repaired = memoryIn(stop).memory
    const { large, small, records } = repaired
    repaired.rebuild()
    assertShared(repaired)
    left.add(slabsOf(large).length)
    assert.equal(large.freeUnits + small.freeUnits, MEMORY)
    for (const slab of [0, 1]) {
      for (const [heap, range] of [
        [small, SMALL_RANGE],
        [large, HOME_RANGE],
      ] as const) {
        const record = heap.recordAt(range, slab * SLAB)
        if (records.state(record) !== State.free) continue
        assert.deepEqual([records.keyOf(record), records.stampOf(record) >= 7], [2, true], 'it still waits for work')
      }
    }
    giveBackEmptySlabs(repaired)
    assert.deepEqual([large.freeUnits, small.freeUnits], [MEMORY, 0])
    assertShared(repaired)
  }
  assert.deepEqual([...left].sort(), [0, 1, 2])
})
