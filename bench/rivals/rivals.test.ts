import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import { figuresOf, medianFigures, type ProgramResult, parseResult } from './figures.js'
import { writeOperations } from './operations.js'
import { type Program, Programs, runProgram } from './programs.js'
import { workloadText } from './table.js'
import { MIXES, mixOperations } from './workloads.js'

const folder = mkdtempSync(join(tmpdir(), 'rivals-test-'))
after(() => rmSync(folder, { recursive: true }))
const file = join(folder, 'operations')
const timings = join(folder, 'timings')
const programs = new Programs(folder, false)
const TIMEOUT_SECONDS = 60

const operations = mixOperations(MIXES[1], 300)
writeOperations(file, operations)
const segment = (ns: number, calls: Record<string, number> | null = null) => ({
  ns,
  peakReservedBytes: calls === null ? null : ns,
  driverCalls: calls,
})

/** Two passes of a mix with and without a clock: the figures of each part, in every program's format. */
function runBoth(program: Program) {
  const timed = parseResult(runProgram(program, [file, '2', 'simulated', timings], TIMEOUT_SECONDS))
  const plain = parseResult(runProgram(program, [file, '2', 'simulated'], TIMEOUT_SECONDS))
  assert.equal(readFileSync(timings).length, 8 * 2 * operations.buffer.length)
  assert.deepEqual(
    [timed, plain].map(({ passes }) => passes.map(({ length }) => length)),
    [
      [4, 4],
      [4, 4],
    ],
  )
  return { timed, plain, figures: figuresOf(operations, timed, plain, timings) }
}

describe('the program of the package', () => {
  it('prints each part of each pass, and writes the duration of each call', () => {
    const { plain, figures } = runBoth(programs.find('ours'))
    assert.equal(figures.parts.length, 6)
    assert.ok(figures.parts.every(({ p50, p99, p999, longest }) => p50 <= p99 && p99 <= p999 && p999 <= longest))
    assert.ok(figures.parts.every(({ p50, ns }) => p50 > 0 && ns > 0))
    assert.ok(figures.driverCalls['cuMemCreate'] > 0)
    assert.ok(figures.parts[0].peakReservedBytes! > 2 ** 30)
    assert.equal(plain.passes[0][0].driverCalls, null)
  })

  it('says in one line what is wrong', () => {
    assert.throws(
      () => runProgram(programs.find('ours'), ['package.json', '1', 'simulated'], TIMEOUT_SECONDS),
      /^Error: error: package\.json is no file of operations[^\n]*$/,
    )
  })

  it('is stopped after its time', () => {
    assert.throws(() => runProgram(programs.find('ours'), [file, '9', 'simulated'], 0.01), /stopped after 0\.01 s/)
  })
})

describe('the loop of the rivals', () => {
  const nothing = programs.find('nothing')
  const skip = nothing.reason ?? false

  it('prints and writes what the program of the package does', { skip }, () => {
    const { figures } = runBoth(nothing)
    assert.equal(figures.parts.length, 6)
    assert.ok(figures.parts.every(({ ns, longest }) => ns > 0 && longest > 0))
  })

  it('refuses a file of another format', { skip }, () => {
    assert.throws(() => runProgram(nothing, ['package.json', '1', '0'], TIMEOUT_SECONDS), /is no file of operations/)
  })
})

describe('figures', () => {
  const three = { ...operations, buffer: new Int32Array(6), partEnds: [4] }
  const timed: ProgramResult = { clockNs: 20, passes: [[segment(110, { cuMemCreate: 2, cuMemMap: 3 }), segment(9)]] }
  const plain: ProgramResult = { clockNs: 30, passes: [[segment(100), segment(8)]] }

  it('are sums without the clock, and percentiles with it, of a part without what comes after it', () => {
    writeFileSync(timings, Float64Array.of(40, 10, 30, 20, 500, 500))
    const figures = figuresOf(three, timed, plain, timings)
    assert.deepEqual(figures, {
      clockNs: 20,
      ns: 108,
      driverCalls: { cuMemCreate: 2, cuMemMap: 3 },
      parts: [{ ns: 100, p50: 20, p99: 40, p999: 40, longest: 40, peakReservedBytes: 110, driverCalls: 5 }],
    })
    const slower = { ...figures, ns: 300 }
    assert.equal(medianFigures([slower, figures, { ...figures, ns: 200 }]).ns, 200)
  })

  it('of a program that prints something else are refused', () => {
    assert.throws(() => parseResult('Segmentation fault'), /it printed no result: Segmentation fault/)
  })
})

describe('the table', () => {
  const part = { ns: 2000, p50: 1, p99: 2, p999: 3, longest: 40, peakReservedBytes: 150, driverCalls: 7 }
  const figures = { clockNs: 20, ns: 2000, parts: [part, part, part], driverCalls: {} }
  const twice = { ...figures, ns: 4000, parts: [part, part, { ...part, ns: 4000 }] }
  const shared = { reason: null, roundsNs: [] }

  it('has nanoseconds of a step, ratios to ours, and why a program failed', () => {
    const text = workloadText(
      {
        name: 'mix',
        steps: 100,
        calls: 620,
        passes: 1,
        peakLiveBytes: 100,
        programs: [
          { name: 'ours', figures, ...shared },
          { name: 'cub', figures: twice, ...shared },
          { name: 'pytorch', figures: null, reason: 'stopped', roundsNs: [] },
        ],
      },
      500,
    )
    const [ours, cub, failed] = text.split('\n').slice(-3)
    const fields = (line: string) => line.split(/ {2,}/)
    const rest = ['40 ns', '1 ns', '2 ns', '3 ns', '40 ns', '1.500', '1.500', '7', '7']
    assert.deepEqual(fields(ours), ['ours', '2.0 µs', '1.00', '20', '1.00', '20', '1.00', '20', '1.00', ...rest])
    assert.deepEqual(fields(cub), ['cub', '4.0 µs', '2.00', '20', '1.00', '20', '1.00', '40', '2.00', ...rest])
    assert.equal(failed, 'pytorch: stopped')
  })
})

describe('the run of all programs', () => {
  const run = (...args: string[]) =>
    spawnSync(process.execPath, ['dist/bench/rivals/run.js', ...args], { encoding: 'utf8' })

  it('shows ours without a GPU, and why a rival cannot run', () => {
    const out = join(folder, 'out.json')
    const args = ['mix-1MiB', 'traces/mlp-train-stacks.pickle.gz', '--programs', 'ours,cub', '--steps', '300']
    const { status, stdout, stderr } = run(...args, '--passes', '2', '--device', 'simulated', '--out', out)
    assert.equal(status, 0, stderr)
    assert.match(stdout, /cub: .*\(there is no GPU\)/)
    const { machine, workloads } = JSON.parse(readFileSync(out, 'utf8'))
    assert.equal(machine.simulated, true)
    const parts = workloads.map((workload: { programs: { name: string; figures: { parts: object[] } }[] }) =>
      workload.programs.map(({ name, figures }) => [name, figures.parts.length]),
    )
    assert.deepEqual(parts, [[['ours', 3]], [['ours', 2]]])
  })

  it('refuses bad input before it runs anything', () => {
    const cases: [args: string[], message: RegExp][] = [
      [['--steps', '100'], /--steps.*multiple of 3/],
      [['--passes', '0'], /--passes.*whole number from 1/],
      [['--programs', 'ours,cupy'], /'cupy' is none of ours, cuda-malloc/],
      [['mix-1MiB', '--steps', '300', '--device', 'simulated', '--out', `${folder}/missing/out.json`], /--out: ENOENT/],
      [['missing.pickle.gz', '--device', 'simulated'], /missing\.pickle\.gz: no such file/],
    ]
    for (const [args, message] of cases) {
      const { status, stderr } = run(...args)
      assert.notEqual(status, 0)
      assert.match(stderr, message)
    }
  })
})
