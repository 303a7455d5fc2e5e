import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import { readRecording } from '../../src/entries/trace.js'
import { type Operations, peakLiveBytes, readOperations, segmentsOf, writeOperations } from './operations.js'
import { MIXES, mixOperations, traceOperations } from './workloads.js'

const folder = mkdtempSync(join(tmpdir(), 'operations-test-'))
after(() => rmSync(folder, { recursive: true }))
const file = join(folder, 'operations')
const recording = (name: string) => traceOperations(readRecording(`traces/${name}.pickle.gz`))

/** Allocates two buffers, frees the first, and uses its number again; 4096 and 100 bytes are live at the peak. */
const FEW: Operations = {
  streams: 2,
  buffers: 2,
  partEnds: [3, 4],
  buffer: Int32Array.of(0, 1, 0, 0, 1, 0),
  bytes: Float64Array.of(50, 4096, 0, 100, 0, 0),
  stream: Int32Array.of(0, 1, 0, 0, 1, 0),
}

/** Throws unless each allocation takes a number that is free, and each free names a live one of that stream. */
function checkPass({ buffers, streams, buffer, bytes, stream }: Operations): void {
  const streamOf = new Int32Array(buffers).fill(-1)
  for (let operation = 0; operation < buffer.length; operation++) {
    const number = buffer[operation]
    assert.ok(stream[operation] < streams)
    assert.equal(streamOf[number], bytes[operation] === 0 ? stream[operation] : -1, `operation ${operation}`)
    streamOf[number] = bytes[operation] === 0 ? -1 : stream[operation]
  }
  assert.ok(
    streamOf.every(each => each === -1),
    'nothing is live at the end',
  )
}

describe('files of operations', () => {
  it('read as they were written', () => {
    writeOperations(file, FEW)
    assert.deepEqual(readOperations(file), FEW)
  })

  it('that are cut short, or of another format, are refused with their path', () => {
    writeOperations(file, FEW)
    truncateSync(file, 8 * 20)
    assert.throws(() => readOperations(file), /operations is no file of operations, or it is cut short/)
    assert.throws(() => readOperations('package.json'), /package\.json is no file of operations/)
  })

  it('have parts, and a rest that belongs to no part', () => {
    assert.deepEqual(segmentsOf(FEW), [
      [0, 3],
      [3, 4],
      [4, 6],
    ])
    assert.deepEqual(segmentsOf({ ...FEW, partEnds: [6] }), [[0, 6]])
  })

  it('have the most live bytes of a pass', () => {
    assert.equal(peakLiveBytes(FEW), 4196)
  })
})

describe('mixes', () => {
  for (const mix of MIXES) {
    it(`${mix.name} holds ${mix.live} buffers, in thirds of as many steps, and frees all at the end`, () => {
      const operations = mixOperations(mix, 600)
      checkPass(operations)
      assert.equal(operations.buffer.length, mix.live + 2 * 600 + mix.live)
      assert.deepEqual(operations.partEnds, [mix.live + 400, mix.live + 800, mix.live + 1200])
      const sizes = operations.bytes.filter(bytes => bytes > 0)
      assert.ok(sizes.every(bytes => bytes >= mix.least && bytes <= mix.most))
    })
  }
})

describe('operations of a recording', () => {
  it('free each buffer on the stream of its allocation, and all by the end of a pass', () => {
    for (const name of ['mlp-train-stacks', 'multistream-random', 'oom-retry-2gib']) checkPass(recording(name))
  })

  it('have the recorded streams and peak', () => {
    const trace = readRecording('traces/multistream-random.pickle.gz')
    const operations = traceOperations(trace)
    assert.equal(operations.streams, trace.streams.length)
    assert.equal(new Set(operations.stream).size, operations.streams)
    assert.equal(peakLiveBytes(operations), trace.peakRequestedBytes)
  })
})
