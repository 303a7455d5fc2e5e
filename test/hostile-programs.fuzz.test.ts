// Random programs of public calls with any arguments: right and wrong ones, closed and freed things, and things of
// another device. Callbacks throw, use their caller or close it, and signals abort at any moment. Each refused call
// throws a typed error, and a call that refuses its arguments has counted nothing. At the end all pools are whole,
// everything can be given back, and nothing waits. HOSTILE_SEED and HOSTILE_PROGRAMS=1 replay, HOSTILE_LOG=1 lists the
// calls.

import assert from 'node:assert/strict'
import { it } from 'node:test'
import { HostileProgram } from './hostile-program.fixture.js'

const SEED = Number(process.env['HOSTILE_SEED'] ?? 1)
const PROGRAMS = Number(process.env['HOSTILE_PROGRAMS'] ?? 200)

/** Runs `work` while errors that come out of no call are the program's: its listeners throw. */
async function withListener(note: (error: unknown) => void, work: () => Promise<void>): Promise<void> {
  const listeners = process.listeners('unhandledRejection')
  const warnings = process.listeners('warning')
  process.removeAllListeners('unhandledRejection')
  process.removeAllListeners('warning')
  process.setUncaughtExceptionCaptureCallback(note)
  try {
    await work()
  } finally {
    process.setUncaughtExceptionCaptureCallback(null)
    for (const listener of listeners) process.on('unhandledRejection', listener)
    for (const listener of warnings) process.on('warning', listener)
  }
}

it(`${PROGRAMS} hostile programs end with whole pools (HOSTILE_SEED=${SEED})`, async () => {
  let program: HostileProgram | null = null
  await withListener(
    error => program?.noteUncaught(error),
    async () => {
      const outcomes = { done: 0, refused: 0 }
      for (let seed = SEED; seed < SEED + PROGRAMS; seed++) {
        program = new HostileProgram(seed)
        try {
          await program.run()
        } catch (error) {
          const log = process.env['HOSTILE_LOG'] === undefined ? '' : `\n${program.log.join('\n')}`
          throw new Error(`HOSTILE_SEED=${seed} HOSTILE_PROGRAMS=1${log}`, { cause: error })
        }
        outcomes.done += program.done
        outcomes.refused += program.refused
      }
      assert.ok(outcomes.done > PROGRAMS && outcomes.refused > PROGRAMS, 'calls are done, and others refused')
    },
  )
})
