// The command of the scheduler. It runs each small scenario in all interleavings up to a bound, then every scenario
// at random, from a seed on. It can plant a bug, and show one run step by step.

import { parseArgs } from 'node:util'
import { build } from './build.js'
import type { Deviations } from './choices.js'
import { MUTANTS } from './mutants.js'
import { describeFailing, namesOf, type Outcome, Play } from './play.js'

const USAGE =
  'usage: node dist/proof/interleave/explore.js [--scenario <name>] [--arch x64 | arm64] [--seed 1] [--runs 2000] [--bug <name>] [--replay <choices>] [--at-once]'
/** Unusual choices (choices.ts) in a run of a small scenario, where all such runs are tried. */
const BOUND = 2
const MOST_LINES = 200

const values = options()
const [seed, runs] = (['seed', 'runs'] as const).map(name => {
  const value = Number(values[name])
  return Number.isSafeInteger(value) && value > 0
    ? value
    : refuse(`--${name} must be a whole number from 1, not ${values[name]}`)
})
const arches = (['x64', 'arm64'] as const).filter(each => (values.arch ?? each) === each)
if (arches.length === 0) refuse(`--arch must be x64 or arm64, not ${values.arch}`)
const mutant = MUTANTS.find(({ name }) => name === values.bug) ?? null
if (values.bug !== undefined && mutant === null)
  refuse(`--bug must be one of: ${MUTANTS.map(each => each.name).join('; ')}`)
const built = await build()
if (values['at-once']) console.log(built.atomic.join('\n'))
else if (values.replay !== undefined) replay(values.replay)
else explore()

function explore(): void {
  const names = namesOf(built).filter(name => (values.scenario ?? mutant?.scenario ?? name) === name)
  if (names.length === 0) refuse(`--scenario must be one of: ${namesOf(built).join('; ')}`)
  for (const name of names) {
    for (const arch of arches) {
      const play = new Play(built, name, { arch, mutant })
      const isSafe =
        mutant !== null ||
        play.isLarge ||
        report(play, name, `all with ${BOUND} unusual choices`, () => play.every(BOUND))
      if (isSafe) report(play, name, 'at random', () => play.byChance(seed, runs))
    }
  }
}

/** Runs a scenario, and prints how that went; whether nothing failed. */
function report({ setting }: Play, name: string, how: string, run: () => Outcome): boolean {
  const started = performance.now()
  const { runs, steps, failing } = run()
  const seconds = ((performance.now() - started) / 1000).toFixed(1)
  console.log(`${name}, ${setting.arch}, ${how}: ${runs} runs, ${steps} steps, ${seconds} s`)
  if (failing === null) return true
  console.log(describeFailing(name, setting, failing))
  if (setting.mutant === null) process.exitCode = 1
  return false
}

function replay(choices: string): void {
  const name = values.scenario ?? mutant?.scenario ?? refuse('--replay needs --scenario')
  const deviations: Deviations = choices.split(',').map(each => {
    const [at, way] = each.split(':').map(Number)
    return [at, way]
  })
  const { steps, error } = new Play(built, name, { arch: arches[0], mutant }).trace({ seed, deviations })
  console.log([...steps.slice(-MOST_LINES), error?.message ?? 'nothing fails'].join('\n'))
  if (error !== null) process.exitCode = 1
}

function options() {
  try {
    const text = { type: 'string' } as const
    return parseArgs({
      options: {
        scenario: text,
        arch: text,
        bug: text,
        replay: text,
        seed: { type: 'string', default: '1' },
        runs: { type: 'string', default: '2000' },
        'at-once': { type: 'boolean', default: false },
      },
    }).values
  } catch (error) {
    return refuse((error as Error).message)
  }
}

function refuse(message: string): never {
  console.error(`${message}\n${USAGE}`)
  process.exit(2)
}
