// Runs threads of a model under schedules: all schedules up to a number of preemptions, or random ones from a seed. A
// schedule is replayed from its list of choices, since a generator cannot be copied: each run starts from the
// beginning.

import { Random } from '../src/base/random.js'
import type { Steps } from './device-atomics.js'

/** A new system: its threads, and a check for when all have ended. Both throw if something is wrong. */
export interface ModelRun {
  readonly threads: readonly Steps<void>[]
  check(): void
}

/** A run that failed. */
interface ModelFailure {
  readonly message: string
  /** the thread that took each step */
  readonly schedule: readonly number[]
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

/** Runs every schedule in which a thread that could go on is interrupted at most `preemptions` times. */
export function explore(make: () => ModelRun, preemptions: number, mostRuns = Infinity): Exploration {
  // The choices to follow at the start of the next run; after them each thread goes on as long as it can.
  const open: number[][] = [[]]
  let [runs, steps] = [0, 0]
  for (let prefix = open.pop(); prefix !== undefined; prefix = open.pop()) {
    if (runs === mostRuns) return { runs, steps, failure: null, complete: false }
    const start = prefix.length
    const follow = prefix
    let used = 0
    const failure = run(make(), (step, alive, last) => {
      const goesOn = alive.includes(last)
      if (step < start) {
        if (goesOn && follow[step] !== last) used++
        return follow[step]
      }
      const choice = goesOn ? last : alive[0]
      if (!goesOn || used < preemptions) {
        for (const other of alive) if (other !== choice) open.push([...taken, other])
      }
      return choice
    })
    runs++
    steps += taken.length
    if (failure !== null) return { runs, steps, failure, complete: false }
  }
  return { runs, steps, failure: null, complete: true }
}

/** Runs one schedule per seed from `seed` on, until one fails or `runs` are done. */
export function sample(make: (seed: number) => ModelRun, seed: number, runs: number): Exploration {
  let steps = 0
  for (let index = 0; index < runs; index++) {
    const random = new Random(seed + index)
    // Some schedules switch at each step, others rarely.
    const change = [1, 0.3, 0.05][index % 3]
    const failure = run(make(seed + index), (_, alive, last) =>
      alive.includes(last) && random.fraction() >= change ? last : alive[random.below(alive.length)],
    )
    steps += taken.length
    if (failure !== null) {
      return {
        runs: index + 1,
        steps,
        failure: { ...failure, message: `seed ${seed + index}: ${failure.message}` },
        complete: false,
      }
    }
  }
  return { runs, steps, failure: null, complete: true }
}

/** The steps of the run under way. */
let taken: number[] = []

function run(
  { threads, check }: ModelRun,
  choose: (step: number, alive: readonly number[], last: number) => number,
): ModelFailure | null {
  taken = []
  const alive = threads.map((_, index) => index)
  let last = -1
  try {
    while (alive.length > 0) {
      last = choose(taken.length, alive, last)
      taken.push(last)
      if (threads[last].next().done) alive.splice(alive.indexOf(last), 1)
      if (taken.length > MOST_STEPS) throw new Error('the threads wait for each other')
    }
    check()
    return null
  } catch (error) {
    return { message: (error as Error).message, schedule: taken }
  }
}
