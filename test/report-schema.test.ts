import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../src/core/base/bytes.js'
import { REPORT_SCHEMA_VERSION, reportJson } from '../src/recordings/report/export/report-json.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { replay } from '../src/recordings/trace/replay.js'
import { replayDevices } from '../src/recordings/trace/replay-devices.js'

const ROOT = new URL('../../', import.meta.url)
const path = (name: string) => fileURLToPath(new URL(name, ROOT))

interface Schema {
  readonly $ref?: string
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly Schema[]
  readonly type?: string | readonly string[]
  readonly required?: readonly string[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly items?: Schema
  readonly $defs?: Readonly<Record<string, Schema>>
}

const SCHEMA = JSON.parse(readFileSync(path('docs/replay-report.schema.json'), 'utf8')) as Schema

function typeOf(value: unknown): string[] {
  if (value === null) return ['null']
  if (Array.isArray(value)) return ['array']
  return Number.isInteger(value) ? ['integer', 'number'] : [typeof value]
}

/** The places of `value` that the part of JSON Schema used here does not allow, and names that it does not describe. */
function violations(value: unknown, schema: Schema, place: string): string[] {
  if (schema.$ref !== undefined) {
    return violations(value, SCHEMA.$defs![schema.$ref.replace('#/$defs/', '')], place)
  }
  if (schema.anyOf !== undefined) {
    const all = schema.anyOf.map(each => violations(value, each, place))
    return all.find(found => found.length === 0) ?? all.flat()
  }
  if ('const' in schema) return value === schema.const ? [] : [`${place} is not ${schema.const}`]
  if (!typeOf(value).some(type => [schema.type].flat().includes(type))) return [`${place} is no ${schema.type}`]
  if (schema.enum !== undefined && !schema.enum.includes(value)) return [`${place} is none of ${schema.enum}`]
  if (Array.isArray(value)) return value.flatMap((item, i) => violations(item, schema.items ?? {}, `${place}[${i}]`))
  if (typeof value !== 'object' || value === null || schema.properties === undefined) return []
  const { properties } = schema
  return [
    ...(schema.required ?? []).filter(name => !(name in value)).map(name => `${place}.${name} is missing`),
    ...Object.entries(value).flatMap(([name, inside]) =>
      name in properties ? violations(inside, properties[name], `${place}.${name}`) : [`${place}.${name} is unknown`],
    ),
  ]
}

test('the JSON of a report follows the schema, with failures, times and several rounds', async () => {
  const trace = readRecording(path('traces/mlp-train-stacks.pickle.gz'))
  for (const capacityBytes of [undefined, 64 * MiB]) {
    const report = await replay(trace, replayDevices(trace, 'simulated', capacityBytes), {
      latency: true,
      verify: true,
      repeat: 2,
      ...(capacityBytes === undefined ? { leastCapacity: true } : { capacityBytes }),
    })
    const json = JSON.parse(reportJson(report))
    assert.deepEqual(violations(json, SCHEMA, 'report'), [])
    assert.equal(json.schemaVersion, REPORT_SCHEMA_VERSION)
    assert.deepEqual(violations({ ...json, lag: {}, more: 1 }, SCHEMA, 'report'), [
      'report.lag is no integer,string,null',
      'report.more is unknown',
    ])
  }
})
