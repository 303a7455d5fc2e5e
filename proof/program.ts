// A program: settings and operations from a seed, and its outcome.

import { Random } from '../src/base/random.js'
import { MOST_STREAMS } from '../src/order/clocks.js'
import { Generator } from './generator.js'
import type { Kind } from './kinds.js'
import { breakRule, type Rule } from './mutants.js'
import type { Operation } from './operation.js'
import type { Oracle } from './oracle.js'
import { drawSettings, drawViewSettings } from './settings.js'
import { SharedGenerator } from './shared-generator.js'
import type { SharedOperation } from './shared-operation.js'
import { SharedSystem } from './shared-system.js'
import { SimulatedMachine } from './simulated-machine.js'
import { System } from './system.js'

const CHECK_EVERY = 50
/** Every so many seeds, nearly as many streams are open as a device can have. */
const CROWDED = 16

type Step = Operation | SharedOperation

export interface Outcome {
  readonly kind: Kind
  readonly seed: number
  readonly operations: readonly Step[]
  /** the failure, in the last operation or at the end */
  readonly failure: Error | null
  readonly grants: number
  readonly takeovers: number
  readonly ready: number
  readonly recognised: number
  /** mapped blocks of more than 2 MiB, the least piece, and those of them that lay in views */
  readonly large: number
  readonly inViews: number
}

/** The parts that a program of some kind needs to run. */
interface Stage {
  readonly system: { run(operation: Step): void; check(): void; finish(): void }
  readonly oracle: Oracle
  readonly counted: { readonly ready: number; readonly recognised: number }
  draw(): { next(): Step }
}

/** Draws the `count` operations of a seed and carries them out; with a rule broken, if one is named. */
export function runProgram(kind: Kind, seed: number, count: number, rule?: Rule): Outcome {
  return carryOut(kind, seed, rule, stage => {
    const generator = stage.draw()
    let left = count
    return () => (left-- > 0 ? generator.next() : undefined)
  })
}

/** Carries out given operations with the settings of a seed. */
export function replayProgram(kind: Kind, seed: number, operations: readonly Step[], rule?: Rule): Outcome {
  return carryOut(kind, seed, rule, () => {
    let index = 0
    return () => operations[index++]
  })
}

function carryOut(
  kind: Kind,
  seed: number,
  rule: Rule | undefined,
  source: (stage: Stage) => () => Step | undefined,
): Outcome {
  const restore = rule === undefined ? () => {} : breakRule(rule)
  const operations: Step[] = []
  let failure: Error | null = null
  const stage = prepare(kind, seed)
  const { system, oracle, counted } = stage
  try {
    const next = source(stage)
    for (let operation = next(); operation !== undefined; operation = next()) {
      operations.push(operation)
      system.run(operation)
      if (operations.length % CHECK_EVERY === 0) system.check()
    }
    system.finish()
  } catch (error) {
    if (!(error instanceof Error)) throw error
    failure = error
  } finally {
    restore()
  }
  const { ready, recognised } = counted
  const { grants, takeovers, large, inViews } = oracle
  return { kind, seed, operations, failure, grants, takeovers, ready, recognised, large, inViews }
}

function prepare(kind: Kind, seed: number): Stage {
  const random = new Random(seed)
  if (kind !== 'one-thread' && kind !== 'views') {
    const system = new SharedSystem(kind, random, seed)
    const run = (operation: Step) => system.run(operation as SharedOperation)
    return {
      system: { run, check: () => system.check(), finish: () => system.finish() },
      oracle: system.driver.oracle,
      counted: { ready: 0, recognised: 0 },
      draw: () => new SharedGenerator(random, system),
    }
  }
  const drawn = kind === 'views' ? drawViewSettings(random) : drawSettings(random)
  const settings = { ...drawn, bystanders: seed % CROWDED === 0 ? MOST_STREAMS - 30 : 0 }
  const machine = new SimulatedMachine(settings.progress, seed, settings.peer)
  const system = new System(settings, machine)
  const run = (operation: Step) => system.run(operation as Operation)
  return {
    system: { run, check: () => system.check(), finish: () => system.finish() },
    oracle: machine.oracle,
    counted: machine,
    draw: () => new Generator(random, system),
  }
}
