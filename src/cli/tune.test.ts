// The command `cuda-mempool tune`.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { printed, refused } from './command-line.fixture.js'

const path = (name: string) => fileURLToPath(new URL(`../../../traces/settings/${name}.pickle.gz`, import.meta.url))

const tuned = (...args: string[]) => printed(['tune', ...args])

test('the line to export is printed, and a table of what was tried', () => {
  const stdout = tuned(path('mlp-tight-default'), '--capacity', '3068MiB')
  assert.match(stdout, /^ +export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True$/m)
  assert.match(stdout, /^split:64 /m)
  for (const line of stdout.split('\n')) assert(line.length <= 80 || line.includes('export'), line)
})

test('the line to export keeps the settings of the given one that no replay takes', () => {
  const line = 'expandable_segments:False,pinned_use_background_threads:True,backend:cudaMallocAsync'
  const stdout = tuned(path('mlp-tight-default'), '--capacity', '3068MiB', '--merge', line)
  const merged = 'pinned_use_background_threads:True,expandable_segments:True'
  assert.match(stdout, new RegExp(`^ +export PYTORCH_CUDA_ALLOC_CONF=${merged}$`, 'm'))
  const [first] = stdout.replaceAll(/\s+/g, ' ').split('least capacity')
  assert.match(first, /, and replace expandable_segments:False,backend:cudaMallocAsync of the given line\./)
  assert.doesNotMatch(tuned(path('mlp-default'), '--merge', '', '--setting', ''), /Lines to copy/)
})

test('the settings of the given line are tried, too', () => {
  const { runs } = JSON.parse(
    tuned(path('mlp-default'), '--json', '--seconds', '1e9', '--merge', 'max_split_size_mb:96'),
  )
  assert.ok(runs.some(({ settings }: { settings: string }) => settings === 'max_split_size_mb:96'))
})

test('with --json one object is printed', () => {
  const settings = ['--setting', 'max_split_size_mb:64', '--setting', 'roundup_power2_divisions:4']
  const stdout = tuned(path('mlp-default'), path('streams-default'), '--json', ...settings)
  const report = JSON.parse(stdout)
  assert.deepEqual(report.runs.map((run: { settings: string }) => run.settings).sort(), [
    '',
    'max_split_size_mb:64',
    'roundup_power2_divisions:4',
  ])
  assert.equal(report.recordings.length, 2)
})

test('a wrong command line is refused in one line, and nothing is printed', () => {
  const file = path('mlp-default')
  const cases: readonly [string[], RegExp][] = [
    [[], /missing required argument 'file'/],
    [['no-such-file'], /no-such-file/],
    [[file, '--capacity', 'much'], /--capacity: /],
    [[file, '--capacity', '1MiB'], /--capacity: '1MiB' is below 2MiB/],
    [[file, '--seconds', 'x'], /--seconds: 'x' is no number above 0/],
    [[file, '--gpu', '-1'], /--gpu: '-1' is no whole number/],
    [[file, '--setting', 'max_split:1'], /: --setting: PyTorch has no setting 'max_split'/],
    [[file, '--setting', 'foo'], /: --setting: 'foo' is no setting with a value/],
    [
      [file, '--setting', 'garbage_collection_threshold:0.5'],
      /: --setting: setting 'garbage_.*' has an effect only with a limit/,
    ],
    [[file, '--merge', 'expandable'], /: --merge: 'expandable' is no setting with a value/],
    [[file, '--merge', 'new:$(a)'], /: --merge: 'new:\$\(a\)' has letters that a shell interprets/],
    [['-', '-'], /standard input has one recording/],
  ]
  for (const [args, message] of cases) assert.match(refused(['tune', ...args]), message)
})
