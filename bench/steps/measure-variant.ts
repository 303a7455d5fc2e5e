// Measures one variant in a process of its own, and prints its figures as one line of JSON. Modules read tuned numbers
// when they load, so the number changes first: other static imports here are types only.
// Run: node dist/bench/steps/measure-variant.js JSON

import { policy } from '../../src/core/pool/policy.js'
import type { Task } from './measure.js'
import type { Variant } from './variants.js'

const { variant, task } = JSON.parse(process.argv[2]) as { variant: Variant; task: Task }
try {
  if (variant.number !== undefined) policy[variant.number] = variant.value!
  const { Steps } = await import('../../src/core/pool/caching/central/steps.js')
  if (variant.step !== undefined) Object.assign(Steps.prototype, { [variant.step]: () => 0 })
  const { measure } = await import('./measure.js')
  console.log(JSON.stringify(await measure(task)))
} catch (error) {
  console.error(`error: ${(error as Error).message}`)
  process.exitCode = 1
}
