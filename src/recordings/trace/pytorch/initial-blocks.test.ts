import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KiB, MiB } from '../../../core/base/bytes.js'
import { Action, type ActionCode } from '../trace.js'
import { type FinalBlock, TraceBuilder } from '../trace-builder.js'
import { initialSegments } from './initial-blocks.js'

const BASE = 2 ** 40

/** The ranges of the blocks from before a recording, in one segment. */
function usedOf(
  blocks: readonly Partial<FinalBlock>[],
  events: readonly [ActionCode, number, number][] = [],
  { bytes = 20 * MiB, expandable = false } = {},
) {
  const builder = new TraceBuilder()
  for (const [action, offset, size] of events) builder.add(action, BASE + offset, size, 0, 0)
  const final = {
    segments: [{ address: BASE, bytes, stream: 0, expandable }],
    blocks: blocks.map(block => ({ address: BASE, bytes: 3 * MiB, stream: 0, pending: false, ...block })),
  }
  const [segment] = initialSegments(builder.build({ file: 'built', final }))
  return segment.used.map(({ address, bytes, mostBytes }) => [address - BASE, bytes, mostBytes])
}

test('a block held to the end has the size that the recording gives', () => {
  assert.deepEqual(usedOf([{ grantedBytes: 3.5 * MiB }]), [[0, 3.5 * MiB, undefined]])
})

test('a large block reaches to the first block that is allocated closely behind it', () => {
  const behind = (offset: number) => usedOf([{}], [[Action.alloc, offset, 2 * MiB]])
  assert.deepEqual(behind(3.5 * MiB), [[0, 3.5 * MiB, undefined]])
  assert.deepEqual(behind(3 * MiB), [[0, 3 * MiB, undefined]])
  assert.deepEqual(behind(5 * MiB), [[0, 3 * MiB, 4 * MiB]], 'more than 1 MiB would have been split off')
})

test('an allocation behind a freed block says nothing about the size of the freed block', () => {
  const events: [ActionCode, number, number][] = [
    [Action.freeRequested, 0, 3 * MiB],
    [Action.freeCompleted, 0, 3 * MiB],
    [Action.alloc, 3.5 * MiB, 2 * MiB],
  ]
  assert.deepEqual(usedOf([], events), [[0, 3 * MiB, 4 * MiB]])
})

test('memory that is too small to split off belongs to the block below', () => {
  const next = { address: BASE + 4 * MiB }
  assert.deepEqual(usedOf([{}, next], [], { bytes: 7 * MiB + 512 * KiB }), [
    [0, 4 * MiB, undefined],
    [4 * MiB, 3.5 * MiB, undefined],
  ])
})

test('blocks of small and expandable segments have exactly the size that they need', () => {
  assert.deepEqual(usedOf([{ bytes: 100 }], [], { bytes: 2 * MiB }), [[0, 512, undefined]])
  assert.deepEqual(usedOf([{}], [], { expandable: true }), [[0, 3 * MiB, undefined]])
})
