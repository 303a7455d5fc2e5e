import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Region } from '../threads/region.js'
import { RecordTable } from './records.js'

const RECORDS = 200
const OWNERS = 3

/** The table of one thread of several. */
function tableIn(buffer: ArrayBuffer | null, owner: number): { records: RecordTable; bytes: number } {
  const region = new Region(buffer)
  const records = new RecordTable(region, RECORDS, OWNERS)
  records.owner = owner
  return { records, bytes: region.bytes }
}

function tables(): RecordTable[] {
  const buffer = new ArrayBuffer(tableIn(null, 0).bytes)
  return [1, 2, 3].map(owner => tableIn(buffer, owner).records)
}

const pageOf = (record: number) => record >> 6

describe('records that threads share', () => {
  it('of each thread lie on pages of its own, also when they are used again', () => {
    const [a, b] = tables()
    const taken = Array.from({ length: 40 }, () => [a.acquire(), b.acquire()])
    const [ofA, ofB] = [0, 1].map(index => new Set(taken.map(pair => pageOf(pair[index]))))
    assert.deepEqual(
      [...ofA].filter(page => ofB.has(page)),
      [],
    )
    assert.deepEqual([a.ownerOf(taken[0][0]), a.ownerOf(taken[0][1])], [1, 2])
    b.release(taken[0][0])
    assert.notEqual(b.acquire(), taken[0][0])
    assert.equal(a.acquire(), taken[0][0])
  })

  it('are all used, on pages of others in the end', () => {
    const [a, b, c] = tables()
    const taken = [b.acquire(), c.acquire()]
    while (a.available > 0) taken.push(a.acquire())
    assert.equal(new Set(taken).size, RECORDS)
    assert.equal(a.inUse, RECORDS)
    assert.throws(() => a.acquire(), /room for one record more/)
    for (const record of taken) c.release(record)
    assert.deepEqual([a.available, a.inUse], [RECORDS, 0])
  })

  it('go back to the pages that they are from when all is counted again', () => {
    const [a, b] = tables()
    const [kept, left] = [a.acquire(), b.acquire()]
    a.retain(record => record === kept)
    assert.deepEqual([a.inUse, b.available], [1, RECORDS - 1])
    assert.equal(pageOf(b.acquire()), pageOf(left))
    assert.equal(pageOf(a.acquire()), pageOf(kept))
  })
})
