import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import type { Trace } from '../../trace/trace.js'
import { traceFigures } from '../../trace/trace-figures.js'
import { headOf } from '../replay-text.js'
import { PLAIN } from '../table.js'
import { holding } from '../trace-texts.fixture.js'
import { whyText } from '../why/why-text.js'
import { pageRecording } from './page-text.js'

const pageOf = (...given: Parameters<typeof holding>) =>
  pageRecording({ trace: holding(...given), replay: null, tuned: null, tab: 'run' })

test('the note on missing call stacks says what records them, if anything does', () => {
  const notes = (['PyTorch', 'cuda-mempool', 'RMM', 'CUDA'] as const).map(recorder => pageOf([[1]], { recorder }).notes)
  assert.match(
    notes[0][0],
    /^The recording has no call stacks\. torch.*_history\(stacks='python'\) records them, without context=None; so does/,
  )
  assert.deepEqual(
    notes.slice(1).map(([first]) => first.replace('The recording has no call stacks. ', '')),
    ['recorded(pool, { stacks: true }) records them.', 'RMM logs none.', 'Nsight Systems exports none.'],
  )
})

test('the notes say when most is idle, as why does', () => {
  const trace = readRecording('traces/resnet50-train-varbatch.pickle.gz')
  const { notes } = pageRecording({ trace, replay: null, tuned: null, tab: 'run' })
  assert.match(
    notes[0],
    /^Most reserved: 14\.97 GiB at event 20,311, .*8\.64 GiB were idle, in 124 pieces, the largest 506 MiB/,
  )
  assert.ok(whyText(trace, { width: 10_000, paint: PLAIN }).includes(notes[0]))
  const failed = readRecording('traces/oom-retry-2gib.pickle.gz')
  const ofFailed = pageRecording({ trace: failed, replay: null, tuned: null, tab: 'run' }).notes
  assert.ok(
    ofFailed.every(note => !note.startsWith('Most reserved')),
    'the panel of the failure has it',
  )
})

test("a recording of another allocator is not called PyTorch's in the list of policies", () => {
  const labelsOf = (recorder: Trace['recorder']) =>
    pageOf([[1]], { recorder, peakReservedBytes: 2 * MiB }).policies.map(({ label }) => label)
  assert.deepEqual([labelsOf('PyTorch'), labelsOf('CUDA')], [['PyTorch as recorded'], ['as recorded']])
})

test('one event, one allocation and one block are singular', () => {
  const { facts, notes } = pageOf([[1]], { skippedEvents: 1, dropped: 1 })
  assert.equal(facts, '1 event · 1 allocation')
  assert.deepEqual(notes.slice(0, 2), [
    'The recording lost 1 event; figures may be too low.',
    '1 event was left out: of other memory, of unknown kinds or out of order.',
  ])
  const trace = holding([[1]])
  assert.match(headOf({ trace: traceFigures(trace) }, 80, PLAIN), /^1 event, 1 allocation on one stream\.$/m)
})
