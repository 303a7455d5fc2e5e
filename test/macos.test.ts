// The commands for recordings on macOS, as far as Linux can tell: the platform has another name, koffi is missing, and
// opening a file of Linux fails. Windows has tests of its own, in test/windows/.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const MACOS = `
  import fs from 'node:fs'
  import Module, { syncBuiltinESMExports } from 'node:module'
  Object.defineProperty(process, 'platform', { value: 'darwin' })
  for (const name of ['openSync', 'readFileSync', 'readlinkSync', 'readdirSync', 'statSync']) {
    const call = fs[name]
    fs[name] = (path, ...more) => {
      if (/^\\/(proc|sys|dev)\\b/.test(String(path))) throw new Error('no file of Linux: ' + path)
      return call(path, ...more)
    }
  }
  const load = Module._load
  Module._load = (name, ...more) => {
    if (name === 'koffi') throw new Error('no koffi')
    return load(name, ...more)
  }
  syncBuiltinESMExports()`

describe('on macOS', () => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-macos-'))
  after(() => rmSync(folder, { recursive: true }))

  const run = (...words: string[]) => {
    const flags = ['--import', `data:text/javascript,${encodeURIComponent(MACOS)}`]
    const main = join(ROOT, 'dist', 'lib', 'cli', 'main.js')
    return spawnSync(process.execPath, [...flags, main, ...words], { cwd: folder, encoding: 'utf8', input: '' })
  }
  const [recording, failed] = ['mlp-train-stacks', 'oom-retry-2gib'].map(name => join(ROOT, `traces/${name}.pickle.gz`))
  const [four, eight] = [4, 8].map(size => join(ROOT, `traces/categories/series-gpt-batch${size}.pickle.gz`))
  for (const words of [
    ['why', recording],
    ['tune', failed],
    ['replay', recording],
    ['report', recording, '-o', 'page.html'],
    ['viewer'],
    ['diff', recording, failed],
    ['check', recording, '--against', recording],
    ['predict', four, eight, '--batch', '4,8', '--for', '12'],
    ['convert', recording, '-o', 'run.csv'],
  ]) {
    test(`${words[0]} works`, () => {
      const { status, stdout, stderr } = run(...words)
      assert.deepEqual([status, stderr], [0, ''])
      assert.ok(stdout.length > 0)
    })
  }

  test('info says that a GPU needs another system, and shows the simulated device', () => {
    const { status, stdout } = run('info')
    assert.equal(status, 0)
    assert.match(stdout, /No GPU: GPUs work on Linux .* not on macOS \(\w+\);\s+recordings and .* work here/s)
    const { stderr } = run('info', '--device', '0')
    assert.match(stderr, /not on macOS \(\w+\); recordings and --device simulated work here\n$/)
  })
})
