import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { FormatError } from '../../../core/base/errors.js'
import { readRecording, readRecordingOrText } from './read-recording.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-foreign-'))
after(() => rmSync(folder, { recursive: true }))

const MESSAGE = 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity'
const SMI = 'NVIDIA-SMI 550.54 Driver Version: 550.54\n| 30%   40C  P2  90W / 450W |  23011MiB / 24564MiB |  0% |\n'

function refusal(name: string, contents: string | Buffer, read: (path: string) => unknown): string {
  const path = join(folder, name)
  writeFileSync(path, contents)
  try {
    read(path)
  } catch (error) {
    assert.ok(error instanceof FormatError && error.message.startsWith(`${path}: `), String(error))
    assert.ok(!error.message.includes('\n'))
    return error.message.slice(path.length + 2)
  }
  assert.fail(`${name} was accepted`)
}

const EACH: readonly [name: string, contents: string | Buffer, message: RegExp][] = [
  [
    'a.pickle',
    'version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 7\n',
    /^is a Git LFS pointer.*git lfs pull$/,
  ],
  [
    'run.nsys-rep',
    Buffer.from([1, 2, 0, 3]),
    /^is a report of Nsight Systems.*nsys export --type sqlite .*run\.nsys-rep$/,
  ],
  [
    't.raw.json.gz',
    gzipSync('[[1699000000, 0, 512, 1], [1699000001, 1, 512, 1]]'),
    /^is a memory timeline of torch\.profiler/,
  ],
  ['t.json', '[[1, 2, 3], [[0, 0], [5, 7], [1, 2]]]', /^is a memory timeline/],
  [
    't.html',
    '<html>\n<head><meta charset="utf-8" /><title>GPU Memory Timeline HTML</title></head>',
    /^is a memory timeline/,
  ],
  [
    'page.html',
    `<!doctype html><meta content="default-src 'none'; script-src 'sha256-0='">`,
    /^is a page; the recording/,
  ],
  ['sign-in.pickle', '<!DOCTYPE html><html><title>Sign in</title>', /^is a web page.*: download the file itself$/],
  ['b.pickle', '/annex/objects/MD5E-s7--1.pickle\n', /^is a git-annex pointer.*git annex get$/],
  ['c.pickle', '../.git/annex/objects/x/MD5E-s7--1.pickle', /^is a git-annex pointer/],
  ['weights.pt', 'PK\u0003\u0004', /^is a ZIP archive/],
  [
    'notes.txt',
    'Dear diary,\n',
    /^is no recording: .*error messages? (and|or) memory_summary\(\); to record a run: torch\.cuda\.memory\._record/,
  ],
  ['random.bin', Buffer.from([7, 0, 9]), /^is no recording: /],
  ['empty', '', /^the file is empty$/],
]

test('all readers refuse a foreign file by one line, which names its kind and the remedy', () => {
  for (const [name, contents, message] of EACH) {
    for (const read of [readRecording, readRecordingOrText]) assert.match(refusal(name, contents, read), message, name)
  }
})

test('a message is refused by readers of recordings, which name why, also one in brackets', () => {
  for (const text of [
    MESSAGE,
    `[rank0]: ${MESSAGE}`,
    `Traceback\n${MESSAGE}`,
    '|  PyTorch CUDA memory summary, device ID 0  |',
  ]) {
    assert.match(
      refusal('log', text, readRecording),
      /^is an out-of-memory message or summary, which cuda-mempool why reads$/,
    )
  }
  const found = readRecordingOrText(join(folder, 'log'))
  assert.ok('messages' in found)
})

test('a message in UTF-16, as PowerShell writes it, is read', () => {
  const path = join(folder, 'utf-16.txt')
  const marked = Buffer.from(`\ufeff${MESSAGE} of 24.00 GiB of which 1.00 GiB is free.`, 'utf16le')
  for (const bytes of [marked, Buffer.from(marked).swap16()]) {
    writeFileSync(path, bytes)
    const found = readRecordingOrText(path)
    assert.ok('messages' in found && found.messages[0].free?.bytes === 2 ** 30)
  }
  assert.match(refusal('utf-16.csv', Buffer.from('\ufeffa,b', 'utf16le'), readRecordingOrText), /UTF-16/)
})

test('a table of nvidia-smi is named, with what it says', () => {
  assert.match(
    refusal('smi', SMI, readRecordingOrText),
    /^is a table of a driver's tool, .*: GPU 0 has 22\.47 GiB of 23\.99 GiB in use; what a program holds is in its error message/,
  )
})

test('a recording in JSON that quotes a message stays a recording', () => {
  const path = join(folder, 'quoting.json')
  writeFileSync(
    path,
    JSON.stringify({
      note: MESSAGE,
      segments: [],
      device_traces: [[{ action: 'snapshot', addr: 0, size: 0, stream: 0 }]],
    }),
  )
  assert.equal(readRecording(path).events, 1)
  assert.ok('events' in readRecordingOrText(path))
})

test('JSON without the keys of a recording is refused as before, and a message in it is read', () => {
  assert.match(refusal('x.json', '{"a": 1}', readRecordingOrText), /is no memory snapshot of PyTorch/)
  assert.match(refusal('x.json', '{"a": ', readRecordingOrText), /is not valid JSON/)
  const path = join(folder, 'log.json')
  writeFileSync(path, JSON.stringify({ level: 'ERROR', text: MESSAGE }))
  assert.ok('messages' in readRecordingOrText(path))
})
