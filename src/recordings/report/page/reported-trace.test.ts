import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { replayDevices } from '../../trace/replay-devices.js'
import { Action, type Trace } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { pageRecording } from './page-text.js'
import { reportedTrace } from './reported-trace.js'

const LEFT_OUT = /^Above 500,000 events .* --policy names them: driver-malloc, driver-pool, power-of-two\.$/

test('of more than 500,000 events the policies that few can choose are left out, unless they are named', async () => {
  const ofEvents = (events: number): Trace => {
    const builder = new TraceBuilder()
    while (builder.events < events) {
      for (const action of [Action.alloc, Action.freeRequested, Action.freeCompleted]) {
        builder.add(action, 2 ** 30, MiB, 0, builder.events)
      }
    }
    return builder.build({ file: 'run.pickle' })
  }
  const [large, small] = [ofEvents(500_001), ofEvents(300)]
  const policiesOf = async (...[trace, options]: [Trace, Parameters<typeof reportedTrace>[3]?]) => {
    const reported = await reportedTrace(trace, replayDevices(trace), 'run', options)
    const isSaid = pageRecording(reported).notes.some(note => LEFT_OUT.test(note))
    return [reported.replay!.runs.map(({ policy }) => policy), isSaid]
  }
  const said = new Set<string>()
  await policiesOf(small, { policies: ['driver-malloc'], onProgress: (_, what) => said.add(what) })
  assert.ok(said.has('cuMemAlloc each time') && !said.has('driver-malloc'), 'progress has the names of the page')
  const few = ['recorded', 'pytorch', 'pytorch-expandable', 'cuda-mempool']
  assert.deepEqual(await policiesOf(large), [few, true])
  assert.deepEqual(await policiesOf(large, { policies: ['driver-malloc'] }), [['driver-malloc'], false])
  assert.deepEqual(await policiesOf(small), [[...few, 'driver-malloc', 'driver-pool', 'power-of-two'], false])
})
