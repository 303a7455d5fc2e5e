// Runs the commands of AGENTS.md as they stand, and looks up the fields of JSON that it names.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { SUMS } from '../src/recordings/report/why/messages.fixture.js'
import { ENV, ROOT, read } from './documents.fixture.js'

const AGENTS = read('AGENTS.md')
const MAIN = join(ROOT, 'dist/lib/cli/main.js')
/** The recordings by the names that the commands have for them. */
const FILES = {
  'run.pickle': 'oom-retry-2gib',
  'before.pickle': 'mlp-train-stacks',
  'after.pickle': 'mlp-train-stacks',
  'batch4.pickle': 'categories/series-gpt-batch4',
  'batch8.pickle': 'categories/series-gpt-batch8',
}

test('the commands answer with the kind of JSON, and the fields, that the page names', () => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-agents-'))
  after(() => rmSync(folder, { recursive: true }))
  for (const [name, recording] of Object.entries(FILES)) {
    cpSync(join(ROOT, 'traces', `${recording}.pickle.gz`), join(folder, name))
  }
  writeFileSync(join(folder, 'log.txt'), SUMS[0].text)
  const rows = [...AGENTS.matchAll(/\| `npx cuda-mempool ([^`]+)` \| `(\w+)` \|/g)]
  assert.ok(rows.length >= 12)
  const answers = new Map<string, Record<string, unknown>>()
  for (const [, line, kind] of rows) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...line.split(' ')], {
      cwd: folder,
      encoding: 'utf8',
      env: { ...ENV, XDG_RUNTIME_DIR: folder, TMPDIR: folder }, // without the served programs of this computer
    })
    if (kind === 'gpu' || kind === 'top') {
      // Here are neither a GPU nor a served process.
      assert.deepEqual([status, stdout, stderr.split('\n').length], [2, '', 2], line)
    } else {
      assert.deepEqual([status, stderr], [0, ''], line)
      answers.set(kind, JSON.parse(stdout))
      assert.equal(answers.get(kind)?.['kind'], kind, line)
    }
  }
  const fields = [
    ...AGENTS.split('| field |')[1]
      .split('\n\n')[0]
      .matchAll(/^\| ([^|]+) \|/gm),
  ]
    .flatMap(([, names]) => names.split(', '))
    .filter(name => name.startsWith('`'))
    .map(name => name.slice(1, -1))
  const fieldOf = (name: string) =>
    name.split('.').reduce<unknown>((value, part) => Object(value)[part], answers.get('why'))
  assert.ok(fields.length > 10)
  assert.deepEqual(
    fields.filter(field => fieldOf(field) === undefined),
    [],
  )
})
