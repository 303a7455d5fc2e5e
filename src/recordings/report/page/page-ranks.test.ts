import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { Action } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { type HeldBlock, holding } from '../trace-texts.fixture.js'
import { pageRanks, rankLines } from './page-ranks.js'
import { pageData } from './page-text.js'

const LOAD: HeldBlock = [100, ['train.py', 8, 'load']]
const batch = (mebibytes: number): HeldBlock => [mebibytes, ['train.py', 20, 'batch']]

function rank(tab: string, reserved: number, ...blocks: readonly HeldBlock[]) {
  return { tab, trace: holding(blocks, { file: tab, peakReservedBytes: reserved * MiB }) }
}

test('the rank that differs most is named first, with its peaks and its call site', () => {
  const ranks = [
    rank('r0', 200, LOAD),
    rank('r1', 210, LOAD, batch(2)),
    rank('r2', 400, LOAD, batch(150)),
    rank('r3', 220, LOAD),
  ]
  const { lines, first, order, curves } = pageRanks(ranks)
  assert.deepEqual(lines, [
    'Of 4 recordings r2 differs most: at most 250 MiB in use, 150 % more than the median, r3 (100 MiB). At most 400 MiB reserved, 81.8 % more.',
    'By call site, at the peaks, most is +150 MiB: train.py:20 batch (new).',
  ])
  assert.deepEqual([first, order], [2, [2, 3, 1, 0]])
  assert.deepEqual(curves[2], [100 * MiB, 250 * MiB])
})

test('of two recordings each is compared with the other, and a rank may have less', () => {
  assert.deepEqual(rankLines([rank('r0', 300, LOAD), rank('r1', 200, LOAD)]), [
    'Of 2 recordings r0 differs most: at most 300 MiB reserved, 50.0 % more than r1 (200 MiB). At most 100 MiB in use, 0.0 % more.',
  ])
  const [line] = rankLines([rank('r0', 100, LOAD), rank('r1', 200, LOAD), rank('r2', 201, LOAD)])
  assert.match(line, /^Of 3 recordings r0 differs most: at most 100 MiB reserved, 50\.0 % less than the median, r1/)
})

test('recordings without a difference that counts are alike, and a failed one is named', () => {
  const alike = [rank('r0', 200, LOAD), rank('r1', 201, LOAD), rank('r2', 200, LOAD)]
  assert.deepEqual(rankLines(alike), ['The 3 recordings are alike: 100 MiB in use, 200 MiB to 201 MiB reserved.'])
  assert.equal(pageRanks(alike).first, null)
  const builder = new TraceBuilder()
  builder.add(Action.alloc, 2 ** 30, 120 * MiB, 0, 0)
  builder.add(Action.outOfMemory, 0, MiB, 0, 1)
  const failed = { tab: 'r3', trace: builder.build({ file: 'r3', peakReservedBytes: 200 * MiB }) }
  const [died, differs] = rankLines([...alike, failed])
  assert.equal(died, 'Of 4 recordings r3 ran out of memory.')
  assert.match(differs, /^Of 4 recordings r3 differs most: at most 120 MiB in use, 20\.0 % more than/)
})

test('a page of one recording, and one of a difference, has no ranks', () => {
  const of = ({ tab, trace }: ReturnType<typeof rank>) => ({ tab, trace, replay: null, tuned: null })
  const both = [of(rank('r0', 200, LOAD)), of(rank('r1', 300, LOAD))]
  assert.deepEqual(pageData(both).ranks?.order, [1, 0])
  assert.equal(pageData(both.slice(0, 1)).ranks, undefined)
})
