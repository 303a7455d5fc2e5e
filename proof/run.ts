// The command of the proof: random programs of each kind from a seed on; or with --rule, programs on a library in
// which that rule is broken, until one of each kind is caught; or with --mutants, that for every rule. A failing
// program is shrunk and printed.

import { parseArgs } from 'node:util'
import { runCampaign, runMutants } from './campaign.js'
import { KINDS, type Kind } from './kinds.js'
import { kindsOf, MUTANTS, RULES, type Rule } from './mutants.js'
import { describeFailure } from './shrink.js'

const USAGE =
  'usage: node dist/proof/run.js [--kinds one-thread,shared-caching] [--seed 1] [--programs 500] [--operations 400] [--rule <name> | --mutants]'

const values = options()
const [seed, programs, count] = (['seed', 'programs', 'operations'] as const).map(name => {
  const value = Number(values[name])
  if (Number.isSafeInteger(value) && value > 0) return value
  return refuse(`--${name} must be a whole number from 1, not ${values[name]}`)
})
const rule = values.rule as Rule | undefined
if (rule !== undefined && !RULES.includes(rule)) refuse(`--rule must be one of ${RULES.join('; ')}`)
if (rule !== undefined && values.mutants) refuse('--mutants breaks every rule in turn; leave --rule out')

const named = values.kinds?.split(',') as readonly Kind[] | undefined
const kinds = named ?? (rule === undefined ? KINDS : kindsOf(rule))
for (const kind of kinds) if (!KINDS.includes(kind)) refuse(`--kinds must be some of ${KINDS.join(',')}, not ${kind}`)

if (values.mutants) {
  for await (const { rule: name, kind, failing, programs: tried } of runMutants(seed, programs, count)) {
    const verdict = failing === null ? `not caught in ${tried}` : `caught in program ${tried}, ${failing.failure!.name}`
    console.log(`${name}: ${MUTANTS[name].broken}: ${kind}: ${verdict}`)
    if (failing === null) process.exitCode = 1
  }
} else {
  for (const kind of kinds) {
    const started = performance.now()
    const { failing, ...sums } = await runCampaign(kind, seed, programs, count, rule)
    const seconds = (performance.now() - started) / 1000
    console.log(
      `${kind}: seeds ${seed} to ${seed + sums.programs - 1}, ${seconds.toFixed(0)} s: ${JSON.stringify(sums)}`,
    )
    if (sums.ready > 0) {
      console.log(`recognised without a driver call: ${((100 * sums.recognised) / sums.ready).toFixed(2)} %`)
    }
    if (sums.inViews > 0) console.log(`large blocks in views: ${((100 * sums.inViews) / sums.large).toFixed(0)} %`)
    if (failing !== null) console.log(await describeFailure(failing, count, rule))
    if ((failing !== null) !== (rule !== undefined)) process.exitCode = 1
  }
}

function options() {
  try {
    return parseArgs({
      options: {
        kinds: { type: 'string' },
        seed: { type: 'string', default: '1' },
        programs: { type: 'string', default: '500' },
        operations: { type: 'string', default: '400' },
        rule: { type: 'string' },
        mutants: { type: 'boolean', default: false },
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
