// Signals for tests of calls that wait.

import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import type { WaitOptions } from './wait-options.js'

/** Some turns of the event loop. */
export async function turns(count = 60): Promise<void> {
  for (let turn = 0; turn < count; turn++) await setImmediate()
}

/** The options of a call that waits, until `abort` is called. */
export class Abortable {
  readonly reason = new Error('mine')
  readonly options: WaitOptions
  private readonly controller = new AbortController()

  constructor() {
    this.options = { signal: this.controller.signal }
  }

  abort(): void {
    this.controller.abort(this.reason)
  }

  /** Asserts that nothing listens to the signal. */
  assertForgotten(): void {
    assert.equal(getEventListeners(this.controller.signal, 'abort').length, 0, 'nothing listens')
  }
}

/**
 * Asserts what holds for each call that waits. `wait` begins a wait that goes on until `end` is called, and `call` is
 * its name in errors.
 */
export async function assertAbortable(
  call: string,
  wait: (options: WaitOptions) => Promise<unknown>,
  end: () => void,
): Promise<void> {
  for (const [options, message] of [
    [{ signal: 5 }, /: signal must be an AbortSignal, not 5; pass controller\.signal of an AbortController$/],
    [{ signal: { throwIfAborted() {} } }, /: signal must be an AbortSignal, not an Object/],
    [{ signal: null }, /: signal must be an AbortSignal, not null/],
    [null, /: options must be an object such as { signal }, not null/],
    [{ signals: 5 }, /: unknown option 'signals'.* did you mean signal\?/],
  ] as const) {
    const isNamed = (error: Error) => error.message.startsWith(`${call}: `) && message.test(error.message)
    await assert.rejects(wait(options as never), (error: Error) => error.name === 'TypeError' && isNamed(error))
  }
  const reason = new Error('once')
  let reads = 0
  const once = {
    get signal() {
      return reads++ === 0 ? AbortSignal.abort(reason) : 5
    },
  }
  await assert.rejects(wait(once as never), reason)
  const [before, many, late] = [new Abortable(), new Abortable(), new Abortable()]
  before.abort()
  await assert.rejects(wait(before.options), before.reason)
  const refused = Promise.all(Array.from({ length: 20 }, () => assert.rejects(wait(many.options), many.reason)))
  await turns()
  many.abort()
  await refused
  const waiting = wait(late.options)
  await turns()
  end()
  await waiting
  for (const each of [before, many, late]) each.assertForgotten()
  late.abort()
}
