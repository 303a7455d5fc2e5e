// Random recordings of each format, with odd values and with damaged bytes: a reader reads them, or refuses them by one
// FormatError of one line. A recording is no larger than its file allows. A sample goes through all commands.
//
// READERS_SEED and READERS_INPUTS replay and lengthen the test; its names say the seed. In the long form a thread ends
// the process if one input takes a minute.

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { FormatError } from '../src/core/base/errors.js'
import { Random } from '../src/core/base/random.js'
import { diffText } from '../src/recordings/report/diff-text.js'
import { collapsedStacks } from '../src/recordings/report/export/collapsed.js'
import { allocationRows } from '../src/recordings/report/export/csv.js'
import { perfettoTrace } from '../src/recordings/report/export/perfetto.js'
import { replayedMemory } from '../src/recordings/report/export/policy-memory.js'
import { pprofProfile } from '../src/recordings/report/export/pprof.js'
import { reportJson } from '../src/recordings/report/export/report-json.js'
import { pictureSvg } from '../src/recordings/report/export/svg.js'
import { pageOf } from '../src/recordings/report/page/page.js'
import { pageDifference } from '../src/recordings/report/page/page-difference.js'
import { replayText } from '../src/recordings/report/replay-text.js'
import { whyText } from '../src/recordings/report/why/why-text.js'
import { excerptOf } from '../src/recordings/trace/columns/excerpt.js'
import { readRecording, readRecordings } from '../src/recordings/trace/formats/read-recording.js'
import { pickleSnapshot } from '../src/recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { replay } from '../src/recordings/trace/replay.js'
import { replayDevices } from '../src/recordings/trace/replay-devices.js'
import type { Trace } from '../src/recordings/trace/trace.js'
import { tune } from '../src/recordings/trace/tune/tune.js'
import { damaged, fieldText, MAKERS, NSIGHT_COLUMNS, nsightRows } from './recordings.fixture.js'

const SEED = Number(process.env['READERS_SEED'] ?? 1)
const USUAL_INPUTS = 250
const INPUTS = Number(process.env['READERS_INPUTS'] ?? USUAL_INPUTS)
/** So many of the recordings that were read go through all commands. */
const COMMANDED = Math.max(4, INPUTS / 500)
const CHANCES = [0, 0.003, 0.02, 0.1]
const STUCK_MS = 60_000
const NAME = `READERS_SEED=${SEED} READERS_INPUTS=${INPUTS}`

/** Each input counts it up. */
const beats = new Int32Array(new SharedArrayBuffer(4))

if (INPUTS > USUAL_INPUTS) {
  const program = `
    const { workerData: beats } = require('node:worker_threads')
    let last = -1
    setInterval(() => {
      if (beats[0] === last) {
        console.error('input ' + last + ' takes longer than a minute (${NAME})')
        process.kill(process.pid)
      }
      last = beats[0]
    }, ${STUCK_MS})`
  const watch = new Worker(program, { eval: true, workerData: beats })
  watch.unref()
  after(() => watch.terminate())
}

type Read = (input: Buffer) => Trace[]

/** Reads inputs, and checks each outcome. */
async function readAll(name: string, inputs: (random: Random) => Buffer, read: Read, tell: (line: string) => void) {
  const random = new Random(SEED)
  const outcomes = { read: 0, refused: 0, commanded: 0 }
  let slowestMs = 0
  for (let number = 0; number < INPUTS; number++) {
    const input = inputs(random)
    beats[0]++
    const start = performance.now()
    const traces = readOrRefuse(input, read, `${name}, input ${number} (${NAME})`)
    slowestMs = Math.max(slowestMs, performance.now() - start)
    if (traces === null) outcomes.refused++
    else {
      outcomes.read++
      if (outcomes.commanded * INPUTS > number * COMMANDED) continue
      outcomes.commanded++
      await throughCommands(traces[0], traces.at(-1)!).catch((error: unknown) => {
        throw new Error(`${name}, input ${number} (${NAME}): ${(error as Error).stack}`)
      })
    }
  }
  const rss = Math.round(process.resourceUsage().maxRSS / 1024)
  tell(`${name}: ${JSON.stringify(outcomes)}, slowest ${slowestMs.toFixed(0)} ms, peak of the process ${rss} MiB`)
  assert.ok(outcomes.read > INPUTS / 50 && outcomes.refused > INPUTS / 50, JSON.stringify(outcomes))
}

/** The traces, or null if the input was refused as it should be. */
function readOrRefuse(input: Buffer, read: Read, place: string): Trace[] | null {
  try {
    const traces = read(input)
    const entries = traces.reduce((sum, { events, blocks, stacks }) => sum + events + blocks.count + stacks.count, 0)
    assert.ok(entries <= 3 * input.length + 16, `${place}: ${entries} entries of ${input.length} bytes`)
    return traces
  } catch (error) {
    assert.ok(error instanceof FormatError, `${place}: ${(error as Error).stack}`)
    assert.match(error.message, /^[^\n\r]{1,700}$/, place)
    return null
  }
}

async function throughCommands(trace: Trace, other: Trace): Promise<void> {
  const open = replayDevices(trace, 'simulated')
  const style = { paint: new Proxy({}, { get: () => (text: string) => text }), width: 80 } as never
  const report = await replay(trace, open, { placements: true, leastCapacity: true, verify: true })
  const tuned = trace.recorder === 'PyTorch' ? await tune([trace], { capacityBytes: 2 ** 32, seconds: 0.01 }) : null
  for (const text of [replayText(report, style), whyText(trace, style, { tuned }), diffText(trace, other, style)]) {
    assert.ok(text.length > 0)
  }
  JSON.parse(reportJson(report))
  pictureSvg(trace, report)
  const page = { trace, replay: report, tuned, tab: 'one' }
  pageOf([page], pageDifference(trace, other, ['one', 'other']))
  const memory = replayedMemory(report)
  for (const _ of allocationRows(trace, memory));
  for (const _ of perfettoTrace(trace, memory));
  for (const write of [pprofProfile, collapsedStacks]) {
    try {
      write(trace)
    } catch (error) {
      assert.match((error as Error).message, /call stack/)
      assert.ok(error instanceof FormatError)
    }
  }
  const again = readRecording(pickleSnapshot(trace), { name: trace.file, device: trace.device })
  assert.deepEqual([again.events, again.peakRequestedBytes], [trace.events, trace.peakRequestedBytes])
  if (trace.events > 1) pickleSnapshot(excerptOf(trace, trace.events >> 1, trace.events))
}

for (const [name, make] of Object.entries(MAKERS)) {
  test(`a ${name} with odd values or damaged bytes is read or refused (${NAME})`, async t => {
    const inputs = (random: Random) => {
      const whole = make(random, CHANCES[random.below(CHANCES.length)])
      return random.below(2) === 0 ? whole : damaged(whole, make(random, 0), random)
    }
    await readAll(
      name,
      inputs,
      input => readRecordings(input, { name }),
      line => t.diagnostic(line),
    )
  })
}

const sqlite = process.getBuiltinModule?.('node:sqlite' as 'node:fs') as unknown as Sqlite | undefined

/** The part of `node:sqlite` that makes a database, which Node has from version 22.5 on. */
interface Sqlite {
  readonly DatabaseSync: new (path: string) => { exec(sql: string): void; close(): void }
}

test(`a Nsight database with odd values or damaged bytes is read or refused (${NAME})`, {
  skip: sqlite === undefined && 'this Node has no node:sqlite',
}, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'readers-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'run.sqlite')
  const made = (random: Random): Buffer => {
    rmSync(path, { force: true })
    const database = new sqlite!.DatabaseSync(path)
    const literal = (value: unknown) =>
      typeof value === 'number' ? value : `'${fieldText(value).replaceAll(/['\0]/g, '')}'`
    const rows = nsightRows(random, CHANCES[random.below(CHANCES.length)]).map(row => `(${row.map(literal)})`)
    database.exec(`CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (${NSIGHT_COLUMNS})`)
    if (rows.length > 0) database.exec(`INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES ${rows}`)
    database.close()
    return readFileSync(path)
  }
  let [whole, other]: Buffer[] = [Buffer.alloc(0), Buffer.alloc(0)]
  const inputs = (random: Random) => {
    if (whole.length === 0 || random.below(10) === 0) [other, whole] = [whole, made(random)]
    return random.below(10) === 0 ? whole : damaged(whole, other, random)
  }
  const read = (input: Buffer) => {
    writeFileSync(path, input)
    return readRecordings(path)
  }
  await readAll('Nsight database', inputs, read, line => t.diagnostic(line))
})

test('files of brackets, quotes or commas only are refused at once', () => {
  for (const part of ['[', '{', '{"traceEvents":[', '"', '\\', ',', '[{"ph":"'])
    for (const start of ['', '{"traceEvents":[', '[{"ph":1,', 'Thread,Time,Action,Pointer,Size,Stream\n'])
      assert.throws(
        () => readRecordings(Buffer.from(start + part.repeat(200_000)), { name: 'bomb' }),
        FormatError,
        `${start}${part}…`,
      )
})

// With work that grows by the square of the length, this takes minutes.
test('a long log of one address without frees is read', () => {
  const lines = Array.from({ length: 200_000 }, (_, line) => `1,00:00:01.0,allocate,0x10,${line + 1},0x0\n`)
  const log = `Thread,Time,Action,Pointer,Size,Stream\n${lines.join('')}`
  assert.equal(readRecordings(Buffer.from(log), { name: 'log' })[0].allocations, lines.length)
})
