// A program: settings and operations from a seed, and its outcome.

import { Random } from '../src/core/base/random.js'
import { MOST_STREAMS } from '../src/core/order/clocks.js'
import { Generator } from './generator.js'
import type { Kind } from './kinds.js'
import { breakRule, type Rule } from './mutants.js'
import type { Operation } from './operation.js'
import type { Oracle } from './oracle.js'
import { drawGroupSettings, drawSettings, drawSlabSettings, drawSleepSettings, drawViewSettings } from './settings.js'
import { SharedGenerator } from './shared-generator.js'
import type { SharedOperation } from './shared-operation.js'
import { SharedSystem } from './shared-system.js'
import { SimulatedMachine } from './simulated-machine.js'
import { NO_COUNTS, System, type SystemCounts } from './system.js'
import { endTurns, takeTurns } from './turns.js'
import { widenPolicy } from './widen-policy.js'

const CHECK_EVERY = 50
/** Every so many seeds, nearly as many streams are open as a device can have. */
const CROWDED = 16
/** the same where each sleep looks at all streams, which takes long */
const CROWDED_SLEEPS = 200

const DRAWN = {
  'one-thread': drawSettings,
  views: drawViewSettings,
  sleeping: drawSleepSettings,
  slabs: drawSlabSettings,
  groups: drawGroupSettings,
} as const

type Step = Operation | SharedOperation

export interface Outcome extends SystemCounts {
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
  readonly system: { run(operation: Step): void | Promise<void>; check(): void; finish(): void | Promise<void> }
  readonly oracle: Oracle
  readonly counted: { readonly ready: number; readonly recognised: number }
  readonly counts: () => SystemCounts
  draw(): { next(): Step }
}

/** Draws the `count` operations of a seed and carries them out; with a rule broken, if one is named. */
export function runProgram(kind: Kind, seed: number, count: number, rule?: Rule): Promise<Outcome> {
  return carryOut(kind, seed, rule, stage => {
    const generator = stage.draw()
    let left = count
    return () => (left-- > 0 ? generator.next() : undefined)
  })
}

/** Carries out given operations with the settings of a seed. */
export function replayProgram(kind: Kind, seed: number, operations: readonly Step[], rule?: Rule): Promise<Outcome> {
  return carryOut(kind, seed, rule, () => {
    let index = 0
    return () => operations[index++]
  })
}

async function carryOut(
  kind: Kind,
  seed: number,
  rule: Rule | undefined,
  source: (stage: Stage) => () => Step | undefined,
): Promise<Outcome> {
  const restore = rule === undefined ? () => {} : breakRule(rule)
  const restorePolicy = widenPolicy(seed)
  const operations: Step[] = []
  takeTurns()
  let failure: Error | null = null
  const stage = prepare(kind, seed)
  const { system, oracle, counted } = stage
  try {
    const next = source(stage)
    for (let operation = next(); operation !== undefined; operation = next()) {
      operations.push(operation)
      const later = system.run(operation)
      if (later !== undefined) await later
      if (operations.length % CHECK_EVERY === 0) system.check()
    }
    await system.finish()
  } catch (error) {
    if (!(error instanceof Error)) throw error
    failure = error
  } finally {
    restore()
    restorePolicy()
    endTurns()
  }
  const { ready, recognised } = counted
  const { grants, takeovers, large, inViews } = oracle
  const counts = stage.counts()
  return { ...counts, kind, seed, operations, failure, grants, takeovers, ready, recognised, large, inViews }
}

function isOfOneThread(kind: Kind): kind is keyof typeof DRAWN {
  return kind in DRAWN
}

function prepare(kind: Kind, seed: number): Stage {
  const random = new Random(seed)
  if (!isOfOneThread(kind)) {
    const system = new SharedSystem(kind, random, seed)
    const run = (operation: Step) => system.run(operation as SharedOperation)
    return {
      system: { run, check: () => system.check(), finish: () => system.finish() },
      oracle: system.driver.oracle,
      counted: { ready: 0, recognised: 0 },
      counts: () => NO_COUNTS,
      draw: () => new SharedGenerator(random, system),
    }
  }
  const drawn = DRAWN[kind](random)
  const crowded = drawn.sleeps !== null ? CROWDED_SLEEPS : CROWDED
  const settings = { ...drawn, bystanders: seed % crowded === 0 ? MOST_STREAMS - 30 : 0 }
  const machine = new SimulatedMachine(settings.progress, seed, settings.peer)
  const system = new System(settings, machine)
  const run = (operation: Step) => system.run(operation as Operation)
  return {
    system: { run, check: () => system.check(), finish: () => system.finish() },
    oracle: machine.oracle,
    counted: machine,
    counts: () => system.counts,
    draw: () => new Generator(random, system),
  }
}
