import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { MiB } from '../../../../core/base/bytes.js'
import { Random } from '../../../../core/base/random.js'
import { readPickle } from '../pickle.js'
import { RECORDED_RUNS } from '../settings-recordings.fixture.js'
import { formatPytorchSettings, parsePytorchSettings, understandPytorchSettings } from './pytorch-settings.js'

test('each setting is read from the text of the environment variable', () => {
  const text = 'max_split_size_mb:128, max_non_split_rounding_mb:64,large_segment_size_mb:40,expandable_segments:False'
  assert.deepEqual(parsePytorchSettings(text), {
    maxSplitBytes: 128 * MiB,
    maxNonSplitRoundingBytes: 64 * MiB,
    largeSegmentBytes: 40 * MiB,
    expandableSegments: false,
  })
  assert.deepEqual(parsePytorchSettings('garbage_collection_threshold:0.6'), { garbageCollectionThreshold: 0.6 })
  assert.deepEqual(parsePytorchSettings('backend:cudaMallocAsync'), { backend: 'cudaMallocAsync' })
  assert.deepEqual(parsePytorchSettings(''), {})
  assert.deepEqual(parsePytorchSettings('max_split_size_mb:15,large_segment_size_mb:12'), {
    maxSplitBytes: 15 * MiB,
    largeSegmentBytes: 12 * MiB,
  })
})

test('settings that move no block are passed over, and so is a comma at the end', () => {
  for (const text of [
    'pinned_use_background_threads:True',
    'pinned_max_round_threshold_mb:128,pinned_max_cached_size_mb:512,pinned_free_catch_all:True',
    'release_lock_on_hipmalloc:True,pinned_use_hip_host_register:True,pinned_num_register_threads:8',
    'graph_capture_record_stream_reuse:True,throw_on_cudamalloc_oom:True,per_process_memory_fraction:1.0',
    'expandable_segments_reserve:0.5,expandable_segments_reserve_by_class:[capture:0.25,workspace:40G]',
  ]) {
    assert.deepEqual(parsePytorchSettings(text), {}, text)
    assert.deepEqual(parsePytorchSettings(`${text},backend:hipMallocAsync,`), { backend: 'cudaMallocAsync' }, text)
  }
})

test('a reserve of expandable segments is read in GiB, and written only beside them', () => {
  const text = 'expandable_segments:True,expandable_segments_reserve:1.5G'
  assert.deepEqual(parsePytorchSettings(text), { expandableSegments: true, expandableReserveBytes: 1536 * MiB })
  assert.equal(formatPytorchSettings(parsePytorchSettings(text)), text)
  assert.equal(formatPytorchSettings({ expandableReserveBytes: 1536 * MiB }), '')
  assert.throws(() => parsePytorchSettings('expandable_segments_reserve:40M'), {
    name: 'RangeError',
    message: "expandable_segments_reserve must be a number of GiB like 40G, or a share of the device, not '40M'",
  })
})

test('of a setting that is given twice the last value counts, and a list changes only the sizes that it names', () => {
  assert.deepEqual(parsePytorchSettings('max_split_size_mb:64,expandable_segments:True,max_split_size_mb:96'), {
    maxSplitBytes: 96 * MiB,
    expandableSegments: true,
  })
  const twice = 'roundup_power2_divisions:4,roundup_power2_divisions:[4:8,]'
  const { roundupPower2Divisions } = parsePytorchSettings(twice)
  assert.deepEqual(roundupPower2Divisions, [8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4])
})

test('an equals sign may stand for a colon', () => {
  assert.deepEqual(parsePytorchSettings('max_split_size_mb=128'), { maxSplitBytes: 128 * MiB })
})

test('divisions are read as PyTorch reads them', () => {
  const read = (text: string) => parsePytorchSettings(`roundup_power2_divisions:${text}`).roundupPower2Divisions
  assert.deepEqual(read('4'), new Array(16).fill(4))
  assert.deepEqual(read('[256:1,512:2,1024:4,>:8]'), [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8])
  assert.deepEqual(read('[4:8,16:2]'), [8, 8, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
  // PyTorch fills from the size behind the last one on, and begins with the first size.
  assert.deepEqual(read('[>:4]'), [0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4])
  assert.deepEqual(read('[>:4,2:8]'), [8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4])
})

test("the divisions read agree with PyTorch's own reading in every recording", () => {
  for (const { name, settings } of RECORDED_RUNS) {
    const file = new URL(`../../../../../../traces/settings/${name}.pickle.gz`, import.meta.url)
    const root = readPickle(gunzipSync(readFileSync(file))) as { allocator_settings: Record<string, object> }
    const recorded = Object.values(root.allocator_settings['roundup_power2_divisions'])
    assert.deepEqual(parsePytorchSettings(settings).roundupPower2Divisions ?? new Array(16).fill(0), recorded, name)
  }
})

test('settings are written as they are read', () => {
  for (const text of [
    '',
    'expandable_segments:True,garbage_collection_threshold:0.8',
    'max_split_size_mb:64,max_non_split_rounding_mb:100,large_segment_size_mb:40,roundup_power2_divisions:8',
    'backend:cudaMallocAsync',
  ]) {
    assert.equal(formatPytorchSettings(parsePytorchSettings(text)), text)
  }
  const list = parsePytorchSettings('roundup_power2_divisions:[256:1,512:2,1024:4,>:8]')
  assert.deepEqual(parsePytorchSettings(formatPytorchSettings(list)), list)
})

test('text that PyTorch refuses is refused, with the name of the setting', () => {
  const cases: readonly [string, RegExp][] = [
    ['max_split:5', /^PyTorch has no setting 'max_split'; there are backend, expandable_segments/],
    ['max_split_size_mb', /^'max_split_size_mb' is no setting with a value, like expandable_segments:True$/],
    ['max_split_size_mb:19', /^max_split_size_mb must be a whole number of at least 20, not '19'$/],
    ['max_split_size_mb:-1', /not '-1'$/],
    ['max_split_size_mb:64 expandable_segments:True', /not '64expandable_segments:True'$/],
    ['max_split_size_mb:64,,', /expected a setting after ','/],
    [',max_split_size_mb:64', /expected a setting after ','/],
    ['large_segment_size_mb:12,max_non_split_rounding_mb:11', /^max_non_split_rounding_mb must be at least large_/],
    ['max_non_split_rounding_mb:1', /at least 20/],
    ['large_segment_size_mb:10', /at least 11/],
    ['expandable_segments:true', /^expandable_segments must be True or False, not 'true'$/],
    ['garbage_collection_threshold:1', /^garbage_collection_threshold must be between 0 and 1, not '1'$/],
    ['garbage_collection_threshold:', /not ''$/],
    ['roundup_power2_divisions:3', /must be a power of 2, or a list, not '3'$/],
    ['roundup_power2_divisions:[256:3]', /powers of 2, or 0, after each colon, not '256:3'$/],
    ['roundup_power2_divisions:[100:2]', /powers of 2, or >, before each colon, not '100:2'$/],
    ['roundup_power2_divisions:[256:1', /closing bracket/],
    ['per_process_memory_fraction:0.5', /share of a device that no recording names; give a capacity/],
    ['backend:other', /^backend must be native or cudaMallocAsync, not 'other'$/],
    ['backend:cudaMallocAsync,max_split_size_mb:64', /^backend:cudaMallocAsync ignores max_split_size_mb; leave out/],
    ['max_split_size_mb:64,large_segment_size_mb:128', /must be at least large_segment_size_mb$/],
  ]
  for (const [text, message] of cases) {
    assert.throws(() => parsePytorchSettings(text), { name: 'RangeError', message }, text)
  }
  assert.throws(() => parsePytorchSettings(5 as never), { name: 'TypeError', message: /must be text, not 5/ })
})

/** The result of `understandPytorchSettings`, without empty lists. */
function understood(text: string) {
  const { settings, ...lists } = understandPytorchSettings(text)
  return { settings, ...Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length > 0)) }
}

test('of the settings of a recording the known ones are taken, and the others are named', () => {
  const split = { maxSplitBytes: 128 * MiB }
  const known = { ...split, garbageCollectionThreshold: 0.8 }
  const cases: readonly [string, object, object?][] = [
    ['max_split_size_mb:128,new:[1:2,3:4], garbage_collection_threshold=0.8', known, { unknown: ['new:[1:2,3:4]'] }],
    ['pinned_new:True,max_split_size_mb:128', split, { unknown: ['pinned_new:True'] }],
    ['max_split_size_mb:128,new_one:1]', split, { unknown: ['new_one:1]'] }],
    ['new:[1:2,max_split_size_mb:128', split, { unknown: ['new:[1:2'] }],
    [
      'max_split_size_mb:1,expandable_segments:True',
      { expandableSegments: true },
      { unknown: ['max_split_size_mb:1'] },
    ],
    ['roundup_power2_divisions:[256:4,512', {}, { unknown: ['roundup_power2_divisions:[256:4', '512'] }],
    ['toString:1,max_split_size_mb', {}, { unknown: ['toString:1', 'max_split_size_mb'] }],
    ['backend:cudaMallocAsync,max_split_size_mb:128', { backend: 'cudaMallocAsync' }],
    [
      'max_split_size_mb:64,large_segment_size_mb:128',
      { largeSegmentBytes: 128 * MiB },
      { unknown: ['max_split_size_mb:64'] },
    ],
    ['"max_split_size_mb : 128", ,', split],
    ['max_split_size_mb:128MB,garbage_collection_threshold:0.8x', known],
    ['max_split_size_mb:128.9', split],
    [
      'max_split_size_mb:64 expandable_segments:True',
      {},
      { unknown: ['max_split_size_mb:64expandable_segments:True'] },
    ],
    // PyTorch takes True and False only.
    ['expandable_segments:true,max_split_size_mb:128', split, { unknown: ['expandable_segments:true'] }],
    [
      'pinned_use_background_threads:True,per_process_memory_fraction:0.5,max_split_size_mb:128',
      split,
      { withoutEffect: ['pinned_use_background_threads:True'] },
    ],
    ['throw_on_cudamalloc_oom:True,max_split_size_mb:128', split, { notReplayed: ['throw_on_cudamalloc_oom:True'] }],
    ['throw_on_cudamalloc_oom:False', {}],
    ['expandable_segments_reserve:0.5', {}, { notReplayed: ['expandable_segments_reserve:0.5'] }],
    ['expandable_segments_reserve:0.5g', { expandableReserveBytes: 512 * MiB }],
    // PyTorch warns of these, and keeps its default.
    ['expandable_segments_reserve:40GB', {}, { unknown: ['expandable_segments_reserve:40GB'] }],
    ['expandable_segments_reserve:0G', {}, { unknown: ['expandable_segments_reserve:0G'] }],
    ['expandable_segments_reserve:-1', {}, { unknown: ['expandable_segments_reserve:-1'] }],
    ['', {}],
  ]
  for (const [text, settings, lists] of cases) assert.deepEqual(understood(text), { settings, ...lists }, text)
})

test('known settings among unknown ones are kept in any order and spelling', () => {
  const known: readonly [string, object][] = [
    ['max_split_size_mb:128', { maxSplitBytes: 128 * MiB }],
    ['expandable_segments:True', { expandableSegments: true }],
    ['max_non_split_rounding_mb:64', { maxNonSplitRoundingBytes: 64 * MiB }],
    ['garbage_collection_threshold:0.6', { garbageCollectionThreshold: 0.6 }],
    ['large_segment_size_mb:40', { largeSegmentBytes: 40 * MiB }],
    ['roundup_power2_divisions:[256:1,512:2,>:8]', parsePytorchSettings('roundup_power2_divisions:[256:1,512:2,>:8]')],
  ]
  const others = ['new:1', 'pinned_new:[a:1,b:2]', 'new', 'max_split:5', 'new:[]', ':', '[', 'x:[1,2', 'Backend:a']
  for (let seed = 1; seed <= 500; seed++) {
    const random = new Random(seed)
    const one = (from: readonly string[]) => from[random.below(from.length)]
    const chosen = <Value>(from: readonly Value[]) => from.filter(() => random.below(3) === 0)
    const own = chosen(known)
    const foreign = chosen(others)
    const spelled = own.map(([text]) => one([text, text.replace(':', '='), ` ${text} `, `"${text}"`]))
    const mixed = [...spelled, ...foreign].map(text => ({ text, place: random.below(1000) }))
    const line = mixed
      .toSorted((a, b) => a.place - b.place)
      .map(({ text }) => text)
      .join(one([',', ', ', ',,']))
    const { settings, unknown } = understandPytorchSettings(line)
    assert.deepEqual(settings, Object.assign({}, ...own.map(([, read]) => read)), line)
    const named = foreign.flatMap(text => (text === 'x:[1,2' ? text.split(',') : [text]))
    assert.deepEqual(unknown.toSorted(), named.toSorted(), line)
  }
})

test('a list of a million entries is read once, not once for each entry', () => {
  const list = `new_list:[${'1:1,'.repeat(1e6)}]`
  const { settings, unknown } = understandPytorchSettings(`${list},expandable_segments:True`)
  assert.deepEqual([settings, unknown.length], [{ expandableSegments: true }, 1])
  assert.ok(unknown[0] === list)
})
