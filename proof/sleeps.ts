// The sleeps and wakes of a program, of pools and of growable buffers, as a careful user makes them. It knows which
// calls must be refused, and what has become of the contents.

import assert from 'node:assert/strict'
import { OutOfMemoryError, PoolError } from '../src/core/base/errors.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import type { SleepProgress } from '../src/core/pool/sleep/sleep-options.js'
import type { GrowableBuffer, HostPool } from '../src/index.js'
import type { Machine } from './machine.js'
import type { Operation } from './operation.js'
import { isPlanned, surviveRefusal, Thrown } from './refusal.js'
import { turn } from './turns.js'

export type Sleeping = CachingPool | GrowableBuffer

/** Every sleep and wake ends within this many turns of the event loop. */
const MOST_TURNS = 2000

interface State {
  /** how many calls have not ended, and how many of these may succeed */
  calls: number
  changes: number
  /** whether nothing that the host has a copy of was written since */
  isUnchanged: boolean
}

/** The program's part when its memory has fallen asleep, was woken, or was copied in part. */
export interface SleepActions {
  loseContents(memory: Sleeping, keep: 'host' | 'nothing'): void
  look(memory: Sleeping): void
  react(memory: Sleeping, reaction: Operation & { do: 'sleep' | 'wake' }): void
  /** errors that a sleep may end with; and whether it must */
  obstacles(memory: Sleeping): { errors: RegExp[]; isSure: boolean }
}

export class Sleeps {
  sleeps = 0
  wakes = 0
  refused = 0
  private readonly states = new Map<Sleeping, State>()
  private failure: unknown = null

  constructor(
    private readonly machine: Machine<unknown>,
    private readonly host: HostPool,
    private readonly actions: SleepActions,
  ) {}

  sleep(memory: Sleeping, operation: Operation & { do: 'sleep' }): void {
    const { keep, into, unchanged } = operation
    const state = this.stateOf(memory)
    const isAgain = memory.asleep
    const { errors, isSure } = this.actions.obstacles(memory)
    if (isAgain) errors.push(/is asleep already, or about to change/)
    const onProgress = this.progressOf(memory, operation)
    const options =
      keep === 'nothing'
        ? { keep, ...(onProgress === undefined ? {} : { onProgress }) }
        : {
            keep,
            unchanged: unchanged && state.isUnchanged,
            ...(into ? { into: this.host } : {}),
            ...(onProgress === undefined ? {} : { onProgress }),
          }
    this.machine.fallsAsleep(memory)
    this.follow(memory, memory.sleep(options), isAgain || isSure, errors, isDone => {
      if (isDone) this.sleeps++
      if (isDone && !isAgain) assert.ok(memory.asleep, 'a sleep ends asleep')
      // It sleeps even if the driver has refused to take the memory back.
      if (memory.asleep && !isAgain) this.actions.loseContents(memory, keep)
    })
  }

  wake(memory: Sleeping, operation: Operation & { do: 'wake' }): void {
    const { keepCopy, wait, look } = operation
    const state = this.stateOf(memory)
    const isPossible = memory.asleep && state.changes === 0
    const errors = isPossible ? [] : [/is awake, or about to change|cannot be mapped again/]
    const onProgress = this.progressOf(memory, operation)
    const call = memory.wake({ keepCopy, wait, ...(onProgress === undefined ? {} : { onProgress }) })
    this.follow(memory, call, !isPossible, errors, isDone => {
      if (!isDone) return
      this.wakes++
      assert.ok(!memory.asleep, 'a wake ends awake')
      state.isUnchanged = keepCopy
      if (look) this.actions.look(memory)
    })
  }

  /** A buffer of this memory was written. */
  wrote(memory: Sleeping): void {
    const state = this.states.get(memory)
    if (state !== undefined) state.isUnchanged = false
  }

  /** Whether the memory is about to change. */
  isChanging(memory: Sleeping): boolean {
    return (this.states.get(memory)?.calls ?? 0) > 0
  }

  /** A growable buffer was freed. */
  forget(memory: Sleeping): void {
    if (!this.isChanging(memory)) this.states.delete(memory)
  }

  async turns(count: number): Promise<void> {
    for (let left = count; left > 0; left--) await turn()
    this.rethrow()
  }

  /** Until nothing changes any more; with a capture under way, as long as that is possible. */
  async settle(mayWait: boolean): Promise<void> {
    for (let turns = 0; [...this.states.values()].some(({ calls }) => calls > 0); turns++) {
      if (turns === MOST_TURNS && mayWait) return
      assert.ok(turns < MOST_TURNS, 'a sleep or wake does not end')
      while (this.machine.release()) {}
      await turn()
      this.rethrow()
    }
  }

  private follow(
    memory: Sleeping,
    call: Promise<void>,
    isRefused: boolean,
    errors: readonly RegExp[],
    ended: (isDone: boolean) => void,
  ): void {
    const state = this.stateOf(memory)
    const { wakes } = this
    state.calls++
    if (!isRefused) state.changes++
    const end = (error: unknown) => {
      try {
        state.calls--
        if (!isRefused) state.changes--
        if (state.calls === 0 && !memory.asleep) this.machine.isAwake(memory)
        if (error === null) {
          // The driver has refused to take memory back, and a second sleep has tried again. A wake may have come since.
          if (isRefused) assert.ok(memory.asleep || this.wakes > wakes, `it succeeds instead of ${errors[0]}`)
        } else this.checkError(error, isFreed(memory) ? [/was closed meanwhile/, ...errors] : errors)
        ended(error === null)
      } catch (failure) {
        if (!isPlanned(failure)) this.fail(failure)
      }
    }
    call.then(() => end(null), end)
  }

  private checkError(error: unknown, errors: readonly RegExp[]): void {
    this.refused++
    if (isPlanned(error) || error instanceof OutOfMemoryError) return
    const isExpected = error instanceof PoolError && errors.some(expected => expected.test(error.message))
    if (!isExpected) throw error
  }

  private progressOf(memory: Sleeping, operation: Operation & { do: 'sleep' | 'wake' }) {
    const { do: verb, reaction } = operation
    // An error after the wake has resolved is an uncaught exception.
    const isUncaught = reaction === 'throw' && verb === 'wake' && operation.wait === 'streams'
    if (reaction === 'none' || isUncaught) return undefined
    let before = -1
    return ({ copiedBytes, totalBytes }: SleepProgress) => {
      try {
        assert.ok(copiedBytes > before && copiedBytes <= totalBytes, `${copiedBytes} of ${totalBytes} after ${before}`)
        before = copiedBytes
        if (reaction === 'throw') throw new Thrown('the program throws')
        surviveRefusal(() => this.actions.react(memory, operation))
      } catch (error) {
        if (!isPlanned(error)) this.fail(error)
        throw error
      }
    }
  }

  /** Something went wrong while Node went on. */
  fail(error: unknown): void {
    this.failure ??= error
  }

  private rethrow(): void {
    const { failure } = this
    this.failure = null
    if (failure !== null) throw failure
  }

  private stateOf(memory: Sleeping): State {
    let state = this.states.get(memory)
    if (state === undefined) {
      state = { calls: 0, changes: 0, isUnchanged: false }
      this.states.set(memory, state)
    }
    return state
  }
}

function isFreed(memory: Sleeping): boolean {
  return 'freed' in memory && memory.freed
}

/** A use of memory that sleeps must be refused. */
export function assertAsleep(use: () => void): void {
  try {
    use()
  } catch (error) {
    if (isPlanned(error) || (error instanceof PoolError && /asleep/.test(error.message))) return
    throw error
  }
  assert.fail('memory that sleeps is used')
}
