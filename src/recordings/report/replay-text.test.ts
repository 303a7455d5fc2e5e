import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../core/base/bytes.js'
import {
  DEFAULT_POLICIES,
  type Latency,
  POLICIES,
  type Policy,
  type ReplayReport,
  type ReplayRun,
} from '../trace/replay-result.js'
import { emptyRun } from '../trace/run-figures.js'
import { replayText } from './replay-text.js'
import { PLAIN } from './table.js'
import { NO_CONTRADICTIONS } from './trace-texts.fixture.js'

const NEEDED = 4 * GiB

function latency(p50: number): Latency {
  return {
    p50,
    p90: p50 * 2,
    p99: p50 * 3,
    p999: p50 * 4,
    max: p50 * 5,
    totalNs: p50 * 100_000,
    clockNs: 30,
    runs: 5,
    hits: null,
    misses: null,
  }
}

function run(policy: Policy, changes: Partial<ReplayRun> = {}): ReplayRun {
  return { ...emptyRun(policy, { peakRequestedBytes: NEEDED, peakWithFailedBytes: NEEDED }), ...changes }
}

const OURS = run('cuda-mempool', {
  peakReservedBytes: 4.04 * GiB,
  overhead: 1.01,
  externalFragmentation: 0.0099,
  deviceCalls: { cuMemCreate: 2000, cuMemMap: 1234 },
  eventsPerSecond: 1_920_000,
  allocateNs: latency(61),
  freeNs: latency(39),
})
const MALLOC = run('driver-malloc', {
  peakReservedBytes: NEEDED,
  overhead: 1,
  externalFragmentation: 0,
  deviceCalls: { cuMemAlloc: 22_868, cuMemFree: 22_868 },
  eventsPerSecond: 39_000,
  allocateNs: latency(42_000),
  freeNs: latency(9_600),
})

function report(runs: readonly ReplayRun[], simulated = true): ReplayReport {
  return {
    trace: {
      file: 'traces/run.pickle.gz',
      device: 0,
      otherDevices: [],
      recorder: 'PyTorch',
      settings: '',
      platform: null,
      events: 68_640,
      streams: 1,
      spanSeconds: 3.5,
      peakRequestedBytes: NEEDED,
      peakWithFailedBytes: NEEDED,
      packedBytes: null,
      recordedPeakReservedBytes: 5 * GiB,
      allocations: 22_868,
      initial: { blocks: 0, bytes: 0 },
      contradictions: NO_CONTRADICTIONS,
      failedRequests: 0,
      outOfMemories: [],
      giveBacks: [],
    },
    device: { name: simulated ? 'simulated GPU' : 'NVIDIA H200', simulated },
    lag: simulated ? 8 : null,
    capacityBytes: null,
    repeat: 1,
    runs,
  }
}

const text = (shown: ReplayReport, width = 200) => replayText(shown, { width, paint: PLAIN })

test('the text compares with the recording and with the driver', () => {
  const shown = text(report([OURS, run('driver-malloc', { ...MALLOC, modelledDeviceSeconds: 1.18 })]))
  assert.match(shown, /never had more than 4 GiB in use at once/)
  assert.match(shown, /PyTorch reserved 5 GiB when it was recorded, 25\.0 % more than was in use\./)
  assert.match(shown, /cuda-mempool reserves 4\.04 GiB, 1\.0 % more than was in use: 983\.04 MiB less than PyTorch\./)
  assert.match(shown, /takes 45,736 calls \(1\.18 s, modelled\); cuda-mempool takes 3,234 calls\./)
})

test('on the simulated device the text gives no speed of a GPU or its driver', () => {
  const shown = text(report([OURS, MALLOC]))
  assert.match(shown, /simulated GPU, no GPU was used/)
  assert.doesNotMatch(shown, /as long/)
  assert.match(row(shown, 'cuda-mempool'), /1\.92 M\/s +10\.0 ms +61 ns +183 ns +305 ns$/)
  assert.match(row(shown, 'cuMemAlloc each time'), /– +– +– +– +–$/)
})

test('on a GPU the text compares the time of all calls with the driver, and then medians', () => {
  const shown = text(report([OURS, MALLOC], false))
  assert.match(shown, /Replayed on NVIDIA H200\./)
  assert.match(
    shown,
    /spends 10\.0 ms in the allocator over the run; cuMemAlloc and cuMemFree 5\.16 s, 516 times as long/,
  )
  assert.match(shown, /Median of an allocation and its free: cuda-mempool 100 ns, cuMemAlloc and cuMemFree 51\.6 µs/)
  assert.match(row(shown, 'cuMemAlloc each time'), /39 k\/s +5\.16 s +42\.0 µs +126 µs +210 µs$/)
  assert.doesNotMatch(shown, /modelled/)
})

test("on the simulated device the text compares the time in the allocator with PyTorch's, host and driver", () => {
  const ours = run('cuda-mempool', { ...OURS, modelledDeviceSeconds: 0.189 })
  const models = [
    run('pytorch', { modelledDeviceSeconds: 0.0014, allocateNs: latency(80), freeNs: latency(20) }),
    run('pytorch-expandable', { modelledDeviceSeconds: 0.0086, allocateNs: latency(60), freeNs: latency(20) }),
  ]
  const timed = text(report([ours, ...models]), 1000)
  assert.match(
    timed,
    /spends 199 ms in the allocator over the run: 10\.0 ms on this host, 189 ms in driver calls \(modelled\)/,
  )
  assert.match(timed, /PyTorch with its defaults 11\.4 ms \(10\.0 ms and 1\.4 ms\)/)
  assert.match(timed, /PyTorch with expandable segments 16\.6 ms \(8\.0 ms and 8\.6 ms\)\./)
  const withoutLatency = [ours, ...models].map(each => ({ ...each, allocateNs: null, freeNs: null }))
  assert.doesNotMatch(text(report(withoutLatency), 1000), /a second|all\s+calls|spends|for each block/)
})

test('of several rounds the text shows what each reserved, and which calls it made', () => {
  const rounds = Array.from({ length: 5 }, (_, i) => ({
    peakReservedBytes: (4 + i / 4) * GiB,
    deviceCalls: i === 4 ? {} : { cuMemMap: 40 - 10 * i, cuMemCreate: 2000 },
    modelledDeviceSeconds: 0.1,
  }))
  const shown = text({ ...report([run('cuda-mempool', { ...OURS, rounds }), MALLOC]), repeat: 5 })
  const [reserved, calls] = shown.split('in each round').slice(1)
  assert.match(reserved, /^ *policy +1 +2 +4 +5$/m)
  assert.match(row(reserved, 'cuda-mempool'), /^cuda-mempool +4 GiB +4\.25 GiB +4\.75 GiB +5 GiB$/)
  assert.match(row(calls, 'cuda-mempool'), /^cuda-mempool +2,040 +2,030 +2,010 +0$/)
  assert.match(shown, /cuda-mempool in round 1: 2,000 cuMemCreate, 40 cuMemMap\. In round 5: none\./)
  assert.doesNotMatch(text(report([OURS])), /round/)
})

test('figures of a policy that failed are not compared', () => {
  const firstFailure = { event: 1234, bytes: 64 * MiB, stream: 7, message: 'no room', frames: ['model.py:12 forward'] }
  const shown = text(report([run('cuda-mempool', { ...OURS, failures: 3, firstFailure }), MALLOC], false))
  assert.doesNotMatch(shown, /as long|less than PyTorch/)
  assert.match(shown, /✗ cuda-mempool failed 3 requests\. The first: 64 MiB on stream 7 at event 1,234: no room/)
  assert.match(shown, /^ {4}model\.py:12 forward$/m)
})

test('a long stack is cut with a count, and no escape of a file reaches the terminal', () => {
  const frames = Array.from({ length: 20 }, (_, line) => `\x1b[2Jmodel.py:${line} forward`)
  const firstFailure = { event: -1, bytes: 1, stream: 0, message: 'no\x1broom', frames }
  const shown = text(report([run('cuda-mempool', { failures: 1, firstFailure })]))
  assert.match(shown, /before the first event: no\?room/)
  assert.match(shown, /… 14 more/)
  assert.ok(!shown.includes('\x1b'))
})

test('the text tells how well the replayed policy is proved, and the result of verification', () => {
  const shown = text(
    report([
      run('pytorch', { placement: { allocations: 22_868, exact: 22_868 } }),
      run('cuda-mempool', { peakReservedBytes: NEEDED, verified: { blocks: 100, damaged: 2 } }),
      run('power-of-two', { verified: { blocks: 100, damaged: 0 } }),
      run('waiting', { insertedWaits: 1234 }),
    ]),
  )
  assert.match(shown, /PyTorch, default put 22,868 of 22,868 allocations on the recorded address/)
  assert.match(shown, /cuda-mempool: 2 of 100 blocks lost their contents/)
  assert.match(shown, /powers of two: 100 blocks kept their contents/)
  assert.match(shown, /waiting made a stream wait for another one's memory 1,234 times/)
})

test('a missing value is a dash, a column without values is left out, and every width is kept', () => {
  const nothing = POLICIES.map(policy => run(policy))
  const full = [OURS, MALLOC, ...POLICIES.map(policy => run(policy, { ...MALLOC, policy }))]
  for (const runs of [nothing, full, []]) {
    for (const width of [50, 60, 80, 100, 120]) {
      for (const shown of [
        report(runs),
        { ...report(runs, false), trace: { ...report([]).trace, peakRequestedBytes: 0 } },
      ]) {
        const lines = text(shown, width).split('\n')
        for (const line of lines) {
          assert.ok(line.length <= width, `${line} (${width})`)
          assert.doesNotMatch(line, /NaN|null|undefined|Infinity/)
        }
      }
    }
  }
  assert.doesNotMatch(text(report(nothing)), /modelled\n|allocate/)
})

test('the first columns are whether a policy would serve the crash, and the least memory', () => {
  const crash = { ...report([]).trace, failedRequests: 1, peakWithFailedBytes: 5 * GiB }
  const runs = [
    run('pytorch', { ...OURS, policy: 'pytorch', servesAtFailure: false, leastCapacityBytes: 6 * GiB }),
    run('pytorch-expandable', { ...OURS, policy: 'pytorch-expandable', leastCapacityBytes: 5.5 * GiB }),
    run('cuda-mempool', { ...OURS, servesAtFailure: true, leastCapacityBytes: 5 * GiB }),
  ]
  const shown = text({ ...report(runs), trace: crash })
  assert.match(shown, /^ +would +least +peak +.*\npolicy +serve +memory +reserved/m)
  assert.match(row(shown, 'PyTorch, default'), /default +no +6 GiB/)
  assert.match(row(shown, 'PyTorch, expandable'), /expandable +maybe +5\.5 GiB/)
  assert.match(row(shown, 'cuda-mempool'), /mempool +yes +5 GiB/)
  assert.match(shown, /No allocator can serve this run and the request that failed in less than 5 GiB\./)
  const paint = { ...PLAIN, green: (line: string) => `green ${line}` }
  const green = replayText({ ...report(runs), trace: crash }, { width: 120, paint }).match(/^green \S+/gm)
  assert.deepEqual(green, ['green cuda-mempool'], 'as only that row serves')
  const refusing = runs.map(each => ({ ...each, servesAtFailure: false }))
  assert.doesNotMatch(replayText({ ...report(refusing), trace: crash }, { width: 120, paint }), /^green/m)
})

test('models of PyTorch are named after the settings of the recording', () => {
  const named = (policy: Policy) => run(policy, { ...OURS, policy })
  const models = report([named('pytorch'), named('pytorch-expandable')])
  const withSettings = (settings: string) => text({ ...models, trace: { ...models.trace, settings } })
  assert.match(withSettings('expandable_segments:True'), /^PyTorch, default .*\nPyTorch, expandable /m)
  const shown = withSettings('max_split_size_mb:128,expandable_segments:True')
  assert.match(shown, /^PyTorch, as set .*\nPyTorch, as set, expandable /m)
  assert.match(shown, /"As set": with the other settings of the recording\./)
  assert.match(withSettings('pinned_free_catch_all:True,backend:native'), /^PyTorch, default .*\nPyTorch, expandable /m)
})

test('settings of a recording that are not known are named, and the known ones are used', () => {
  const { trace } = report([])
  const shown = text({ ...report([]), trace: { ...trace, settings: 'max_split_size_mb:128,new_setting:[1,2]' } })
  assert.match(shown, /Recorded with max_split_size_mb:128,new_setting:\[1,2\]\. /)
  assert.match(
    shown.replaceAll('\n', ' '),
    /Replays of PyTorch are as set, but for new_setting:\[1,2\], which is not known\./,
  )
})

test('calls and their time have no columns if none were made', () => {
  const none = run('cuda-mempool', { ...OURS, deviceCalls: {}, modelledDeviceSeconds: 0, allocateNs: null })
  assert.doesNotMatch(text(report([none])), /memory|modelled/)
  const waits = text(report([run('waiting', { insertedWaits: 1 })]))
  assert.match(waits, /made a stream wait for another one's memory 1 time\./)
})

test('settings that change no replay are told apart, and those that were not in effect', () => {
  const { trace } = report([])
  const withSettings = (settings: string) =>
    text({ ...report([]), trace: { ...trace, settings } }).replaceAll('\n', ' ')
  assert.match(
    withSettings('throw_on_cudamalloc_oom:True,pinned_free_catch_all:True'),
    /Replays leave out throw_on_cudamalloc_oom:True: no recording has the size of the device\. No effect on the memory of a GPU: pinned_free_catch_all:True\./,
  )
  assert.match(
    withSettings('expandable_segments:True,expandable_segments:False'),
    /Recorded with expandable_segments:True\. Expandable segments were not in effect: Windows has none/,
  )
  assert.doesNotMatch(withSettings('expandable_segments:False'), /effect/)
  const named: Policy = 'pytorch:pinned_free_catch_all:True'
  assert.match(text(report([run(named, { ...OURS, policy: named })])), /No effect on the memory of a GPU: pinned_free_/)
})

test('calls for memory alone are counted, alike for all policies', () => {
  const deviceCalls = { cuMemCreate: 3, cuMemMap: 4, cuEventQuery: 500, cuStreamIsCapturing: 70, cuMemGetInfo: 9 }
  assert.match(row(text(report([run('cuda-mempool', { deviceCalls })])), 'cuda-mempool'), / 7$/)
})

test('the last line is for the shell, only if a replay showed that expandable segments help', () => {
  const models = (byDefault: Partial<ReplayRun>, expandable: Partial<ReplayRun>, trace: object = {}) => {
    const shown = report([run('pytorch', byDefault), run('pytorch-expandable', expandable)])
    return text({ ...shown, trace: { ...shown.trace, ...trace } })
      .split('\n')
      .at(-1)!
  }
  const line = 'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'
  const [more, less] = [{ peakReservedBytes: 6 * GiB }, { peakReservedBytes: 5 * GiB }]
  const failed = { failedRequests: 1 }
  assert.equal(models(more, less), line)
  assert.notEqual(models(less, more), line)
  assert.notEqual(models(more, { peakReservedBytes: 5.99 * GiB }), line)
  assert.notEqual(models(more, { ...less, failures: 1 }), line)
  assert.equal(models({ ...less, failures: 1 }, less), line)
  assert.notEqual(models(more, less, { settings: 'expandable_segments:True' }), line)
  assert.notEqual(models(more, less, { recorder: 'cuda-mempool' }), line)
  assert.match(models(more, less, { platform: 'Windows' }), /no expandable segments on Windows/)
  assert.doesNotMatch(models(less, more, { platform: 'Windows' }), /on Windows/)
  assert.equal(models({ ...more, servesAtFailure: false }, { ...more, servesAtFailure: true }, failed), line)
  assert.notEqual(models({ ...more, servesAtFailure: false }, { ...less, servesAtFailure: false }, failed), line)
  assert.notEqual(models(more, { ...less, servesAtFailure: true }, failed), line)
  const possible = { ...less, leastCapacityBytes: 5 * GiB }
  const maybe = models({ ...more, servesAtFailure: false }, possible, failed)
  assert.match(maybe, /might have served .* with expandable_segments:True: that depends on the exact limit\./)
})

test('policies that a program with PyTorch cannot choose have no row in the default table', () => {
  const all = DEFAULT_POLICIES.map(policy => run(policy, { ...MALLOC, policy }))
  assert.doesNotMatch(text(report(all)), /cuMemAlloc|powers of two/)
  assert.match(text(report(all)), /^the driver's pool /m)
  assert.match(text(report(all.slice(1))), /^cuMemAlloc each time /m)
  const { trace } = report(all)
  assert.match(text({ ...report(all), trace: { ...trace, recorder: 'RMM' } }), /^cuMemAlloc each time /m)
})

test('a packing is left out beside a row that needs less', () => {
  const packed = (leastCapacityBytes: number) => {
    const shown = report([run('pytorch-expandable', { leastCapacityBytes })])
    return text({ ...shown, trace: { ...shown.trace, packedBytes: 5 * GiB } })
  }
  assert.match(packed(5 * GiB), /its blocks fit into 5 GiB \(1\.25 times as much\)\./)
  assert.doesNotMatch(packed(4.9 * GiB), /its blocks fit/)
})

test('a capacity below what is needed is one sentence', () => {
  const failing = run('cuda-mempool', { failures: 3 })
  const shown = text({ ...report([failing, run('driver-malloc', { failures: 9 })]), capacityBytes: 3 * GiB })
  assert.match(shown, /\n\n✗ No allocator can do this in 3 GiB: 4 GiB are needed\.$/)
  assert.equal(shown.split('✗').length, 2)
})

test('the head says what the file contains besides, and what it was recorded with', () => {
  const shown = (trace: object) => text({ ...report([]), trace: { ...report([]).trace, ...trace } })
  assert.match(shown({}), /Recorded with PyTorch's default settings\./)
  assert.match(shown({ settings: 'max_split_size_mb:64' }), /Recorded with max_split_size_mb:64\./)
  assert.doesNotMatch(shown({ settings: null }), /Recorded/)
  const devices = { device: 1, otherDevices: [{ device: 0, events: 1234 }] }
  assert.match(shown(devices), /the events of GPU 1; GPU 0 has 1,234\. --gpu N chooses\./)
  assert.match(shown({ initial: { blocks: 48, bytes: GiB } }), /48 blocks \(1 GiB\) are from before the recording/)
  const ours = { ...report([run('recorded'), OURS]), trace: { ...report([]).trace, recorder: 'cuda-mempool' as const } }
  const own = { ...ours, trace: { ...ours.trace, recordedPeakReservedBytes: null } }
  assert.match(text(own), /Recorded from a pool of cuda-mempool\./)
  assert.doesNotMatch(text(own), /PyTorch as recorded|^as recorded/m)
})

test('in a narrow terminal memory and time have tables of their own', () => {
  const shown = text(report([{ ...OURS, modelledDeviceSeconds: 0.189 }]), 100).split('\n\n')
  assert.match(shown[2], /^ +peak .*modelled\n.* time\n/)
  assert.match(shown[3], /^ +events .*longest\n/)
})

function row(shown: string, name: string): string {
  return shown.split('\n').find(line => line.startsWith(name)) ?? assert.fail(`no row ${name}`)
}
