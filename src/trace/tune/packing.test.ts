import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
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
      assert.equal(packings.length, 4)
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
