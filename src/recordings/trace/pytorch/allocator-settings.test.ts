import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { parsePytorchSettings } from './model/pytorch-settings.js'
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
