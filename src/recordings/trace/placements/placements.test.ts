import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { BEFORE, NEVER, type Trace } from '../trace.js'
import { type ExistenceRanges, PlacementCollector } from './placements.js'

const emptyTrace = (events: number, count: number) => ({ events, blocks: { count } }) as unknown as Trace

/** The ranges as rows of [address, bytes, memory, from, to]. */
const rows = ({ count, address, bytes, memory, from, to }: ExistenceRanges) =>
  Array.from({ length: count }, (_, i) => [address[i], bytes[i], memory[i], from[i], to[i]])

test('ranges begin and end with their memory, are cut by a smaller unmap, and neighbours become one', () => {
  const collector = new PlacementCollector(emptyTrace(5, 0))
  collector.mapped(100, 10)
  collector.mapped(110, 10)
  collector.after(0, 20)
  collector.mapped(200, 10, 0)
  collector.mapped(300, 10)
  collector.unmapped(300, 10)
  collector.after(1, 20)
  collector.after(2, 20)
  collector.unmapped(105, 10)
  collector.after(3, 10)
  const { ranges, reservedBytes } = collector.placements()
  assert.deepEqual(rows(ranges!), [
    [100, 5, 0, BEFORE, NEVER],
    [105, 10, 5, BEFORE, 3],
    [115, 5, 15, BEFORE, NEVER],
    [200, 10, 0, 1, NEVER],
  ])
  assert.deepEqual([...reservedBytes!], [20, 20, 20, 10, 0])
})

test('random maps and unmaps cover what painting each cell covers', () => {
  const step = fc.record({ at: fc.nat(30), length: fc.integer({ min: 1, max: 8 }) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), steps => {
      const collector = new PlacementCollector(emptyTrace(steps.length, 0))
      const cells = new Uint8Array(40)
      const painted: string[] = []
      for (const [event, { at, length }] of steps.entries()) {
        const isFree = cells.subarray(at, at + length).every(cell => cell === 0)
        if (isFree) collector.mapped(at, length)
        else collector.unmapped(at, length)
        cells.fill(isFree ? 1 : 0, at, at + length)
        collector.after(event, 0)
        painted.push(cells.join(''))
      }
      const { count, address, bytes, from, to } = collector.placements().ranges!
      for (const [event, expected] of painted.entries()) {
        const seen = new Uint8Array(40)
        for (let i = 0; i < count; i++) {
          if (from[i] <= event && event < to[i]) seen.fill(1, address[i], address[i] + bytes[i])
        }
        assert.equal(seen.join(''), expected)
      }
    }),
  )
})
