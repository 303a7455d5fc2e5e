import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { parsePytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { programReleases } from '../pytorch/program-releases.js'
import { replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import { RUNS, settingsRecording } from '../pytorch/settings-recordings.fixture.js'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { tune } from './tune.js'

const EXPANDABLE = 'expandable_segments:True'

test('the advice serves a program that ran out of memory, as it did on the GPU', async () => {
  const limitBytes = RUNS.find(run => run.name === 'transformer-tight-default')!.limitBytes!
  const report = await tune([settingsRecording('transformer-tight-default')], { capacityBytes: limitBytes })
  const before = report.runs.find(run => run.settings === '')!
  assert.deepEqual([before.atCapacity!.failures, report.recordings[0].failedRequests], [1, 1])
  assert.equal(report.advice[0].settings, EXPANDABLE)
  const onGpu = RUNS.find(run => run.name === 'transformer-tight-expandable')!
  assert.deepEqual(
    [report.advice[0].atCapacity!.failures, report.advice[0].atCapacity!.retries],
    [onGpu.outOfMemories, onGpu.retries],
  )
})

test('nothing is advised for a recording without allocations', async () => {
  const builder = new TraceBuilder()
  builder.add(Action.snapshot, 0, 0, 0, 0)
  const { advice, runs } = await tune([builder.build({ file: 'empty' })])
  assert.deepEqual([advice, runs[0].leastCapacityBytes], [[], 0])
})

test('a setting serves everything at its least capacity, and not 1 % below', async () => {
  const trace = settingsRecording('mlp-default')
  const { runs, advice, baseline } = await tune([trace])
  assert.equal(baseline, '')
  assert.equal(runs.length, 13)
  assert(advice.length > 0)
  for (const { settings, leastCapacityBytes, leastCapacityRetries } of runs) {
    if (leastCapacityBytes === null) continue
    const replay = (capacityBytes: number) =>
      replayPytorchPolicy(trace, {
        settings: parsePytorchSettings(settings),
        capacityBytes,
        programReleases: programReleases(trace),
      })
    const { failures, retries } = replay(leastCapacityBytes)
    assert.deepEqual([failures, retries], [0, leastCapacityRetries], settings)
    assert(replay(leastCapacityBytes * 0.99).failures > 0 || leastCapacityBytes * 0.99 < trace.peakWithFailedBytes)
  }
  const before = runs.find(run => run.settings === '')!
  for (const run of advice) assert(run.leastCapacityBytes! <= 0.99 * before.leastCapacityBytes!)
})

test('a setting is left out if a better one needs and reserves as little', async () => {
  const { advice } = await tune([settingsRecording('convnet-default')])
  const expandable = advice.filter(run => run.settings.includes(EXPANDABLE))
  assert.deepEqual(
    expandable.map(run => run.settings),
    [EXPANDABLE],
  )
})

test('a recording is compared with the settings that it was made with', async () => {
  const { baseline, runs, advice } = await tune([settingsRecording('mlp-split64')], { settings: ['', EXPANDABLE] })
  assert.equal(baseline, 'max_split_size_mb:64')
  assert.deepEqual(new Set(runs.map(run => run.settings)), new Set([baseline, '', EXPANDABLE]))
  assert(advice.every(run => run.settings !== baseline))
})

test('several recordings are tuned together, those that need most first', async () => {
  const traces = ['streams-default', 'mlp-default', 'convnet-default'].map(settingsRecording)
  const report = await tune(traces, { settings: [EXPANDABLE] })
  const needed = report.recordings.map(recording => recording.runs[0].leastCapacityBytes!)
  assert.deepEqual(
    needed,
    needed.toSorted((a, b) => b - a),
  )
  const expandable = report.runs.find(run => run.settings === EXPANDABLE)!
  const own = report.recordings.map(recording => recording.runs.find(run => run.settings === EXPANDABLE)!)
  assert.equal(expandable.leastCapacityBytes, Math.max(...own.map(run => run.leastCapacityBytes!)))
  assert.equal(
    expandable.deviceCalls,
    own.reduce((sum, run) => sum + run.deviceCalls, 0),
  )
})

test('below what is in use nothing helps, and the largest holders are named', async () => {
  const base = 2 ** 40
  const builder = new TraceBuilder()
  builder.add(Action.segmentAlloc, base, 20 * MiB, 0, 0)
  builder.add(Action.alloc, base, 15 * MiB, 0, 0)
  const trace = builder.build({ file: 'built' })
  const { advice, recordings } = await tune([trace], { capacityBytes: 10 * MiB })
  assert.deepEqual(advice, [])
  assert.equal(recordings[0].lowerBoundBytes, 15 * MiB)
  assert.equal(recordings[0].holders[0].bytes, 15 * MiB)
})

test('settings that collect garbage are tried only with a capacity', async () => {
  const trace = settingsRecording('mlp-tight-default')
  const tried = async (options: object) => (await tune([trace], options)).runs.map(run => run.settings).join(' ')
  assert.doesNotMatch(await tried({}), /garbage/)
  assert.match(await tried({ capacityBytes: 3000 * MiB }), /garbage/)
})

test('after the time that was given only the recorded settings were tried, and the others are named', async () => {
  const report = await tune([settingsRecording('mlp-default')], { seconds: 1e-9 })
  assert.deepEqual(
    report.runs.map(run => run.settings),
    [''],
  )
  assert.equal(report.leftOut.length, 12)
  assert.deepEqual(report.advice, [])
  assert.equal(report.recordings[0].packedBytes, null)
})

test('bad arguments are refused, with the name of the option', async () => {
  const trace = settingsRecording('mlp-default')
  const cases: readonly [unknown, unknown, RegExp][] = [
    [[], {}, /traces must be a list of at least one Trace/],
    [[new TraceBuilder().build({ file: 'own', recorder: 'cuda-mempool' })], {}, /own is not a recording of PyTorch/],
    [[trace], { settings: 'a' }, /settings must be a list of texts/],
    [[trace], { settings: ['max_split:1'] }, /PyTorch has no setting 'max_split'/],
    [[trace], { settings: ['backend:cudaMallocAsync'] }, /cannot be tried exactly/],
    [[trace], { settings: ['garbage_collection_threshold:0.5'] }, /only with a limit; give capacityBytes/],
    [[trace], { capacityBytes: -1 }, /capacityBytes/],
    [[trace], { seconds: 0 }, /seconds must be a number above 0, not 0/],
    [[trace], { onProgress: 1 }, /onProgress must be a function/],
    [[trace], { limit: 1 }, /limit/],
  ]
  for (const [traces, options, message] of cases) {
    await assert.rejects(tune(traces as never, options as never), message)
  }
})
