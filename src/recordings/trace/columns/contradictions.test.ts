import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { pickleSnapshot } from '../pytorch/pytorch-snapshot-writer.js'
import { Action, type Contradictions } from '../trace.js'
import { type FinalBlock, TraceBuilder, type TraceOrigin } from '../trace-builder.js'

const NONE = { overlappingBlocks: 0, blocksOutside: 0, otherSizes: 0, otherSegments: 0, atEnd: 0, wrongSums: 0 }
const BASE = 2 ** 40
const { alloc, freeRequested, freeCompleted, segmentAlloc, segmentFree, segmentMap, segmentUnmap } = Action

type Row = readonly [action: number, at: number, mebibytes: number]
const segmentOf = (at: number, mebibytes: number, expandable = false) => {
  return { address: BASE + at * MiB, bytes: mebibytes * MiB, stream: 0, expandable }
}
const blockOf = (at: number, mebibytes: number, pending = false): FinalBlock => {
  return { address: BASE + at * MiB, bytes: mebibytes * MiB, stream: 0, pending }
}

/** The trace of events whose places and sizes are in MiB. */
function traceOf(rows: readonly Row[], origin: Partial<TraceOrigin>) {
  const builder = new TraceBuilder()
  for (const [action, at, mebibytes] of rows) builder.add(action, BASE + at * MiB, mebibytes * MiB, 0, 0)
  return builder.build({ file: 'contradictory', ...origin })
}

/** Each with its contradictions, its events and the memory at its end. */
const CASES: readonly [string, Partial<Contradictions>, readonly Row[], Partial<TraceOrigin>][] = [
  [
    'blocks side by side in their segment, and one at an address that was free again',
    {},
    [
      [segmentAlloc, 0, 20],
      [alloc, 0, 4],
      [alloc, 4, 4],
      [freeRequested, 0, 4],
      [freeCompleted, 0, 4],
      [alloc, 0, 2],
    ],
    { final: { segments: [segmentOf(0, 20)], blocks: [blockOf(0, 2), blockOf(4, 4)] } },
  ],
  [
    'a block over the end of another',
    { overlappingBlocks: 1 },
    [
      [alloc, 0, 4],
      [alloc, 3, 4],
    ],
    {},
  ],
  [
    'a block over the start of another',
    { overlappingBlocks: 1 },
    [
      [alloc, 3, 4],
      [alloc, 0, 4],
    ],
    {},
  ],
  [
    'a block in one that waits for another stream',
    { overlappingBlocks: 1 },
    [
      [alloc, 0, 4],
      [freeRequested, 0, 4],
      [alloc, 1, 1],
      [freeCompleted, 0, 4],
    ],
    {},
  ],
  [
    'an empty block in another',
    {},
    [
      [alloc, 0, 4],
      [alloc, 1, 0],
    ],
    {},
  ],
  [
    'a block in no segment',
    { blocksOutside: 1 },
    [[alloc, 30, 4]],
    { final: { segments: [segmentOf(0, 20)], blocks: [blockOf(30, 4)] } },
  ],
  [
    'a block over the end of its segment',
    { blocksOutside: 1 },
    [[alloc, 18, 4]],
    { final: { segments: [segmentOf(0, 20)], blocks: [blockOf(18, 4)] } },
  ],
  [
    'a segment that is given back with a block in use',
    { blocksOutside: 1, atEnd: 1 },
    [
      [segmentAlloc, 0, 20],
      [alloc, 4, 4],
      [segmentFree, 0, 20],
    ],
    { final: { segments: [], blocks: [] } },
  ],
  [
    'expandable memory that grows, with a block over both parts',
    {},
    [
      [segmentMap, 0, 20],
      [segmentMap, 20, 20],
      [alloc, 10, 20],
      [segmentUnmap, 30, 10],
    ],
    { final: { segments: [segmentOf(0, 30, true)], blocks: [blockOf(10, 20)] } },
  ],
  [
    'a segment that is taken twice',
    { otherSegments: 1 },
    [
      [segmentAlloc, 0, 20],
      [segmentAlloc, 0, 20],
    ],
    { final: { segments: [segmentOf(0, 20)], blocks: [] } },
  ],
  [
    'a segment that is given back twice',
    { otherSegments: 1 },
    [
      [segmentAlloc, 0, 20],
      [segmentFree, 0, 20],
      [segmentFree, 0, 20],
      [segmentMap, 40, 2],
    ],
    { final: { segments: [segmentOf(40, 2, true)], blocks: [] } },
  ],
  [
    'a segment at the end that was given back',
    { atEnd: 1 },
    [
      [segmentAlloc, 0, 20],
      [segmentFree, 0, 20],
    ],
    { final: { segments: [segmentOf(0, 20)], blocks: [] } },
  ],
  [
    'segments over each other at the end',
    { atEnd: 1 },
    [[alloc, 0, 4]],
    { final: { segments: [segmentOf(0, 20), segmentOf(10, 20)], blocks: [blockOf(0, 4)] } },
  ],
  [
    'a block at the end that was freed',
    { atEnd: 1 },
    [
      [segmentAlloc, 0, 20],
      [alloc, 0, 4],
      [freeRequested, 0, 4],
      [freeCompleted, 0, 4],
    ],
    { final: { segments: [segmentOf(0, 20)], blocks: [blockOf(0, 4)] } },
  ],
  [
    'a block that is missing at the end',
    { atEnd: 1 },
    [
      [segmentAlloc, 0, 20],
      [alloc, 0, 4],
    ],
    { final: { segments: [segmentOf(0, 20)], blocks: [] } },
  ],
  [
    'a block of another size at the end',
    { atEnd: 1 },
    [
      [segmentAlloc, 0, 20],
      [alloc, 0, 4],
    ],
    { final: { segments: [segmentOf(0, 20)], blocks: [blockOf(0, 5)] } },
  ],
  [
    'a block that waits at the end, but was not freed',
    { atEnd: 1 },
    [
      [segmentAlloc, 0, 20],
      [alloc, 0, 4],
    ],
    { final: { segments: [segmentOf(0, 20)], blocks: [blockOf(0, 4, true)] } },
  ],
  [
    'a free of another size',
    { otherSizes: 1 },
    [
      [alloc, 0, 4],
      [freeRequested, 0, 5],
    ],
    {},
  ],
  [
    'blocks from before that lie in no segment, of a recorder that names them',
    {},
    [
      [segmentAlloc, 0, 20],
      [freeRequested, 40, 4],
    ],
    { before: [blockOf(40, 4)], final: { segments: [segmentOf(0, 20)], blocks: [] } },
  ],
  [
    'blocks without known segments',
    {},
    [
      [alloc, 30, 4],
      [segmentAlloc, 0, 20],
      [alloc, 0, 4],
    ],
    {},
  ],
]

describe('contradictions are counted', () => {
  for (const [what, found, rows, origin] of CASES) {
    test(what, () => assert.deepEqual(traceOf(rows, origin).contradictions, { ...NONE, ...found }))
  }
})

test('the sums of a segment are compared with its blocks', () => {
  const block = { address: BASE, size: 512, requested_size: 400, state: 'active_allocated' }
  const waiting = { address: BASE + 512, size: 1024, requested_size: 1024, state: 'active_pending_free' }
  const read = (sums: object) => {
    const segment = { address: BASE, total_size: 4096, stream: 0, blocks: [block, waiting], ...sums }
    const events = [{ action: 'alloc', addr: BASE, size: 400, stream: 0, time_us: 1 }]
    const json = JSON.stringify({ device_traces: [events], segments: [segment] })
    return readRecording(Buffer.from(json)).contradictions
  }
  assert.deepEqual(read({}), NONE)
  assert.deepEqual(read({ allocated_size: 512, active_size: 1536 }), NONE)
  for (const sums of [{ allocated_size: 8192 }, { allocated_size: 1536 }, { active_size: 512 }]) {
    assert.deepEqual(read(sums), { ...NONE, wrongSums: 1 })
  }
})

test('a recording without contradictions has none when it is written and read again', () => {
  for (const [what, found, rows, origin] of CASES) {
    if (Object.keys(found).length > 0 || origin.final === undefined) continue
    assert.deepEqual(readRecording(pickleSnapshot(traceOf(rows, origin)), { name: what }).contradictions, NONE, what)
  }
})

test('each of very many blocks over each other is compared with those beside it only', () => {
  const rows: Row[] = []
  for (let i = 0; i < 100_000; i++) rows.push([segmentAlloc, 2 * i, 1], [alloc, 2 * i, 1000])
  const { contradictions } = traceOf(rows, { final: { segments: [], blocks: [] } })
  assert.deepEqual(contradictions, { ...NONE, overlappingBlocks: 99_999, blocksOutside: 100_000, atEnd: 200_000 })
})
