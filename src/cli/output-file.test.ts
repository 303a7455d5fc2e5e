import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'
import { checkOutput, writeOutput } from './output-file.js'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-output-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

const inFolder = (name: string) => join(folder, name)
const modeOf = (path: string) => statSync(path).mode & 0o777

/** Both calls refuse the output. */
async function refused(path: string, force: boolean, message: RegExp): Promise<void> {
  assert.throws(() => checkOutput(path, force), { name: 'UsageError', message })
  await assert.rejects(writeOutput(path, ['new'], force), { name: 'UsageError', message })
}

test('a symbolic link stays, and its target is replaced with --force only', async () => {
  mkdirSync(inFolder('far'))
  writeFileSync(inFolder('far/target.csv'), 'mine')
  symlinkSync('far/target.csv', inFolder('near.csv'))
  symlinkSync('near.csv', inFolder('link.csv'))
  await refused(inFolder('link.csv'), false, /link\.csv exists; --force replaces it/)
  assert.equal(readFileSync(inFolder('far/target.csv'), 'utf8'), 'mine')
  await writeOutput(inFolder('link.csv'), ['new'], true)
  assert.equal(readFileSync(inFolder('far/target.csv'), 'utf8'), 'new')
  for (const name of ['near.csv', 'link.csv']) assert.ok(lstatSync(inFolder(name)).isSymbolicLink(), name)
  assert.deepEqual(readdirSync(inFolder('far')), ['target.csv'])
})

test('a symbolic link to nothing stays, and its target is made', async () => {
  mkdirSync(inFolder('far'))
  symlinkSync('far/target.csv', inFolder('link.csv'))
  await writeOutput(inFolder('link.csv'), ['new'], false)
  assert.equal(readFileSync(inFolder('far/target.csv'), 'utf8'), 'new')
  assert.ok(lstatSync(inFolder('link.csv')).isSymbolicLink())
  symlinkSync('gone/target.csv', inFolder('lost.csv'))
  await refused(inFolder('lost.csv'), true, /gone: there is no such folder/)
  symlinkSync('round.csv', inFolder('round.csv'))
  await refused(inFolder('round.csv'), true, /round\.csv: cannot be written \(ELOOP\)/)
})

test('what is no regular file is refused, also behind a link and with --force', async () => {
  execFileSync('mkfifo', [inFolder('pipe.csv')])
  symlinkSync('pipe.csv', inFolder('link.csv'))
  for (const name of ['pipe.csv', 'link.csv']) {
    for (const force of [false, true]) {
      await refused(inFolder(name), force, /\.csv is a device, pipe or socket; name a file with -o, or write to -o - /)
    }
  }
  assert.ok(lstatSync(inFolder('pipe.csv')).isFIFO())
  symlinkSync('.', inFolder('folder.csv'))
  await refused(inFolder('folder.csv'), true, /folder\.csv is a folder/)
})

test('a file that is replaced keeps its permissions, whatever the umask', async () => {
  for (const mode of [0o600, 0o666, 0o755]) {
    writeFileSync(inFolder('x.csv'), 'mine')
    chmodSync(inFolder('x.csv'), mode)
    await writeOutput(inFolder('x.csv'), ['new'], true)
    assert.equal(modeOf(inFolder('x.csv')).toString(8), mode.toString(8))
  }
  await writeOutput(inFolder('y.csv'), ['new'], false)
  writeFileSync(inFolder('usual'), '')
  assert.equal(modeOf(inFolder('y.csv')), modeOf(inFolder('usual')))
})

test('a signal ends the process, which leaves no file behind and keeps an old one', async () => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    writeFileSync(inFolder('old.csv'), 'old')
    const code = `import { writeOutput } from ${JSON.stringify(new URL('./output-file.js', import.meta.url).href)}
      function* pieces() { for (;;) yield 'x' }
      setImmediate(() => process.stdout.write('writing'))
      await writeOutput(${JSON.stringify(inFolder('old.csv'))}, pieces(), true)`
    const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    assert.deepEqual(
      readdirSync(folder).filter(name => name.endsWith('.partial')),
      [`old.csv.${child.pid}.partial`],
    )
    child.kill(signal)
    assert.deepEqual(await once(child, 'exit'), [null, signal])
    assert.deepEqual(readdirSync(folder), ['old.csv'])
    assert.equal(readFileSync(inFolder('old.csv'), 'utf8'), 'old')
  }
})

test('handlers of signals are gone after a write and after a failed one', async () => {
  const counts = () => ['SIGINT', 'SIGTERM', 'SIGHUP'].map(signal => process.listenerCount(signal))
  const before = counts()
  await writeOutput(inFolder('x.csv'), ['new'], false)
  const failing = function* () {
    yield 'new'
    assert.notDeepEqual(counts(), before)
    throw new RangeError('no')
  }
  await assert.rejects(writeOutput(inFolder('y.csv'), failing(), false), RangeError)
  assert.deepEqual([counts(), readdirSync(folder)], [before, ['x.csv']])
})
