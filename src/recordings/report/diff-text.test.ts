import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Training } from '../trace/analysis/training.fixture.js'
import { readRecording } from '../trace/formats/read-recording.js'
import { diffText } from './diff-text.js'
import { PLAIN } from './table.js'
import { holding, unwrapped } from './trace-texts.fixture.js'

const STYLE = { width: 80, paint: PLAIN }
const MODEL = ['model.py', 7, 'build'] as const

test('what grew, shrank, came and went is listed by call site, the greatest change first', () => {
  const before = holding(
    [
      [4, MODEL],
      [2, ['data.py', 3, 'load']],
      [1, ['old.py', 1, 'cache']],
    ],
    { file: 'a.pickle' },
  )
  const after = holding(
    [
      [9, MODEL],
      [1, ['data.py', 5, 'load']],
      [3, ['new.py', 2, 'index']],
    ],
    { file: 'b.pickle' },
  )
  const text = diffText(before, after, STYLE)
  assert.match(text, /^Most in use: 7 MiB in A, 13 MiB in B \(\+6 MiB\)\. A's peak is at event 2, B's at$/m)
  assert.match(unwrapped(text), /By call site, at the peaks: new \+3 MiB, gone −1 MiB, grown \+5 MiB, shrunk −1 MiB\./)
  const listed = [...text.matchAll(/^ +([+−]\d+ MiB) {2}(\w+)\.py/gm)].map(([, change, file]) => `${change} ${file}`)
  assert.deepEqual(listed.slice(0, 2), ['+5 MiB model', '+3 MiB new'])
  assert.deepEqual(listed.slice(2).sort(), ['−1 MiB data', '−1 MiB old'])
})

test('peaks in two steps are also compared within one', () => {
  const text = unwrapped(diffText(new Training().trace(), new Training({ leaks: true }).trace(), STYLE))
  const [, from, to, step] = /in step (\d), B's .*? in step (\d)\. In step (\d) at most: \d+ MiB in A/.exec(text) ?? []
  assert.ok(step === to && from !== to, text)
  assert.match(text, /In step 3 at most: \d+ MiB in A, \d+ MiB in B \(\+27 MiB\)\./)
})

test('stacks of one site are told apart where they differ', () => {
  const torch = '/env/lib/python3.11/site-packages/torch'
  const [linear, relu] = [
    [`${torch}/nn/modules/linear.py`, 125, 'forward'] as const,
    [`${torch}/nn/functional.py`, 9, 'relu'] as const,
  ]
  const before = holding([
    [4, linear, MODEL],
    [2, relu, MODEL],
  ])
  const after = holding([
    [9, linear, MODEL],
    [1, relu, MODEL],
  ])
  const lines = diffText(before, after, STYLE).split('\n').slice(-5)
  assert.deepEqual(lines, [
    'By call site, at the peaks: grown +4 MiB.',
    '  +4 MiB  model.py:7 build, mostly in torch/nn/modules/linear.py:125 forward',
    '          (from 6 MiB)',
    '      +5 MiB  in torch/nn/modules/linear.py:125 forward (from 4 MiB)',
    '      −1 MiB  in torch/nn/functional.py:9 relu (from 2 MiB)',
  ])
})

test('two files of one run on one device are recognised', () => {
  const one = holding([[1], [2]])
  assert.match(diffText(one, one, STYLE), /^A and B are recordings of one run on one device\./)
  assert.doesNotMatch(diffText(one, holding([[1]], { device: 1 }), STYLE), /one run/)
})

test('of files with several devices it says which ones are compared', () => {
  const after = { ...holding([[1]], { device: 2 }), otherDevices: [{ device: 0, events: 7 }] }
  const text = unwrapped(diffText(holding([[2]]), after, STYLE))
  assert.match(text, /B: .* These are the events of GPU 2; GPU 0 has 7\. --gpu N chooses\./)
})

test('a recording has no difference to itself', () => {
  const trace = readRecording('traces/mlp-train-stacks.pickle.gz')
  const text = diffText(trace, trace, STYLE)
  assert.match(text, /187\.12 MiB in A, 187\.12 MiB in B \(no change\)/)
  assert.match(text, /By call site nothing changed at the peak\./)
})

test('without call stacks in both, totals are compared, and the remedy is named', () => {
  const text = unwrapped(diffText(holding([[1, MODEL]]), holding([[2]]), STYLE))
  assert.match(text, /only totals can be compared\. torch\.cuda\.memory\._record/)
})

test('no line is wider than the terminal, and no control character of a name reaches it', () => {
  const name = `evil\x1b[2J\n${'x'.repeat(100_000)}`
  const text = diffText(holding([[1, [name, 1, name]]]), holding([[2, MODEL]]), { width: 20, paint: PLAIN })
  const wide = text.split('\n').filter(line => line.length > 20 && !line.startsWith('Next: '))
  assert.deepEqual(wide, [])
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what may not be there
  assert.doesNotMatch(text, /[\x00-\x09\x0b-\x1f]/)
})

test('growth from step to step that only one of two runs has is said with its place', async () => {
  const pair = ['lstm-seed0-a', 'lstm-seed0-grown-leak'].map(name => readRecording(`traces/pairs/${name}.pickle.gz`))
  const [before, after] = await Promise.all(pair)
  const leak =
    /In B memory grows from step to step, as it does not in A: 5\.79 MiB a step at .*pairs\.py:\d+ leak_one\./
  assert.match(unwrapped(diffText(before, after, STYLE)), leak)
  assert.doesNotMatch(unwrapped(diffText(after, before, STYLE)), /grows from step/)
})
