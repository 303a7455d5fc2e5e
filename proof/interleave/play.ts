// One scenario in one setting, as often as one likes.

import { Random } from '../../src/core/base/random.js'
import type { Built } from './build.js'
import { Again, AtRandom, type Chooser, type Deviations, Exhaustive, Noting } from './choices.js'
import { Modules } from './load.js'
import { StoreBuffers } from './memory.js'
import type { Mutant } from './mutants.js'
import { Runtime } from './runtime.js'
import { SCENARIO_FILES } from './scenarios.js'
import { type Routine, Scheduler, type Thread } from './scheduler.js'
import type { Cast, Scenario } from './stage.js'
import { systemFiles } from './system-files.js'
import { WeakMemory } from './weak-memory.js'

interface Setting {
  readonly arch: 'x64' | 'arm64'
  readonly mutant?: Mutant | null
}

/** A failing run, with enough to repeat it. */
interface Failing {
  readonly error: Error
  readonly seed: number
  readonly deviations: Deviations
}

export interface Outcome {
  readonly runs: number
  readonly steps: number
  readonly failing: Failing | null
}

type Scenarios = Record<string, Scenario>

const MOST_THREADS = 8
const MOST_STEPS = 20_000
const STAGE = 'proof/interleave/stage.ts'
const BARRIER = 'src/core/threads/process-barrier.ts'

/** The failure, and the command that repeats it. */
export function describeFailing(name: string, setting: Setting, { error, seed, deviations }: Failing): string {
  const choices = deviations.map(([choice, way]) => `${choice}:${way}`).join(',')
  const bug = setting.mutant ? ` --bug '${setting.mutant.name}'` : ''
  const command = `--scenario '${name}' --arch ${setting.arch} --seed ${seed} --replay '${choices}'${bug}`
  return `${error.message}\nnode dist/proof/interleave/explore.js ${command}`
}

/** The names of all scenarios. */
export function namesOf(built: Built): string[] {
  const play = new Play(built, null, { arch: 'x64' })
  return play.names
}

export class Play {
  private readonly runtime: Runtime
  private readonly scenario: Scenario
  readonly names: string[]
  private scheduler: Scheduler

  constructor(
    built: Built,
    name: string | null,
    readonly setting: Setting,
  ) {
    this.scheduler = this.newScheduler([], new Again([]))
    this.runtime = new Runtime(setting.arch, this.scheduler)
    const { runtime } = this
    const own = {
      [STAGE]: {
        mayBeCut: (work: () => unknown) => runtime.mayBeCut(work),
        mayDie: (work: () => unknown) => runtime.mayDie(work),
        pause: () => runtime.pause(),
        isOverNow: (index: number) => this.scheduler.isOver(this.scheduler.threads[index + 1]),
      },
      [BARRIER]: { openProcessBarrier: () => () => this.scheduler.memory.barrier() },
    }
    const files = systemFiles(() => this.scheduler)
    const modules = new Modules(built, runtime, own, { 'node:fs': files }, setting.mutant ?? null)
    const all = SCENARIO_FILES.flatMap(file => Object.entries(modules.load(file)['scenarios'] as Scenarios))
    const found = all.find(([each]) => each === (name ?? each))
    if (found === undefined) throw new Error(`there is no scenario of the name ${name}`)
    this.scenario = found[1]
    this.names = all.map(([each]) => each)
  }

  /** Whether all runs are too many. */
  get isLarge(): boolean {
    return this.scenario.isLarge ?? false
  }

  /** Every run with up to `bound` unusual choices, until one fails. */
  every(bound: number): Outcome {
    const chooser = new Exhaustive(bound)
    for (let runs = 1, steps = 0; ; runs++) {
      const failing = this.once(chooser, 1)
      steps += this.scheduler.steps
      if (failing !== null || !chooser.advance()) return { runs, steps, failing }
    }
  }

  /** Runs by chance, a seed each. */
  byChance(first: number, count: number): Outcome {
    let steps = 0
    for (let runs = 1; ; runs++) {
      const seed = first + runs - 1
      const failing = this.once(new AtRandom(new Random(seed)), seed)
      steps += this.scheduler.steps
      if (failing !== null || runs === count) return { runs, steps, failing }
    }
  }

  /** Repeats one run, and returns its outcome. */
  trace({ seed, deviations }: Pick<Failing, 'seed' | 'deviations'>): { steps: readonly string[]; error: Error | null } {
    const steps: string[] = []
    const failing = this.once(new Again(deviations), seed, steps)
    return { steps, error: failing?.error ?? null }
  }

  private once(by: Chooser, seed: number, trace: string[] | null = null): Failing | null {
    const chooser = new Noting(by)
    this.scheduler = this.newScheduler([], chooser)
    this.runtime.reset(this.scheduler)
    try {
      const cast = this.runtime.drive(this.scenario.begin(seed)) as Cast
      this.scheduler.memory.settle(0)
      this.scheduler = this.newScheduler(cast.threads, chooser, cast, this.scenario.mostSteps)
      this.runtime.reset(this.scheduler)
      this.scheduler.trace = trace
      this.scheduler.run()
      this.runtime.drive(cast.end?.())
      return null
    } catch (error) {
      return { error: error as Error, seed, deviations: chooser.deviations }
    }
  }

  private newScheduler(
    bodies: Cast['threads'],
    chooser: Chooser,
    { heirs = {} }: Partial<Cast> = {},
    mostSteps = MOST_STEPS,
  ) {
    const nobody: Thread = {
      index: 0,
      number: 1000,
      start: 1,
      heirOf: -1,
      isMortal: false,
      routine: (function* () {})(),
      state: 'ready',
      deadline: Infinity,
      key: '',
      outcome: 'ok',
      where: '',
      looks: 0,
      cuttable: 0,
      isCut: false,
    }
    const threads = [nobody]
    for (const [at, body] of bodies.entries()) {
      const heirOf = heirs[at] === undefined ? -1 : heirs[at] + 1
      threads.push({
        ...nobody,
        index: at + 1,
        number: heirOf === -1 ? 1001 + at : threads[heirOf].number,
        start: at + 2,
        heirOf,
        routine: this.started(body),
      })
    }
    const isWeak = this.setting.arch === 'arm64'
    // A thread that runs alone sees its own stores at once, so delaying them gives no new run.
    const late: Chooser = {
      choose: (count, isFree) => (this.scheduler.isAlone ? 0 : chooser.choose(count, isFree)),
    }
    const memory = isWeak ? new WeakMemory(MOST_THREADS, chooser) : new StoreBuffers(MOST_THREADS, late)
    return new Scheduler(threads, chooser, memory, mostSteps)
  }

  private *started(body: () => void): Routine {
    return yield* this.runtime.run(body())
  }
}
