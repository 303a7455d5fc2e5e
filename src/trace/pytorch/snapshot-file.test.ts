// Reading the bytes of a snapshot: files, pipes and gzip.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { MiB } from '../../base/bytes.js'
import { writePickle } from './pickle-writer.js'
import { parseSnapshot, readSnapshot } from './pytorch-snapshot.js'
import { BASE, event, refused, snapshot } from './snapshot.fixture.js'

test('files may be pickle or JSON, with or without gzip, recognised by their content', t => {
  const folder = mkdtempSync(join(tmpdir(), 'snapshot-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const value = snapshot([event('alloc', BASE, 8), event('free_requested', BASE, 8)])
  const forms = [writePickle(value), Buffer.from(JSON.stringify(value)), Buffer.from(` \n${JSON.stringify(value)}\n`)]
  for (const bytes of forms.flatMap(form => [form, gzipSync(form)])) {
    const path = join(folder, 'file')
    writeFileSync(path, bytes)
    assert.deepEqual(readSnapshot(path), parseSnapshot(forms[0], path))
  }
  const file = (name: string, bytes: Buffer | string) => {
    writeFileSync(join(folder, name), bytes)
    return () => readSnapshot(join(folder, name))
  }
  refused(() => readSnapshot(join(folder, 'none')), /none: no such file$/)
  refused(() => readSnapshot(folder), /is a directory/)
  refused(() => readSnapshot('/dev/null'), /\/dev\/null: the file is empty$/)
  refused(file('empty', ''), /empty: the file is empty$/)
  refused(file('text', 'hello'), /text: is no memory snapshot;/)
  refused(file('zip', 'PK\u0003\u0004'), /is a ZIP archive, as torch.save makes them;/)
  refused(file('zipped-text.gz', gzipSync('hello')), /is no memory snapshot/)
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
  refused(() => readSnapshot(path), /zeros.gz: is no memory snapshot/)
  writeFileSync(path, Buffer.concat([gzipSync(Buffer.from([0x80, 4])), ...Array(256).fill(zeros)]))
  refused(() => readSnapshot(path), /zeros.gz: .*byte 2/)
})

test('a pipe is read to its end', () => {
  const value = snapshot(Array.from({ length: 50_000 }, (_, i) => event('alloc', BASE + 512 * i, 8)))
  const reader = `
    import { readPipedRecording } from ${JSON.stringify(new URL('../formats/read-recording.js', import.meta.url).href)}
    const { file, events } = readPipedRecording()
    console.log(file, events)`
  for (const bytes of [writePickle(value), gzipSync(writePickle(value))]) {
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', reader], { input: bytes })
    assert.deepEqual([String(stdout), String(stderr)], ['standard input 50000\n', ''])
  }
})
