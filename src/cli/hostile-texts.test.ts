// All commands with a recording whose texts and file name are hostile: no terminal escape and no invisible letter is
// printed, and no long text makes a long page.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { writePickle } from '../recordings/trace/pytorch/pickle-writer.js'
import { run } from './command-line.fixture.js'

const UNSEEN = '\x1b]0;title\x07\x1b[31m\x1b[2J\u009b2J\u202eright\u2066\u200b\u2028line\x7f'
/** The emphasis of the program itself: in the hostile text, another escape follows. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: terminal escapes begin with it
const OWN = /\x1b\[(?:1|2|22|31|32|39)m(?!\?\[2J)/g

let folder: string
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-texts-'))
})
after(() => rmSync(folder, { recursive: true }))

/** A snapshot with `text` in each place that has one. */
function snapshot(text: string): Buffer {
  const frames = [{ filename: `/a/${text}.py`, line: 3, name: text }]
  const [size, stream] = [2 ** 20, 0]
  const allocations = Array.from({ length: 40 }, (_, i) => {
    const own = { frames, user_metadata: `${text}${i}`, tag: `${text}${i}`, compile_context: text, pool_id: [0, i % 2] }
    return { action: 'alloc', addr: 2 ** 21 * (i + 1), size, stream, time_us: i, ...own }
  })
  const failed = { action: 'oom', device_free: 100, size: 2 ** 33, stream, time_us: 99, frames }
  const marks = ['START', 'END', 'START', 'END'].map((stage, i) => ({ stage, name: text, time_us: i * 10 }))
  return Buffer.concat([
    writePickle({
      device_traces: [[...allocations, failed]],
      segments: [],
      external_annotations: marks,
      allocator_settings: { PYTORCH_CUDA_ALLOC_CONF: text },
    }),
  ])
}

/** Every command that reads recordings, with its options that print or write texts. */
function commandsOf(file: string, out: (name: string) => string): string[][] {
  const formats = ['pickle', 'json', 'csv', 'perfetto', 'pprof', 'collapsed', 'svg']
  return [
    ['replay', file, file, '--fail-if', 'overhead>0'],
    ['replay', file, '--json'],
    ['replay', file, '--capacity', '4MiB'],
    ['why', file, '--step', '.'],
    ['tune', file, file, '--capacity', '4MiB'],
    ['tune', file, '--json', '--capacity', '20MiB'],
    ['diff', file, file, '-o', out('diff.html')],
    ['check', file, '--against', file, '--markdown', out('md'), '--junit', out('xml')],
    ['check', file, '--against', file, '--json'],
    ['predict', file, file, '--batch', '4,8', '--for', '12'],
    ['predict', file, file, '--batch', '4,8', '--for', '12', '--json'],
    ['report', file, file, '-o', out('report.html')],
    ['report', file, '-o', out('report.svg')],
    ['viewer', '-o', out('viewer.html')],
    ...formats.map(format => ['convert', file, '--to', format, '-o', out(format)]),
  ]
}

/** Commands that end in an error which names a text of theirs. */
function refusedOf(file: string): string[][] {
  return [
    ...['replay', 'why', 'tune', 'report'].map(command => [command, `${file}-missing`]),
    ['diff', file, `${file}-missing`],
    ['check', file, '--against', `${file}-missing`],
    ['check', file, '--against', file, '--max-growth', UNSEEN],
    ['predict', file, `${file}-missing`, '--batch', '4,8', '--for', '12'],
    ['predict', file, file, '--batch', UNSEEN, '--for', '12'],
    ['viewer', '-o', file],
    ['convert', file, '-o', file],
    ['replay', file, '--policy', UNSEEN],
    ['replay', file, '--fail-if', UNSEEN],
    ['replay', file, `--${UNSEEN}`],
    ['info', '--device', UNSEEN],
    ['demo', '--device', UNSEEN],
    ['top', `${file}.sock`],
    ['keep', 'list', '--socket', `${file}.sock`],
    ['keep', 'prune', '--unused', UNSEEN],
    ['keep', '--max-bytes', UNSEEN],
    ['keep', UNSEEN],
    [UNSEEN],
  ]
}

test('no command prints an escape or an unseen letter of a recording, a path or an argument', () => {
  const own = join(folder, UNSEEN)
  mkdirSync(own)
  const file = join(own, `${UNSEEN}.pickle`)
  writeFileSync(file, snapshot(UNSEEN))
  const tested = new Set<string>()
  for (const env of [{}, { FORCE_COLOR: '1' }]) {
    for (const words of [
      ...commandsOf(file, name => join(own, `${Object.keys(env)}${UNSEEN}${name}`)),
      ...refusedOf(file),
    ]) {
      const { status, stdout, stderr } = run(words, env)
      tested.add(words[0])
      const said = stdout + stderr
      assert.ok(said.length > 0 && status !== 3, said)
      const rest = 'FORCE_COLOR' in env ? said.replace(OWN, '') : said
      assert.doesNotMatch(rest.replace(/[\n\t]/g, ''), /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u, JSON.stringify(said))
    }
  }
  const commands = [...run(['--help']).stdout.matchAll(/^ {2}([a-z]+) .*\[options\]/gm)].map(([, name]) => name)
  assert.ok(commands.length > 8)
  assert.deepEqual(
    commands.filter(name => !tested.has(name)),
    [],
  )
})

test('a picture as SVG is XML whatever a name has', () => {
  const file = join(folder, 'svg.pickle')
  writeFileSync(file, snapshot(`${UNSEEN}\0\ufffe\ufffd<&>`))
  assert.equal(run(['convert', file, '-o', join(folder, 'names.svg')]).status, 0)
  const picture = readFileSync(join(folder, 'names.svg'), 'utf8')
  assert.match(picture, /&#60;&#38;&#62;/)
  assert.doesNotMatch(picture, /[\p{Cc}\p{Cf}\ufffe]/u)
})

test('texts of 100 kB are cut where they are shown, and whole in data', () => {
  const long = `${'\u0301'.repeat(1e5)}${'😀'.repeat(200)}end`
  const file = join(folder, 'long.pickle')
  writeFileSync(file, snapshot(long))
  const out = (name: string) => join(folder, `long-${name}`)
  for (const words of commandsOf(file, out)) {
    if (words[0] === 'viewer' || words.includes('--json')) continue
    const { status, stdout, stderr } = run(words)
    assert.ok(status !== 3 && stdout.length < 20_000, `${words.join(' ')}: ${stdout.length} ${stderr}`)
  }
  for (const name of ['report.svg', 'svg']) assert.ok(readFileSync(out(name)).length < 100_000, name)
  for (const name of ['report.html', 'diff.html']) {
    const page = readFileSync(out(name), 'utf8')
    const parts = [...page.matchAll(/<script type="(?:application\/json|text\/plain)"[^>]*>(.*?)<\/script>/gs)]
    for (const [, part] of parts) {
      const whole = part.startsWith('{') ? part : gunzipSync(Buffer.from(part, 'base64')).toString('latin1')
      assert.ok(whole.length < 200_000, `${name}: ${whole.length}`)
      assert.equal(whole.includes('\u0301'.repeat(400)), false)
    }
  }
  const rows = readFileSync(out('csv'), 'utf8')
  assert.ok(rows.includes(long))
  assert.ok(readFileSync(out('pickle')).includes(Buffer.from(long)))
})
