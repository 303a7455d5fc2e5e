// The command `cuda-mempool predict`.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { printed, refused } from './command-line.fixture.js'

const path = (name: string) => fileURLToPath(new URL(`../../../traces/categories/${name}.pickle.gz`, import.meta.url))
const [FOUR, EIGHT, TWELVE] = [4, 8, 12].map(batch => path(`series-gpt-batch${batch}`))

test('whether a third batch fits is printed, and a recording of it is compared', () => {
  const stdout = printed(['predict', FOUR, EIGHT, TWELVE, '--batch', '4,8', '--for', '12', '--capacity', '2GiB'])
  assert.match(stdout, /^12 fits 2 GiB, as predicted/m)
  assert.match(stdout, /^Compared with the recording at 12, the prediction of most in use is 0\.0 % off/m)
  for (const line of stdout.split('\n')) assert.ok(line.length <= 80, line)
})

test('with --json one object is printed', () => {
  const report = JSON.parse(printed(['predict', EIGHT, FOUR, '--batch', '8,4', '--for', '6', '--json']))
  assert.deepEqual([report.size, report.isBeyond, report.check], [6, false, null])
  assert.equal(report.shares.line, 1)
})

test('a wrong command line is refused in one line, and nothing is printed', () => {
  const cases: readonly [string[], RegExp][] = [
    [[FOUR, EIGHT, '--for', '12'], /--batch <sizes>' not specified/],
    [[FOUR, EIGHT, '--batch', '4,8'], /--for <size>' not specified/],
    [[FOUR, '--batch', '4,8', '--for', '12'], /predict needs two recordings of one program with two sizes/],
    [[FOUR, EIGHT, TWELVE, FOUR, '--batch', '4,8', '--for', '12'], /a third only as a check, not 4/],
    [[FOUR, EIGHT, '--batch', '4', '--for', '12'], /--batch: '4' must be two sizes, like --batch 4,8/],
    [[FOUR, EIGHT, '--batch', '4,8,12', '--for', '12'], /--batch: '4,8,12' must be two sizes/],
    [[FOUR, EIGHT, '--batch', '4,8.5', '--for', '12'], /--batch: '8.5' is no whole number/],
    [[FOUR, EIGHT, '--batch', '4,4', '--for', '12'], /--batch: both sizes are 4/],
    [[FOUR, EIGHT, '--batch', '4,8', '--for', '0'], /--for: '0' is no whole number/],
    [[FOUR, EIGHT, '--batch', '4,8', '--for', '12', '--capacity', 'much'], /--capacity: /],
    [
      [FOUR, path('mlp-python'), '--batch', '4,8', '--for', '12'],
      /are not of the same program: only \d+ % of the bytes/,
    ],
  ]
  for (const [args, message] of cases) assert.match(refused(['predict', ...args]), message)
})
