// No refused driver call loses memory: random programs on everything that takes device memory, with each call of a
// short program refused in turn, and several calls of a long program at random.
//
// REFUSALS_SEED and REFUSALS_STEPS replay and lengthen; the names of the tests say them.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../src/core/base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../src/core/base/errors.js'
import { Random } from '../src/core/base/random.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { TestDevice } from '../src/core/pool/pool.fixture.js'
import { Ledger } from './ledger.js'
import { SHARED_SUBJECTS, SUBJECTS, type Subject } from './refusal-subjects.js'

const SEED = Number(process.env['REFUSALS_SEED'] ?? 1)
const STEPS = Number(process.env['REFUSALS_STEPS'] ?? 30)
const RUNS = 10
const CODES = [2, 999, 1]

interface System {
  readonly driver: SimulatedDriver
  readonly ledger: Ledger
  open(): Subject
  close(): void
}

function newDriver(seed: number): SimulatedDriver {
  return new SimulatedDriver({ capacityBytes: 64 * MiB, progress: seed % 2 === 0 ? 'eager' : 'seeded', seed })
}

function ofDevice(open: (typeof SUBJECTS)[string], seed: number): System {
  const driver = newDriver(seed)
  const ledger = new Ledger(driver)
  const device = openDevice(driver)
  return { driver, ledger, open: () => open(device), close: () => device.close() }
}

function ofTestDevice(open: (typeof SHARED_SUBJECTS)[string], seed: number): System {
  const driver = newDriver(seed)
  const ledger = new Ledger(driver)
  const device = new TestDevice(driver)
  const close = () => {
    device.clocks.close()
    device.context.destroyRest()
    device.context.release()
  }
  return { driver, ledger, open: () => open(device), close }
}

/** Runs a program of `steps`, with driver calls refused by `refuse`. Returns the number of calls made. */
function run(makeSystem: () => System, seed: number, steps: number, refuse: (driver: SimulatedDriver) => void): number {
  const system = makeSystem()
  const { driver, ledger } = system
  const random = new Random(seed)
  let subject: Subject | null = null
  const before = callsOf(driver)
  refuse(driver)
  for (let step = 0; step < steps; step++) {
    try {
      subject ??= system.open()
      subject.step(random)
    } catch (error) {
      const kinds = [CudaError, OutOfMemoryError, PoolError, RangeError] // the last if addresses run out
      if (!kinds.some(kind => error instanceof kind)) throw error
    }
  }
  const calls = callsOf(driver) - before
  driver.clearFaults()
  subject?.settle()
  subject?.close()
  system.close()
  assert.deepEqual([ledger.left(), driver.usedBytes(), driver.usedHostBytes()], [{}, 0, 0])
  return calls
}

function callsOf(driver: SimulatedDriver): number {
  return [...driver.calls.values()].reduce((sum, count) => sum + count, 0)
}

describe(`refused driver calls (REFUSALS_SEED=${SEED} REFUSALS_STEPS=${STEPS})`, () => {
  const systems = [
    ...Object.entries(SUBJECTS).map(([name, open]) => [name, (seed: number) => ofDevice(open, seed)] as const),
    ...Object.entries(SHARED_SUBJECTS).map(
      ([name, open]) => [name, (seed: number) => ofTestDevice(open, seed)] as const,
    ),
  ]
  for (const [name, makeSystem] of systems) {
    it(`${name}: each call refused in turn loses nothing`, () => {
      const steps = Math.ceil(STEPS / 2)
      const calls = run(
        () => makeSystem(SEED),
        SEED,
        steps,
        () => {},
      )
      for (let nth = 1; nth <= calls; nth++) {
        const code = CODES[nth % CODES.length]
        try {
          run(
            () => makeSystem(SEED),
            SEED,
            steps,
            driver => driver.failCall({ call: '*', nth, code }),
          )
        } catch (error) {
          throw new Error(`with call ${nth} of ${calls} refused by ${code}`, { cause: error })
        }
      }
    })

    it(`${name}: calls refused at random lose nothing`, () => {
      for (let seed = SEED; seed < SEED + RUNS; seed++) {
        try {
          run(
            () => makeSystem(seed),
            seed,
            STEPS,
            driver => refuseAtRandom(driver, new Random(~seed)),
          )
        } catch (error) {
          throw new Error(`with seed ${seed}`, { cause: error })
        }
      }
    })
  }
})

function refuseAtRandom(driver: SimulatedDriver, random: Random): void {
  for (let nth = 1; nth < STEPS * 4; nth += 1 + random.below(12)) {
    driver.failCall({ call: '*', nth, code: CODES[random.below(CODES.length)] })
  }
}
