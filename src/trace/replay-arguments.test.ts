import assert from 'node:assert/strict'
import { test } from 'node:test'
import { replay } from './replay.js'
import type { ReplayOptions } from './replay-options.js'
import { Action } from './trace.js'
import { TraceBuilder } from './trace-builder.js'

const builder = new TraceBuilder()
builder.add(Action.alloc, 4096, 512, 0, 0)
const trace = builder.build({ file: 'small' })
const open = () => assert.fail('no device is opened for wrong options')

test('a wrong argument of replay is one typed error that names it and the remedy', async () => {
  const wrong: [() => Promise<unknown>, RegExp][] = [
    [
      () => (replay as () => Promise<unknown>)(),
      /replay: trace must be a Trace of readSnapshot or recorded, not undef/,
    ],
    [() => replay(null as never, open), /replay: trace must be a Trace .*, not null/],
    [() => replay('file.pickle' as never, open), /not 'file\.pickle'; readSnapshot\(path\) reads a file/],
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
