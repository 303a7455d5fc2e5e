import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { MiB } from '../../../../core/base/bytes.js'
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
  assert.deepEqual(parsePytorchSettings('pinned_use_background_threads:True'), {})
})

test('an equals sign may stand for a colon', () => {
  assert.deepEqual(parsePytorchSettings('max_split_size_mb=128'), { maxSplitBytes: 128 * MiB })
})

test('divisions are read as PyTorch reads them', () => {
  const read = (text: string) => parsePytorchSettings(`roundup_power2_divisions:${text}`).roundupPower2Divisions
  assert.deepEqual(read('4'), new Array(16).fill(4))
  assert.deepEqual(read('[256:1,512:2,1024:4,>:8]'), [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8])
  assert.deepEqual(read('[4:8,16:2]'), [8, 8, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
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
    ['max_split_size_mb', /^max_split_size_mb: expected ':', not the end$/],
    ['max_split_size_mb:19', /^max_split_size_mb must be a whole number of at least 20, not '19'$/],
    ['max_split_size_mb:-1', /not '-1'$/],
    ['max_split_size_mb:64 expandable_segments:True', /not '64expandable_segments:True'$/],
    ['max_split_size_mb:64,', /expected a setting after ','/],
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

test('of the settings of a recording the known ones are taken, and the others are named', () => {
  const known = { maxSplitBytes: 128 * MiB, garbageCollectionThreshold: 0.8 }
  const cases: readonly [string, object, readonly string[]][] = [
    ['max_split_size_mb:128,new_one:[1:2,3:4], garbage_collection_threshold=0.8', known, ['new_one:[1:2,3:4]']],
    ['pinned_new:True,max_split_size_mb:128', { maxSplitBytes: 128 * MiB }, ['pinned_new:True']],
    ['pinned_use_background_threads:True,per_process_memory_fraction:0.5', {}, []],
    ['max_split_size_mb:1,expandable_segments:True', { expandableSegments: true }, ['max_split_size_mb:1']],
    ['roundup_power2_divisions:[256:4,512', {}, ['roundup_power2_divisions:[256:4', '512']],
    ['toString:1,max_split_size_mb', {}, ['toString:1', 'max_split_size_mb']],
    ['backend:cudaMallocAsync,max_split_size_mb:128', { backend: 'cudaMallocAsync' }, []],
    ['max_split_size_mb:64,large_segment_size_mb:128', { maxSplitBytes: 64 * MiB }, ['large_segment_size_mb:128']],
    ['', {}, []],
  ]
  for (const [text, settings, unknown] of cases) {
    assert.deepEqual(understandPytorchSettings(text), { settings, unknown }, text)
  }
})

test('a list of a million entries is read once, not once for each entry', () => {
  const list = `new_list:[${'1:1,'.repeat(1e6)}]`
  const { settings, unknown } = understandPytorchSettings(`${list},expandable_segments:True`)
  assert.deepEqual([settings, unknown.length], [{ expandableSegments: true }, 1])
  assert.ok(unknown[0] === list)
})
