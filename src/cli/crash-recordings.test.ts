// The text of `replay` about recordings that end in an out of memory with a known cause.

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { GiB, KiB, MiB } from '../core/base/bytes.js'
import { openDevice } from '../core/device/open.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { recordedOutOfMemories } from '../recordings/trace/failures/out-of-memory.js'
import { pickleSnapshot } from '../recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { replay } from '../recordings/trace/replay.js'
import { run } from './command-line.fixture.js'
import { CrashingProgram, cutRetries, RETRIES_LIMIT_BYTES } from './crash-recordings.fixture.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-crash-'))
after(() => rmSync(folder, { recursive: true }))
const LINE = 'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'
/** Far apart in the address space. */
const [A, B, C] = [2 ** 40, 2 ** 41, 2 ** 42]

function replayed(snapshot: Buffer, ...options: string[]) {
  const file = join(folder, 'run.pickle')
  writeFileSync(file, snapshot)
  const { stdout, ...ended } = run(['replay', file, ...options])
  // Without the line that names the next command: main.test.ts tests it.
  return { ...ended, stdout: stdout.replaceAll(file, 'run.pickle').replace(/\nNext: .*\n$/, '') }
}

/** The printed text about a snapshot, with one space for each line break of a paragraph. */
function printed(snapshot: Buffer, ...options: string[]): { text: string; lines: string[] } {
  const { stdout, stderr, status } = replayed(snapshot, ...options)
  assert.deepEqual([status, stderr], [0, ''])
  const lines = stdout.trimEnd().split('\n')
  for (const line of lines) assert.ok(line.length <= 80, line)
  return { text: stdout.replace(/\n +/g, ' ').replace(/\n(?=\S)/g, ' '), lines }
}

/** Whether a policy would have served the request, by the table. */
function answer(lines: readonly string[], policy: string): string | undefined {
  return lines
    .find(line => line.startsWith(policy))
    ?.slice(policy.length)
    .trim()
    .split(/ +/)[0]
}

/** Ten segments of 100 MiB, each with 60 MiB in use and 40 MiB idle, as PyTorch splits them. */
function holes(program: CrashingProgram): void {
  const bases = Array.from({ length: 10 }, (_, i) => A + 2 ** 32 * i)
  for (const base of bases) program.allocate(program.segment(base, 100), 100)
  for (const base of bases) program.free(base, 100)
  for (const base of bases) program.allocate(base, 60, 0, 88)
  for (const base of bases) program.allocate(base + 60 * MiB, 40, 0, 90)
  for (const base of bases) program.free(base + 60 * MiB, 40)
}

describe('a recording that ends in an out of memory', () => {
  test('fragmentation under a limit of the program: the recorded retries, cut behind the fourth', () => {
    const { text, lines } = printed(pickleSnapshot(cutRetries(4)))
    assert.ok(lines.includes('Out of memory. 4 requests failed, and no allocation follows. The last one:'))
    assert.match(
      text,
      /asked +172\.71 MiB \(event 1,187\) in use +1\.6 GiB idle +313\.13 MiB in 42 pieces, the largest 13/,
    )
    assert.match(text, /reserved +1\.91 GiB, 4\.05 MiB of it by rounding of sizes device +137\.38 GiB free/)
    assert.match(
      text,
      /→ Fragmentation: 1\.77 GiB would have been enough, and PyTorch could have had between 1\.99 GiB and 2/,
    )
    assert.match(
      text,
      /No idle piece was large enough: the largest lacks 40\.46 MiB\. A limit of the program itself .* device, which had 137\.38 GiB/,
    )
    assert.match(text, /event 637 +173\.44 MiB asked, 1\.71 GiB in use, 205\.07 MiB idle: fragmentation/)
    assert.match(text, /No allocator can serve this run and the requests that failed in less than 1\.99 GiB\./)
    assert.equal(answer(lines, 'PyTorch, default'), 'no')
    assert.equal(answer(lines, 'cuda-mempool'), 'yes')
    assert.equal(answer(lines, 'PyTorch, expandable'), 'yes')
    assert.match(text, /PyTorch served the request that failed with expandable segments/)
    assert.match(text, /The replay of PyTorch, default put 435 of 435 allocations on the recorded address/)
  })

  test('fragmentation of a full device, where expandable segments help', () => {
    const program = new CrashingProgram()
    holes(program)
    program.fail(80, 20, 0, 120)
    const { text, lines } = printed(program.file())
    assert.match(text, /Out of memory\. A request failed, and no allocation follows:/)
    assert.match(
      text,
      /asked +80 MiB by run\/train\.py:120 step, in torch\/nn\/modules\/linear\.py:116 forward \(event 80\) in use +600 MiB/,
    )
    assert.match(text, /idle +400 MiB in 10 pieces, the largest 40 MiB reserved +1000 MiB device +20 MiB free/)
    assert.match(
      text,
      /→ Fragmentation: 680 MiB would have been enough, and PyTorch could have had 1020 MiB\. No idle piece/,
    )
    assert.doesNotMatch(text, /limit of the program/)
    assert.match(
      text,
      /Held at that moment, .* 600 MiB +run\/train\.py:88 forward, in torch\/nn.*\.py:116 forward \(10 bl/,
    )
    assert.equal(answer(lines, 'PyTorch, default'), 'no')
    assert.match(text, /The replay of PyTorch, default put 30 of 30 allocations on the recorded address/)
    assert.equal(answer(lines, 'PyTorch, expandable'), 'yes')
    assert.equal(lines.at(-1), LINE)
  })

  test('fragmentation, because the idle memory is of another stream', () => {
    const program = new CrashingProgram()
    program.segment(A, 300, 7)
    program.allocate(A, 50, 7)
    program.segment(B, 100)
    program.allocate(B, 100)
    program.fail(150, 10)
    const { text } = printed(program.file())
    assert.match(text, /→ Fragmentation: 300 MiB would have been enough, and PyTorch could have had 410 MiB\./)
    assert.match(text, /An idle piece of 250 MiB was large enough, but another stream's/)
  })

  test('a device that is really full, of this program alone', () => {
    const program = new CrashingProgram()
    for (let i = 0; i < 20; i++) program.allocate(program.segment(A + 2 ** 32 * i, 100), 100, 0, 80 + i)
    program.fail(200, 48)
    const { text, lines } = printed(program.file())
    assert.match(
      text,
      /→ Really too little: in use and asked are 2\.15 GiB together, and PyTorch could have had 2 GiB,/,
    )
    assert.match(text, /No allocator could serve this: 152 MiB are missing\./)
    assert.match(text, /No allocator can serve this run and the request that failed in less than 2\.15 GiB/)
    assert.match(
      text,
      /100 MiB +run\/train\.py:80 forward.*100 MiB +run\/train\.py:84 forward.* 1\.46 GiB +other places/,
    )
    for (const policy of ['PyTorch, default', 'PyTorch, expandable', 'cuda-mempool', "the driver's pool"]) {
      assert.equal(answer(lines, policy), 'no', policy)
    }
    assert.notEqual(lines.at(-1), LINE)
  })

  test('a device that is really full of other programs', () => {
    const program = new CrashingProgram()
    program.segment(A, 600)
    program.allocate(A, 300)
    program.allocate(A + 350 * MiB, 250)
    program.fail(120, 10)
    const { text, lines } = printed(program.file())
    assert.match(text, /idle +50 MiB in one piece reserved +600 MiB device +10 MiB free/)
    assert.match(
      text,
      /→ Really too little: in use and asked are 670 MiB together, .* could have had 610 MiB.*60 MiB are missing/,
    )
    assert.match(text, /Who held it is not recorded: no call stacks\./)
    assert.notEqual(lines.at(-1), LINE)
  })

  test('a device that is really full of a program with expandable segments', () => {
    const program = new CrashingProgram()
    program.map(A, 400)
    for (let i = 0; i < 4; i++) program.allocate(A + i * 100 * MiB, 100)
    program.fail(64, 40)
    assert.match(printed(program.file()).text, /→ Really too little: in use and asked are 464 MiB .* have had 440 MiB/)
  })

  test("the program's own limit", () => {
    const program = new CrashingProgram()
    program.segment(A, 1000)
    program.allocate(A, 900)
    program.fail(300, 70 * KiB)
    const { text, lines } = printed(program.file())
    assert.match(text, /→ The program's own limit: in use and asked are 1\.17 GiB together, and a limit of the program/)
    assert.match(text, /lies between 1000 MiB and 1\.27 GiB, such as set_per_process_memory_fraction\./)
    assert.match(text, /The device had 70 GiB free\. Raise the limit, or hold less\./)
    assert.equal(answer(lines, 'PyTorch, default'), 'maybe', 'a limit of 1200 MiB would have room')
    assert.match(text, /maybe: that depends on the exact limit\./)
  })

  test('freed memory that another stream still uses', () => {
    const program = new CrashingProgram()
    program.segment(A, 300)
    program.allocate(A, 300)
    program.free(A, 300)
    program.allocate(A, 100)
    program.allocate(A + 100 * MiB, 200)
    program.request(A + 100 * MiB, 200)
    program.fail(150, 10)
    const { text } = printed(program.file())
    assert.match(text, /waiting +200 MiB freed, but in use on another stream/)
    assert.match(text, /→ Freed, but another stream still uses it: 200 MiB wait .* In use and asked are 250 MiB/)
  })

  test('without the free memory of the device, only what idle memory proves is said', () => {
    const enough = new CrashingProgram()
    holes(enough)
    enough.fail(80, null)
    assert.match(printed(enough.file()).text, /→ Fragmentation: 680 MiB .* could have had at least 1000 MiB/)
    const full = new CrashingProgram()
    full.allocate(full.segment(B, 100), 100)
    full.segment(C, 20)
    full.fail(80, null)
    assert.match(
      printed(full.file()).text,
      /→ In use and asked are 180 MiB together\. The recording does not tell what/,
    )
  })

  test('with --capacity the failed request counts, and too small a capacity is one sentence', () => {
    const program = new CrashingProgram()
    holes(program)
    program.fail(500, 20)
    const { stdout, status } = replayed(program.file(), '--capacity', '1050MiB')
    assert.equal(status, 1)
    assert.match(stdout, /\n✗ No allocator can do this in 1\.03 GiB: 1\.07 GiB are needed\.\n$/)
    assert.match(printed(program.file(), '--capacity', '1300MiB').text, /cuda-mempool .*0/)
  })
})

test('of many failures the last is described, and the others are counted by their cause', () => {
  const { text } = printed(pickleSnapshot(cutRetries(17)), '--policy', 'recorded')
  assert.match(text, /Out of memory\. 17 requests failed, and no allocation follows\. The last one:/)
  assert.match(text, /Failed before: 16 by fragmentation\./)
})

test("no third cut of the recorded retries fits PyTorch's default, and most of them fit cuda-mempool", async () => {
  const open = (capacityBytes = 4 * GiB) => openDevice(new SimulatedDriver({ progress: 'eager', capacityBytes }))
  let served = 0
  for (let count = 2; count <= 17; count += 3) {
    const options = { policies: ['pytorch', 'cuda-mempool'], leastCapacity: true } as const
    const { runs } = await replay(cutRetries(count), open, options)
    const [pytorch, ours] = runs.map(run => run.servesAtFailure)
    assert.equal(pytorch, false, `cut ${count}`)
    if (ours === true) served++
  }
  assert.ok(served >= 4, `${served} of 6 cuts fit`)
})

test('no cut of the recorded retries gets a verdict that contradicts its limit', () => {
  for (let count = 1; count <= 17; count++) {
    for (const failed of recordedOutOfMemories(cutRetries(count))) {
      const { capacityBytes, capacityBelowBytes, neededBytes, verdict, deviceHadRoom } = failed
      assert.ok(deviceHadRoom && capacityBytes! <= RETRIES_LIMIT_BYTES && RETRIES_LIMIT_BYTES < capacityBelowBytes!)
      if (verdict === 'fragmentation') assert.ok(neededBytes <= RETRIES_LIMIT_BYTES)
      else assert.ok(verdict === 'ownLimit' && neededBytes > capacityBytes!)
    }
  }
})
