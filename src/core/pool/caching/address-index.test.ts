import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Random } from '../../base/random.js'
import { RecordTable, State, Stride, Word } from '../../heap/records.js'
import { AddressIndex } from './address-index.js'

const MIB_UNITS = 4096

function setUp() {
  const records = new RecordTable()
  const index = new AddressIndex(records, records)
  /** A block with a record, in the index. */
  function place(range: number, unit: number, units: number, state: State = State.live): number {
    const record = records.acquire()
    const base = record * Stride.words
    records.words[base + Word.range] = range
    records.words[base + Word.offset] = unit
    records.words[base + Word.units] = units
    records.setState(record, state)
    index.note(record)
    return record
  }
  return { records, index, place }
}

describe('address index', () => {
  it('finds small and large blocks by their first unit only', () => {
    const { index, place } = setUp()
    const small = place(0, 100, 16)
    const large = place(1, 3 * MIB_UNITS + 5, 2 * MIB_UNITS)
    assert.equal(index.find(0, 100), small)
    assert.equal(index.find(1, 3 * MIB_UNITS + 5), large)
    const misses: readonly (readonly [range: number, unit: number])[] = [
      [0, 99],
      [0, 101],
      [0, 100.5],
      [0, 0],
      [1, 100],
      [1, 3 * MIB_UNITS],
      [1, 3 * MIB_UNITS + 4],
      [1, 3 * MIB_UNITS + 6],
      [1, 3 * MIB_UNITS + 5.25],
      [1, 4 * MIB_UNITS + 5],
      [2, 100],
      [0, 2 ** 31 - 1],
      [7, 0],
    ]
    for (const [range, unit] of misses) assert.equal(index.find(range, unit), 0, `range ${range}, unit ${unit}`)
  })

  it('finds only live blocks, including shared ones', () => {
    const { index, place, records } = setUp()
    const record = place(0, 8, 8)
    for (const state of [State.free, State.cached, State.deferred, State.absent, State.unused]) {
      records.setState(record, state)
      assert.equal(index.find(0, 8), 0)
    }
    for (const state of [State.live, State.shared]) {
      records.setState(record, state)
      assert.equal(index.find(0, 8), record)
    }
  })

  it('an outdated entry finds no block', () => {
    const { index, place, records } = setUp()
    const moved = place(0, 64, 8)
    records.words[moved * Stride.words + Word.offset] = 72
    assert.equal(index.find(0, 64), 0)
    assert.equal(index.find(0, 72), 0, 'it was not noted there')
    index.note(moved)
    assert.equal(index.find(0, 72), moved)
    records.words[moved * Stride.words + Word.range] = 1
    assert.equal(index.find(0, 72), 0)
  })

  it('finds a large and a small block in turn at one address', () => {
    const { index, place, records } = setUp()
    for (let turn = 0; turn < 4; turn++) {
      const small = place(0, MIB_UNITS, MIB_UNITS - 1)
      assert.equal(index.find(0, MIB_UNITS), small)
      records.setState(small, State.free)
      const large = place(0, MIB_UNITS, MIB_UNITS)
      assert.equal(index.find(0, MIB_UNITS), large)
      records.setState(large, State.free)
      assert.equal(index.find(0, MIB_UNITS), 0)
    }
  })

  it('agrees with a map model up to the end of a range', () => {
    const { index, place, records } = setUp()
    const random = new Random(3)
    const model = new Map<number, number>()
    const far = 2 ** 31 - 2 ** 21
    for (let step = 0; step < 3000; step++) {
      const slot = random.below(300)
      const unit = slot < 150 ? slot * 16 : far + slot * MIB_UNITS
      const known = model.get(unit)
      if (known !== undefined) {
        assert.equal(index.find(0, unit), known)
        records.setState(known, State.free)
        model.delete(unit)
      } else model.set(unit, place(0, unit, slot < 150 ? 1 + random.below(16) : MIB_UNITS))
      assert.equal(index.find(0, unit), model.get(unit) ?? 0)
    }
  })
})
