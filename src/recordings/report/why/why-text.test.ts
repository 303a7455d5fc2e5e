import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatBytes, MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import { Action } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { tune } from '../../trace/tune/tune.js'
import { recordedMemory } from '../export/policy-memory.js'
import { PLAIN } from '../table.js'
import { fitted } from '../trace-lines.js'
import { holding, unwrapped } from '../trace-texts.fixture.js'
import { whyText } from './why-text.js'

const STYLE = { width: 80, paint: PLAIN }
const textOf = (...args: Parameters<typeof steps>) => unwrapped(whyText(steps(...args), STYLE))

/** A program of steps of one block each. A step frees the block of the step before, but for the steps in `leaks`. */
function steps(leaks: readonly number[], count = 6) {
  const builder = new TraceBuilder()
  const annotations = []
  for (let step = 1; step <= count; step++) {
    builder.add(Action.alloc, step * MiB, 1 * MiB, 0, 10 * step)
    if (step > 1 && !leaks.includes(step - 1)) builder.add(Action.freeRequested, (step - 1) * MiB, 0, 0, 10 * step + 1)
    const mark = { name: 'Optimizer.step#SGD.step', timeUs: 10 * step + 5 }
    annotations.push({ ...mark, isStart: true }, { ...mark, isStart: false })
  }
  return builder.build({ file: 'steps.pickle', annotations })
}

test('the holders at the peak are named by call site, the most bytes first', () => {
  const model = ['model.py', 7, 'build'] as const
  const text = whyText(
    holding([
      [1, ['data.py', 3, 'load']],
      [2, model],
      [4, model],
    ]),
    STYLE,
  )
  assert.match(text, /No request failed\./)
  assert.match(
    text,
    /Most in use: 7 MiB at event 2\.\nHeld then, by call site:\n +6 MiB .*model\.py:7 build.*\n +1 MiB .*data\.py:3/,
  )
})

test('figures are those of the recording', () => {
  const trace = readRecording('traces/oom-retry-2gib.pickle.gz')
  const text = whyText(trace, STYLE)
  assert.match(text, /^Out of memory\. 17 requests failed\. The last one:$/m)
  assert.match(
    text,
    new RegExp(`Most in use: ${formatBytes(trace.peakRequestedBytes)} at event 1,569, 1\\.99 GiB reserved`),
  )
})

test('a recording without segments has a reserved peak, but no moment of it', () => {
  const trace = holding([[1]], { peakReservedBytes: 4 * 2 ** 20 })
  assert.equal(recordedMemory(trace).reservedBytes, null)
  assert.match(whyText(trace, STYLE), /^Most in use: 1 MiB at event 0; at most 4 MiB were reserved\.$/m)
})

test('a first step that keeps its memory does not leak, and later steps that do are counted', () => {
  assert.match(textOf([1]), /of the first 4, step 1 left 1 MiB that stay; no other left anything\./)
  assert.match(textOf([1, 2, 3]), /step 1 left 1 MiB that stay; 2 of 3 later steps left something/)
  assert.match(
    textOf([]),
    /6 steps, by the ends of Optimizer\.step#SGD\.step: of the first 4, none left memory behind\./,
  )
  assert.match(textOf([], 2), /too few to tell what each leaves behind/)
  assert.match(textOf([]), /The last 2 are too near to the end to judge\./)
  assert.match(textOf([1]), /Most in use: 3 MiB at event 2, in step 3 of 6\./)
  assert.doesNotMatch(whyText(holding([[1]]), STYLE), /step/)
})

test('a pattern chooses the steps', () => {
  assert.match(whyText(steps([1]), STYLE, { pattern: /SGD/ }), /6 steps/)
  assert.match(whyText(steps([1]), STYLE, { pattern: /epoch/ }), /No annotation of the recording matches epoch\./)
})

test('settings that were tried stand behind the failed requests, each with a line to copy', async () => {
  const trace = readRecording('traces/oom-retry-2gib.pickle.gz')
  const tuned = await tune([trace], { settings: ['expandable_segments:True', 'max_split_size_mb:1024'] })
  const text = whyText(trace, STYLE, { tuned })
  assert.match(
    text,
    /tried by replays of this recording:\n• The program's own limit stopped it,[^•]* no\s+setting tried serves it/,
  )
  assert.match(text, /^ {4}export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True$/m)
  assert.doesNotMatch(text, /max_split_size_mb:1024/)
  const narrow = whyText(trace, { ...STYLE, width: 40 }, { tuned })
  assert.match(narrow, /^ {4}export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True$/m)
  assert.match(narrow, /^torch\.cuda\.memory\._record_memory_history\(stacks='python'\)$/m)
  const copied = '  torch.cuda.set_per_process_memory_fraction.\nNext: npx cuda-mempool report a-long-name.pickle'
  assert.equal(fitted(copied, 20), copied)
  assert.equal(fitted('x'.repeat(25), 20), `${'x'.repeat(20)}\n${'x'.repeat(5)}`)
  const short = await tune([trace], { seconds: 1e-9 })
  assert.match(
    whyText(trace, STYLE, { tuned: short }),
    /• Not tried, because the time was over: expandable_segments:True;/,
  )
  const nothing = await tune([trace], { settings: ['max_split_size_mb:1024'] })
  assert.match(
    unwrapped(whyText(trace, STYLE, { tuned: nothing })),
    /between 2 GiB and 2\.01 GiB\. To serve the run, raise it with today's settings to 2\.33 GiB .* Without raising it, no setting tried/,
  )
})

test('gaps of the recording are said', () => {
  const text = whyText(holding([[1]], { dropped: 5, skippedEvents: 2 }), STYLE)
  assert.match(text, /lost 5 events; figures may be too low\.\n2 events were left out: of other memory,/)
  assert.match(text, /no call stacks\.\storch\.cuda\.memory\._record_memory_history\(/)
  assert.match(whyText(holding([[1]], { recorder: 'RMM' }), STYLE), /no call stacks\. RMM logs none\./)
})

test('no line is wider than the terminal, and no control character of a name reaches it', () => {
  const name = `evil\x1b[2J\n${'x'.repeat(100_000)}`
  for (const width of [20, 80]) {
    const text = whyText(holding([[1, [name, 1, name]]], { file: 'evil\x1b[2J.pickle' }), { width, paint: PLAIN })
    const wide = text.split('\n').filter(line => line.length > width && !line.startsWith('Next: '))
    assert.deepEqual(wide, [], `${width} columns`)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what may not be there
    assert.doesNotMatch(text, /[\x00-\x09\x0b-\x1f]/)
    assert.ok(text.length < 10_000, `${text.length} letters`)
  }
})
