// Runs the tests of some tags: `node dist/test/run.js unit fuzz [--smoke | --long]`. The name of a file says its tag:
// *.gpu.test, *.fuzz.test (random programs), *.storm.test (threads terminated at random); all others are unit tests.

import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const TAGS = ['unit', 'gpu', 'fuzz', 'storm']
/** Longer runs than the tests' own. The environment's own variables win. */
const LENGTHS: Readonly<Record<string, Record<string, string>>> = {
  smoke: {
    HEAP_FUZZ_SEED: '2',
    HEAP_FUZZ_STEPS: '200000',
    POOL_FUZZ_SEED: '2',
    POOL_FUZZ_STEPS: '6000',
    ORDER_FUZZ_SEED: '11',
    ORDER_FUZZ_STEPS: '8000',
    REFUSALS_SEED: '2',
    REFUSALS_STEPS: '60',
    PROOF_SEED: '1001',
    PROOF_PROGRAMS: '500',
    PROOF_SHARED_PROGRAMS: '200',
    STORM_SEED: '2',
    STORM_TERMINATIONS: '24',
    DEVICE_SEED: '2',
    DEVICE_TERMINATIONS: '48',
    LOCK_SEED: '2',
    LOCK_TERMINATIONS: '60',
  },
  long: { STORM_TERMINATIONS: '3000' },
}

const { values, positionals: tags } = parseArgs({
  allowPositionals: true,
  options: { smoke: { type: 'boolean', default: false }, long: { type: 'boolean', default: false } },
})
const wrong = tags.find(tag => !TAGS.includes(tag))
if (tags.length === 0 || wrong !== undefined) throw new Error(`tags are ${TAGS.join(', ')}, not ${wrong ?? 'none'}`)

const dist = fileURLToPath(new URL('..', import.meta.url))
const files = readdirSync(dist, { recursive: true, encoding: 'utf8' })
  .filter(path => path.endsWith('.test.js'))
  .filter(path => tags.includes(/\.(gpu|fuzz|storm)\.test\.js$/.exec(path)?.[1] ?? 'unit'))
  .map(path => relative('.', join(dist, path)))
const flags = tags.includes('gpu')
  ? ['--test-concurrency=1'] // several of them measure the memory that the one GPU has left
  : [
      `--test-concurrency=${availableParallelism()}`, // the default leaves a core out
      // Node 20 may wait for ever at a process's end, when its background compiler waits for a garbage collection.
      '--no-concurrent-recompilation',
    ]
const length = values.long ? LENGTHS['long'] : values.smoke ? LENGTHS['smoke'] : {}
const { status } = spawnSync(process.execPath, ['--test', ...flags, ...files], {
  stdio: 'inherit',
  env: { ...length, ...process.env },
})
process.exitCode = status ?? 1
