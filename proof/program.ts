// A program: settings and operations from a seed, and what became of it.

import { Random } from '../src/base/random.js'
import { breakRule, type Rule } from './canaries.js'
import { Generator } from './generator.js'
import type { Operation } from './operation.js'
import { drawSettings } from './settings.js'
import { SimulatedMachine } from './simulated-machine.js'
import { World } from './world.js'

const CHECK_EVERY = 50

export interface Outcome {
  readonly seed: number
  readonly operations: readonly Operation[]
  /** what went wrong, in the last of the operations or at the end */
  readonly failure: Error | null
  readonly grants: number
  readonly takeovers: number
  readonly ready: number
  readonly recognised: number
}

/** Draws the `count` operations of a seed and carries them out; with a rule broken, if one is named. */
export function runProgram(seed: number, count: number, rule?: Rule): Outcome {
  return carryOut(seed, rule, (world, random) => {
    const generator = new Generator(random, world)
    let left = count
    return () => (left-- > 0 ? generator.next() : undefined)
  })
}

/** Carries out given operations with the settings of a seed. */
export function replayProgram(seed: number, operations: readonly Operation[], rule?: Rule): Outcome {
  return carryOut(seed, rule, () => {
    let index = 0
    return () => operations[index++]
  })
}

function carryOut(
  seed: number,
  rule: Rule | undefined,
  source: (world: World<unknown>, random: Random) => () => Operation | undefined,
): Outcome {
  const restore = rule === undefined ? () => {} : breakRule(rule)
  const random = new Random(seed)
  const operations: Operation[] = []
  let failure: Error | null = null
  const settings = drawSettings(random)
  const machine = new SimulatedMachine(settings.progress, seed, settings.peer)
  const world = new World(settings, machine)
  try {
    const next = source(world, random)
    for (let operation = next(); operation !== undefined; operation = next()) {
      operations.push(operation)
      world.run(operation)
      if (operations.length % CHECK_EVERY === 0) world.check()
    }
    world.finish()
  } catch (error) {
    if (!(error instanceof Error)) throw error
    failure = error
  } finally {
    restore()
  }
  const { judge, ready, recognised } = machine
  return { seed, operations, failure, grants: judge.grants, takeovers: judge.takeovers, ready, recognised }
}
