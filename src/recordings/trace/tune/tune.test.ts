import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { categoriesAfter } from '../analysis/categories.js'
import { inUseOf } from '../analysis/curves.js'
import { Training } from '../analysis/training.fixture.js'
import { formatPytorchSettings, parsePytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { programReleases } from '../pytorch/program-releases.js'
import { replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import { PytorchRun } from '../pytorch/pytorch-run.js'
import { RUNS, settingsRecording } from '../pytorch/settings-recordings.fixture.js'
import { settingsOf } from '../replay-options.js'
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
  for (const run of advice) assert(run.peakReservedBytes <= before.peakReservedBytes)
})

test('a setting is left out if a better one needs and reserves as little', async () => {
  const { advice } = await tune([settingsRecording('convnet-default')])
  const expandable = advice.filter(run => run.settings.includes(EXPANDABLE))
  assert.deepEqual(
    expandable.map(run => run.settings),
    [EXPANDABLE],
  )
})

for (const name of ['streams-tight-default', 'convnet-tight-gc60', 'sizes-tight-expandable', 'mlp-tight-default']) {
  test(`tune and replay reserve the same in ${name}, and no figure is below what any allocator needs`, async () => {
    const trace = settingsRecording(name)
    const { runs, recordings } = await tune([trace], { settings: [EXPANDABLE] })
    const [{ lowerBoundBytes }] = recordings
    let compared = 0
    const { expandableSegments: _, ...recorded } = parsePytorchSettings(trace.settings ?? '')
    for (const [policy, settings] of [
      ['pytorch', recorded],
      ['pytorch-expandable', { ...recorded, ...parsePytorchSettings(EXPANDABLE) }],
    ] as const) {
      const tuned = runs.find(run => run.settings === formatPytorchSettings(settings))
      const options = settingsOf({ policies: [policy] })
      const { peakReservedBytes } = await new PytorchRun(policy, trace, options).figures(true, () => {})
      if (tuned === undefined) continue
      assert.equal(peakReservedBytes, tuned.peakReservedBytes, policy)
      compared++
    }
    assert.ok(compared > 0)
    for (const run of runs) {
      assert.ok(run.peakReservedBytes >= lowerBoundBytes && (run.leastCapacityBytes ?? Infinity) >= lowerBoundBytes)
    }
  })
}

test('without a capacity, retries are counted within the memory at the failure, or about the recorded peak', async () => {
  const failed = await tune([settingsRecording('mlp-tight-default')], { settings: [EXPANDABLE] })
  const [{ withinIs, withinBytes, lastFailure }] = failed.recordings
  assert.deepEqual([withinIs, withinBytes, failed.isLimited], ['failure', lastFailure!.capacityBytes, true])
  assert.ok(failed.runs.find(run => run.settings === '')!.within!.failures > 0)
  const trace = settingsRecording('streams-tight-default')
  const served = await tune([trace], { settings: [EXPANDABLE] })
  assert.equal(served.recordings[0].withinBytes, trace.recordedPeakReservedBytes! + 20 * MiB)
  assert.deepEqual([served.recordings[0].withinIs, served.isLimited], ['recorded', false])
  assert.equal(served.runs.find(run => run.settings === '')!.within!.retries, 6)
  const calm = await tune([settingsRecording('streams-default')], { settings: [EXPANDABLE] })
  assert.deepEqual([calm.recordings[0].withinIs, calm.runs[0].within], [null, null], 'it never ran full')
})

test('expandable segments are not tried for a recording of Windows by default', async () => {
  const builder = new TraceBuilder()
  const stack = builder.stacks.number([builder.stacks.entry('C:\\Users\\me\\train.py', 7, 'step')])
  builder.add(Action.segmentAlloc, 2 ** 40, 20 * MiB, 0, 0)
  builder.add(Action.alloc, 2 ** 40, 3 * MiB, 0, 1, stack)
  const trace = builder.build({ file: 'built' })
  const usual = await tune([trace])
  assert.ok(usual.runs.length > 5 && usual.runs.every(run => !run.settings.includes(EXPANDABLE)))
  assert.equal(usual.recordings[0].platform, 'Windows')
  const asked = await tune([trace], { settings: [EXPANDABLE] })
  assert.ok(asked.runs.some(run => run.settings === EXPANDABLE))
  assert.ok(asked.advice.every(run => run.settings !== EXPANDABLE))
})

test('the failed request that needs most is named, if it needs more than is in use at any time', async () => {
  const builder = new TraceBuilder()
  builder.add(Action.segmentAlloc, 2 ** 40, 20 * MiB, 0, 0)
  builder.add(Action.alloc, 2 ** 40, 15 * MiB, 0, 1)
  builder.add(Action.outOfMemory, 10 * MiB, 30 * MiB, 0, 2)
  builder.add(Action.outOfMemory, 10 * MiB, 25 * MiB, 0, 3)
  const { recordings, advice } = await tune([builder.build({ file: 'built' })], { settings: [EXPANDABLE] })
  assert.deepEqual(recordings[0].lowerBoundRequest, { event: 2, bytes: 30 * MiB })
  assert.deepEqual(advice, [], 'nothing can serve it')
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
  const trace = settingsRecording('mlp-default')
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

test('the activations at the peak are those of the categories', async () => {
  const trace = new Training().trace()
  const { shares } = categoriesAfter(trace, inUseOf(trace).peakEvent)!
  const { bytes } = shares.find(({ category }) => category === 'activations')!
  const { recordings } = await tune([trace], { settings: [''] })
  assert.deepEqual(recordings[0].activations, { bytes, isCheckpointed: false })
})

test('of several recordings, the least capacity with the best setting is known for each', async () => {
  const traces = ['mlp-default', 'transformer-tight-default'].map(settingsRecording)
  const { recordings, advice } = await tune(traces, { settings: [EXPANDABLE] })
  assert.deepEqual(
    advice.map(({ settings }) => settings),
    [EXPANDABLE],
  )
  for (const { runs } of recordings) {
    const { leastCapacityBytes, peakReservedBytes } = runs.find(({ settings }) => settings === EXPANDABLE)!
    assert.ok(leastCapacityBytes! <= peakReservedBytes, `${leastCapacityBytes} of ${peakReservedBytes}`)
  }
})

test('usual settings with expandable segments are tried with the reserve of today', async () => {
  const builder = new TraceBuilder()
  builder.add(Action.segmentAlloc, 2 ** 40, 200 * MiB, 0, 0)
  builder.add(Action.alloc, 2 ** 40, 200 * MiB, 0, 0)
  const reserve = 'expandable_segments_reserve:0.125G'
  const trace = builder.build({ file: 'built' })
  const { runs } = await tune([trace], { merge: `${reserve},${EXPANDABLE}`, capacityBytes: 400 * MiB })
  const tried = runs.filter(({ settings }) => settings.includes(EXPANDABLE))
  assert.ok(tried.length > 1)
  for (const { settings, atCapacity, leastCapacityBytes } of tried) {
    assert.ok(settings.includes(reserve), settings)
    assert.deepEqual([atCapacity!.failures, leastCapacityBytes], [1, null], settings)
  }
})

test('where a request failed for the reserve, expandable segments are tried and advised without it', async () => {
  const builder = new TraceBuilder()
  builder.add(Action.segmentMap, 2 ** 40, 700 * MiB, 0, 0)
  builder.add(Action.alloc, 2 ** 40, 690 * MiB, 0, 0)
  builder.add(Action.outOfMemory, 10_000 * MiB, 1100 * MiB, 0, 0)
  const baseline = `${EXPANDABLE},expandable_segments_reserve:1G`
  const report = await tune([builder.build({ file: 'built', settings: baseline })])
  assert.equal(report.baseline, baseline)
  assert.equal(report.runs.find(({ settings }) => settings === baseline)!.within!.failures, 1)
  assert.equal(report.runs.find(({ settings }) => settings === EXPANDABLE)!.within!.failures, 0)
  assert.ok(report.advice.some(({ settings }) => settings === EXPANDABLE))
})
