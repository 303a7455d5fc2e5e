import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import { tune } from '../../trace/tune/tune.js'
import { adviceLines } from '../advice-text.js'
import { remedyOf } from '../verdict-text.js'
import { remediesOf } from './remedies.js'

const oom = readRecording('traces/oom-retry-2gib.pickle.gz')

test('the table has the figures of why and tune: the best setting first, and the limit that serves', async () => {
  const report = await tune([oom])
  const { columns, rows } = remediesOf(report)!
  assert.deepEqual(columns, ['needs', 'fits your 2 GiB to 2.01 GiB', 'with the limit raised'])
  assert.deepEqual(
    rows.map(({ line, cells }) => [line, ...cells]),
    [
      [
        'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True',
        '2.08 GiB',
        'no: 7 requests fail',
        'to 2.08 GiB: yes',
      ],
      [
        'export PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.6',
        '2.29 GiB',
        'no: 17 requests fail',
        'to 2.29 GiB: yes',
      ],
      ['torch.cuda.set_per_process_memory_fraction(0.017)', '2.33 GiB', 'no: 17 requests fail', 'to 2.33 GiB: yes'],
    ],
  )
  const sentence = remedyOf(report)!
  for (const text of ['2.33 GiB (set_per_process_memory_fraction(0.017)', 'expandable_segments:True to 2.08 GiB']) {
    assert.ok(sentence.includes(text), sentence)
  }
  const advice = adviceLines(report)
  for (const { note } of rows.slice(0, 2))
    assert.ok(
      advice.some(line => line.endsWith(note)),
      note,
    )
  const around = adviceLines(report, true)
  assert.ok(around.length > 0 && around.every(line => advice.includes(line) && !line.startsWith('export')))
})

test('a setting whose need lies within the range of a limit of the program may fit', async () => {
  const report = await tune([oom])
  const [recording] = report.recordings
  const lastFailure = { ...recording.lastFailure!, capacityBelowBytes: 2300 * MiB }
  const { columns, rows } = remediesOf({ ...report, recordings: [{ ...recording, lastFailure }] })!
  assert.equal(columns[1], 'fits your 2 GiB to 2.25 GiB')
  assert.deepEqual(
    rows.map(({ cells }) => cells[1]),
    ['from 2.08 GiB on', 'no: 17 requests fail', 'no: 17 requests fail'],
  )
})

test('a capacity that was asked about is the limit, and a setting that fits needs no higher one', async () => {
  const report = await tune([oom], { capacityBytes: 2200 * MiB })
  const { columns, rows } = remediesOf(report)!
  assert.equal(columns[1], 'fits your 2.15 GiB')
  assert.match(rows[0].cells[1], /^yes, with(?:out a retry| \d+ retr)/)
  assert.equal(rows[0].cells[2], 'not needed')
})

test('a recording that no setting helps has no table', async () => {
  const report = await tune([readRecording('traces/mlp-train-stacks.pickle.gz')], {
    settings: ['max_split_size_mb:64'],
  })
  assert.equal(remediesOf({ ...report, advice: [] }), null)
})
