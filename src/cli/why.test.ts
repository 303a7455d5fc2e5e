import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import { recorded } from '../recordings/trace/recording/recorder.js'
import { printed, refused, runProcess } from './command-line.fixture.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-why-'))
after(() => rmSync(folder, { recursive: true }))

function file(name: string, contents: string): string {
  const path = join(folder, name)
  writeFileSync(path, contents)
  return path
}

const message = (gpu: number, asked: string) =>
  `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ${asked} GiB. GPU ${gpu} has a total capacity of 79.15 GiB ` +
  'of which 12.73 GiB is free. Of the allocated memory 55.00 GiB is allocated by PyTorch, and 9.35 GiB is reserved by ' +
  'PyTorch but unallocated.\n'
const STATE = JSON.stringify({
  segments: [
    { device: 0, address: 4096, total_size: 8192, stream: 0, blocks: [{ size: 8192, state: 'active_allocated' }] },
  ],
  device_traces: [[]],
})
const LAST_LINE = /\n {6}torch\.cuda\.memory\._dump_snapshot\('run\.pickle'\)\n$/

test('a message is answered from a file and from standard input, and ends with the lines that record', () => {
  const path = file('message.txt', `${message(2, '22.78')}`)
  assert.match(printed(['why', path]), /No setting can help: 0\.70 GiB are[\s\S]*missing/)
  assert.match(printed(['why', path]), LAST_LINE)
  const { status, stdout } = runProcess(['why', '-'], {}, Buffer.from(message(2, '22.78')))
  assert.deepEqual([status, /^standard input\n/.test(stdout)], [0, true])
})

test('the file of a recorder that is always on says why a request failed, and who held the memory', () => {
  const path = join(folder, 'flight.pickle')
  using device = openDevice('simulated')
  using upstream = device.createPool({ maxPoolBytes: 64 * MiB })
  const pool = recorded(upstream, { last: 20, file: path, stacks: true })
  const loadWeights = () => pool.allocate(40 * MiB)
  const fillCache = () => pool.allocate(3 * MiB)
  const [weights, cached] = [loadWeights(), fillCache()]
  for (let request = 0; request < 1000; request++) pool.allocate(1 * MiB).free()
  const later = fillCache()
  assert.throws(() => pool.allocate(24 * MiB), { name: 'OutOfMemoryError' })
  const text = printed(['why', path])
  assert.match(text, /A request failed, and no allocation follows:\n {2}asked +24 MiB by \S*cli\/why\.test\.js/)
  assert.match(text, /in use +46 MiB[\s\S]*The program's own limit: in use and asked are 70 MiB[\s\S]*maxPoolBytes/)
  assert.match(text, /Held at that moment, by call site:\n {2}40 MiB .*loadWeights.*\n {3}6 MiB .*fillCache.*2 blocks/)
  assert.match(text, /43 MiB\) are from before the recording/)
  for (const buffer of [weights, cached, later]) buffer.free()
})

test('--gpu chooses among the messages of a log, and --json has all', () => {
  const path = file('log.txt', message(1, '22.78') + message(0, '2.00'))
  assert.match(printed(['why', path, '--gpu', '0']), /GPU 0:\n {2}asked +2 GiB/)
  assert.match(refused(['why', path, '--gpu', '5']), /--gpu: .* has no message of GPU 5/)
  const { messages } = JSON.parse(printed(['why', path, '--json']))
  assert.deepEqual(
    messages.map(({ device, verdict }: { device: number; verdict: string }) => [device, verdict]),
    [
      [1, 'tooLittle'],
      [0, 'fragmentation'],
    ],
  )
})

test('a snapshot without events is answered by why, and refused in one line by the others', () => {
  const path = file('state.json', STATE)
  assert.match(printed(['why', path]), /in use +8 KiB in 1 block/)
  assert.match(printed(['why', path]), LAST_LINE)
  assert.equal(JSON.parse(printed(['why', path, '--json'])).state.inUseBytes, 8192)
  const commands = [['tune'], ['replay'], ['report'], ['diff', path], ['convert', '-o', join(folder, 'x.csv')]]
  for (const [command, ...rest] of commands) {
    assert.match(
      refused([command, path, ...rest]),
      /holds no events, only the state at its end, which cuda-mempool why/,
    )
  }
})

test('a message of another allocator is one line: an answer where its sum is known, else a refusal', () => {
  const known = file(
    'cupy.txt',
    'Out of memory allocating 200 bytes (allocated so far: 900 bytes, limit set to: 1,000 bytes).',
  )
  assert.match(printed(['why', known]), /^\S+ is a message of CuPy: .*100 B are missing[^\n]*\n$/)
  const unknown = file(
    'ort.txt',
    'BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 2830172160',
  )
  assert.match(
    refused(['why', unknown]),
    /is a message of ONNX Runtime's arena: 2\.64 GiB asked\. It does not say enough/,
  )
})

test('diff compares one device of both files', () => {
  const alloc = (time_us: number) => ({ action: 'alloc', addr: 4096 * time_us, size: 512, stream: 0, time_us })
  const failed = { action: 'oom', size: 512, stream: 0, time_us: 9, device_free: 0 }
  const before = file('before.json', JSON.stringify({ device_traces: [[failed], [alloc(1), alloc(2)]] }))
  const after = file('after.json', JSON.stringify({ device_traces: [[alloc(1)], [alloc(1), alloc(2)]] }))
  const { before: first, after: second } = JSON.parse(printed(['diff', before, after, '--json']))
  assert.deepEqual([first.device, second.device], [0, 0])
  assert.deepEqual(JSON.parse(printed(['diff', after, before, '--json'])).before.device, 1)
})

test('replay, tune and report begin with the device that ran out of memory', () => {
  const alloc = (time_us: number) => ({ action: 'alloc', addr: 4096 * time_us, size: 512, stream: 0, time_us })
  const failed = { action: 'oom', size: 512, stream: 0, time_us: 9, device_free: 0 }
  const path = file(
    'devices.json',
    JSON.stringify({
      device_traces: [
        [alloc(1), alloc(2), alloc(3)],
        [alloc(1), failed],
      ],
    }),
  )
  assert.equal(JSON.parse(printed(['replay', path, '--json', '--policy', 'pytorch'])).trace.device, 1)
  assert.equal(JSON.parse(printed(['tune', path, '--json'])).recordings[0].device, 1)
  assert.match(printed(['why', path]), /events of GPU 1, which ran out of memory; GPU 0 has 3\./)
  assert.match(printed(['why', path, '--gpu', '0']), /events of GPU 0; GPU 1 has 2 and ran out of\s+memory\./)
  assert.match(printed(['report', path, '-o', join(folder, 'x.html')]), /^device 1: [\s\S]*^device 0: /m)
})

test('several files are refused with the commands that take them', () => {
  const path = file('a.txt', message(0, '1.00'))
  assert.match(
    refused(['why', path, path, path]),
    /why: takes one file, not 3; tune finds the worst of several, and report shows them/,
  )
})
