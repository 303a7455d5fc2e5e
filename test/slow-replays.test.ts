// Replays that are given up: the clocks stand in for slow passes, so that no test waits.

import assert from 'node:assert/strict'
import { afterEach, describe, it, mock } from 'node:test'
import { SlowReplayError } from '../src/core/base/errors.js'
import { pageRecording } from '../src/recordings/report/page/page-text.js'
import { reportedTrace } from '../src/recordings/report/page/reported-trace.js'
import { sharePace } from '../src/recordings/trace/pace.js'
import { replayPytorchPolicy } from '../src/recordings/trace/pytorch/pytorch-replay.js'
import { replay } from '../src/recordings/trace/replay.js'
import { replayDevices } from '../src/recordings/trace/replay-devices.js'
import type { Policy } from '../src/recordings/trace/replay-result.js'
import { Action, type Trace } from '../src/recordings/trace/trace.js'
import { TraceBuilder } from '../src/recordings/trace/trace-builder.js'
import { tune } from '../src/recordings/trace/tune/tune.js'

/** `count` blocks that stay, each on the next of the streams. */
function traceOf(count: number, streams = count): Trace {
  const builder = new TraceBuilder()
  for (let i = 0; i < count; i++) builder.add(Action.alloc, (i + 1) * 4096, 512, i % streams, i)
  return builder.build({ file: 'odd.pickle' })
}

/** The clocks advance by so much at each reading of the first. */
function advance(wallMs: number, cpuMs: number): void {
  let [wall, cpu] = [0, 0]
  mock.method(performance, 'now', () => {
    wall += wallMs
    cpu += cpuMs
    return wall
  })
  mock.method(process, 'cpuUsage', () => ({ user: cpu * 1000, system: 0 }))
}

const under = (trace: Trace, policy: Policy) => replay(trace, replayDevices(trace), { policies: [policy] })

describe('a replay that takes out of all proportion', () => {
  afterEach(() => mock.restoreAll())

  for (const policy of ['cuda-mempool', 'driver-pool', 'pytorch', 'pytorch:max_split_size_mb:64'] as const) {
    it(`under ${policy} is given up, with what the recording has and the remedy`, async () => {
      advance(100, 100)
      await assert.rejects(under(traceOf(60), policy), (error: Error) => {
        assert.ok(error instanceof SlowReplayError)
        assert.ok(error.message.startsWith(`odd.pickle: its replay under ${policy} takes too long for 60 events`))
        assert.match(error.message, /60 blocks at once, 60 streams and 0 private pools; .*--policy.*report --last/)
        return true
      })
    })
  }

  it('is given up in a search of settings', async () => {
    advance(100, 100)
    await assert.rejects(tune([traceOf(60)]), SlowReplayError)
  })

  it('leaves the page of the recording, with a note', async () => {
    advance(100, 100)
    const trace = traceOf(60)
    const reported = await reportedTrace(trace, replayDevices(trace), 'tab')
    mock.restoreAll()
    assert.equal(reported.replay, null)
    const { notes, verdict } = pageRecording(reported)
    assert.match(notes[0], /^odd\.pickle: its replay under pytorch takes too long/)
    assert.match(verdict[0], /in use at the peak/)
  })

  it('may take long if the machine is busy', () => {
    advance(100, 0)
    replayPytorchPolicy(traceOf(60))
  })

  it('may take long if other threads use the processor', () => {
    advance(0, 100)
    replayPytorchPolicy(traceOf(60))
  })

  it('is given up once its passes have taken too long together', () => {
    const trace = traceOf(8)
    advance(100, 100)
    const passes = () => {
      for (let pass = 0; pass < 100; pass++) replayPytorchPolicy(trace)
    }
    assert.throws(passes, SlowReplayError)
  })

  it('is given up once it has taken too long together with the others of its page', () => {
    const traces = Array.from({ length: 9 }, () => traceOf(4))
    sharePace(traces)
    advance(40, 40)
    assert.throws(() => {
      for (const trace of traces) for (let pass = 0; pass < 2; pass++) replayPytorchPolicy(trace)
    }, SlowReplayError)
  })

  it('may take longer for several rounds', () => {
    advance(10, 10)
    replayPytorchPolicy(traceOf(8), { repeat: 20 })
  })

  it('may take long in proportion to its length', () => {
    const trace = traceOf(20_000, 1)
    advance(0.4, 0.4)
    for (let pass = 0; pass < 100; pass++) replayPytorchPolicy(trace)
  })
})
