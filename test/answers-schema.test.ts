// The JSON of every command follows docs/command-line.schema.json, and the document follows the types.

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { Ajv } from 'ajv'
import { answer } from '../src/cli/answers.js'
import { run } from '../src/cli/command-line.fixture.js'
import { MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import { statsOf } from '../src/live/process-stats.js'
import { PoolList } from '../src/live/watched-pools.js'
import { SUMS } from '../src/recordings/report/why/messages.fixture.js'
import { answersSchema, SCHEMA_PAGE } from './answers-schema.js'

const MLP = 'traces/mlp-train-stacks.pickle.gz'
const OOM = 'traces/oom-retry-2gib.pickle.gz'
const BATCHES = [4, 8].map(batch => `traces/categories/series-gpt-batch${batch}.pickle.gz`)
const LEAK = 'traces/pairs/lstm-seed0-grown-leak.pickle.gz'
const POOLS = 'traces/graphs-serve.pickle.gz'
/** The state of a device at one moment, without events. */
const STATE = {
  segments: [
    { device: 0, address: 4096, total_size: 8192, stream: 0, blocks: [{ size: 8192, state: 'active_allocated' }] },
  ],
  device_traces: [],
}

const SCHEMA = JSON.parse(readFileSync(SCHEMA_PAGE, 'utf8'))
/** Later versions may have new names, so the document allows them; in this version each name is described. */
const STRICT = JSON.parse(JSON.stringify(SCHEMA), (_, value) =>
  value?.type === 'object' && value.properties !== undefined ? { additionalProperties: false, ...value } : value,
)
const follows = new Ajv({ allowUnionTypes: true }).compile(STRICT)
const published = new Ajv({ allowUnionTypes: true }).compile(SCHEMA)

/** The parts of an answer that the document does not describe. */
function violations(json: string): string {
  const kind = JSON.parse(json).kind as string
  const ofKind = new Ajv({ allowUnionTypes: true }).compile({ ...STRICT, oneOf: [{ $ref: `#/definitions/${kind}` }] })
  ofKind(JSON.parse(json))
  return JSON.stringify(ofKind.errors)
}

function assertFollows(json: string, kind: string): void {
  assert.ok(follows(JSON.parse(json)), `${kind}: ${follows.errors && violations(json)}`)
  const { schemaVersion, kind: first } = JSON.parse(json)
  assert.deepEqual([schemaVersion, first], [1, kind])
}

test('the document is made from the types; npm run docs:schema writes it', () => {
  assert.equal(readFileSync(SCHEMA_PAGE, 'utf8'), answersSchema())
})

describe('the JSON follows the schema', () => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-answers-'))
  after(() => rmSync(folder, { recursive: true }))
  const file = (name: string, content: string) => {
    writeFileSync(join(folder, name), content)
    return join(folder, name)
  }
  const page = join(folder, 'page.html')
  const commands: readonly (readonly [kind: string, args: readonly string[]])[] = [
    ['info', ['info']],
    ['why', ['why', MLP]],
    ['why', ['why', OOM, '--device-memory', '140GiB']],
    ['why', ['why', LEAK]],
    ['why', ['why', POOLS]],
    ['whyState', ['why', file('state.json', JSON.stringify(STATE))]],
    ['whyText', ['why', file('log.txt', SUMS[0].text)]],
    ['tune', ['tune', OOM, '--capacity', '2GiB', '--setting', 'max_split_size_mb:128']],
    ['predict', ['predict', ...BATCHES, '--batch', '4,8', '--for', '6', '--capacity', '2GiB']],
    ['diff', ['diff', MLP, OOM]],
    ['check', ['check', MLP, '--against', OOM]],
    ['replay', ['replay', MLP, '--timing', '--verify', '--repeat', '2']],
    [
      'replay',
      ['replay', MLP, '--capacity', '64MiB', '--lag', 'never', '--policy', 'waiting,pytorch:backend:cudaMallocAsync'],
    ],
    ['written', ['report', MLP, '-o', page, '--policy', 'recorded']],
    ['written', ['convert', MLP, '-o', join(folder, 'run.csv')]],
    ['written', ['viewer', '-o', page, '--force']],
  ]
  for (const [kind, args] of commands) {
    test(`of ${args.join(' ').replaceAll(folder, '')}`, () => {
      const { stdout, stderr, status } = run([...args, '--json'])
      assert.deepEqual([stderr, status === 0 || status === 1], ['', true])
      assertFollows(stdout, kind)
    })
  }

  test('of error messages in every wording', () => {
    for (const { text } of SUMS) assertFollows(run(['why', file('log.txt', text), '--json']).stdout, 'whyText')
  })

  test('of served pools, and of a GPU', () => {
    using device = openDevice('simulated')
    using pool = device.createPool({ maxPoolBytes: 64 * MiB })
    pool.allocate(MiB)
    const top: object = JSON.parse(answer('top', statsOf(new PoolList('serve', { train: pool }))))
    assert.ok(published(top), 'each kind of pool has further figures')
    assert.ok(!published({ ...top, pools: [{}] }))
    const gpu = { ordinal: 0, name: device.name, ...device.memoryInfo() }
    assertFollows(answer('gpu', { driver: { origin: 'libcuda.so.1', version: '13.0' }, device: gpu }), 'gpu')
  })

  test('and a name that is missing, or not described, is found', () => {
    const { kind: _, ...info } = JSON.parse(run(['info', '--json']).stdout)
    assert.ok(follows({ ...info, kind: 'info' }) && !follows(info) && !follows({ ...info, kind: 'info', more: 1 }))
  })
})
