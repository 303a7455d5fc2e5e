import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import { policy } from '../../src/core/pool/policy.js'
import type { Figures } from './measure.js'
import { type Row, stepsText } from './table.js'
import { OTHER_STEPS, VARIANTS } from './variants.js'

const folder = mkdtempSync(join(tmpdir(), 'steps-test-'))
after(() => rmSync(folder, { recursive: true }))

const run = (...args: string[]) => spawnSync(process.execPath, ['dist/bench/steps.js', ...args], { encoding: 'utf8' })

describe('the variants', () => {
  it('change each tuned number in both directions', () => {
    const changes = VARIANTS.flatMap(({ number, value }) =>
      number === undefined ? [] : [`${number} ${value! < policy[number] ? 'less' : 'more'}`],
    )
    assert.deepEqual(
      changes,
      Object.keys(policy).flatMap(number => [`${number} less`, `${number} more`]),
    )
  })

  it('switch off the steps of a default pool, and name all others', () => {
    const steps = VARIANTS.flatMap(({ step }) => step ?? [])
    assert.ok(steps.includes('poll') && steps.includes('waitOnHost'))
    assert.deepEqual(
      ['waitOnHostToStitch', 'takeFromOtherHeap', 'independent'].filter(name => !OTHER_STEPS.includes(name as never)),
      [],
    )
    assert.deepEqual(
      OTHER_STEPS.filter(name => steps.includes(name)),
      [],
    )
  })
})

describe('the smoke form', () => {
  it('measures other figures with a step off and with a number halved', () => {
    const { status, stdout, stderr } = run('--smoke', '--save', folder)
    assert.equal(status, 0, stderr)
    const { rows } = JSON.parse(readFileSync(join(folder, 'steps.json'), 'utf8')) as { rows: Row[] }
    const [today, step, number] = rows.map(({ figures }) => figures!)
    assert.deepEqual(
      rows.map(({ name }) => name),
      ['today', 'takeInView off', 'stepBytes halved'],
    )
    assert.ok(today.limitedMs > 0 && today.peaks.every(peak => peak >= 1) && today.least! >= 1)
    assert.ok(today.mixes.every(({ misses, peak, ms }) => misses > 0 && peak >= 1 && ms > 0))
    assert.notEqual(step.limitedMs, today.limitedMs)
    assert.notEqual(number.mixes[0].peak, today.mixes[0].peak)
    assert.match(stdout, /^changes no figure: none$/m)
  })

  it('refuses bad input in one line', () => {
    const file = join(folder, 'file')
    writeFileSync(file, 'text')
    const cases: [args: string[], message: RegExp][] = [
      [['missing.pickle.gz'], /missing\.pickle\.gz: no such file/],
      [[file], /file: /],
      [['--lags', '8,x'], /--lags.*whole number from 1/],
      [['--seeds', '0'], /--seeds.*whole number from 1/],
      [['--only', 'poll,pol'], /'pol' is none of today, reuseOrdered/],
      [['--save', file], /--save: EEXIST/],
      [['--lag', '8'], /unknown option '--lag'/],
    ]
    for (const [args, message] of cases) {
      const { status, stdout, stderr } = run('--smoke', ...args)
      assert.deepEqual([status, stdout], [2, ''], args.join(' '))
      assert.match(stderr, message)
      assert.match(stderr, /^error: [^\n]*\n$/)
    }
  })
})

describe('the table', () => {
  const mixes = [{ name: 'mix', misses: 3, peak: 1.5, ms: 2, failed: 0 }]
  const waits = { streamWaits: 4, hostWaits: 5 }
  const today: Figures = {
    firstMs: 9,
    laterMs: 1,
    limitedMs: 2,
    peaks: [1, 2, 3],
    least: 1,
    ...waits,
    failed: [0, 1, 2],
    mixes,
  }
  const row = (name: string, figures: Figures | null) => ({ name, figures, reason: figures === null ? 'why' : null })

  it('names what changes no figure, and why a variant failed', () => {
    const variants = [row('same off', { ...today, firstMs: 9.0001 }), row('other off', { ...today, least: null })]
    const lines = stepsText([row('today', today), ...variants, row('bad off', null)], ['independent'], 500).split('\n')
    assert.deepEqual(
      lines.slice(3, 6).map(line => line.split(/ {2,}/).slice(0, 9)),
      [
        ['today', '9.0', '1.0', '2.0', '1.000', '2.000', '3.000', '1.0000', '4'],
        ['same off', '9.0', '1.0', '2.0', '1.000', '2.000', '3.000', '1.0000', '4'],
        ['other off', '9.0', '1.0', '2.0', '1.000', '2.000', '3.000', '–', '4'],
      ],
    )
    const end = [
      'bad off failed: why',
      'changes no figure: same off',
      'not measured, steps of other plans: independent',
    ]
    assert.deepEqual(lines.slice(-3), end)
  })

  it('compares nothing with a policy that failed', () => {
    const text = stepsText([row('today', null), row('poll off', today), row('drain off', today)], [], 500)
    assert.match(text, /^today failed: why\nchanges no figure: none$/m)
  })
})
