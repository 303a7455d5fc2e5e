import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { contradictionLines } from '../recordings/report/trace-lines.js'
import { pickleSnapshot } from '../recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { Action } from '../recordings/trace/trace.js'
import { TraceBuilder } from '../recordings/trace/trace-builder.js'
import { run } from './command-line.fixture.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-contradictions-'))
after(() => rmSync(folder, { recursive: true }))
const NONE = { overlappingBlocks: 0, blocksOutside: 0, otherSizes: 0, otherSegments: 0, atEnd: 0, wrongSums: 0 }
const SAID = 'The recording contradicts itself, so figures may be wrong: 1 block overlaps another one in use.'

test('each command says once that a recording contradicts itself, and a page does', () => {
  const builder = new TraceBuilder()
  for (const mebibytes of [2, 3]) builder.add(Action.alloc, 2 ** 40 + mebibytes * MiB, 2 * MiB, 0, 0)
  const file = join(folder, 'overlapping.pickle')
  writeFileSync(file, pickleSnapshot(builder.build({ file: 'overlapping' })))
  const page = join(folder, 'page.html')
  for (const words of [
    ['why', file],
    ['tune', file],
    ['replay', file],
    ['replay', file, '--json'],
    ['convert', file, '-o', join(folder, 'own.csv')],
    ['check', file, '--against', file],
  ]) {
    const { status, stdout, stderr } = run(words)
    const said = `${stdout} ${stderr}`.replace(/\s+/g, ' ')
    assert.equal(status, 0, said)
    assert.equal(said.split(SAID).length, 2, `${words.join(' ')}: ${said}`)
  }
  const counts = { ...NONE, overlappingBlocks: 1 }
  for (const [count, ...words] of [
    [1, 'why', file],
    [1, 'tune', file],
    [1, 'replay', file],
    [2, 'check', file, '--against', file],
    [2, 'diff', file, file],
    [3, 'predict', file, file, file, '--batch', '1,2', '--for', '3'],
  ] as const) {
    const { stdout, stderr } = run([...words, '--json'])
    assert.equal(stdout.split(`"contradictions":${JSON.stringify(counts)}`).length, count + 1, `${words}: ${stderr}`)
  }
  const both = run(['diff', file, file, '-o', join(folder, 'diff.html')]).stdout.replace(/\s+/g, ' ')
  assert.equal(both.split(SAID).length, 3, 'of both recordings')
  assert.equal(run(['report', file, '-o', page]).status, 0)
  assert.ok(readFileSync(page, 'utf8').includes(SAID))
})

test('all kinds of contradictions are one sentence', () => {
  const contradictions = {
    overlappingBlocks: 2,
    blocksOutside: 1,
    otherSizes: 3000,
    otherSegments: 1,
    atEnd: 2,
    wrongSums: 0,
  }
  assert.deepEqual(contradictionLines({ contradictions }), [
    'The recording contradicts itself, so figures may be wrong: 2 blocks overlap others in use; 1 block lies outside of ' +
      'the segments; 3,000 frees name other sizes than their allocations; 1 segment is taken or given back twice; ' +
      '2 blocks or segments at its end are not as its events say.',
  ])
})
