import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { figuresOfText } from '../../trace/messages/read-text.js'
import { PLAIN } from '../table.js'
import { unwrapped } from '../trace-texts.fixture.js'
import { summaryAnswer } from './summary-text.js'
import { toldText } from './told-text.js'

const STYLE = { width: 80, paint: PLAIN }
const figuresOf = (text: string) => figuresOfText(Buffer.from(text), 'summary.txt')
const told = (text: string) => unwrapped(toldText(figuresOf(text)!, STYLE))

type Cells = readonly [current: string, peak: string]

/** A table as PyTorch prints it; `rows` are its first rows of each metric. */
function table(rows: Readonly<Record<string, Cells>>, { ooms = 0, retries = 0, device = 0 } = {}): string {
  const line = '-'.repeat(75)
  const cells = (name: string, [current, peak]: Cells) =>
    `| ${name.padEnd(21)} | ${current.padStart(10)} | ${peak.padStart(10)} |   90000 MB |   80000 MB |`
  const metrics = Object.entries(rows).flatMap(([name, each]) => [
    `|${line}|`,
    cells(name, each),
    cells('      from large pool', ['1 MB', '1 MB']),
    cells('      from small pool', ['1 MB', '1 MB']),
  ])
  return [
    `|${'='.repeat(75)}|`,
    `|                  PyTorch CUDA memory summary, device ID ${device}                 |`,
    `|${line}|`,
    `|            CUDA OOMs: ${ooms}            |        cudaMalloc retries: ${retries}         |`,
    `|${'='.repeat(75)}|`,
    '|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |',
    ...metrics,
    `|${'='.repeat(75)}|`,
  ].join('\n')
}

const WAITING = {
  'Allocated memory': ['2000 MiB', '9000 MiB'],
  'Active memory': ['9168 MiB', '9500 MiB'],
  'Requested memory': ['1980 MiB', '8900 MiB'],
  'GPU reserved memory': ['9500 MiB', '9600 MiB'],
  'Non-releasable memory': ['232 MiB', '500 MiB'],
} as const

test('the differences of a table are those of its rows, not of its pools', () => {
  const [summary] = figuresOf(table(WAITING, { ooms: 1, retries: 5 }))!.summaries
  const { waiting, idle, wholeSegments, rounding } = summaryAnswer(summary)
  assert.deepEqual(
    [waiting, idle, wholeSegments, rounding].map(size => size!.bytes / MiB),
    [7168, 332, 100, 20],
  )
  assert.deepEqual([summary.outOfMemories, summary.retries], [1, 5])
})

test('the text has memory that waits for another stream, which no setting frees', () => {
  const text = told(table(WAITING, { ooms: 1, retries: 5 }))
  assert.match(text, /waiting 7 GiB freed, but in use on another stream/)
  assert.match(
    text,
    /idle 332 MiB reserved, but not in use: 232 MiB kept by blocks in the same segments, 100 MiB in whole/,
  )
  assert.match(text, /retries 5: so often/)
  assert.match(text, /→ Requests failed; 7 GiB are freed, but wait for another stream \(record_stream\): no setting/)
  assert.match(text, /To record a run in PyTorch/)
})

test('memory that is kept by blocks of the same segments may be helped, and full memory is not', () => {
  const kept = {
    ...WAITING,
    'Active memory': ['2000 MB', '9500 MB'],
    'Non-releasable memory': ['7000 MB', '7000 MB'],
  } as const
  assert.match(
    told(table(kept)),
    /No request failed; 6\.84 GiB are idle in segments .*: a setting may help against that/,
  )
  const full = {
    ...WAITING,
    'Non-releasable memory': ['5 MiB', '500 MiB'],
    'Active memory': ['2000 MiB', '9500 MiB'],
    'GPU reserved memory': ['2010 MiB', '9600 MiB'],
  } as const
  assert.match(told(table(full, { retries: 1 })), /Memory ran full; nearly all reserved memory is in use/)
})

test('units are powers of 1024, and a table is cut to whole ones', () => {
  const old = { 'Allocated memory': ['1024 B', '133632 B'], 'GPU reserved memory': ['2048 KB', '2048 KB'] } as const
  const [{ allocated, reserved, active }] = figuresOf(table(old))!.summaries
  assert.deepEqual([allocated!.peak.bytes, reserved!.current.bytes, active], [133632, 2 * MiB, null])
  assert.deepEqual(reserved!.current.most - reserved!.current.least, 1023)
})

test('the last table of each device counts, behind ranks too', () => {
  const tables = [
    table(WAITING, { retries: 1 }),
    table(WAITING, { retries: 2, device: 1 }),
    table(WAITING, { retries: 3 }),
  ]
  const log = tables.join('\n').replace(/^/gm, '[rank0]: ')
  assert.deepEqual(
    figuresOf(log)!.summaries.map(({ device, retries }) => [device, retries]),
    [
      [0, 3],
      [1, 2],
    ],
  )
})

test('a table that is cut off, and one that contradicts itself, say so', () => {
  assert.match(told(table(WAITING).slice(0, 900)), /The summary is cut off: the memory in use or reserved is missing/)
  const { 'Non-releasable memory': _, ...rows } = WAITING
  const text = told(table({ ...rows, 'Active memory': ['2000 MiB', '9500 MiB'] }).replace('malloc', ''))
  assert.match(text, /7\.32 GiB are reserved, but idle\..* The summary is cut off: it lacks non-releasable memory/)
  const wrong = { ...WAITING, 'Allocated memory': ['9900 MiB', '9950 MiB'] } as const
  assert.match(told(table(wrong)), /The figures contradict each other: allocated memory is above active memory/)
  const kept = { ...WAITING, 'Non-releasable memory': ['2000 MiB', '2000 MiB'] } as const
  assert.match(told(table(kept)), /The figures contradict each other: non-releasable memory is above what is idle/)
})

test('a table within JSON is read', () => {
  const log = JSON.stringify({ text: `before\n${table(WAITING, { ooms: 3 })}\nafter` })
  const [summary] = figuresOf(log)!.summaries
  assert.deepEqual([summary.outOfMemories, summary.reserved!.peak.bytes], [3, 9600 * MiB])
})

test('a table without its title is read', () => {
  const [{ device, reserved }] = figuresOf(table(WAITING).replace(/^.*memory summary.*$/m, ''))!.summaries
  assert.deepEqual([device, reserved!.current.bytes], [null, 9500 * MiB])
})

test('memory_stats is read as a dictionary and as an ordered one', () => {
  const stats = {
    'allocated_bytes.all.current': 100,
    'allocated_bytes.all.peak': 200,
    num_alloc_retries: 7,
    num_ooms: 2,
  }
  const rest = {
    'active_bytes.all.current': 150,
    'reserved_bytes.all.current': 400,
    'reserved_bytes.large_pool.current': 9,
  }
  const entries = Object.entries({ ...rest, ...stats })
  const texts = [
    JSON.stringify({ ...rest, ...stats }),
    `{${entries.map(([key, value]) => `'${key}': ${value}`).join(',\n ')}}`,
    `OrderedDict([${entries.map(([key, value]) => `('${key}', ${value})`).join(', ')}])`,
  ]
  for (const text of texts) {
    const [summary] = figuresOf(text)!.summaries
    assert.deepEqual([summary.retries, summary.outOfMemories, summary.allocated!.peak.bytes], [7, 2, 200], text)
    assert.equal(summaryAnswer(summary).waiting!.bytes, 50)
  }
})

/** A message whose device has as much reserved as WAITING. */
const failed = (asked: string, free: string, inUse = '2000.00 MiB', idle = '7500.00 MiB') =>
  `CUDA out of memory. Tried to allocate ${asked}. GPU 0 has a total capacity of 23.65 GiB of which ${free} is free. Of the allocated memory ${inUse} is allocated by PyTorch, and ${idle} is reserved by PyTorch but unallocated.`

test('idle memory that waits by the summary of the same moment serves no request', () => {
  const of = (message: string) => told(`${message}\n${table(WAITING, { ooms: 1 })}`)
  const waiting = of(failed('3.00 GiB', '0.50 GiB'))
  assert.match(waiting, /waiting 7 GiB of that freed, .* together 0\.82 GiB free and idle, without what waits/)
  assert.match(
    waiting,
    /→ Freed, but another stream still uses it: 7\.00 GiB of the idle memory wait .*No setting of the/,
  )
  assert.doesNotMatch(waiting, /A setting may help/)
  assert.match(of(failed('800.00 MiB', '0.50 GiB')), /→ Fragmentation or rounding: 844\.00 MiB were free or idle/)
  assert.match(of(failed('9.00 GiB', '0.50 GiB')), /→ Really too little: 0\.82 GiB were .*: 8\.18 GiB are missing/)
})

test('without a summary of the same moment the idle memory may wait', () => {
  const message = failed('3.00 GiB', '0.50 GiB', '1000.00 MiB')
  const may = /A setting may help\. .* Part of the idle memory may wait for another stream/
  assert.match(told(message), may)
  assert.match(told(`${message}\n${table(WAITING)}`), may)
  assert.doesNotMatch(told(failed('3.00 GiB', '5.00 GiB')), /may wait/)
})

test('sizes that were rounded up much are the verdict, and failures that are not in the text are unknown', () => {
  const rounded = {
    'Allocated memory': ['9000 MiB', '9000 MiB'],
    'Active memory': ['9000 MiB', '9000 MiB'],
    'Requested memory': ['5000 MiB', '5000 MiB'],
    'GPU reserved memory': ['9100 MiB', '9100 MiB'],
    'Non-releasable memory': ['100 MiB', '100 MiB'],
  } as const
  assert.match(told(table(rounded)), /→ No request failed; 3\.91 GiB in use are rounding.*roundup_power2_divisions/)
  assert.match(told(table(rounded).replace(/.*OOMs.*\n/, '')), /→ Whether requests failed is unknown; /)
})

test('of several dictionaries the last one counts, and nested ones are read', () => {
  const stats = (bytes: number) =>
    `{'allocated_bytes.all.current': ${bytes}, 'reserved_bytes.all.current': ${2 * bytes}}\n`
  const [last] = figuresOf(
    `{'active_bytes.all.current': 9, ${stats(8).slice(1)}epoch: 1\n${stats(3)}epoch: 2`,
  )!.summaries
  assert.deepEqual([last.allocated!.current.bytes, last.reserved!.current.bytes, last.active], [3, 6, null])
  const figures = (current: number, peak: number) => ({ all: { current, peak, freed: 1 }, small_pool: { current: 1 } })
  const nested = { allocated_bytes: figures(5, 8), reserved_bytes: figures(9, 11), num_ooms: 1 }
  for (const indent of [0, 2]) {
    const [summary] = figuresOf(JSON.stringify(nested, null, indent))!.summaries
    assert.deepEqual(
      [summary.allocated, summary.reserved].map(figure => [figure!.current.bytes, figure!.peak.bytes]),
      [
        [5, 8],
        [9, 11],
      ],
    )
    assert.equal(summary.outOfMemories, 1)
  }
})

test('devices with failed requests come first', () => {
  const log = [table(WAITING), table(WAITING, { device: 1, ooms: 2 }), table(WAITING, { device: 2 })].join('\n')
  assert.deepEqual(
    figuresOf(log)!.summaries.map(({ device }) => device),
    [1, 0, 2],
  )
})

test('a message and the summary behind it are both told', () => {
  const message =
    'HIP out of memory. Tried to allocate 2.00 GiB. GPU 7 has a total capacity of 287.98 GiB of which 0 bytes is free. Of the allocated memory 68.63 GiB is allocated by PyTorch, and 1.93 GiB is reserved by PyTorch but unallocated.'
  const text = told(`${message}\n\nMemory status:\n${table(WAITING, { device: 7 })}`)
  assert.match(text, /PyTorch's message \(HIP\) of GPU 7:.*70 MiB are missing|71\.68 MiB are missing/)
  assert.match(text, /PyTorch's memory summary of GPU 7/)
})
