// The library with one rule broken at a time: the proof must notice each. A failing program is shrunk, and printed
// with the command that replays it.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'
import { runCampaign } from './campaign.js'
import { kindsOf, MUTANTS, RULES } from './mutants.js'
import { replayProgram, runProgram } from './program.js'
import { describeFailure, shrink } from './shrink.js'

const SEED = Number(process.env['PROOF_SEED'] ?? 1)
/** of one program */
const OPERATIONS = 400
/** within which the breaking of any rule is noticed */
const MUTANT_PROGRAMS = 150

describe(`mutants (PROOF_SEED=${SEED}): each is caught within ${MUTANT_PROGRAMS} programs of ${OPERATIONS} operations`, () => {
  for (const rule of RULES) {
    it(`${rule}: ${MUTANTS[rule].broken}`, async t => {
      for (const kind of kindsOf(rule)) {
        const { failing, programs } = await runCampaign(kind, SEED, MUTANT_PROGRAMS, OPERATIONS, rule)
        assert.ok(failing !== null, `${kind}: not noticed in ${programs} programs`)
        t.diagnostic(`${kind}: caught in program ${programs}: ${failing.failure!.message}`)
      }
    })
  }

  it('a rule that was broken is mended again', async () => {
    for (const rule of RULES) await runProgram('one-thread', SEED, 20, rule)
    for (let seed = SEED; seed < SEED + 10; seed++)
      assert.equal((await runProgram('one-thread', seed, OPERATIONS)).failure, null)
  })
})

describe('a failing program', async () => {
  const rule = 'a free is stamped'
  const failing = await runProgram('one-thread', SEED, OPERATIONS, rule)

  it('is shrunk until nothing can be taken out', async () => {
    const { operations, failure } = await shrink(failing, rule)
    assert.equal(failure!.name, 'WrongGrant')
    assert.ok(
      operations.length <= 20 && operations.length < failing.operations.length,
      `${operations.length} operations`,
    )
    for (const index of operations.keys()) {
      assert.notEqual(
        (await replayProgram('one-thread', SEED, operations.toSpliced(index, 1), rule)).failure?.name,
        failure!.name,
      )
    }
    assert.equal((await replayProgram('one-thread', SEED, operations)).failure, null, 'it is a right program')
  })

  it('is printed with the command that replays it', async () => {
    const text = await describeFailure(failing, OPERATIONS, rule)
    const again = /^again: node (\S+) (.*) --rule '(.*)'$/m.exec(text)!
    const { stdout, status } = spawnSync(process.execPath, [again[1], ...again[2].split(' '), '--rule', again[3]], {
      cwd: new URL('../..', import.meta.url),
      encoding: 'utf8',
    })
    assert.equal(status, 0)
    assert.ok(stdout.includes(text), stdout)
  })
})

describe('the command of the proof', () => {
  const run = (...args: string[]) =>
    spawnSync(process.execPath, [new URL('./run.js', import.meta.url).pathname, ...args], { encoding: 'utf8' })

  it('succeeds when no program fails, and fails when a broken rule is not caught', () => {
    const { status, stdout } = run('--kinds', 'one-thread', '--programs', '5', '--operations', '100')
    assert.equal(status, 0)
    assert.match(
      stdout,
      /^one-thread: seeds 1 to 5, .*"operations":500,.*\nrecognised without a driver call: \d+\.\d\d %\n$/,
    )
    assert.equal(run('--programs', '1', '--operations', '1', '--rule', 'transitivity through merges').status, 1)
  })

  it('refuses what it does not understand', () => {
    for (const bad of [
      ['--seed', '0'],
      ['--programs', 'many'],
      ['--rule', 'none'],
      ['--kinds', 'two threads'],
    ]) {
      const { status, stderr } = run(...bad)
      assert.equal(status, 2)
      assert.ok(stderr.startsWith(`${bad[0]} must be`), stderr)
    }
    for (const bad of [['--help'], ['1001'], ['--mutants', '--rule', 'a free is stamped']]) {
      const { status, stderr } = run(...bad)
      assert.equal(status, 2)
      assert.match(stderr, /\nusage: node dist\/proof\/run\.js/)
    }
  })
})
