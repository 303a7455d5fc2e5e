// Damaged files of each format: the reader refuses them by one FormatError, or reads them. It throws no other
// error, does not hang, and takes little memory.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { FormatError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import { parseRecording } from './read-recording.js'

const ROUNDS = 2000
const SEED = 20
/** Parts that damage the structure of a format more than random bytes do. */
const PARTS = ['"', ',', '\n', '[', '{', '}', ']', '\\', '-', '0x', '9'.repeat(30), 'null', '{"traceEvents":[', '\0']

function fixture(name: string): Buffer {
  return readFileSync(fileURLToPath(new URL(`../../../../src/trace/formats/${name}`, import.meta.url)))
}

/** A copy with one to four changes: bytes replaced, removed, repeated, or parts put in. */
function damaged(bytes: Buffer, random: Random): Buffer {
  let result = Buffer.from(bytes)
  for (let changes = 1 + random.below(4); changes > 0; changes--) {
    const at = random.below(result.length + 1)
    const end = Math.min(result.length, at + random.below(64))
    const kind = random.below(5)
    if (kind === 0) result = Buffer.concat([result.subarray(0, at), result.subarray(end)])
    else if (kind === 1) result = Buffer.concat([result.subarray(0, end), result.subarray(at)])
    else if (kind === 2)
      result = Buffer.concat([
        result.subarray(0, at),
        Buffer.from(PARTS[random.below(PARTS.length)]),
        result.subarray(at),
      ])
    else if (kind === 3) result = result.subarray(0, at)
    else if (at < result.length) result[at] = random.below(256)
  }
  return result
}

for (const name of ['rmm.fixture.csv', 'nsight.fixture.csv', 'profiler.fixture.json']) {
  test(`a damaged ${name} is read, or refused by one FormatError`, () => {
    const random = new Random(SEED)
    const bytes = fixture(name)
    const outcomes = { read: 0, refused: 0 }
    for (let round = 0; round < ROUNDS; round++) {
      const file = damaged(bytes, random)
      try {
        const trace = parseRecording(file, name)
        assert.ok(trace.events <= file.length, `round ${round}`)
        outcomes.read++
      } catch (error) {
        assert.ok(error instanceof FormatError, `round ${round}: ${(error as Error).stack}`)
        assert.match(error.message, /^[^\n]{1,400}$/, `round ${round}`)
        outcomes.refused++
      }
    }
    assert.ok(outcomes.read > 50 && outcomes.refused > 50, JSON.stringify(outcomes))
  })
}

test('files of brackets, quotes or commas only are refused at once', () => {
  for (const part of ['[', '{', '{"traceEvents":[', '"', '\\', ',', '[{"ph":"'])
    for (const start of ['', '{"traceEvents":[', '[{"ph":1,', 'Thread,Time,Action,Pointer,Size,Stream\n'])
      assert.throws(
        () => parseRecording(Buffer.from(start + part.repeat(200_000)), 'bomb'),
        FormatError,
        `${start}${part}…`,
      )
})

// With work that grows by the square of the length, this takes minutes.
test('a long log of one address without frees is read', () => {
  const lines = Array.from({ length: 200_000 }, (_, line) => `1,00:00:01.0,allocate,0x10,${line + 1},0x0\n`)
  const log = `Thread,Time,Action,Pointer,Size,Stream\n${lines.join('')}`
  assert.equal(parseRecording(Buffer.from(log), 'log').allocations, lines.length)
})
