import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB } from '../../core/base/bytes.js'
import type { RecordedOutOfMemory } from '../trace/failures/out-of-memory.js'
import type { TuneAtCapacity, TuneRecording, TuneReport, TuneRun } from '../trace/tune/tune-report.js'
import { PLAIN } from './table.js'
import { NO_CONTRADICTIONS } from './trace-texts.fixture.js'
import { tuneText } from './tune-text.js'

const DEFAULTS = run('', 8, 10)
const EXPANDABLE = run('expandable_segments:True', 6, 6.5)
const SPLIT = run('max_split_size_mb:128', null, 20)

function run(settings: string, leastGiB: number | null, peakGiB: number, atCapacity: TuneAtCapacity | null = null) {
  return {
    settings,
    peakReservedBytes: peakGiB * GiB,
    deviceCalls: 12,
    modelledDeviceSeconds: 0.003,
    laterDeviceSeconds: 0.001,
    leastCapacityBytes: leastGiB === null ? null : leastGiB * GiB,
    leastCapacityRetries: leastGiB === null ? null : 2,
    atCapacity,
    within: atCapacity,
  }
}

function at(failures: number, retries: number): TuneAtCapacity {
  return { failures, retries, peakReservedBytes: GiB, deviceCalls: 1, modelledDeviceSeconds: 1, laterDeviceSeconds: 0 }
}

function recording(runs: readonly TuneRun[], given: Partial<TuneRecording> = {}): TuneRecording {
  return {
    file: 'run.pickle',
    device: 0,
    otherDevices: [],
    recordedSettings: '',
    platform: null,
    spanSeconds: 0,
    lastFailure: null,
    withinBytes: null,
    withinIs: null,
    withWaitingBytes: null,
    lowerBoundRequest: null,
    recordedPeakReservedBytes: 10 * GiB,
    failedRequests: 0,
    blocksBefore: 0,
    dropped: null,
    contradictions: NO_CONTRADICTIONS,
    lowerBoundBytes: 5 * GiB,
    packedBytes: 5.5 * GiB,
    holders: [],
    activations: null,
    runs,
    ...given,
  }
}

function text(runs: readonly TuneRun[], given: Partial<TuneReport> = {}, own: Partial<TuneRecording> = {}): string {
  const recordings = [recording(runs, own)]
  const beside = { kept: '', replaced: '', unknown: [], notReplayed: [], withoutEffect: [] }
  const report = {
    capacityBytes: null,
    isLimited: false,
    recordings,
    baseline: '',
    runs,
    advice: [],
    leftOut: [],
    ...beside,
    ...given,
  }
  return tuneText(report, { width: 100, paint: PLAIN }).replaceAll(/\s+/g, ' ')
}

test('each advice says what it buys, and has a line to copy', () => {
  const shown = text([EXPANDABLE, DEFAULTS, SPLIT], { advice: [EXPANDABLE] })
  assert.match(shown, /1\. It reserves 6\.5 GiB instead of 10 GiB \(35\.0 % less\) without a limit\./)
  assert.match(shown, /The least that serves the run is 6 GiB instead of 8 GiB\./)
  assert.match(shown, / export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True /)
  assert.match(shown, / split:128 20 GiB > 8 GiB/, 'a setting that needs more is known only to need more')
})

test('a line to copy keeps settings that no replay takes, and all of them are named first', () => {
  const kept = 'pinned_use_background_threads:True,new_one:1'
  const shown = text([EXPANDABLE, DEFAULTS], {
    advice: [EXPANDABLE],
    kept,
    replaced: 'backend:cudaMallocAsync',
    unknown: ['new_one:1'],
    notReplayed: ['throw_on_cudamalloc_oom:True', 'expandable_segments_reserve_by_class:[a:1G]'],
    withoutEffect: ['pinned_use_background_threads:True'],
  })
  assert.ok(shown.includes(`export PYTORCH_CUDA_ALLOC_CONF=${kept},expandable_segments:True `), shown)
  const [first] = shown.split('reserved,')
  assert.match(
    first,
    /as set, but for new_one:1, which is not known\. Replays leave out throw_on_cudamalloc_oom:True and expandable_segments_reserve_by_class:\[a:1G\]: no recording has the size of the device or the classes of streams\./,
  )
  assert.match(first, /No effect on the memory of a GPU: pinned_use_background_threads:True\./)
  assert.match(
    first,
    /keep pinned_use_background_threads:True,new_one:1, and replace backend:cudaMallocAsync of the given line\. backend:cudaMallocAsync would ignore the settings tried here\./,
  )
})

test("PyTorch's defaults are advised by unset, and the price is in the sentence", () => {
  const expandable = { ...run('expandable_segments:True', 6, 10), leastCapacityRetries: 18 }
  const price = { modelledDeviceSeconds: 0.006, laterDeviceSeconds: 0.003 }
  const defaults = { ...run('', 5, 9, at(0, 4)), leastCapacityRetries: 35, ...price }
  const before = { ...expandable, within: at(0, 1) }
  const given = { baseline: 'expandable_segments:True', advice: [defaults] }
  const shown = text([defaults, before], given, { withinBytes: 10 * GiB, withinIs: 'recorded', spanSeconds: 1.5 })
  assert.match(
    shown,
    /without a limit\. Within 10 GiB, a segment of 20 MiB above the recorded peak: 4 retries instead of 1\./,
  )
  assert.match(shown, /serves the run is 5 GiB \(35 retries\) instead of 6 GiB \(18 retries\)\./)
  assert.match(
    shown,
    /It costs 3\.0 ms more time \(0\.2 % of the run\), 2\.0 ms of it in the second half of the events, by a model of the driver: calls .* last 6\.0 ms instead of 3\.0 ms\./,
  )
  const once = { ...given, advice: [{ ...defaults, laterDeviceSeconds: 0.001 }] }
  assert.match(text([defaults, before], once), /3\.0 ms more time, all in the first half, so once, by a model/)
  assert.match(shown, / unset PYTORCH_CUDA_ALLOC_CONF /)
  assert.doesNotMatch(shown, /CONF=/)
})

test('the bound and the packing stand beside the settings, but for a packing that a setting beats', () => {
  assert.match(text([DEFAULTS]), /in less than 5 GiB, what is in use.*blocks fit into 5\.5 GiB \(1\.10 times as much\)/)
  assert.doesNotMatch(text([DEFAULTS], {}, { packedBytes: null }), /blocks fit/)
  assert.doesNotMatch(text([DEFAULTS], {}, { packedBytes: 0, lowerBoundBytes: 0 }), /blocks fit/)
  assert.doesNotMatch(text([DEFAULTS, EXPANDABLE], {}, { packedBytes: 6.1 * GiB }), /blocks fit/)
})

test('nothing needs to be set only without a retry, and with little idle memory', () => {
  const own = { withinBytes: 10 * GiB, withinIs: 'recorded' } as const
  const shown = (retries: number, peakGiB: number) => text([run('', 5, peakGiB, at(0, retries)), SPLIT], {}, own)
  assert.match(shown(0, 5.1), /Nothing needs to be set: no retry, and 2\.0 % of what is reserved is never in use\./)
  assert.match(shown(0, 10), /better than today's\. Of 10 GiB reserved, 5 GiB \(50\.0 %\) are never in use\./)
  assert.match(shown(1, 5.1), /better than today's\. Of 5\.1 GiB .* never in use, and there is 1 retry\./)
})

test('a single setting is counted in the singular, and is the recorded one', () => {
  assert.match(text([DEFAULTS]), /^1 setting tried over run\.pickle\..*Only the recorded settings were tried\./)
  assert.match(text([DEFAULTS, SPLIT]), /^2 settings tried/)
})

test('with a capacity the text says whether the recording fits, with how many retries', () => {
  const capacity = { capacityBytes: 7 * GiB, isLimited: true }
  const own = { withinBytes: 7 * GiB, withinIs: 'asked' } as const
  const fails = { ...DEFAULTS, within: at(3, 4) }
  const fits = { ...EXPANDABLE, within: at(0, 1) }
  const shown = text([fits, fails], { ...capacity, advice: [fits] }, own)
  assert.match(
    shown,
    /The recording does not fit 7 GiB as recorded: 3 requests fail\. With today's settings it needs at least 8 GiB\. With expandable_segments:True it fits, with 1 retry\./,
  )
  assert.match(shown, /1\. Within 7 GiB: no request fails instead of 3; 1 retry instead of 4\./)
  const calm = text([{ ...DEFAULTS, within: at(0, 2) }], capacity, own)
  assert.match(
    calm,
    /The recording fits 7 GiB as recorded, with 2 retries\. With today's settings it needs at least 8 GiB\./,
  )
  assert.doesNotMatch(calm, /Nothing needs/)
  assert.match(text([fails], capacity, own), /None of the settings tried serves it there\./)
})

test('the request above the capacity is named, with the largest holders, and without advice', () => {
  const holders = [
    { bytes: 3 * GiB, blocks: 2, site: 'train.py:7 step', through: null, throughAll: false, before: false },
    { bytes: 2 * GiB, blocks: 2, site: null, through: null, throughAll: false, before: true },
  ]
  const own = { withinBytes: 4 * GiB, withinIs: 'failure', lastFailure: failure({}), holders } as const
  const shown = (given: object) =>
    text([{ ...DEFAULTS, within: at(3, 4) }, SPLIT], { isLimited: true }, { ...own, ...given })
  const inUse = shown({})
  assert.match(inUse, /does not fit the 4 GiB that the program could have when its request failed \(event 9\) with any/)
  assert.match(
    inUse,
    /setting: what is in use at its peak is 1 GiB above it\. At the peak most is held: 3 GiB by train/,
  )
  assert.match(inUse, /2 GiB by blocks from before the recording/)
  assert.doesNotMatch(inUse, /None of|not certain|own limit/)
  const request = shown({ lowerBoundRequest: { event: 7, bytes: 2 * GiB } })
  assert.match(request, /any setting: the request of 2 GiB at event 7 and what was in use then are 1 GiB above it\./)
})

test('a replay that serves the failed request does not say that the recording fits', () => {
  const own = { withinBytes: 4 * GiB, withinIs: 'failure', lowerBoundBytes: 3 * GiB } as const
  const shown = (waitingBytes: number) =>
    text(
      [{ ...DEFAULTS, within: at(0, 1) }, SPLIT],
      { isLimited: true },
      { ...own, lastFailure: failure({ waitingBytes }) },
    )
  assert.match(shown(2 * GiB), /there PyTorch waits for the other streams, which still used 2 GiB of freed memory\./)
  assert.match(shown(0), /is served by a replay within the 4 GiB .* though a request failed when it was recorded\./)
  assert.doesNotMatch(shown(0), /fits|Nothing|None/)
})

test("after the program's own limit, the least limit is said, also as a share of the device", () => {
  const lastFailure = failure({
    isLast: false,
    deviceHadRoom: true,
    reservedBytes: 4 * GiB,
    deviceFreeBytes: 12.3 * GiB,
  })
  const own = { withinBytes: 4 * GiB, withinIs: 'failure', lastFailure } as const
  const fails = { ...DEFAULTS, within: at(1, 4) }
  const shown = text([EXPANDABLE, fails], { isLimited: true, advice: [EXPANDABLE] }, own)
  assert.match(shown, /To serve the run, raise it with today's settings to 8 GiB \(set_per_process_memory_fraction/)
  assert.match(
    shown,
    /fraction\(0\.491\) is enough\), or with expandable_segments:True to 6 GiB .*fraction\(0\.369\) is enough\)\./,
  )
  const before = { ...DEFAULTS, ...run('', 3.9, 10, at(1, 4)) }
  assert.doesNotMatch(text([before], { isLimited: true }, own), /own limit/, 'it had enough')
  const small = { ...own, lastFailure: failure({ ...lastFailure, deviceFreeBytes: 1 * GiB }) }
  assert.match(text([fails], { isLimited: true }, small), /8 GiB, more than the 5 GiB that the device had for it\./)
  const asked = (GB: number) =>
    text(
      [EXPANDABLE, fails],
      { isLimited: true, advice: [EXPANDABLE] },
      { ...own, withinBytes: GB * GiB, withinIs: 'asked' },
    )
  assert.match(asked(7), /today's settings to 8 GiB .*; with expandable_segments:True 7 GiB is enough\./)
  assert.match(asked(9), /a limit of 9 GiB is enough with today's settings\. The least is 8 GiB .*True 6 GiB/)
  const ended = { ...own, lastFailure: failure({ ...lastFailure, isLast: true }) }
  assert.match(text([fails], { isLimited: true }, ended), /To serve what is recorded, raise it .* may need more\./)
  assert.doesNotMatch(shown, /may need more/)
})

test('a limit of the program is said as a range, with the least that serves under each setting', () => {
  const lastFailure = failure({ deviceHadRoom: true, capacityBelowBytes: 7 * GiB })
  const own = { withinBytes: 4 * GiB, withinIs: 'failure', lastFailure, lowerBoundBytes: 3 * GiB } as const
  const runs = [
    { ...EXPANDABLE, within: at(1, 4) },
    { ...DEFAULTS, within: at(1, 4) },
  ]
  const shown = text(runs, { isLimited: true, advice: [runs[0]] }, own)
  assert.match(shown, /own limit stopped it, which lies between 4 GiB and 7 GiB\. To serve .* 8 GiB\b.*True to 6 GiB\b/)
  assert.doesNotMatch(shown, /No setting tried/)
  const known = { ...own, lastFailure: failure({ ...lastFailure, capacityBelowBytes: 5 * GiB }) }
  assert.match(
    text(runs, { isLimited: true, advice: [runs[0]] }, known),
    /5 GiB\. To serve .* Without raising it, no setting tried serves it/,
  )
})

test('conflicts of expandable segments are said where they are advised', () => {
  assert.match(text([EXPANDABLE, DEFAULTS], { advice: [EXPANDABLE] }), /custom all-reduce and sleep modes/)
  assert.doesNotMatch(text([SPLIT, DEFAULTS], { advice: [SPLIT] }), /all-reduce/)
  const windows = text([SPLIT, DEFAULTS], { advice: [SPLIT] }, { platform: 'Windows' })
  assert.match(windows, /recording is of Windows, where PyTorch has no expandable segments/)
  assert.match(windows, / set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 /)
})

test('a limit that the recording does not tell is not judged, only the least capacity is said', () => {
  const unknown = failure({ verdict: 'unknown', deviceFreeBytes: null, deviceHadRoom: null, capacityBelowBytes: null })
  const shown = text([run('', 5, 5), SPLIT], {}, { lastFailure: unknown })
  assert.match(
    shown,
    /does not tell what the device had when its request failed\. With today's settings at least 5 GiB/,
  )
  assert.doesNotMatch(shown, /fit |Nothing needs/)
})

test('expandable segments that were set without effect are said', () => {
  const shown = (recordedSettings: string) => text([DEFAULTS, SPLIT], {}, { recordedSettings })
  assert.match(
    shown('expandable_segments:True,expandable_segments:False'),
    /defaults\. Expandable segments were not in/,
  )
  assert.doesNotMatch(shown('expandable_segments:True'), /not in effect/)
})

test('of several recordings, least capacities above those of today are shown as bounds', () => {
  const small = run('', 1, 2)
  const recordings = [recording([DEFAULTS, SPLIT]), recording([small, run(SPLIT.settings, 0.5, 1)])]
  const runs = [SPLIT, DEFAULTS]
  const shown = text(runs, { recordings, advice: [SPLIT] })
  assert.match(shown, /split:128 20 GiB ≥ 8 GiB/)
  assert.match(shown, /run\.pickle 5 GiB 10 GiB 8 GiB > 8 GiB run\.pickle 5 GiB 2 GiB 1 GiB 512 MiB/)
  assert.doesNotMatch(shown, /is more than/)
})

test('gaps of the advice are said', () => {
  const shown = text([DEFAULTS], { leftOut: ['max_split_size_mb:64'] }, { blocksBefore: 12, dropped: 34 })
  assert.match(shown, /34 events of run\.pickle were lost: the run may need more/)
  assert.match(shown, /run\.pickle begins in the middle: 12 blocks are from before/)
  assert.match(shown, /Not tried, because the time was over: max_split_size_mb:64\./)
  const devices = text([DEFAULTS], {}, { device: 1, otherDevices: [{ device: 0, events: 1234 }] })
  assert.match(devices, /run\.pickle: These are the events of GPU 1; GPU 0 has 1,234\. --gpu N chooses\./)
})

test('garbage collection is advised with the limit that it needs', () => {
  const garbage = run('garbage_collection_threshold:0.6', 7, 10, at(0, 0))
  const before = { ...DEFAULTS, within: at(1, 1) }
  const shown = (own: Partial<TuneRecording>) =>
    text([garbage, before], { isLimited: true, advice: [garbage] }, { withinBytes: 7 * GiB, ...own })
  assert.match(shown({ withinIs: 'asked' }), /only with a limit of the program: torch\S*memory_fraction\(7\.00 \/ G\)/)
  const lastFailure = failure({ deviceHadRoom: true })
  assert.match(shown({ withinIs: 'failure', lastFailure }), /limit of the program, and serves the run from 7 GiB on\./)
})

test('the table keeps to 80 columns on one page, with sizes from 10 GiB on', () => {
  const runs = [
    run('max_split_size_mb:256,max_non_split_rounding_mb:256', null, 12.34, at(0, 123)),
    run('', 12.37, 12.36, at(0, 12)),
  ]
  const limits = [12.34, 56.78].map(GB => recording(runs, { withinBytes: GB * GiB, withinIs: 'asked' }))
  const beside = { kept: '', replaced: '', unknown: [], notReplayed: [], withoutEffect: [] }
  const given = { capacityBytes: null, isLimited: true, baseline: '', runs, advice: [], leftOut: [], ...beside }
  for (const recordings of [limits.slice(0, 1), limits]) {
    const table = tuneText({ ...given, recordings }, { width: 80, paint: PLAIN }).split('\n\n')[1]
    assert.match(table, /^split:256,non_split:256 .* s$/m)
    for (const line of table.split('\n')) assert.ok(line.length <= 80, line)
  }
})

test('a recording that needs more with the best setting is named, and the order of the settings', () => {
  const better = run('expandable_segments:True', 7, 8)
  const recordings = [
    recording([better, run('', 9, 10)], { file: 'rank0.pickle' }),
    recording([better, run('', 6, 9)], { file: 'rank1.pickle' }),
  ]
  const shown = text([better, run('', 9, 10)], { recordings, advice: [better] })
  assert.match(shown, /rank1\.pickle then needs 7 GiB instead of 6 GiB\./)
  assert.doesNotMatch(shown, /rank0\.pickle then/)
  assert.match(shown, /the best first by what it reserves 1\./)
  const within = { isLimited: true, advice: [EXPANDABLE] }
  const served = { ...EXPANDABLE, within: { ...at(0, 0), modelledDeviceSeconds: 0.005 } }
  const limited = text([served, { ...DEFAULTS, within: at(1, 0) }], { ...within, advice: [served] })
  assert.match(limited, /the best first by failures, retries, and what it reserves there 1\..* within the limit\.$/)
  assert.match(limited, /expandable .* 5\.0 ms defaults/)
  const failing = text(
    [
      { ...EXPANDABLE, within: at(1, 0) },
      { ...DEFAULTS, within: at(1, 0) },
    ],
    within,
  )
  assert.match(failing, /the best first by the least that serves 1\..* without a limit\.$/)
})

/** The last request that failed, at event 9; the program could have 4 GiB. */
function failure(changes: Partial<RecordedOutOfMemory>): RecordedOutOfMemory {
  return {
    event: 9,
    askedBytes: GiB,
    stream: 0,
    frames: [],
    site: null,
    inUseBytes: 3 * GiB,
    waitingBytes: 0,
    neededBytes: 4 * GiB,
    reservedBytes: 4 * GiB,
    idleBytes: 0,
    idlePieces: 0,
    largestIdleBytes: 0,
    largestUsableBytes: 0,
    deviceFreeBytes: 0,
    deviceHadRoom: false,
    capacityBytes: 4 * GiB,
    capacityBelowBytes: 4 * GiB + 1,
    verdict: 'fragmentation',
    isLast: true,
    holders: [],
    ...changes,
  } as RecordedOutOfMemory
}

test('a setting with which as many requests fail as today is not praised for what it reserves then', () => {
  const lastFailure = failure({ deviceHadRoom: true, capacityBelowBytes: 7 * GiB })
  const own = { withinBytes: 4 * GiB, withinIs: 'failure', lastFailure, lowerBoundBytes: 3 * GiB } as const
  const runs = [
    { ...EXPANDABLE, within: at(1, 0) },
    { ...DEFAULTS, within: at(1, 4) },
  ]
  const shown = text(runs, { isLimited: true, advice: [runs[0]] }, own)
  assert.match(shown, /1\. The least that serves the run is 6 GiB instead of 8 GiB\. It reserves 6\.5 GiB/)
  assert.doesNotMatch(shown, /Within 4 GiB|no retry instead/)
})

test('memory that waits for another stream is said, since no setting frees it', () => {
  assert.match(text([DEFAULTS], {}, { withWaitingBytes: 7 * GiB }), /Up to 7 GiB are in use, or freed while another/)
  assert.doesNotMatch(text([DEFAULTS], {}, { withWaitingBytes: 5 * GiB }), /Up to/, 'no more than is in use')
})

test('the saving of checkpointing stands beside the settings', () => {
  const activations = { bytes: 2 * GiB, isCheckpointed: false }
  const shown = text([DEFAULTS], {}, { activations })
  assert.match(shown, /Beside settings: Checkpointing \(torch\.utils\.checkpoint\) could save 2 GiB at most/)
  assert.doesNotMatch(text([DEFAULTS]), /[Cc]heckpoint/)
})
