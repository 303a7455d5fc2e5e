// Reading the bytes of a recording: files, pipes and gzip.

import assert from 'node:assert/strict'
import { execFile, execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { GiB, MiB } from '../../../core/base/bytes.js'
import { writePickle } from '../pytorch/pickle-writer.js'
import { BASE, event, refused, snapshot } from '../pytorch/snapshot.fixture.js'
import { readRecording } from './read-recording.js'

test('files may be pickle or JSON, with or without gzip, recognised by their content', t => {
  const folder = mkdtempSync(join(tmpdir(), 'snapshot-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const value = snapshot([event('alloc', BASE, 8), event('free_requested', BASE, 8)])
  const forms = [writePickle(value), Buffer.from(JSON.stringify(value)), Buffer.from(` \n${JSON.stringify(value)}\n`)]
  for (const bytes of forms.flatMap(form => [form, gzipSync(form)])) {
    const path = join(folder, 'file')
    writeFileSync(path, bytes)
    for (const again of [forms[0], bytes, new Uint8Array(bytes)]) {
      assert.deepEqual(readRecording(path), readRecording(again, { name: path }))
    }
  }
  const file = (name: string, bytes: Buffer | string) => {
    writeFileSync(join(folder, name), bytes)
    return () => readRecording(join(folder, name))
  }
  refused(() => readRecording(join(folder, 'none')), /none: no such file$/)
  refused(() => readRecording(folder), /is a directory/)
  refused(() => readRecording('/dev/null'), /\/dev\/null: the file is empty$/)
  refused(file('empty', ''), /empty: the file is empty$/)
  refused(file('text', 'hello'), /text: is no recording: /)
  refused(file('zip', 'PK\u0003\u0004'), /is a ZIP archive, as torch.save makes them;/)
  refused(file('zipped-text.gz', gzipSync('hello')), /is no recording/)
  refused(file('cut.gz', gzipSync(forms[0]).subarray(0, 40)), /the gzip file is truncated/)
  refused(file('damaged.gz', Buffer.concat([Buffer.from([0x1f, 0x8b, 8, 0]), Buffer.alloc(40, 0xff)])), /is damaged/)
  refused(file('bomb.gz', gzipSync(`{${' '.repeat(40 * MiB)}`)), /unpacks to more than/)
  refused(file('cut.json', JSON.stringify(value).slice(0, 90)), /cut.json: is not valid JSON/)
  refused(file('deep.json', '['.repeat(100_000)), /containers more than 1000 deep at byte 1000/)
  refused(file('many.json', `[${'{},'.repeat(100_000)}{}]`), /more containers than a snapshot of this size has/)
  refused(
    file('code', Buffer.from('\u0080\u0004cos\nsystem\n.', 'latin1')),
    /code: refused: this pickle would call os.system;/,
  )
})

test('foreign contents of a gzip file are refused by their first bytes, before all is unpacked', t => {
  const folder = mkdtempSync(join(tmpdir(), 'snapshot-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'zeros.gz')
  const zeros = gzipSync(Buffer.alloc(16 * MiB))
  writeFileSync(path, Buffer.concat(Array(256).fill(zeros)))
  refused(() => readRecording(path), /zeros.gz: is no recording/)
  writeFileSync(path, Buffer.concat([gzipSync(Buffer.from([0x80, 4])), ...Array(256).fill(zeros)]))
  refused(() => readRecording(path), /zeros.gz: .*byte 2/)
})

test('zeros may follow the end of a gzip file, and other bytes may not', t => {
  const folder = mkdtempSync(join(tmpdir(), 'snapshot-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'file')
  const packed = gzipSync(writePickle(snapshot([event('alloc', BASE, 8)])))
  writeFileSync(path, Buffer.concat([packed, Buffer.alloc(512)]))
  assert.equal(readRecording(path).events, 1)
  writeFileSync(path, Buffer.concat([packed, Buffer.from('more')]))
  refused(() => readRecording(path), /file: the gzip file is damaged \(/)
})

test('a file that was never written to its end is refused before it is read to its end', t => {
  const folder = mkdtempSync(join(tmpdir(), 'snapshot-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'file')
  for (const start of [
    '{"device_traces":[[',
    'Thread,Time,Action,Pointer,Size,Stream\n1,0:00:00.1,free,0x10,8,0x0\n',
    Buffer.concat([
      writePickle(snapshot([event('alloc', BASE, 8)])).subarray(0, -8),
      Buffer.from([0x8d, 0, 0, 0, 8, 0, 0, 0, 0]),
    ]),
  ]) {
    writeFileSync(path, start)
    truncateSync(path, 3 * GiB)
    const { rss } = process.memoryUsage()
    refused(() => readRecording(path), /file: the file is damaged: it has 1 MiB of zeros$/)
    assert(process.memoryUsage().rss - rss < GiB, 'the rest was not read')
  }
})

test('a mark at the start of a text is no part of it, and text in UTF-16 is named', t => {
  const folder = mkdtempSync(join(tmpdir(), 'snapshot-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'file')
  const texts = [
    JSON.stringify(snapshot([event('alloc', BASE, 8)])),
    JSON.stringify([{ name: '[memory]', ph: 'i', ts: 1, args: { 'Device Type': 1, Addr: 1, Bytes: 8 } }]),
    'Thread,Time,Action,Pointer,Size,Stream\n1,0:00:00.1,allocate,0x10,8,0x0\n',
    'start,address,bytes,memKind,memoryOperationType\n1,1,8,2,0\n',
  ]
  for (const text of texts) {
    const marked = Buffer.from(`\uFEFF${text}`)
    assert.equal(readRecording(marked, { name: 'file' }).events, 1)
    for (const bytes of [marked, gzipSync(marked)]) {
      writeFileSync(path, bytes)
      assert.equal(readRecording(path).events, 1)
    }
    const wide = Buffer.from(`\uFEFF${text}`, 'utf16le')
    for (const bytes of [wide, gzipSync(wide), Buffer.from(wide).swap16()]) {
      writeFileSync(path, bytes)
      refused(() => readRecording(path), /file: is text in UTF-16, as > of PowerShell writes it; write it as UTF-8/)
    }
  }
  writeFileSync(path, `\uFEFF${texts[0]}`)
  assert.equal(readRecording(path).events, 1)
})

test('a named pipe is opened once, so that its writer may write and end at once', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'snapshot-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const bytes = gzipSync(writePickle(snapshot([event('alloc', BASE, 8)])))
  const pipes = Array.from({ length: 20 }, (_, i) => join(folder, `pipe${i}`))
  execFileSync('mkfifo', pipes)
  const run = (script: string) =>
    promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { timeout: 30_000 })
  const [{ stdout }] = await Promise.all([
    run(`
      import { readRecording } from ${JSON.stringify(new URL('./read-recording.js', import.meta.url).href)}
      for (const pipe of ${JSON.stringify(pipes)}) console.log(readRecording(pipe).events)`),
    run(`
      import { writeFileSync } from 'node:fs'
      for (const pipe of ${JSON.stringify(pipes)}) writeFileSync(pipe, Buffer.from('${bytes.toString('hex')}', 'hex'))`),
  ])
  assert.equal(stdout, '1\n'.repeat(pipes.length))
})

test('a pipe is read to its end', () => {
  const value = snapshot(Array.from({ length: 50_000 }, (_, i) => event('alloc', BASE + 512 * i, 8)))
  const reader = `
    import { readRecording } from ${JSON.stringify(new URL('./read-recording.js', import.meta.url).href)}
    const { file, events } = readRecording('-')
    console.log(file, events)`
  for (const bytes of [writePickle(value), gzipSync(writePickle(value))]) {
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', reader], { input: bytes })
    assert.deepEqual([String(stdout), String(stderr)], ['standard input 50000\n', ''])
  }
})
