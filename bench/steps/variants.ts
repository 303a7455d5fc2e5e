// The changes, one at a time: a step of the slow path is switched off, or a tuned number is halved or doubled.

import { GiB } from '../../src/core/base/bytes.js'
import { CAPTURE_PLAN, type Plan, planFor } from '../../src/core/pool/caching/central/slow-path.js'
import type { StepName } from '../../src/core/pool/caching/central/steps.js'
import { parsePoolOptions } from '../../src/core/pool/caching/options.js'
import { policy } from '../../src/core/pool/policy.js'

/** With neither `step` nor `number`, it is the policy as it is. */
export interface Variant {
  readonly name: string
  /** the step or number on the command line */
  readonly subject: string
  /** returns 0 wherever it is called */
  readonly step?: StepName
  readonly number?: keyof typeof policy
  readonly value?: number
}

const config = parsePoolOptions({}, 80 * GiB)
const OTHER_PLANS = [planFor({ ...config, crossStreamReuse: 'wait-before-grow' }, true), planFor(config, false)]
const MEASURED = namesOf(planFor(config, true))

/** Steps of captures, of segments and of pools that wait before they grow: the measured pool takes none of them. */
export const OTHER_STEPS = [...new Set([...OTHER_PLANS, CAPTURE_PLAN].flatMap(namesOf))].filter(
  name => !MEASURED.includes(name),
)

export const TODAY: Variant = { name: 'today', subject: 'today' }
export const VARIANTS: readonly Variant[] = [
  TODAY,
  ...MEASURED.map(step => ({ name: `${step} off`, subject: step, step })),
  ...(Object.keys(policy) as (keyof typeof policy)[]).flatMap(number => [
    { name: `${number} halved`, subject: number, number, value: half(policy[number]) },
    { name: `${number} doubled`, subject: number, number, value: policy[number] * 2 },
  ]),
]

function namesOf({ beforeGrowth, growth }: Plan): StepName[] {
  return [...beforeGrowth, ...growth]
}

function half(value: number): number {
  return Number.isInteger(value) ? Math.floor(value / 2) : value / 2
}
