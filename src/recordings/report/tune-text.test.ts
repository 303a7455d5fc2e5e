import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB } from '../../core/base/bytes.js'
import type { TuneAtCapacity, TuneRecording, TuneReport, TuneRun } from '../trace/tune/tune-report.js'
import { PLAIN } from './table.js'
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
    leastCapacityBytes: leastGiB === null ? null : leastGiB * GiB,
    leastCapacityRetries: leastGiB === null ? null : 2,
    atCapacity,
  }
}

function at(failures: number, retries: number): TuneAtCapacity {
  return { failures, retries, peakReservedBytes: GiB, deviceCalls: 1, modelledDeviceSeconds: 1 }
}

function recording(runs: readonly TuneRun[], given: Partial<TuneRecording> = {}): TuneRecording {
  return {
    file: 'run.pickle',
    device: 0,
    otherDevices: [],
    recordedSettings: '',
    recordedPeakReservedBytes: 10 * GiB,
    failedRequests: 0,
    blocksBefore: 0,
    dropped: null,
    lowerBoundBytes: 5 * GiB,
    packedBytes: 5.5 * GiB,
    holders: [],
    runs,
    ...given,
  }
}

function text(runs: readonly TuneRun[], given: Partial<TuneReport> = {}, own: Partial<TuneRecording> = {}): string {
  const recordings = [recording(runs, own)]
  const beside = { kept: '', replaced: '', unknown: [], notReplayed: [], withoutEffect: [] }
  const report = { capacityBytes: null, recordings, baseline: '', runs, advice: [], leftOut: [], ...beside, ...given }
  return tuneText(report, { width: 100, paint: PLAIN }).replaceAll(/\s+/g, ' ')
}

test('each advice says what it buys, and has a line to copy', () => {
  const shown = text([EXPANDABLE, DEFAULTS, SPLIT], { advice: [EXPANDABLE] })
  assert.match(shown, /1\. Serves the run in 6 GiB instead of 8 GiB \(25(\.0)? % less\)\./)
  assert.match(shown, / export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True /)
  assert.match(shown, /max_split:128 > 8 GiB – 20 GiB/, 'a setting that needs more is known only to need more')
})

test('a line to copy keeps settings that no replay takes, and all of them are named first', () => {
  const kept = 'pinned_use_background_threads:True,new_one:1'
  const shown = text([EXPANDABLE, DEFAULTS], {
    advice: [EXPANDABLE],
    kept,
    replaced: 'backend:cudaMallocAsync',
    unknown: ['new_one:1'],
    notReplayed: ['throw_on_cudamalloc_oom:True'],
    withoutEffect: ['pinned_use_background_threads:True'],
  })
  assert.ok(shown.includes(`export PYTORCH_CUDA_ALLOC_CONF=${kept},expandable_segments:True `), shown)
  const [first] = shown.split('setting least')
  assert.match(
    first,
    /as set, but for new_one:1, which is not known\. Replays leave out throw_on_cudamalloc_oom:True\./,
  )
  assert.match(first, /No effect on the memory of a GPU: pinned_use_background_threads:True\./)
  assert.match(
    first,
    /keep pinned_use_background_threads:True,new_one:1, and replace backend:cudaMallocAsync of the given line\. backend:cudaMallocAsync would ignore the settings tried here\./,
  )
})

test('the bound and the packing stand beside the settings', () => {
  assert.match(text([DEFAULTS]), /in less than 5 GiB, what is in use.*packs it into 5\.5 GiB \(1\.10 times as much\)/)
  assert.doesNotMatch(text([DEFAULTS], {}, { packedBytes: null }), /packs/)
  assert.doesNotMatch(text([DEFAULTS], {}, { packedBytes: 0, lowerBoundBytes: 0 }), /packs/)
})

test('without a better setting nothing is advised', () => {
  assert.match(text([DEFAULTS, SPLIT]), /None of 2 settings tried needs 1 % less memory/)
})

test('a single setting is counted in the singular, and is the recorded one', () => {
  assert.match(text([DEFAULTS]), /^1 setting tried over run\.pickle\..*Only the recorded settings were tried\./)
  assert.match(text([DEFAULTS, SPLIT]), /^2 settings tried/)
})

test('with a capacity the text says whether the recording fits, and by how much', () => {
  const capacity = { capacityBytes: 7 * GiB }
  const fails = { ...DEFAULTS, atCapacity: at(3, 4) }
  const fits = { ...EXPANDABLE, atCapacity: at(0, 1) }
  const shown = text([fits, fails], { ...capacity, advice: [fits] })
  assert.match(
    shown,
    /run\.pickle does not fit 7 GiB as recorded \(1 GiB short\); with expandable_segments:True it does, with 1 GiB to spare/,
  )
  assert.match(shown, /1 retry instead of 4\./)
  const enough = { ...DEFAULTS, atCapacity: at(0, 0) }
  const spare = text([enough], { capacityBytes: 9 * GiB })
  assert.match(spare, /run\.pickle fits 9 GiB as recorded, with 1 GiB to spare.*Nothing needs to be set/)
  assert.match(text([fails], capacity), /and with none of the settings tried/)
})

test('below what is in use, the text says that no setting helps, and who holds most', () => {
  const holders = [{ bytes: 3 * GiB, blocks: 2, site: 'train.py:7 step', through: null, before: false }]
  const fails = { ...DEFAULTS, atCapacity: at(3, 4) }
  const shown = text([fails], { capacityBytes: 4 * GiB }, { holders })
  assert.match(
    shown,
    /does not fit 4 GiB with any setting: in use and request are 1 GiB above it\. .*3 GiB by train\.py:7 step/,
  )
})

test('what the advice does not cover is said', () => {
  const shown = text([DEFAULTS], { leftOut: ['max_split_size_mb:64'] }, { blocksBefore: 12, dropped: 34 })
  assert.match(shown, /34 events of run\.pickle were lost: the run may need more/)
  assert.match(shown, /run\.pickle begins in the middle: 12 blocks are from before/)
  assert.match(shown, /Not tried, because the time was over: max_split_size_mb:64\./)
  const devices = text([DEFAULTS], {}, { device: 1, otherDevices: [{ device: 0, events: 1234 }] })
  assert.match(devices, /run\.pickle: These are the events of GPU 1; GPU 0 has 1,234\. --gpu N chooses\./)
})

test('garbage collection is advised with the limit that it needs', () => {
  const garbage = run('garbage_collection_threshold:0.6', 7, 10, at(0, 0))
  const before = { ...DEFAULTS, atCapacity: at(1, 1) }
  const shown = text([garbage, before], { capacityBytes: 7 * GiB, advice: [garbage] })
  assert.match(shown, /needs a limit by torch\.cuda\.set_per_process_memory_fraction/)
})
