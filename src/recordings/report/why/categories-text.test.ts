import assert from 'node:assert/strict'
import { test } from 'node:test'
import { categoriesAfter } from '../../trace/analysis/categories.js'
import { inUseOf } from '../../trace/analysis/curves.js'
import { Training } from '../../trace/analysis/training.fixture.js'
import { Action, type Trace } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { categoriesText } from './categories-text.js'

const CHECKPOINT = { filename: '/env/site-packages/torch/utils/checkpoint.py', line: 488, name: 'checkpoint' }

const atPeak = (trace: Trace) => categoriesText(categoriesAfter(trace, inUseOf(trace).peakEvent), false, 80)

test('each category has a line with its bytes and its share, and how it is known', () => {
  const [text] = atPeak(new Training().trace())
  assert.match(text, /^What it was for, inferred from phases and lifetimes:$/m)
  assert.match(text, /^ +12 MiB +[\d.]+ % {2}parameters$/m)
  assert.match(text, /^ +[\d.]+ MiB +[\d.]+ % {2}optimizer state$/m)
  const shares = [...text.matchAll(/([\d.]+) % /g)].map(match => Number(match[1]))
  assert.ok(Math.abs(shares.reduce((sum, share) => sum + share, 0) - 100) < 0.5, text)
})

test('a purpose for which nothing is held has a line, too', () => {
  const trace = new Training().trace()
  const [text] = categoriesText(categoriesAfter(trace, trace.events - 1), false, 80)
  assert.match(text, /^ +0 B +0\.0 % {2}activations: [\d.]+ MiB at most, at other times$/m)
  assert.doesNotMatch(text, /could save/)
})

test('what has no call stack is said by category', () => {
  const [text] = atPeak(new Training().trace())
  assert.match(text.replaceAll('\n', ' '), /Without a call stack, as in backward passes: (\d+ MiB [a-z]+(, |\.))+/)
  assert.doesNotMatch(atPeak(new Training({ stacks: 'all' }).trace())[0], /Without a call stack/)
})

test('the activations are the most that checkpointing could save', () => {
  const [text] = atPeak(new Training().trace())
  const [, activations] = /^ +([\d.]+ MiB) +[\d.]+ % {2}activations/m.exec(text)!
  assert.ok(text.replaceAll('\n', ' ').includes(`could save ${activations} at most`), text)
})

test('there is no text for a recording without categories', () => {
  const builder = new TraceBuilder()
  builder.add(Action.alloc, 512, 512, 0, 0)
  assert.deepEqual(atPeak(builder.build({ file: 'plain' })), [])
})

test('a run that checkpoints already is not told to', () => {
  const trace = new Training().trace()
  const stacks = { ...trace.stacks, frames: [...trace.stacks.frames, CHECKPOINT] }
  assert.match(atPeak({ ...trace, stacks })[0], /^Parts of the run are checkpointed; more of it could save/m)
})
