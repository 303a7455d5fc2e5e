// Runs the tests of some tags: `node dist/test/run.js unit fuzz [--smoke | --long]`. The name of a file says its tag:
// *.gpu.test, *.fuzz.test (random programs), *.storm.test (threads and processes ended at random), *.bundle.test
// (programs that bundlers make), *.browser.test (pages in Chromium), *.windows.test (Node for Windows, under Wine),
// *.site.test (the site); of all others, those in proof/ are `proof`, and the rest `unit`.

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const TAGS = ['unit', 'proof', 'gpu', 'fuzz', 'storm', 'bundle', 'browser', 'windows', 'site']
/**
 * Longer runs than the tests' own. The environment's own variables win. src/core/base/seeds.fixture.ts decides from how
 * many seeds longer programs run.
 */
const LENGTHS: Readonly<Record<string, Record<string, string>>> = {
  smoke: {
    HEAP_FUZZ_SEED: '2',
    HEAP_FUZZ_STEPS: '200000',
    POOL_FUZZ_SEED: '2',
    POOL_FUZZ_STEPS: '6000',
    ORDER_FUZZ_SEED: '11',
    ORDER_FUZZ_STEPS: '8000',
    REFUSALS_SEED: '2',
    REFUSALS_STEPS: '45',
    HOSTILE_SEED: '2',
    HOSTILE_PROGRAMS: '600',
    READERS_SEED: '2',
    READERS_INPUTS: '3000',
    PROOF_SEED: '1001',
    PROOF_PROGRAMS: '500',
    PROOF_SHARED_PROGRAMS: '200',
    STORM_SEED: '2',
    STORM_TERMINATIONS: '24',
    DEVICE_SEED: '2',
    DEVICE_TERMINATIONS: '48',
    LOCK_SEED: '2',
    LOCK_TERMINATIONS: '60',
    KEEP_SEED: '2',
    KEEP_KILLS: '60',
  },
  long: {
    STORM_TERMINATIONS: '3000',
    KEEP_KILLS: '10000',
    POOL_FUZZ_STEPS: '6000',
    POOL_FUZZ_SEEDS: '25',
    HOSTILE_PROGRAMS: '30000',
    READERS_INPUTS: '100000',
    STRESS_SECONDS: '3',
    STRESS_PROCESSES: '8',
  },
}

const { values, positionals: tags } = parseArgs({
  allowPositionals: true,
  options: { smoke: { type: 'boolean', default: false }, long: { type: 'boolean', default: false } },
})
const wrong = tags.find(tag => !TAGS.includes(tag))
if (tags.length === 0 || wrong !== undefined) throw new Error(`tags are ${TAGS.join(', ')}, not ${wrong ?? 'none'}`)

const dist = fileURLToPath(new URL('..', import.meta.url))
const tagOf = (path: string) =>
  /\.(gpu|fuzz|storm|bundle|browser|windows|site)\.test\.js$/.exec(path)?.[1] ??
  (path.startsWith('proof/') ? 'proof' : 'unit')
const files = readdirSync(dist, { recursive: true, encoding: 'utf8' })
  .filter(path => path.endsWith('.test.js') && tags.includes(tagOf(path)))
  .sort()

/** Counts the open files of its process. */
const COUNTS_FILES = 'src/core/libraries/descriptors.test.js'
/** Tests of the packed package share a process, which packs it and loads the compiler once. */
const PACKED = ['test/package.test.js', 'test/public-types.test.js', 'test/without-koffi.test.js']
/** The programs that take longest start first, so that none of them runs on alone at the end. */
const LONGEST = [
  'proof/mutants.test.js',
  'test/windows/recordings.windows.test.js',
  'test/browser/pages.site.test.js',
  'test/bundlers.bundle.test.js',
  'src/core/pool/caching',
  'src/core/keeper',
  'src/core/keeper/store',
  'src/keep',
  'packed',
  'src/core/pool/wrappers',
  'test/browser/page.browser.test.js',
  'proof/proof.fuzz.test.js',
  'src/cli',
  'src/core/pool',
  'test/browser/drop.browser.test.js',
  'test/documents.test.js',
  'test/examples.test.js',
  'src/recordings/trace',
  'src fuzz',
  'proof/pools fuzz',
  'test/beside-a-capture.test.js',
  'src/recordings/trace/pytorch',
  'test',
  'src/core/device',
  'test/shared-pool-threads.test.js',
  'src/core/pool/caching/sleep',
  'src/core/pool/host',
  'src/core/pool/mapped',
  'src/core/pool/debug',
  'src/core/driver',
  'bench/rivals/rivals.test.js',
  'cuda',
  'proof fuzz',
  'src/core/heap',
]
/**
 * The program that runs a file: it loads the package once, which takes as long as most tests. Unit tests share one by
 * layer, and random programs by place, unless LONGEST has their file or folder.
 */
function programOf(path: string): string {
  const folder = dirname(path)
  if (LONGEST.includes(path) || path === COUNTS_FILES) return path
  if (PACKED.includes(path)) return 'packed'
  if (tagOf(path) === 'fuzz') return path.startsWith('src/') ? 'src fuzz' : `${folder} fuzz`
  if (tagOf(path) !== 'unit') return path
  return LONGEST.includes(folder) ? folder : folder.split('/').slice(0, 2).join('/')
}
const found = [...new Set(files.map(programOf))]
const names = [...LONGEST.filter(name => found.includes(name)), ...found.filter(name => !LONGEST.includes(name))]

const made = mkdtempSync(join(tmpdir(), 'cuda-mempool-tests-'))
// Node runs its files in the order of their paths.
const programs = names.map((name, index) => {
  const program = join(made, `${String(index).padStart(3, '0')}-${name.replaceAll(/[ /]/g, '-')}.test.mjs`)
  const tests = files.filter(path => programOf(path) === name)
  writeFileSync(program, tests.map(path => `import ${JSON.stringify(join(dist, path))}\n`).join(''))
  return program
})

const flags = tags.includes('gpu')
  ? ['--test-concurrency=1'] // several tests measure the free memory of the GPU
  : [
      `--test-concurrency=${availableParallelism()}`, // the default leaves a core out
      // Node 20 may wait for ever at a process's end, when its background compiler waits for a garbage collection.
      '--no-concurrent-recompilation',
      ...(values.long ? [] : ['--test-timeout=900000']), // a program that hangs fails, and says which
    ]
const length = values.long ? LENGTHS['long'] : values.smoke ? LENGTHS['smoke'] : {}
try {
  const { status } = spawnSync(process.execPath, ['--test', ...flags, ...programs], {
    stdio: 'inherit',
    env: { ...length, ...process.env },
  })
  process.exitCode = status ?? 1
} finally {
  rmSync(made, { recursive: true })
}
