// The command line on Windows: all that reads recordings says and writes the same as on Linux.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { type Ended, skipReason, Windows, windowsPath } from './windows.fixture.js'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const MAIN = join(ROOT, 'dist', 'lib', 'cli', 'main.js')
const FORMATS = 'src/recordings/trace/formats'
/** The recordings that both systems read, by their names there. */
const RECORDINGS: Readonly<Record<string, string>> = {
  'run.pickle.gz': 'traces/mlp-train-stacks.pickle.gz',
  'failed.pickle.gz': 'traces/oom-retry-2gib.pickle.gz',
  'before.pickle.gz': 'traces/categories/series-gpt-batch4.pickle.gz',
  'after.pickle.gz': 'traces/categories/series-gpt-batch8.pickle.gz',
  'rmm.csv': `${FORMATS}/rmm.fixture.csv`,
  'profiler.json': `${FORMATS}/profiler.fixture.json`,
}
/** Command lines in this order, with the status that both end with. */
const ALIKE: readonly (readonly [status: number, ...words: string[]])[] = [
  [0, '--help'],
  [0, 'why', 'run.pickle.gz'],
  [0, 'why', 'failed.pickle.gz', '--json'],
  [0, 'why', 'profiler.json'],
  [0, 'tune', 'failed.pickle.gz'],
  [0, 'predict', 'before.pickle.gz', 'after.pickle.gz', '--batch', '4,8', '--for', '16'],
  [0, 'replay', 'run.pickle.gz', 'rmm.csv'],
  [0, 'diff', 'before.pickle.gz', 'after.pickle.gz', '-o', 'diff.html'],
  [4, 'check', 'after.pickle.gz', '--against', 'before.pickle.gz', '--junit', 'check.xml', '--markdown', 'check.md'],
  [0, 'report', 'run.pickle.gz'],
  [2, 'report', 'run.pickle.gz'],
  [0, 'report', 'run.pickle.gz', '--force'],
  [0, 'viewer'],
  [0, 'convert', 'run.pickle.gz', '-o', 'run.csv'],
  [0, 'convert', 'run.pickle.gz', '-o', 'run.pickle'],
  [0, 'convert', 'run.pickle.gz', '-o', 'run.svg'],
  [0, 'convert', 'run.pickle.gz', '-o', 'run.pb.gz'],
  [0, 'convert', 'run.pickle.gz', '-o', '-', '--to', 'collapsed'],
  [2, 'convert', 'run.pickle.gz', '-o', 'absent/run.csv'],
  [2, 'why', 'absent.pickle'],
  [2, 'why', '.'],
]

describe('the command line on Windows', { skip: skipReason }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-windows-'))
  const [linux, windows] = ['linux', 'windows'].map(name => join(folder, name))
  let system: Windows
  before(() => {
    system = new Windows()
    for (const each of [linux, windows]) {
      mkdirSync(each)
      for (const [name, path] of Object.entries(RECORDINGS)) copyFileSync(join(ROOT, path), join(each, name))
    }
  })
  after(() => {
    system.close()
    rmSync(folder, { recursive: true })
  })

  const onWindows = (...words: string[]) => system.node([MAIN, ...words], windows)
  const onLinux = (...words: string[]): Ended => {
    const env = { PATH: process.env['PATH'], XDG_RUNTIME_DIR: folder, CUDA_MEMPOOL_DEVICE: 'auto' }
    return spawnSync(process.execPath, [MAIN, ...words], { cwd: linux, env, encoding: 'utf8' })
  }

  for (const [status, ...words] of ALIKE) {
    test(`${words.join(' ')} says the same`, () => {
      const { stdout, stderr } = onLinux(...words)
      assert.deepEqual(onWindows(...words), { status, stdout, stderr })
    })
  }

  test('the files that commands write are the same', () => {
    const names = readdirSync(linux).sort()
    assert.deepEqual(readdirSync(windows).sort(), names)
    assert.ok(names.length >= 15, names.join())
    for (const name of names) {
      assert.equal(comparable(join(windows, name)), comparable(join(linux, name)), name)
    }
  })

  test('paths of Windows are read, and named in commands to copy', () => {
    mkdirSync(join(windows, 'my runs'))
    copyFileSync(join(windows, 'run.pickle.gz'), join(windows, 'my runs', 'run ü.pickle.gz'))
    const told = onLinux('why', 'run.pickle.gz').stdout
    for (const path of ['my runs\\run ü.pickle.gz', windowsPath(join(windows, 'my runs', 'run ü.pickle.gz'))]) {
      const stdout = told.replace('run.pickle.gz', path).replace('tune run.pickle.gz', `tune "${path}"`)
      assert.deepEqual(onWindows('why', path), { status: 0, stdout, stderr: '' })
    }
    const { stdout, stderr } = onWindows('report', 'my runs\\run ü.pickle.gz')
    assert.match(stdout + stderr, /\nwrote my runs\\run ü\.html; open it in a browser\n/)
    const page = readFileSync(join(windows, 'my runs', 'run ü.html'), 'utf8')
    assert.match(page, /<title>run ü\.pickle\.gz — memory report</)
    rmSync(join(windows, 'my runs'), { recursive: true })
  })

  test('wildcards, standard input and databases are read', () => {
    const replayed = onLinux('replay', 'rmm.csv', '--policy', 'recorded')
    assert.equal(onWindows('replay', 'R?m*.csv', '--policy', 'recorded').stdout, replayed.stdout)
    const told = spawnSync(process.execPath, [MAIN, 'why', '-'], { input: readFileSync(join(linux, 'run.pickle.gz')) })
    const { status, stdout } = system.shell(`node ${windowsPath(MAIN)} why - < run.pickle.gz`, windows)
    assert.deepEqual([status, stdout], [0, told.stdout.toString()])
    const database = windowsPath(join(ROOT, FORMATS, 'nsight.fixture.sqlite'))
    const { stdout: read, stderr: refused } = onWindows('why', database)
    assert.match(read + refused, /^6 events in |which Node v20\.[\d.]+ cannot read; run: sqlite3 .* "CREATE TEMP/m)
  })

  test('a named pipe is opened once', () => {
    const program = `
      const bytes = require('node:fs').readFileSync('run.pickle.gz')
      let opened = 0
      const server = require('node:net').createServer(socket => {
        opened++
        socket.on('error', () => {}).end(bytes)
      })
      server.listen(String.raw\`\\\\.\\pipe\\run\`, () => {
        const child = require('node:child_process').spawn(
          process.execPath,
          [process.argv[2], 'why', String.raw\`\\\\.\\pipe\\run\`],
          { stdio: 'inherit' },
        )
        child.on('exit', status => process.exit(status === 0 && opened === 1 ? 0 : 1))
      })`
    const file = join(folder, 'pipe.cjs')
    writeFileSync(file, program)
    const stdout = onLinux('why', 'run.pickle.gz').stdout.replaceAll('run.pickle.gz', '\\\\.\\pipe\\run')
    assert.deepEqual(system.node([file, MAIN], windows), { status: 0, stdout, stderr: '' })
  })

  test('an output that Windows cannot replace is refused, and leaves no file behind', () => {
    const before = readdirSync(windows)
    const refused = onWindows('convert', 'run.pickle.gz', '-o', 'nul.csv')
    assert.match(refused.stderr, /^cuda-mempool: nul\.csv is a device, pipe or socket; name a file with -o, .*\n$/)
    const line = `node ${windowsPath(MAIN)} convert run.pickle.gz -o held.csv --force > held.csv`
    const held = system.shell(line, windows)
    assert.match(held.stderr, /^cuda-mempool: held\.csv: another program has it open, or it is protected \(E\w+\)\n$/)
    assert.deepEqual([refused.status, held.status], [2, 2])
    rmSync(join(windows, 'held.csv'))
    assert.deepEqual(readdirSync(windows), before)
  })

  test('the error about GPUs says what works there, and the simulated device is open to programs', () => {
    const program = (folder: string) =>
      `
      import { openDevice } from 'file:///${windowsPath(join(ROOT, 'dist', folder, 'index.js'))}'
      import { serve } from 'file:///${windowsPath(join(ROOT, 'dist', folder, 'entries', 'live.js'))}'
      try { openDevice() } catch ({ name, message }) { console.log(name, message) }
      const device = openDevice('auto')
      const pool = device.createPool({ debug: true })
      const mine = () => pool.allocate(300)
      mine()
      console.log(device.simulated, pool.live()[0].allocatedAt)
      await serve(pool).catch(({ message }) => console.log(message))`.replaceAll('\\', '/')
    const file = join(folder, 'program.mjs')
    for (const [code, ...flags] of [['lib'], ['src', '--enable-source-maps']]) {
      writeFileSync(file, program(code))
      const { stdout, stderr } = system.node([...flags, file], folder)
      const [device, pool, served, ...more] = stdout.split('\n')
      assert.equal(
        device,
        'NoDeviceError GPUs work on Linux (x64 and arm64) and in WSL, not on Windows (x64); ' +
          "recordings and openDevice('simulated') work here",
      )
      assert.match(pool, /^true mine \(.*program\.mjs:7:/)
      assert.match(served, /^serve: Windows has no sockets that only their user can open; watch the pools in WSL/)
      assert.deepEqual([more, stderr], [[''], ''])
    }
  })
})

/** The contents of a file, unpacked, because versions of Node pack differently. */
function comparable(path: string): string {
  const bytes = readFileSync(path)
  if (path.endsWith('.gz')) return gunzipSync(bytes).toString('latin1')
  const text = bytes.toString(path.endsWith('.html') ? 'utf8' : 'latin1')
  return text.replaceAll(/(?<=id="picture-\d+">)[\w+/=]+/g, packed =>
    gunzipSync(Buffer.from(packed, 'base64')).toString('latin1'),
  )
}
