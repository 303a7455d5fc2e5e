// `convert` and `--fail-if` of the built program.

import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { pprofProfile } from '../recordings/report/export/pprof.js'
import { readRecording } from '../recordings/trace/formats/read-recording.js'
import { printed, refused, run, runProcess } from './command-line.fixture.js'

const source = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url))
const MLP = source('traces/mlp-train-stacks.pickle.gz')
const RMM = source('src/recordings/trace/formats/rmm.fixture.csv')
const NSIGHT = source('src/recordings/trace/formats/nsight.fixture.csv')
const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-convert-'))
after(() => rmSync(folder, { recursive: true }))
const inFolder = (name: string) => join(folder, name)

const converted = (args: readonly string[]) => printed(['convert', ...args])

describe('convert', () => {
  test('a CSV file has the address of each allocation under each policy', () => {
    const csv = converted([MLP, '-o', '-', '--to', 'csv'])
    const [head, first] = csv.split('\n').map(line => line.split(','))
    const addresses = new Map(head.map((name, column) => [name, first[column]]))
    assert.equal(addresses.get('pytorch_address'), addresses.get('recorded_address'))
    assert.match(addresses.get('cuda-mempool_address')!, /^0x[0-9a-f]+$/)
  })

  test('writes each format by the ending, and names the program that reads it', () => {
    const says: Readonly<Record<string, RegExp>> = {
      'run.pickle': /pytorch\.org\/memory_viz/,
      'run.pftrace': /ui\.perfetto\.dev/,
      'run.pb.gz': /go tool pprof/,
      'run.collapsed': /npx speedscope/,
      'run.folded': /npx speedscope/,
      'my run.collapsed': /npx speedscope '.*my run\.collapsed'\n/,
      'my run.pb.gz': /go tool pprof -http=: '.*my run\.pb\.gz'\n/,
      'run.csv': /run\.csv: /,
      'run.svg': /curves, allocations and address maps/,
      'run.json': /schema/,
    }
    for (const [name, says_] of Object.entries(says)) {
      assert.match(converted([MLP, '-o', inFolder(name)]), says_)
      assert.ok(existsSync(inFolder(name)), name)
    }
    const trace = readRecording(MLP)
    assert.deepEqual(readRecording(inFolder('run.pickle')), { ...trace, file: inFolder('run.pickle') })
    assert.deepEqual(gunzipSync(readFileSync(inFolder('run.pb.gz'))), gunzipSync(pprofProfile(trace)))
    assert.equal(JSON.parse(readFileSync(inFolder('run.json'), 'utf8')).schemaVersion, 1)
    assert.deepEqual(
      readdirSync(folder).filter(name => !(name in says)),
      [],
      'nothing else is left',
    )
  })

  test('makes a recording for PyTorch of the other formats', () => {
    converted([RMM, '-o', inFolder('rmm.pickle')])
    const [from, to] = [readRecording(RMM), readRecording(inFolder('rmm.pickle'))]
    assert.deepEqual(to.action, from.action)
    assert.deepEqual(to.blocks.bytes, from.blocks.bytes)
    assert.equal(to.recorder, 'RMM')
  })

  test('reads standard input and writes standard output', () => {
    const { stdout } = runProcess(['convert', '-', '-o', '-', '--to', 'csv'], {}, readFileSync(RMM))
    assert.match(stdout, /^block,bytes,.*\n0,4096,/)
    assert.match(converted([MLP, '-o', '-', '--to', 'collapsed', '--at', '100']), /^\S.* \d+\n/)
  })

  test('refuses what it cannot do in one line, and writes nothing', () => {
    const empty = inFolder('empty.csv')
    writeFileSync(empty, 'Thread,Time,Action,Pointer,Size,Stream\n')
    const wrong: [RegExp, ...string[]][] = [
      [
        /x\.txt: the ending names no format; write \.pickle, .* or name the format by --to/,
        RMM,
        '-o',
        inFolder('x.txt'),
      ],
      [/-o -: name the format by --to: pickle, json, csv, perfetto, pprof, collapsed/, RMM, '-o', '-'],
      [/--to: there is no 'png'/, RMM, '-o', inFolder('x.csv'), '--to', 'png'],
      [/empty\.csv: holds no events/, empty, '-o', inFolder('x.csv')],
      [/rmm.*: no call stacks were recorded; RMM logs none/, RMM, '-o', inFolder('x.pb.gz')],
      [/has events of GPU 0, 1; choose one by --gpu/, NSIGHT, '-o', inFolder('x.csv')],
      [/holds no events of device 4/, NSIGHT, '-o', inFolder('x.csv'), '--gpu', '4'],
      [/--gpu: 'one' is no whole number/, NSIGHT, '-o', inFolder('x.csv'), '--gpu', 'one'],
      [/--at: .* has events 0 to 793, not 794/, MLP, '-o', inFolder('x.folded'), '--at', '794'],
      [/--at: .* has events 0 to 793, not 1260000$/m, MLP, '-o', inFolder('x.folded'), '--at', '1260000'],
      [/--at: '-1' is no whole number from 0 on$/m, MLP, '-o', inFolder('x.folded'), '--at', '-1'],
      [/--at: a csv file has the whole recording/, MLP, '-o', inFolder('x.csv'), '--at', '1'],
      [/--fail-if: needs a \.json output/, MLP, '-o', inFolder('x.csv'), '--fail-if', 'overhead>1'],
      [
        /convert does not replay waiting; use replay --policy$/m,
        MLP,
        '-o',
        inFolder('x.json'),
        '--fail-if',
        'waiting.failures>0',
      ],
      [/required option '-o, --output <file>' not specified/, MLP],
    ]
    for (const [message, ...args] of wrong) assert.match(refused(['convert', ...args]), message)
    assert.deepEqual(
      readdirSync(folder).filter(name => /^x\.|partial/.test(name)),
      [],
    )
  })
})

describe('--fail-if', () => {
  const replayed = (...args: string[]) => run(['replay', MLP, '--policy', 'cuda-mempool', '--json', ...args])

  test('ends with status 4 and a line if the condition holds, and prints the report all the same', () => {
    const { status, stdout, stderr } = replayed('--fail-if', 'overhead>1.01', '--fail-if', 'trace.allocations >= 261')
    assert.equal(status, 4)
    assert.equal(JSON.parse(stdout).schemaVersion, 1)
    assert.match(stderr, /^cuda-mempool: .*--fail-if 'overhead>1.01' holds, it is 1\.19\d+\n.*'trace\.all.* is 261\n$/)
  })

  test('changes nothing if the condition does not hold', () => {
    const { status, stderr } = replayed('--fail-if', 'cuda-mempool.peakReservedBytes>0.3GiB')
    assert.deepEqual([status, stderr], [0, ''])
  })

  test('takes negative numbers and exponents', () => {
    for (const condition of ['failures>-1', 'trace.allocations >= 2.61e2', 'contiguity<1E+3']) {
      assert.equal(replayed('--fail-if', condition).status, 4, condition)
    }
    assert.equal(replayed('--fail-if', 'peakReservedBytes<1e3').status, 0)
  })

  test('takes policies with settings as --policy has them', () => {
    const settings = [
      'max_split_size_mb:128',
      'garbage_collection_threshold:0.8',
      'roundup_power2_divisions:[512:2,>:4]',
    ]
    const policy = `pytorch:${settings.join(',')}`
    const { status, stderr } = run(['replay', MLP, '--policy', policy, '--fail-if', `${policy}.overhead>=1.01`])
    assert.equal(status, 4)
    assert.match(stderr, /:4\]\.overhead>=1\.01' holds, it is 1\.\d+\n$/)
  })

  test('of convert decides after the file is written', () => {
    const path = inFolder('failing.json')
    const { status } = run(['convert', MLP, '-o', path, '--fail-if', 'pytorch.overhead > 1'])
    assert.equal(status, 4)
    assert.ok(existsSync(path))
  })

  test('is refused if it is wrong', () => {
    const wrong: [string, RegExp][] = [
      ['overhead', /write a figure, a comparison and a number, like overhead>1\.2/],
      ['process.exit()>1', /write a figure/],
      ['overhead>a lot', /'a lot' is no number, and no size like 3\.9GiB/],
      ['speed>1', /there is no figure 'speed'; there are overhead, /],
      ['mine.overhead>1', /there is no 'mine'; there are trace, recorded, /],
      ['pytorch:max_split_size_mb:1.overhead>1', /max_split_size_mb must be a whole number of at least 20/],
      ['pytorch:max_split_size_mb:128.overhead>1', /pytorch:max_split_size_mb:128 is not replayed; add it to --policy/],
      ['pytorch.overhead>1', /pytorch is not replayed; add it to --policy/],
      ['trace.overhead>1', /trace has events, /],
      ['leastCapacityBytes>1', /has no such figure/],
    ]
    for (const [condition, message] of wrong) {
      const capacity = condition.startsWith('least') ? ['--capacity', '1GiB'] : []
      const { stderr, status } = replayed('--fail-if', condition, ...capacity)
      assert.equal(status, 2, condition)
      assert.match(stderr, message)
    }
  })
})
