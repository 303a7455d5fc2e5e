import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import fc from 'fast-check'
import { readRecording } from '../formats/read-recording.js'
import { settingsRecording } from '../pytorch/settings-recordings.fixture.js'
import { type Lifetimes, lifetimesOf, lowerBoundBytes, packedBytes } from './packing.js'

function lifetimes(...blocks: readonly (readonly [bytes: number, from: number, to: number])[]): Lifetimes {
  const column = (index: 0 | 1 | 2) => Float64Array.from(blocks, block => block[index])
  return { bytes: column(0), from: column(1), to: column(2) }
}

test('blocks that are never in use together share addresses', () => {
  const blocks = lifetimes([512, 0, 2], [1024, 2, 4], [512, 4, 9])
  assert.equal(lowerBoundBytes(blocks), 1024)
  assert.equal(packedBytes(blocks), 1024)
})

test('no block and one block', () => {
  assert.equal(packedBytes(lifetimes()), 0)
  assert.equal(packedBytes(lifetimes([512, 0, 1])), 512)
})

test('in each packing no two blocks of one time overlap, and the best height is the result', () => {
  const block = fc.tuple(
    fc.integer({ min: 1, max: 9 }),
    fc.integer({ min: 0, max: 20 }),
    fc.integer({ min: 1, max: 9 }),
  )
  fc.assert(
    fc.property(fc.array(block, { maxLength: 30 }), list => {
      const blocks = lifetimes(...list.map(([size, from, time]) => [size * 512, from, from + time] as const))
      const packings: Float64Array[] = []
      const best = packedBytes(blocks, packings)
      const { bytes, from, to } = blocks
      assert(packings.length >= 4)
      const heights = packings.map(addresses => {
        for (let a = 0; a < bytes.length; a++) {
          for (let b = 0; b < a; b++) {
            const together = from[a] < to[b] && from[b] < to[a]
            const overlap = addresses[a] < addresses[b] + bytes[b] && addresses[b] < addresses[a] + bytes[a]
            assert(!together || !overlap, `${a} and ${b}`)
          }
        }
        return addresses.reduce((height, address, i) => Math.max(height, address + bytes[i]), 0)
      })
      assert.equal(best, bytes.length === 0 ? 0 : Math.min(...heights))
      assert(best >= lowerBoundBytes(blocks))
    }),
    { numRuns: 300 },
  )
})

// With work that grows by the square of the number of blocks, this takes minutes.
test('two hundred thousand blocks in use at once are packed', () => {
  const count = 200_000
  const from = Float64Array.from({ length: count }, (_, i) => i)
  const to = from.map(i => (i % 2 === 0 ? 2 * count : count + i))
  const blocks = { bytes: new Float64Array(count).fill(512), from, to }
  assert.equal(packedBytes(blocks), lowerBoundBytes(blocks))
})

test('orders that compare too many pairs of blocks are left out', () => {
  const count = 25_000
  const index = Float64Array.from({ length: count }, (_, i) => i)
  const blocks = {
    bytes: index.map(i => 512 + 512 * (i % 97)),
    from: index,
    to: index.map(i => count + ((i * 7919) % count)),
  }
  const packings: Float64Array[] = []
  assert(packedBytes(blocks, packings) >= lowerBoundBytes(blocks))
  assert.equal(packings.length, 1)
})

for (const [name, count, bound] of [
  ['B', 170, 1_048_576],
  ['C', 203, 1_039_360],
] as const) {
  test(`the public instance ${name} of MiniMalloc is packed within 1.25 times the capacity that is known to be enough`, () => {
    const file = new URL(`../../../../../traces/packing/minimalloc-${name}.1048576.csv`, import.meta.url)
    const rows = readFileSync(file, 'utf8').trim().split('\n').slice(1)
    const capacityBytes = 1_048_576
    const blocks = lifetimes(
      ...rows.map(row => {
        const [, from, to, bytes] = row.split(',').map(Number)
        return [bytes, from, to] as const
      }),
    )
    assert.deepEqual([rows.length, lowerBoundBytes(blocks)], [count, bound])
    const packed = packedBytes(blocks)
    assert(packed >= bound && packed <= capacityBytes * 1.25, `${packed / capacityBytes}`)
  })
}

test('rounds that learn from the round before reach the bound of a recording that ran out of memory', () => {
  const trace = readRecording('traces/oom-retry-2gib.pickle.gz')
  assert.equal(packedBytes(lifetimesOf(trace)), lowerBoundBytes(lifetimesOf(trace)))
})

test('a recording is packed nearly into what is in use at its peak', () => {
  for (const name of ['mlp-default', 'convnet-default', 'transformer-tight-default']) {
    const trace = settingsRecording(name)
    const blocks = lifetimesOf(trace)
    const bound = lowerBoundBytes(blocks)
    assert(bound >= trace.peakWithFailedBytes, name)
    const packed = packedBytes(blocks)
    assert(bound <= packed && packed <= 1.02 * bound, `${name}: ${packed / bound}`)
  }
})
