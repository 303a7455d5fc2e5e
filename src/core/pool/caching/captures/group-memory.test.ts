// How much memory 64 graphs of a server reserve, whatever order they are captured in.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { Graph } from '../../../order/graph.js'
import { TestDevice } from '../../pool.fixture.js'
import { BATCHES, captureDecoder } from './graph-group.fixture.js'
import type { OutputLifetime } from './graph-output.js'

const LARGEST = BATCHES[BATCHES.length - 1]
const OUTPUT_ROW = 16 * KiB

/** Reserved bytes of the graphs of `batches`, captured in their order. */
function reservedBy(batches: readonly number[], lifetime: OutputLifetime | 'alone' = 'shared'): number {
  const device = new TestDevice({ capacityBytes: 80 * GiB })
  const pool = device.createPool({ backing: 'virtual', maxPoolBytes: '100%' })
  const group = pool.createGraphGroup()
  const stream = device.createStream()
  const graphs: Graph[] = []
  for (const batch of batches) {
    const isAlone = lifetime === 'alone'
    const capture = (work: () => void) => (isAlone ? alone(work) : group.capture(stream, work))
    const alone = (work: () => void) => {
      stream.beginCapture()
      work()
      return stream.endCapture()
    }
    const output = () => (isAlone ? null : group.allocateOutput(batch * OUTPUT_ROW, stream, lifetime))
    graphs.push(captureDecoder(pool, (_, work) => capture(work), stream, batch, output))
  }
  pool.check()
  const { reservedBytes } = pool.stats()
  for (const graph of graphs) graph.close()
  pool.close()
  return reservedBytes
}

function shuffled(values: readonly number[], random: Random): number[] {
  const left = [...values]
  return values.map(() => left.splice(random.below(left.length), 1)[0])
}

describe('the memory of 64 graphs in a group', () => {
  const alone = reservedBy([LARGEST])
  const orders: [string, number[]][] = [
    ['ascending', [...BATCHES]],
    ['descending', [...BATCHES].reverse()],
    ...Array.from({ length: 10 }, (_, seed): [string, number[]] => [
      `random, seed ${seed + 1}`,
      shuffled(BATCHES, new Random(seed + 1)),
    ]),
  ]

  for (const [name, order] of orders) {
    it(`is that of the largest graph, captured in this order: ${name}`, test => {
      const ratio = reservedBy(order) / alone
      test.diagnostic(`${ratio.toFixed(4)} times ${(alone / MiB).toFixed(0)} MiB`)
      assert.ok(ratio <= 1.05, `${ratio}`)
    })
  }

  it('is that of the largest graph and of all other outputs, if these are their own', test => {
    const largest = reservedBy([LARGEST], 'own')
    const others = BATCHES.slice(0, -1).reduce((sum, batch) => sum + batch * OUTPUT_ROW, 0)
    for (const [, order] of orders.slice(0, 3)) {
      const ratio = reservedBy(order, 'own') / (largest + others)
      test.diagnostic(`${ratio.toFixed(4)}`)
      assert.ok(ratio <= 1.05, `${ratio}`)
    }
  })

  it('is many times that of the largest without a group', test => {
    const ratio = reservedBy(BATCHES, 'alone') / alone
    test.diagnostic(`${ratio.toFixed(1)} times`)
    assert.ok(ratio > 10)
  })
})
