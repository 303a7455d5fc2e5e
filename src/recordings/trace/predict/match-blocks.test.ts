import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stackNumbers } from '../columns/excerpt.js'
import { StackTable } from '../stack-table.js'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { matchBlocks, UNMATCHED } from './match-blocks.js'

type Allocation = readonly [function_: string, bytes: number]

/** The matches of two runs without steps: by allocation of the second run, the number of that of the first. */
function matches(first: readonly Allocation[], second: readonly Allocation[]): number[] {
  const stacks = new StackTable()
  const [one, other] = [first, second].map((run, i) => {
    const builder = new TraceBuilder()
    for (const [name, bytes] of run) {
      const stack = builder.stacks.number([builder.stacks.entry('model.py', 1, name)])
      builder.add(Action.alloc, builder.events * 4096, bytes, 0, builder.events, stack)
    }
    const trace = builder.build({ file: 'run' })
    return { trace, size: i + 1, stacks: stackNumbers(trace.stacks, stacks) }
  })
  return [...matchBlocks(one, other)]
}

test('allocations are matched in their order, whatever is between them', () => {
  const run: Allocation[] = [
    ['embed', 8],
    ['attend', 8],
    ['attend', 4],
    ['embed', 2],
  ]
  const twice = run.map(([name, bytes]): Allocation => [name, 2 * bytes])
  assert.deepEqual(matches(run, twice), [0, 1, 2, 3])
  assert.deepEqual(matches(run, twice.toSpliced(1, 0, ['extra', 5])), [0, UNMATCHED, 1, 2, 3])
  assert.deepEqual(matches(run, twice.slice(1)), [1, 2, 3])
  assert.deepEqual(matches(run, []), [])
})

test('of equal call stacks those match whose bytes fit the sizes', () => {
  const run: Allocation[] = [
    ['attend', 100],
    ['attend', 7],
  ]
  assert.deepEqual(matches(run, [['attend', 14]]), [1])
})

test('allocations of other call stacks never match, however many there are', () => {
  const of = (name: string) => Array.from({ length: 500 }, (): Allocation => [name, 8])
  assert.deepEqual(new Set(matches(of('embed'), of('attend'))), new Set([UNMATCHED]))
  const behind = matches(of('embed'), [...of('attend'), ...of('embed')])
  assert.ok(behind.slice(0, 500).every(match => match === UNMATCHED))
  assert.deepEqual(
    behind.slice(500),
    Array.from({ length: 500 }, (_, i) => i),
  )
})
