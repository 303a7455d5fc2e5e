import assert from 'node:assert/strict'
import { test } from 'node:test'
import { traceDifference } from './analysis/stack-diff.js'
import { leftBlocks, stepsOf } from './analysis/steps.js'
import { recordedOutOfMemories } from './failures/out-of-memory.js'
import { replay } from './replay.js'
import type { ReplayOptions } from './replay-options.js'
import { Action } from './trace.js'
import { TraceBuilder } from './trace-builder.js'
import { tune } from './tune/tune.js'

const builder = new TraceBuilder()
builder.add(Action.alloc, 4096, 512, 0, 0)
const trace = builder.build({ file: 'small' })
const open = () => assert.fail('no device is opened for wrong options')

test('a wrong argument of replay is one typed error that names it and the remedy', async () => {
  const wrong: [() => Promise<unknown>, RegExp][] = [
    [
      () => (replay as () => Promise<unknown>)(),
      /replay: trace must be a Trace of readRecording or recorded, not undef/,
    ],
    [() => replay(null as never, open), /replay: trace must be a Trace .*, not null/],
    [() => replay('file.pickle' as never, open), /not 'file\.pickle'; readRecording\(path\) reads a file/],
    [() => replay({} as never, open), /replay: trace must be a Trace/],
    [
      () => (replay as (of: unknown) => Promise<unknown>)(trace),
      /replay: open must be a function .*, not undefined; su/,
    ],
    [
      () => replay(trace, () => null as never),
      /replay: open must return a device, not null; such as replayDevices\(trace\)/,
    ],
    [() => replay(trace, (async () => ({})) as never), /replay: open must return a device, not a Promise/],
  ]
  for (const [call, message] of wrong) await assert.rejects(call, { name: 'TypeError', message })
})

test('a wrong trace or step is one typed error that names the call', async () => {
  for (const wrong of [undefined, null, {}, 'run.pickle'] as never[]) {
    const error = (call: string) => ({
      name: 'TypeError',
      message: new RegExp(`^${call}: trace must be a Trace of readRecording or recorded, not `),
    })
    assert.throws(() => traceDifference(wrong, trace), error('traceDifference'))
    assert.throws(() => traceDifference(trace, wrong), error('traceDifference'))
    assert.throws(() => stepsOf(wrong), error('stepsOf'))
    assert.throws(() => leftBlocks(wrong, { name: '', steps: [] }, 0), error('leftBlocks'))
    assert.throws(() => recordedOutOfMemories(wrong), error('recordedOutOfMemories'))
    await assert.rejects(tune([wrong]), error('tune'))
  }
  const steps = { name: 'step', steps: [{ from: 0, to: 1, leftBytes: null, leftBlocks: null }] }
  const message = /^leftBlocks: steps must be what stepsOf\(trace\) returns, not null/
  assert.throws(() => leftBlocks(trace, null as never, 0), { name: 'TypeError', message })
  for (const step of [-1, 1, 0.5, undefined as never]) {
    assert.throws(() => leftBlocks(trace, steps, step), { name: 'RangeError', message: /^leftBlocks: step must be / })
  }
})

test('a wrong option of replay is one error that names it, and unknown options get the nearest name', async () => {
  const wrong: [object, string, RegExp][] = [
    [{ policy: ['pytorch'] }, 'TypeError', /replay: unknown option 'policy'; .*; did you mean policies\?$/],
    [{ capacity: 5 }, 'TypeError', /unknown option 'capacity'; .*did you mean capacityBytes\?/],
    [{ verfiy: true }, 'TypeError', /unknown option 'verfiy'; .*did you mean verify\?/],
    [{ colour: true }, 'TypeError', /unknown option 'colour'; the options are policies, .*, onProgress$/],
    [{ policies: 'pytorch' }, 'TypeError', /policies must be a list of names, not 'pytorch'/],
    [{ policies: ['best'] }, 'RangeError', /policies: there is no 'best'/],
    [{ verify: 1 }, 'TypeError', /verify must be true or false, not 1/],
    [{ onProgress: true }, 'TypeError', /onProgress must be a function, not true/],
    [{ lag: -1 }, 'RangeError', /lag must be/],
    [{ capacityBytes: 0 }, 'RangeError', /capacityBytes must be/],
  ]
  for (const [options, name, message] of wrong) {
    await assert.rejects(replay(trace, open, options as ReplayOptions), { name, message })
  }
  await assert.rejects(replay(trace, open, null as never), { name: 'TypeError', message: /options must be an object/ })
})
