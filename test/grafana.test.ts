// The dashboard and the alert rules ask for metrics and labels that pools have, and Prometheus' promtool accepts them.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { parse } from 'yaml'
import { openDevice, tagged } from '../src/index.js'
import { metricsText } from '../src/live/prometheus.js'
import { parseMetrics } from '../src/live/prometheus-parser.fixture.js'
import { PoolList } from '../src/live/watched-pools.js'
import { ROOT, read } from './documents.fixture.js'

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description: string
  readonly datasource: { readonly uid: string }
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly targets: readonly { readonly refId: string; readonly expr: string; readonly legendFormat?: string }[]
}

interface Variable {
  readonly name: string
  readonly query: string | { readonly query: string }
}

interface Rule {
  readonly alert: string
  readonly expr: string
  readonly annotations: { readonly summary: string; readonly description: string }
}

const DASHBOARD = JSON.parse(read('grafana/dashboard.json'))
const PANELS: readonly Panel[] = DASHBOARD.panels
const VARIABLES: readonly Variable[] = DASHBOARD.templating.list
const TARGETS = PANELS.flatMap(({ targets }) => targets)
const RULES: readonly Rule[] = parse(read('grafana/alerts.yml')).groups[0].rules

/** Prometheus adds them to each series that it scrapes. */
const SCRAPED = ['job', 'instance']
/** Not in the dashboard: the allocations less the buffers that are held. */
const LEFT_OUT = ['cuda_mempool_frees_total']

/** The labels of each metric, as a scrape of a process with pools, a shelf and a kept region has them. */
function written(): Map<string, Set<string>> {
  using device = openDevice('simulated')
  const pool = tagged(device.createPool(), { limits: { kv: '4MiB' } })
  using _entry = pool.inScope('kv', () => pool.allocate('1MiB'))
  using shelf = device.createShelf()
  shelf.add('chat', { bytes: '1MiB', load: () => null })
  const model = { name: 'weights', version: 'v1', generation: 1, bytes: 1, state: 'ready', device: 'GPU' } as const
  const regions = [{ ...model, readers: 1, lastUse: 1, here: null }]
  const figures = { ...new PoolList('test', { pool, shelf }).figures(), regions }
  const families = [...parseMetrics(metricsText(figures))]
  return new Map(
    families.map(([name, { samples }]) => [name, new Set([...SCRAPED, ...Object.keys(samples[0].labels)])]),
  )
}

const WRITTEN = written()
const metricsOf = (expr: string) => [...expr.matchAll(/\bcuda_mempool\w*/g)].map(([name]) => name)
const matchersOf = (expr: string) => [...expr.matchAll(/\b(\w+)\{([^}]*)\}/g)]
const labelsIn = (text: string) => [...text.matchAll(/(\w+) *(?:=~|!~|!=|=)/g)].map(([, label]) => label)
const groupsOf = (expr: string) => [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list]) => list.split(/, */))
const legendsOf = (text: string) => [...text.matchAll(/\{\{ *(?:\$labels\.)?(\w+) *\}\}/g)].map(([, label]) => label)

/** Asserts that metrics are written, and have the labels which an expression and the text beside it name. */
function assertWritten(expr: string, text: string): void {
  const metrics = metricsOf(expr)
  assert.ok(metrics.length > 0, expr)
  for (const metric of metrics) {
    assert.ok(WRITTEN.has(metric), `${metric} is written`)
    for (const label of [...groupsOf(expr), ...legendsOf(text)])
      assert.ok(WRITTEN.get(metric)!.has(label), `${metric} has the label ${label}: ${expr}`)
  }
  for (const [, metric, matchers] of matchersOf(expr))
    for (const label of labelsIn(matchers)) assert.ok(WRITTEN.get(metric)?.has(label), `${metric} has ${label}`)
}

const overlap = (a: Panel['gridPos'], b: Panel['gridPos']) =>
  a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h

describe('the dashboard', () => {
  test('asks for metrics and labels that are written', () => {
    for (const { expr, legendFormat = '' } of TARGETS) assertWritten(expr, legendFormat)
    for (const { query } of VARIABLES.slice(1)) {
      const [, metric, label] = /^label_values\((\w+).*, (\w+)\)$/.exec((query as { query: string }).query)!
      assertWritten((query as { query: string }).query, `{{${label}}}`)
      assert.ok(WRITTEN.has(metric))
    }
  })

  test('shows each metric, but the count of frees', () => {
    const shown = new Set(TARGETS.flatMap(({ expr }) => metricsOf(expr)))
    assert.deepEqual(
      [...WRITTEN.keys()].filter(name => !shown.has(name)),
      LEFT_OUT,
    )
  })

  test('chooses by job, instance and pool in each query, and names no data source of its own', () => {
    assert.deepEqual(
      VARIABLES.map(({ name }) => name),
      ['datasource', 'job', 'instance', 'pool'],
    )
    for (const { expr } of TARGETS)
      for (const metric of metricsOf(expr))
        assert.ok(expr.includes(`${metric}{job=~"$job", instance=~"$instance"`), `${metric} in ${expr}`)
    for (const { datasource } of PANELS) assert.equal(datasource.uid, '${' + 'datasource}')
  })

  test('has what Grafana asks of a dashboard, and panels beside each other', () => {
    assert.deepEqual([DASHBOARD.uid, DASHBOARD.title, DASHBOARD.schemaVersion], ['cuda-mempool', 'cuda-mempool', 39])
    assert.equal(DASHBOARD.id, undefined, 'an id is of one Grafana')
    assert.equal(new Set(PANELS.map(({ id }) => id)).size, PANELS.length)
    for (const [index, { type, title, description, targets, gridPos }] of PANELS.entries()) {
      assert.ok(['stat', 'table', 'timeseries'].includes(type) && title !== '' && description !== '', title)
      assert.equal(new Set(targets.map(({ refId }) => refId)).size, targets.length, title)
      assert.ok(gridPos.x + gridPos.w <= 24, title)
      for (const other of PANELS.slice(index + 1))
        assert.ok(!overlap(gridPos, other.gridPos), `${title} and ${other.title}`)
    }
  })
})

describe('the alert rules', () => {
  test('ask for metrics and labels that are written', () => {
    assert.equal(RULES.length, 4)
    for (const { expr, annotations } of RULES) assertWritten(expr, `${annotations.summary} ${annotations.description}`)
  })

  test('have each a series that raises it, and moments without it', () => {
    const tests: readonly { readonly alert_rule_test: readonly { alertname: string; exp_alerts?: unknown }[] }[] =
      parse(read('test/alerts.fixture.yml')).tests
    const tried = tests.flatMap(each => each.alert_rule_test)
    for (const { alert } of RULES) {
      const own = tried.filter(({ alertname }) => alertname === alert)
      assert.ok(own.some(each => each.exp_alerts) && own.some(each => !each.exp_alerts), alert)
    }
  })
})

describe("Prometheus' promtool", { skip: whyNoPromtool() }, () => {
  const promtool = (...words: string[]) => {
    const { status, stdout, stderr } = spawnSync('promtool', words, { encoding: 'utf8' })
    assert.equal(status, 0, `promtool ${words.join(' ')}\n${stdout}${stderr}`)
  }

  test('accepts the rules, and raises the alerts that are expected', () => {
    promtool('check', 'rules', join(ROOT, 'grafana/alerts.yml'))
    promtool('test', 'rules', join(ROOT, 'test/alerts.fixture.yml'))
  })

  test('accepts the queries of the dashboard', () => {
    const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-rules-'))
    try {
      const rules = TARGETS.map(({ expr }, index) => ({ record: `query_${index}`, expr: withValues(expr) }))
      const path = join(folder, 'rules.yml')
      writeFileSync(path, JSON.stringify({ groups: [{ name: 'dashboard', rules }] })) // JSON is YAML, too
      promtool('check', 'rules', path)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})

/** A query with values instead of Grafana's variables. */
function withValues(expr: string): string {
  return expr.replace(/\$__(rate_interval|range)\b/g, '5m').replace(/\$(job|instance|pool)\b/g, '.*')
}

function whyNoPromtool(): string | false {
  const { error } = spawnSync('promtool', ['--version'])
  return error === undefined ? false : 'no promtool, which Debian has in its package prometheus'
}
