// The command `cuda-mempool check`.

import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'
import { MiB } from '../core/base/bytes.js'
import { writePickle } from '../recordings/trace/pytorch/pickle-writer.js'
import { printed, refused, run, runProcess } from './command-line.fixture.js'

const BASE = fileURLToPath(new URL('../../../traces/mlp-train-stacks.pickle.gz', import.meta.url))
const LARGER = fileURLToPath(new URL('../../../traces/oom-retry-2gib.pickle.gz', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-check-'))
after(() => rmSync(folder, { recursive: true }))
const place = (name: string) => join(folder, name)

/** A snapshot with one block on each device; its size is in MiB. */
function snapshot(name: string, ...sizes: (number | null)[]): string {
  const device_traces = sizes.map(size =>
    size === null ? [] : [{ action: 'alloc', addr: 2 ** 30, size: size * MiB, stream: 0, time_us: 1, frames: [] }],
  )
  writeFileSync(place(name), writePickle({ device_traces, segments: [] }))
  return place(name)
}

const OLD = snapshot('old.pickle', 100)
const NEW = snapshot('new.pickle', 103)

test('the status is 4 if memory grew by more than the limit, else 0', () => {
  assert.equal(run(['check', BASE, '--against', BASE]).status, 0)
  assert.equal(run(['check', LARGER, '--against', BASE]).status, 4)
  const statusAt = (...limit: string[]) => run(['check', NEW, '--against', OLD, ...limit]).status
  assert.deepEqual(
    [[], ['--max-growth', '3%'], ['--max-growth', '2.9 %'], ['--max-growth', '3MiB'], ['--max-growth', '0%']].map(
      limit => statusAt(...limit),
    ),
    [4, 0, 4, 0, 4],
  )
  assert.equal(run(['check', OLD, '--against', NEW, '--max-growth', '0B']).status, 0)
})

test('the text is on standard output, and ends with the command to type next if memory grew', () => {
  const { stdout, stderr } = run(['check', LARGER, '--against', BASE])
  assert.match(stdout, /^Failed: .*\n\nNext: npx cuda-mempool diff \S*mlp-train\S* \S*oom-retry\S*\n$/s)
  assert.equal(stderr, '')
  assert.doesNotMatch(printed(['check', BASE, '--against', BASE]), /Next/)
})

test('files are written also if memory grew, and replaced only with --force', () => {
  const [markdown, junit] = [place('check.md'), place('check.xml')]
  const words = ['check', NEW, '--against', OLD, '--markdown', markdown, '--junit', junit]
  assert.equal(run(words).status, 4)
  assert.match(readFileSync(markdown, 'utf8'), /^### GPU memory: failed\n/)
  assert.match(readFileSync(junit, 'utf8'), /^<\?xml .*<\/testsuites>\n$/s)
  assert.match(refused(words), /check\.md exists; --force replaces it/)
  assert.equal(run([...words, '--against', NEW, '--force']).status, 0)
  assert.match(readFileSync(markdown, 'utf8'), /^### GPU memory: passed\n/)
})

test('a dash writes one of them to standard output, without the text', () => {
  const words = ['check', NEW, '--against', OLD]
  assert.match(run([...words, '--markdown', '-']).stdout, /^### GPU memory: failed\n(?!.*Next:)/s)
  assert.match(run([...words, '--junit', '-']).stdout, /^<\?xml .*<\/testsuites>\n$/s)
  const { figures, limit, trace } = JSON.parse(run([...words, '--json']).stdout)
  assert.deepEqual([figures[0].run, limit, trace.base.file], [103 * MiB, { percent: 2 }, OLD])
})

test('the device of the run is compared with the same device of the base', () => {
  const base = snapshot('base-of-two.pickle', 10, 20)
  const second = snapshot('second.pickle', null, 30)
  const third = snapshot('third.pickle', null, null, 30)
  const devices = (file: string, ...words: string[]) => {
    const { trace } = JSON.parse(run(['check', file, '--against', base, '--json', ...words]).stdout)
    return [trace.base.device, trace.run.device]
  }
  assert.deepEqual(devices(second), [1, 1])
  assert.deepEqual(devices(base, '--gpu', '1'), [1, 1])
  assert.deepEqual(devices(third), [0, 2])
  assert.match(run(['check', third, '--against', base]).stdout, /GPU 0 in the base, GPU 2 in the run/)
})

test('either recording may come from standard input', () => {
  const { status, stdout } = runProcess(['check', '-', '--against', OLD], {}, readFileSync(NEW))
  assert.deepEqual([status, /^Failed: standard input against/.test(stdout)], [4, true])
})

test('a wrong command line is refused in one line, and nothing is written', () => {
  const out = place('never.md')
  const cases: readonly [string[], RegExp][] = [
    [[NEW], /required option '--against <base>' not specified/],
    [[NEW, '--against', place('missing')], /missing: no such file/],
    [[place('absent'), '--against', OLD], /absent: no such file/],
    [['-', '--against', '-'], /standard input has one recording/],
    [[NEW, '--against', OLD, '--markdown', place('no/x.md')], /no: there is no such folder/],
    [[NEW, '--against', OLD, '--markdown', '-', '--junit', '-'], /standard output: .* need a place each/],
    [[NEW, '--against', OLD, '--json', '--junit', '-'], /standard output: .* need a place each/],
    [[NEW, '--against', OLD, '--gpu', '7'], /GPU 7|device 7/],
    ...['2', '-1%', 'abc', '1e9%', '', '%', '1001%', '2 MB%', '0x2%', '1e3', '٢%'].map((limit): [string[], RegExp] => [
      [NEW, '--against', OLD, '--max-growth', limit],
      /--max-growth: '.*' is no limit; write a share like 2%, up to 1000%, or a size like 64MiB/,
    ]),
  ]
  for (const [args, message] of cases) {
    assert.match(refused(['check', ...args, ...(args.includes('--markdown') ? [] : ['--markdown', out])]), message)
  }
  assert.equal(existsSync(out), false)
})

/** The texts of all properties named `run` or `script` below a value. */
function commandsIn(value: unknown, key = ''): string[] {
  if (typeof value === 'string') return ['run', 'script'].includes(key) ? [value] : []
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, each]) => commandsIn(each, Array.isArray(value) ? key : name))
}

test('the workflows of the document are YAML, and their commands run', () => {
  const page = readFileSync(fileURLToPath(new URL('../../../docs/check.md', import.meta.url)), 'utf8')
  const workflows = [...page.matchAll(/^```yaml\n(.*?)^```$/gms)].map(([, text]) => parse(text, { strict: true }))
  assert.deepEqual(Object.keys(workflows[0].jobs.memory), ['runs-on', 'steps'])
  const commands = workflows.map(each => commandsIn(each).filter(command => command.includes('cuda-mempool')))
  assert.deepEqual(
    commands.map(({ length }) => length),
    [1, 1],
  )
  const files: Record<string, string> = { 'run.pickle': NEW, 'base.pickle': OLD }
  for (const [command] of commands) {
    const words = command.replace(/^npx --yes cuda-mempool /, '').split(' ')
    const { status } = run(words.map(word => files[word] ?? (/\.(md|xml)$/.test(word) ? place(`ci-${word}`) : word)))
    assert.equal(status, 4, command)
  }
  assert.match(readFileSync(place('ci-memory.xml'), 'utf8'), /<testsuite /)
})
