// The proof as it runs each time: programs on the library as it is, of which none may fail, and on the library with one
// rule broken, which must be noticed. PROOF_SEED and PROOF_PROGRAMS move and lengthen it; `node dist/proof/run.js` goes on
// for as long as one likes.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { runCampaign } from './campaign.js'
import { kindOf, MUTANTS, RULES } from './mutants.js'
import { replayProgram, runProgram } from './program.js'
import { SHARED_KINDS } from './shared-pools.js'
import { describeFailure, shrink } from './shrink.js'

const SEED = Number(process.env['PROOF_SEED'] ?? 1)
const PROGRAMS = Number(process.env['PROOF_PROGRAMS'] ?? 200)
/** of one program */
const OPERATIONS = 400
/** on pools that threads share, of each kind */
const SHARED_PROGRAMS = 15
/** within which the breaking of any rule is noticed */
const MUTANT_PROGRAMS = 100

describe(`random programs checked against the exact order (PROOF_SEED=${SEED} PROOF_PROGRAMS=${PROGRAMS})`, () => {
  it(`${PROGRAMS * OPERATIONS} operations without a wrong grant, and hardly a safe block is missed`, t => {
    const { failing, ...sums } = runCampaign('one-thread', SEED, PROGRAMS, OPERATIONS)
    assert.equal(failing, null, failing === null ? '' : describeFailure(failing, OPERATIONS))
    const { operations, takeovers, ready, recognised } = sums
    t.diagnostic(
      `${JSON.stringify(sums)}: ${((100 * recognised) / ready).toFixed(2)} % recognised without a driver call`,
    )
    assert.equal(operations, PROGRAMS * OPERATIONS)
    assert.ok(takeovers > operations / 50, 'streams got memory of other ones')
    // Most of the rest wait for a stamp that was given when neighbours merged or uses were settled, later than the oracle's points.
    assert.ok(ready > operations / 50 && recognised >= 0.99 * ready, `${recognised} of ${ready} recognised`)
  })

  it('nor in a program that had one: a buffer of a closed stream, used where only the next stream in its slot had waited', () => {
    assert.equal(runCampaign('one-thread', 911_442, 1, OPERATIONS).failing, null)
  })

  it('the programs do everything there is to do, over more than 64 streams', () => {
    const verbs = new Set<string>()
    let mostStreams = 0
    for (let seed = SEED; seed < SEED + 50; seed++) {
      const { operations } = runProgram('one-thread', seed, OPERATIONS)
      for (const operation of operations) verbs.add(operation.do)
      mostStreams = Math.max(mostStreams, operations.filter(operation => operation.do === 'open').length)
    }
    assert.equal(verbs.size, 24)
    assert.ok(mostStreams > 64, `${mostStreams} streams`)
  })

  it('the same seed is the same program, and comes to the same end', () => {
    for (const seed of [SEED, SEED + 1, SEED + 2]) {
      const first = runProgram('one-thread', seed, OPERATIONS)
      assert.deepEqual(runProgram('one-thread', seed, OPERATIONS), first)
      assert.deepEqual(replayProgram('one-thread', seed, first.operations), first)
    }
  })
})

describe(`random programs on pools that threads share (PROOF_SEED=${SEED})`, () => {
  for (const kind of SHARED_KINDS) {
    it(`${kind}: ${SHARED_PROGRAMS * OPERATIONS} operations without a wrong grant, and nothing is left at the end`, t => {
      const { failing, operations, takeovers } = runCampaign(kind, SEED, SHARED_PROGRAMS, OPERATIONS)
      assert.equal(failing, null, failing === null ? '' : describeFailure(failing, OPERATIONS))
      t.diagnostic(`${takeovers} grants of memory that another stream used last`)
      assert.ok(takeovers > operations / 100, 'streams got memory of other ones')
    })
  }
})

describe(`mutants: each is caught within ${MUTANT_PROGRAMS} programs of ${OPERATIONS} operations`, () => {
  const table = readFileSync(new URL('../../docs/stream-order.md', import.meta.url), 'utf8')
  for (const rule of RULES) {
    it(`${rule}: ${MUTANTS[rule].broken}`, t => {
      const { failing, programs } = runCampaign(kindOf(rule), SEED, MUTANT_PROGRAMS, OPERATIONS, rule)
      assert.ok(failing !== null, `not noticed in ${programs} programs`)
      t.diagnostic(`caught in program ${programs}: ${failing.failure!.message}`)
      assert.ok(table.includes(`| ${rule} | ${MUTANTS[rule].broken} |`), 'docs/stream-order.md lists it')
    })
  }

  it('a rule that was broken is mended again', () => {
    for (const rule of RULES) runProgram('one-thread', SEED, 20, rule)
    for (let seed = SEED; seed < SEED + 10; seed++)
      assert.equal(runProgram('one-thread', seed, OPERATIONS).failure, null)
  })
})

describe('a failing program', () => {
  const rule = 'a free is stamped'
  const failing = runProgram('one-thread', SEED, OPERATIONS, rule)

  it('is shrunk until nothing can be taken out', () => {
    const { operations, failure } = shrink(failing, rule)
    assert.equal(failure!.name, 'WrongGrant')
    assert.ok(
      operations.length <= 20 && operations.length < failing.operations.length,
      `${operations.length} operations`,
    )
    for (const index of operations.keys()) {
      assert.notEqual(
        replayProgram('one-thread', SEED, operations.toSpliced(index, 1), rule).failure?.name,
        failure!.name,
      )
    }
    assert.equal(replayProgram('one-thread', SEED, operations).failure, null, 'it is a right program')
  })

  it('is printed with the command that replays it', () => {
    const text = describeFailure(failing, OPERATIONS, rule)
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
