import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import {
  checkSettingsLine,
  keptOfRecordings,
  keptSettings,
  mergedSettings,
  replacedSettings,
  triedSettings,
} from './merged-settings.js'
import { parsePytorchSettings, understandPytorchSettings } from './model/pytorch-settings.js'

const EXPANDABLE = 'expandable_segments:True'

test('the advised settings replace those of a line, and its other settings stay', () => {
  const cases: readonly [string, string, string][] = [
    [
      'pinned_use_background_threads:True,expandable_segments:False',
      EXPANDABLE,
      `pinned_use_background_threads:True,${EXPANDABLE}`,
    ],
    ['max_split_size_mb:128,new_one:[1:2,3:4]', EXPANDABLE, `new_one:[1:2,3:4],${EXPANDABLE}`],
    [
      'per_process_memory_fraction=0.5 , throw_on_cudamalloc_oom:True,',
      '',
      'per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True',
    ],
    ['backend:cudaMallocAsync,max_split_size_mb:64', EXPANDABLE, EXPANDABLE],
    ['roundup_power2_divisions:[256:1,>:8]', 'max_split_size_mb:64', 'max_split_size_mb:64'],
    ['a:1,b:2,a:3', EXPANDABLE, `a:3,b:2,${EXPANDABLE}`],
    ["export PYTORCH_CUDA_ALLOC_CONF='a:1,expandable_segments:False'", EXPANDABLE, `a:1,${EXPANDABLE}`],
    ['', EXPANDABLE, EXPANDABLE],
    ['expandable_segments:False', '', ''],
  ]
  for (const [line, advised, merged] of cases) {
    checkSettingsLine(line)
    assert.equal(mergedSettings(line, advised), merged, line)
    assert.equal(mergedSettings(keptSettings(line), advised), merged, line)
  }
})

test('the settings that advice replaces are named, and tried as the line has them', () => {
  const line = 'backend:native,pinned_use_background_threads:True,max_split_size_mb=128,max_split_size_mb:256'
  assert.equal(replacedSettings(line), 'backend:native,max_split_size_mb:256')
  assert.equal(triedSettings(line), 'max_split_size_mb:256')
  assert.equal(triedSettings('backend:cudaMallocAsync,max_split_size_mb:64'), '')
})

test('other text is refused in one line, with the first bad setting', () => {
  const cases: readonly [string, RegExp][] = [
    ['expandable', /^'expandable' is no setting with a value, like expandable_segments:True$/],
    [`${EXPANDABLE},a:`, /^'a:' is no setting/],
    [':1', /^':1' is no setting/],
    ['new:$(reboot)', /^'new:\$\(reboot\)' has letters that a shell interprets$/],
    ['new:\x1b[2J', /^'new:\?\[2J' has letters/],
  ]
  for (const [line, message] of cases) {
    assert.throws(() => checkSettingsLine(line), { name: 'RangeError', message }, line)
  }
  assert.throws(() => checkSettingsLine(5), { name: 'TypeError', message: /^merge must be text, not 5$/ })
})

test('a reserve stays as a share, and is tried in GiB', () => {
  const [share, size] = ['expandable_segments_reserve:0.5', 'expandable_segments_reserve:40G']
  assert.deepEqual([keptSettings(share), replacedSettings(share)], [share, ''])
  assert.deepEqual([keptSettings(size), replacedSettings(size)], ['', size])
  assert.equal(triedSettings(`${size},${EXPANDABLE}`), `${EXPANDABLE},${size}`)
})

test('of recordings the settings stay that all of them have, but none that a shell would interpret', () => {
  const recording = (settings: string | null) => {
    const builder = new TraceBuilder()
    builder.add(Action.alloc, 4096, 8, 0, 0)
    return builder.build({ file: 'run.pickle', settings })
  }
  const kept = (...settings: (string | null)[]) => keptOfRecordings(settings.map(recording))
  assert.equal(kept(`${EXPANDABLE},a:1,pinned_num_register_threads:8`), 'a:1,pinned_num_register_threads:8')
  assert.equal(kept('a:1,b:2', 'b:2,a:3'), 'b:2')
  assert.equal(kept('a:1', null), '')
  assert.equal(kept('a:`reboot`,b:2;reboot,c:>file,d:1'), 'd:1')
  assert.equal(kept(`a:${'1'.repeat(100_000)}`), '')
})

test('whatever a line has, the merged one sets what was advised and keeps every other setting', () => {
  const setting = fc.constantFrom(
    'max_split_size_mb:64',
    'expandable_segments:False',
    'roundup_power2_divisions:[256:1,>:8]',
    'backend:native',
    'pinned_free_catch_all:True',
    'throw_on_cudamalloc_oom:True',
    'expandable_segments_reserve:0.5',
    'new_one:[1,2:3]',
    'new_two=x',
  )
  const advice = fc.constantFrom('', EXPANDABLE, 'max_split_size_mb:128,garbage_collection_threshold:0.8')
  fc.assert(
    fc.property(fc.array(setting), advice, (line, advised) => {
      const { settings, ...beside } = understandPytorchSettings(mergedSettings(line.join(), advised))
      assert.deepEqual(settings, parsePytorchSettings(advised))
      const { settings: _, ...before } = understandPytorchSettings([...new Set(line)].join().replaceAll('=', ':'))
      assert.deepEqual(beside, before)
    }),
  )
})
