import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { allocatorSettings, allocatorSettingsEntry } from './allocator-settings.js'
import { parsePytorchSettings } from './model/pytorch-settings.js'
import { readPickle } from './pickle.js'
import { writePickle } from './pickle-writer.js'

function recording(name: string): string {
  return fileURLToPath(new URL(`../../../../../traces/${name}.pickle.gz`, import.meta.url))
}

function settingsOf(more: object): string | null {
  const event = { action: 'alloc', addr: 4096, size: 8, stream: 0, time_us: 0 }
  return readRecording(writePickle({ device_traces: [[event]], ...more }), { name: 'file' }).settings
}

test("PyTorch's settings are read as its variable names them", () => {
  const defaults = { max_split_size: -1, garbage_collection_threshold: 0, roundup_power2_divisions: { 1: 0, 2: 0 } }
  const cases: [object | undefined, string | null][] = [
    [undefined, null],
    [{}, null],
    [{ PYTORCH_CUDA_ALLOC_CONF: '', expandable_segments: false, ...defaults }, ''],
    [{ PYTORCH_CUDA_ALLOC_CONF: '', ...defaults, expandable_segments: true }, 'expandable_segments:True'],
    [
      { PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:128', ...defaults, max_split_size: 128 * MiB },
      'max_split_size_mb:128',
    ],
    [
      { PYTORCH_CUDA_ALLOC_CONF: 'backend:native', garbage_collection_threshold: 0.8, max_split_size: 64 * MiB },
      'backend:native,max_split_size_mb:64,garbage_collection_threshold:0.8',
    ],
    [{ roundup_power2_divisions: { 1: 0, 256: 4, 512: 8 } }, 'roundup_power2_divisions:[1:0,256:4,512:8]'],
    [{ roundup_power2_divisions: [0, 0, 4] }, 'roundup_power2_divisions:[1:0,2:0,4:4]'],
    [
      { roundup_power2_divisions: 8, max_split_size: 2 ** 64, expandable_segments: true },
      'expandable_segments:True,roundup_power2_divisions:8',
    ],
    [{ PYTORCH_HIP_ALLOC_CONF: 'max_split_size_mb:64', ...defaults, max_split_size: 64 * MiB }, 'max_split_size_mb:64'],
    [{ last_allocator_settings: ' ', PYTORCH_ALLOC_CONF: 'new:1,' }, 'new:1'],
    // A longer name with the same beginning is a different setting.
    [
      { PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments_reserve:0.5', ...defaults, expandable_segments: true },
      'expandable_segments_reserve:0.5,expandable_segments:True',
    ],
    // On Windows, and in PyTorch 2.9 with PYTORCH_ALLOC_CONF.
    [
      { PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True', ...defaults, expandable_segments: false },
      'expandable_segments:True,expandable_segments:False',
    ],
    [{ PYTORCH_CUDA_ALLOC_CONF: '"max_split_size_mb:64"', max_split_size: 64 * MiB }, '"max_split_size_mb:64"'],
    // A program changed them later.
    [
      { PYTORCH_CUDA_ALLOC_CONF: 'max_split_size_mb:64', max_split_size: 96 * MiB },
      'max_split_size_mb:64,max_split_size_mb:96',
    ],
    [
      { PYTORCH_CUDA_ALLOC_CONF: 'backend:cudaMallocAsync,max_split_size_mb:64', max_split_size: 64 * MiB },
      'backend:cudaMallocAsync,max_split_size_mb:64',
    ],
    [
      {
        ...defaults,
        pinned_num_register_threads: 8,
        release_lock_on_cudamalloc: true,
        pinned_use_cuda_host_register: false,
      },
      'pinned_num_register_threads:8,release_lock_on_cudamalloc:True',
    ],
    [
      { pinned_num_register_threads: 1, large_segment_size_mb: 40, some_new_number: 7, some_new_switch: true },
      'large_segment_size_mb:40,some_new_switch:True',
    ],
  ]
  for (const [allocator_settings, expected] of cases) {
    const more = allocator_settings === undefined ? {} : { allocator_settings }
    assert.equal(settingsOf(more), expected)
  }
  assert.equal(readRecording(recording('gpt2-expandable')).settings, 'expandable_segments:True')
  assert.equal(readRecording(recording('oom-retry-2gib')).settings, '')
})

test('a dictionary of roundup_power2_divisions keeps the zeros of small sizes', () => {
  const counts = Array.from({ length: 16 }, (_, i) => (i < 8 ? 0 : 8))
  const divisions = Object.fromEntries(counts.map((count, i) => [2 ** i, count]))
  const settings = settingsOf({ allocator_settings: { roundup_power2_divisions: divisions } })
  assert.deepEqual(parsePytorchSettings(settings!).roundupPower2Divisions, counts)
})

test("PyTorch's own dictionary is written with all its keys", () => {
  for (const name of ['settings/sizes-roundlist', 'gpt2-expandable', 'oom-retry-2gib']) {
    const contents = readPickle(gunzipSync(readFileSync(recording(name)))) as { allocator_settings: object }
    const { settings } = readRecording(recording(name))
    assert.equal(JSON.stringify(allocatorSettingsEntry(settings)), JSON.stringify(contents.allocator_settings), name)
  }
})

test('settings that were read stay the same when written and read again', () => {
  const texts = [
    null,
    '',
    'expandable_segments:True,expandable_segments:False',
    'max_split_size_mb:64,new_one:[1:2],garbage_collection_threshold:0.8,roundup_power2_divisions:[1:2,>:8]',
    'pinned_num_register_threads:4,graph_capture_record_stream_reuse:True,pinned_use_background_threads:True',
    'backend:cudaMallocAsync,max_split_size_mb:64',
  ]
  for (const text of texts) assert.equal(allocatorSettings(allocatorSettingsEntry(text)), text)
})
