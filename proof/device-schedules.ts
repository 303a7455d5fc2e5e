// Runs threads of a model under schedules: all schedules up to a number of preemptions, or random ones from a seed. A
// schedule is replayed from its list of choices, since a generator cannot be copied: each run starts from the
// beginning.

import { Random } from '../src/core/base/random.js'
import type { Cells, Steps } from './device-atomics.js'

/** A new system: its threads, and a check for when all have ended. Both throw if something is wrong. */
export interface ModelRun {
  readonly memory: Cells
  readonly threads: readonly Steps<void>[]
  check(): void
}

/** A run that failed. */
interface ModelFailure {
  readonly message: string
  /** the thread that took each step, and the operation that came late */
  readonly schedule: string
}

/** More steps than any run needs: threads that wait for each other for ever. */
const MOST_STEPS = 20_000

export interface Exploration {
  readonly runs: number
  readonly steps: number
  readonly failure: ModelFailure | null
  /** every schedule within the bound was run */
  readonly complete: boolean
}

/** The course of a run. */
interface Plan {
  /** the thread of each of the first steps */
  readonly choices: readonly number[]
  /** the operation without a result that does not arrive at once */
  readonly late: number | null
  /** the step before which it arrives, if no fence makes it arrive earlier */
  readonly until: number
}

/**
 * Runs every schedule with at most that many preemptions: interruptions of a thread that could go on. The operations
 * of one thread on one cell may come late, which counts as a preemption. They come late only where another thread uses
 * the cell meanwhile, since no other schedule shows it.
 */
export function explore(make: () => ModelRun, preemptions: number, mostRuns = Infinity): Exploration {
  const open: Plan[] = [{ choices: [], late: null, until: Infinity }]
  let [runs, steps] = [0, 0]
  for (let plan = open.pop(); plan !== undefined; plan = open.pop()) {
    if (runs === mostRuns) return { runs, steps, failure: null, complete: false }
    const followed = plan
    const start = followed.choices.length
    const system = make()
    let used = followed.late === null ? 0 : 1
    system.memory.arrivals = {
      delays: number => number === followed.late,
      noticed: number => {
        if (taken.length <= start) return
        if (followed.late === null && used < preemptions)
          open.push({ choices: [...taken], late: number, until: Infinity })
        else if (followed.late === number) open.push({ choices: [...taken], late: number, until: taken.length - 1 })
      },
    }
    const failure = run(system, (step, alive, last) => {
      if (step === followed.until) system.memory.arrive()
      const goesOn = alive.includes(last)
      if (step < start) {
        if (goesOn && followed.choices[step] !== last) used++
        return followed.choices[step]
      }
      const choice = goesOn ? last : alive[0]
      if (!goesOn || used < preemptions) {
        for (const other of alive) if (other !== choice) open.push({ ...followed, choices: [...taken, other] })
      }
      return choice
    })
    runs++
    steps += taken.length
    if (failure !== null) {
      const { late, until } = followed
      const schedule = late === null ? failure.schedule : `${failure.schedule}, late: ${late} until ${until}`
      return { runs, steps, failure: { ...failure, schedule }, complete: false }
    }
  }
  return { runs, steps, failure: null, complete: true }
}

/** Runs one schedule per seed from `seed` on, until one fails or `runs` are done. */
export function sample(make: (seed: number) => ModelRun, seed: number, runs: number): Exploration {
  let steps = 0
  for (let number = seed; number < seed + runs; number++) {
    const random = new Random(number)
    // Some schedules switch at each step, others rarely.
    const change = [1, 0.3, 0.05][number % 3]
    // Some operations without a result stay behind, until they arrive with this probability in each step.
    const arrival = [1, 0.3, 0.05][Math.floor(number / 3) % 3]
    const system = make(number)
    const { memory } = system
    const delays = () => arrival < 1 && random.fraction() < 0.5
    memory.arrivals = { delays, noticed: () => {} }
    const failure = run(system, (_, alive, last) => {
      if (random.fraction() < arrival) memory.arriveAny(below => random.below(below))
      return alive.includes(last) && random.fraction() >= change ? last : alive[random.below(alive.length)]
    })
    steps += taken.length
    if (failure !== null) {
      const message = `seed ${number}: ${failure.message}`
      return { runs: number - seed + 1, steps, failure: { ...failure, message }, complete: false }
    }
  }
  return { runs, steps, failure: null, complete: true }
}

/** The steps of the run under way. */
let taken: number[] = []

function run(
  { memory, threads, check }: ModelRun,
  choose: (step: number, alive: readonly number[], last: number) => number,
): ModelFailure | null {
  taken = []
  const alive = threads.map((_, index) => index)
  let last = -1
  try {
    while (alive.length > 0) {
      last = choose(taken.length, alive, last)
      taken.push(last)
      memory.running = last
      if (threads[last].next().done) alive.splice(alive.indexOf(last), 1)
      if (taken.length > MOST_STEPS) throw new Error('the threads wait for each other')
    }
    memory.end()
    check()
    return null
  } catch (error) {
    return { message: (error as Error).message, schedule: taken.join(' ') }
  }
}
