// What a user gets: the packed package, unpacked where no source and no development dependency is, with the command line
// and the imports run from there. Its dependencies are linked from this checkout, so that no network is needed.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const project = mkdtempSync(join(tmpdir(), 'cuda-mempool-package-'))
const installed = join(project, 'node_modules', 'cuda-mempool')
after(() => rmSync(project, { recursive: true }))

interface PackageJson {
  readonly version: string
  readonly bin: Record<string, string>
  readonly exports: Record<string, string | Record<string, string>>
  readonly dependencies: Record<string, string>
}
const packageJson = () => JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as PackageJson

function node(...args: string[]): string {
  const env = { PATH: process.env['PATH'], CUDA_MEMPOOL_DEVICE: 'simulated' }
  return execFileSync(process.execPath, args, { cwd: project, encoding: 'utf8', env })
}

describe('the packed package', () => {
  before(() => {
    execFileSync('npm', ['pack', '--ignore-scripts', '--offline', '--pack-destination', project], {
      cwd: ROOT,
      stdio: ['ignore', 'ignore', 'ignore'],
    })
    const [tarball] = readdirSync(project).filter(name => name.endsWith('.tgz'))
    writeFileSync(join(project, 'package.json'), '{ "name": "project", "private": true }')
    mkdirSync(installed, { recursive: true })
    execFileSync('tar', ['-xzf', join(project, tarball), '-C', installed, '--strip-components=1'])
    for (const name of Object.keys(packageJson().dependencies)) {
      const link = join(project, 'node_modules', name)
      mkdirSync(dirname(link), { recursive: true })
      symlinkSync(join(ROOT, 'node_modules', name), link)
    }
  })

  test('says which file a bundler must leave where the thread of a shared pool has none', () => {
    const file = join(installed, 'dist', 'src', 'device/pool-server-thread.js')
    const content = readFileSync(file)
    rmSync(file)
    const program = `
      import { openDevice } from 'cuda-mempool'
      try { openDevice('simulated').createPool({ shared: true }) } catch (error) { console.log(error.name, error.message) }`
    const output = node('--input-type=module', '-e', program)
    writeFileSync(file, content)
    assert.match(
      output,
      /^PoolError createPool: .*server-thread\.js is missing.*; a bundler must leave this package external/,
    )
  })

  test('holds what it names, and no tests', () => {
    const { bin, exports } = packageJson()
    const named = [bin, ...Object.values(exports)].flatMap(entry =>
      typeof entry === 'string' ? entry : Object.values(entry),
    )
    assert.ok(named.length >= 8)
    for (const path of named) assert.ok(existsSync(join(installed, path)), path)
    const files = readdirSync(installed, { recursive: true, encoding: 'utf8' })
    assert.deepEqual(
      files.filter(path => /\.(test|suite|fixture|worker)\./.test(path)),
      [],
    )
    for (const name of ['cuda_mempool.cuh', 'control.cu', 'control.ptx']) {
      assert.ok(existsSync(join(installed, 'cuda', name)), name)
    }
    const readme = readFileSync(join(installed, 'README.md'), 'utf8')
    const pages = [...readme.matchAll(/`((?:docs|examples)\/[\w./-]+)`|\]\(((?:docs|examples)\/[\w./-]+)/g)].map(
      match => match[1] ?? match[2],
    )
    assert.ok(pages.length >= 8, `${pages.length} pages`)
    assert.deepEqual(
      pages.filter(path => !existsSync(join(installed, path))),
      [],
      'the README names pages that come with it',
    )
    assert.ok(!files.some(path => path === 'src' || path === 'dist/test' || path === 'dist/bench'))
  })

  test('runs from its command line', () => {
    const { bin, version } = packageJson()
    const main = join(installed, bin['cuda-mempool'])
    assert.ok(readFileSync(main, 'utf8').startsWith('#!/usr/bin/env node\n'))
    assert.equal(node(main, '--version'), `${version}\n`)
    assert.match(node(main, 'demo'), /simulated GPU.*0, 0\.5, 1, 1\.5/s)
    const recording = join(installed, 'traces', 'gpt2-train-varlen.pickle.gz')
    assert.match(node(main, 'replay', recording, '--policy', 'recorded'), /5\.92 GiB/)
  })

  test('can be imported by every name it exports', () => {
    const program = join(project, 'program.mjs')
    writeFileSync(
      program,
      `import { existsSync } from 'node:fs'
      import { deviceIncludePath, MiB, openDevice } from 'cuda-mempool'
      import { SimulatedDriver } from 'cuda-mempool/simulated'
      import { readSnapshot, replay } from 'cuda-mempool/trace'
      const device = openDevice(new SimulatedDriver())
      const pool = device.createPool()
      const buffer = pool.allocate(3 * MiB)
      console.log(buffer.byteLength, typeof readSnapshot, typeof replay)
      console.log(existsSync(deviceIncludePath() + '/cuda_mempool.cuh'), device.createDeviceHeap(buffer).statsSync().failures)
      buffer.free()
      device.close()`,
    )
    assert.equal(node(program), '3145728 function function\ntrue 0\n')
  })
})
