import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../core/base/bytes.js'
import { answerOf } from '../../trace/messages/out-of-memory-message.js'
import { figuresOfText, ofOneDevice } from '../../trace/messages/read-text.js'
import { roundedSize } from '../../trace/messages/rounded-size.js'
import { PLAIN } from '../table.js'
import { unwrapped } from '../trace-texts.fixture.js'
import { MESSAGES, type MessageCase, OTHERS, SUMS } from './messages.fixture.js'
import { otherMessageText } from './other-message-text.js'
import { toldText } from './told-text.js'

const STYLE = { width: 80, paint: PLAIN }
const figuresOf = (text: string) => figuresOfText(Buffer.from(text), 'message.txt')
const told = (text: string, device?: number) => unwrapped(toldText(figuresOf(text)!, STYLE, device))

for (const { wording, text, verdict, says } of [...SUMS, ...MESSAGES]) {
  test(`PyTorch ${wording}: ${says}`, () => {
    const { messages } = figuresOf(text)!
    assert.equal(messages.length, 1)
    assert.deepEqual([answerOf(messages[0]).verdict, told(text).includes(says)], [verdict, true], told(text))
    const recipe = /record a run in PyTorch.* torch\.cuda\.memory\._record_memory_history\(.*_dump_snapshot/
    assert.equal(recipe.test(told(text)), !/^[XN]PU/.test(wording))
  })
}

for (const { wording, text, verdict, says } of OTHERS) {
  test(`${wording}: ${says}`, () => {
    const { other } = figuresOf(text) as ReturnType<typeof figuresOf> & { other: object }
    const line = otherMessageText(other!)
    assert.equal(answerOf(other!.message).verdict, verdict)
    assert.ok(line.startsWith(`is a message of ${wording}: `) && line.includes(says) && !line.includes('\n'), line)
  })
}

test('no setting is called certain, and what is too little is said to be helped by none', () => {
  for (const { text, verdict } of [...SUMS, ...MESSAGES]) {
    assert.equal(
      /No setting (can help|gains)|The size itself/.test(told(text)),
      verdict === 'tooLittle' || verdict === 'ownLimit',
    )
    assert.equal(
      /A setting may help\. (Make a recording|Recordings are read)/.test(told(text)),
      verdict === 'fragmentation',
    )
  }
})

test('a request that throw_on_cudamalloc_oom rejected is above the limit, and leaving the setting out may help', () => {
  const rejected =
    'torch.OutOfMemoryError: CUDA out of memory. Allocation was preemptively rejected because it would exceed ' +
    'per_process_memory_fraction limit. Requested size: 20.00 MiB\n'
  const { messages } = figuresOf(`${rejected}2026-09-01 12:00:00 next line\n${SUMS[0].text}`)!
  assert.deepEqual(
    messages.map(({ asked, isCut, isRejected }) => [asked!.bytes, isCut, isRejected]),
    [
      [20 * MiB, false, true],
      [roundedSize('22.78', 'GiB').bytes, false, false],
    ],
  )
  assert.deepEqual(answerOf(messages[0]).verdict, 'ownLimit')
  const text = told(rejected)
  assert.match(text, /asked 20 MiB → The program's own limit: with the 20\.00 MiB that were asked, PyTorch would have/)
  assert.match(text, /gives no idle memory back .* or leave that setting out\./)
  assert.match(told(rejected.slice(0, -12)), /own limit: with the size that was asked/)
})

/** As JSON: a size that a message printed in GiB. */
const GiBs = (amount: number) => JSON.stringify(roundedSize(String(amount), 'GiB'))
const message = (asked: string, gpu = 0) => SUMS[0].text.replace('22.78', asked).replace('GPU 0', `GPU ${gpu}`)

test('of a log the text has the last message of the device that failed first, and names the others', () => {
  const log = [message('30.00', 1), message('40.00', 0), message('31.00', 1), message('31.00', 1)].join('noise\n')
  assert.match(told(log), /the last of 2 messages of PyTorch of GPU 1: asked 31 GiB/)
  assert.match(told(log), /Messages of other devices: GPU 0 \(1 message\)\. --gpu N chooses\./)
  assert.match(told(log), /Failed before: 30 GiB asked, 22\.08 GiB free and idle: really too little/)
  assert.match(told(log, 0), /PyTorch's message of GPU 0: asked 40 GiB/)
  assert.deepEqual(ofOneDevice(figuresOf(log)!.messages, 7).chosen, [])
})

test('programs beside this one have their numbers, also where its own number is unknown', () => {
  const inContainer = MESSAGES.find(({ wording }) => wording === '2.1') as MessageCase
  assert.match(told(inContainer.text), /23\.59 GiB by process 835399, which may be this one, as in a container/)
  const beside = MESSAGES.find(({ wording }) => wording === '2.2, another program') as MessageCase
  assert.match(
    told(beside.text),
    /process 2\.33 GiB by this one, 697\.04 MiB of it not PyTorch's: of CUDA itself, .* cuBLAS others 76\.96 GiB by process 32777 /,
  )
})

test('a message goes on behind the prefixes of a log, also those that end in a number', () => {
  const lines = [
    'Traceback (most recent call last):',
    'OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a',
    'total capacity of 23.65 GiB of which 1.12 GiB is free. Of the allocated memory',
    '18.00 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but',
    'unallocated.',
    '',
  ]
  const prefixes: readonly ((line: number) => string)[] = [
    line => `2031-01-01 00:00:0${line} `,
    line => `2031-01-01T00:00:0${line}.123456789Z stderr F `,
    line => `INFO 01-01 00:00:0${line} [core.py:${98 + line}] `,
    line => `${String(98 + line).padStart(5)}\t`,
    () => 'host 17 ',
    () => 'worker-1  | ',
    () => '3: ',
    () => 'ERROR - ',
  ]
  for (const prefix of prefixes) {
    const log = lines.map((line, i) => prefix(i) + line).join('\n')
    const [message] = figuresOf(log)!.messages
    assert.deepEqual(
      [message.device, message.inUse, message.idle, message.isCut].map(part => JSON.stringify(part)),
      ['0', GiBs(18), GiBs(1.2), 'false'],
      log,
    )
  }
})

test('the number before a size in the same line is not a part of it', () => {
  const [message] = figuresOf(
    'Tried to allocate 3.00 GiB (GPU 0; 10 1.20 GiB total capacity; - 1.00 GiB free; 4. 512 bytes cached)',
  )!.messages
  assert.deepEqual(
    [message.total, message.free, message.idle].map(size => size!.bytes),
    [Math.round(1.2 * GiB), GiB, 512],
  )
})

test('a message of a web page is read', () => {
  const text = MESSAGES[0].text
  assert.deepEqual(figuresOf(text.replaceAll(' ', '&nbsp;'))!.messages, figuresOf(text)!.messages)
})

const LIMITED =
  'CUDA out of memory. Tried to allocate 644.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 9.00 GiB is free. 11.01 GiB allowed; Of the allocated memory 10.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.'

test('sizes that are compared share a unit, unless they would look alike in it', () => {
  assert.match(told(LIMITED), /asked 0\.63 GiB .* leaves 1\.01 GiB .* left 1\.01 GiB, and 0\.63 GiB were asked\./)
  const near = message('0.00')
    .replace('0.00 GiB', '1020.00 MiB')
    .replace('12.73 GiB', '20.00 MiB')
    .replace('9.35 GiB', '1005.00 MiB')
  assert.match(told(near), /together 1 GiB .* 1025\.00 MiB were free or idle, and 1020\.00 MiB were asked/)
})

test('where no setting can help the recording shows the lines', () => {
  assert.match(told(message('30.00')), /To see which lines hold it, record a run in PyTorch:/)
  assert.match(told(LIMITED), /To record a run in PyTorch, also one that dies:/)
})

test('the memory of the GPU is used where a message or a summary lacks it', () => {
  const withDevice = (text: string) => unwrapped(toldText(figuresOf(text)!, STYLE, undefined, 24 * GiB))
  assert.match(
    withDevice(message('30.00')),
    /--device-memory has no effect: the message has the size of the device, 79/,
  )
  const without = LIMITED.replace(' a total capacity of 23.65 GiB of which', '; 1 of which')
  assert.match(
    withDevice(without),
    /Of 24 GiB, 10 GiB reserved and 9 GiB free at the failed request leave 5 GiB outside/,
  )
  const summary = "{'allocated_bytes.all.current': 1, 'reserved_bytes.all.current': 2147483648}"
  assert.match(withDevice(summary), /Of 24 GiB, 22 GiB are left beside the 2 GiB that PyTorch reserved/)
})

test('of a very long log the end is searched, and that is said', () => {
  const log = `${message('30.00', 1)}${' '.repeat(33 * MiB)}${message('40.00', 0)}`
  assert.match(told(log), /The first 1 MiB of the log were not searched\. Out of memory, by PyTorch's message of GPU 0/)
})

test('a text without a message has no answer, and a long hostile one takes little time', () => {
  assert.equal(figuresOf('Dear diary,\n'), null)
  const start = 'Tried to allocate '
  for (const text of [
    start.repeat(200_000),
    start + '9'.repeat(2e6),
    ' '.repeat(4e6),
    `${start}1.1 GiB (GPU ${'1'.repeat(4e6)}`,
    '|'.repeat(4e6),
    '\u001b['.repeat(2e6),
    `(${'a pid=1 '.repeat(4e5)}`,
    'out of memory '.repeat(3e5),
    '7 out of memory\n'.repeat(3e5),
    `out of memory\n${'7 '.repeat(2e6)}\n`,
    `out of memory${'\n'.repeat(4e6)}`,
    'Allocation was preemptively rejected '.repeat(1e5),
  ]) {
    figuresOf(text)
  }
})

test('what is missing beside idle pieces of unknown size is said', () => {
  const message = told(
    'CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 10.00 GiB of which 60.00 MiB is ' +
      'free. Process 1 has 1.00 GiB memory in use. Including non-PyTorch memory, this process has 8.94 GiB memory in ' +
      'use. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.',
  )
  assert.match(
    message,
    /But 200(\.00)? MiB of it are idle pieces, .*: if none is large enough, 40(\.00)? MiB are missing\./,
  )
})
