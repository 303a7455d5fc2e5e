import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { RecordTable, Word } from '../../../heap/records.js'
import { MOST_STREAMS } from '../../../order/clocks.js'
import { GranuleLastUses, SEVERAL, ViewUses } from './last-uses.js'

const GRANULE_UNITS = 128

describe('last uses of granules', () => {
  it('a block becomes the last use of every granule that it covers', () => {
    const { free, all } = setUp()
    free(64, 512, 1, 5)
    assert.deepEqual(all(), ['1@5', '1@5', '1@5', '1@5', '1@5', '0@0'])
    free(256, 256, 2, 3)
    assert.deepEqual(all(), ['1@5', '1@5', '2@3', '2@3', '1@5', '0@0'])
  })

  it('on a granule with two blocks of one stream the later use counts', () => {
    const { free, all } = setUp()
    free(0, 192, 1, 5)
    free(192, 32, 1, 4)
    assert.deepEqual(all().slice(0, 3), ['1@5', '1@5', '0@0'])
    free(224, 64, 1, 8)
    assert.deepEqual(all().slice(0, 3), ['1@5', '1@8', '1@8'])
  })

  it('a granule with blocks of several streams has no single use, until its uses complete or one block covers it', () => {
    const { free, all, seen } = setUp()
    free(0, 448, 1, 5)
    free(448, 128, 2, 7)
    assert.deepEqual(all().slice(2, 5), ['1@5', `${SEVERAL}@5`, '2@7'])
    seen[0] = 5
    free(272, 16, 2, 8)
    assert.deepEqual(all().slice(2, 5), ['2@8', `${SEVERAL}@5`, '2@7'])
    free(384, 128, 2, 9)
    assert.deepEqual(all().slice(2, 5), ['2@8', '2@9', '2@7'])
  })

  it('the last streams of a device have uses like any other', () => {
    const { free, all, seen, uses } = setUp()
    for (const key of [255, 256, MOST_STREAMS]) {
      free(0, 128, key, 5)
      assert.equal(all()[0], `${key}@5`)
      assert.equal(uses.isSettled(0), false)
      seen[key - 1] = 5
      assert.equal(uses.isSettled(0), true)
    }
  })

  it('granules far beyond all that were used have uses like any other, up to the last', () => {
    const granules = 10_000
    const { free, seen, uses } = setUp(granules)
    free(0, 128, 1, 5)
    const far = [700, granules - 2, granules - 1]
    for (const granule of far) {
      assert.equal(uses.isSettled(granule), true)
      free(granule * GRANULE_UNITS, GRANULE_UNITS, 1, 6)
      assert.deepEqual([uses.keys[granule], uses.stamps[granule]], [1, 6])
      assert.equal(uses.isSettled(granule), false)
    }
    assert.deepEqual([uses.keys[0], uses.stamps[0]], [1, 5])
    seen[0] = 6
    for (const granule of [0, ...far]) assert.equal(uses.isSettled(granule), true)
  })
})

describe('last uses of views', () => {
  it('grow with the number of views, up to the most, and lose nothing', () => {
    const most = 1000
    const seen = new Float64Array(2)
    const uses = new ViewUses(most, seen, null)
    assert.ok(uses.blocks.length < most)
    for (let view = 0; view < most; view++) {
      uses.fit(view)
      uses.blocks[view] += 2
      uses.noteFree(view, 1 + (view % 2), view + 1)
    }
    assert.deepEqual(uses.blocks, new Int32Array(most).fill(1))
    seen[1] = most
    const settled = () => uses.blocks.filter((_, view) => uses.isSettled(view)).length
    assert.equal(settled(), most / 2, 'views of the second stream')
    seen[0] = 300
    assert.equal(settled(), most / 2 + 150)
    seen[0] = most
    assert.equal(settled(), most)
  })
})

function setUp(granules = 6) {
  const records = new RecordTable()
  const seen = new Float64Array(MOST_STREAMS)
  const uses = new GranuleLastUses(granules, GRANULE_UNITS, seen, null)
  const record = records.acquire()
  return {
    seen,
    uses,
    free(start: number, units: number, key: number, stamp: number) {
      records.words[(record << 4) | Word.offset] = start
      records.words[(record << 4) | Word.units] = units
      uses.noteFree(records, record, key, stamp)
    },
    /** key and stamp of each granule */
    all: () => Array.from(uses.keys, (key, granule) => `${key}@${uses.stamps[granule]}`),
  }
}
