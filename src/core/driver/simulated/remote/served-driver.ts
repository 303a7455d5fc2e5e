// Answers calls of other threads to a simulated driver of this thread, from the event loop, or by `serveWaiting`
// while this thread waits (serve-waiting.ts). shared-driver.ts starts it.

import type { BroadcastChannel } from 'node:worker_threads'
import { listen, openChannel, take } from '../../../threads/broadcast-channel.js'
import { carry } from '../../../threads/carried-error.js'
import { hasEnded } from '../../../threads/os-thread.js'
import { addServed } from '../../serve-waiting.js'
import type { SimulatedDriver } from '../simulated-driver.js'
import { ThreadState } from '../thread-state.js'
import { type Answer, type Call, type Hello, wake } from './call-channel.js'

/** A connected thread. */
interface Caller {
  readonly end: BroadcastChannel
  readonly mark: string
  readonly answered: Int32Array
  readonly thread: ThreadState
}

/** Lets other threads call `driver` from now on. `name` is unique in the process. */
export function serve(driver: SimulatedDriver, name: string): ServedDriver {
  const serving = new ServedDriver(driver, name)
  addServed(serving)
  return serving
}

/** A driver, and the threads that are connected to it. */
export class ServedDriver {
  private readonly reception: BroadcastChannel
  private readonly callers = new Set<Caller>()

  constructor(
    private readonly driver: SimulatedDriver,
    name: string,
  ) {
    this.reception = openChannel(name)
    listen<Hello>(this.reception, hello => this.admit(hello))
  }

  /** number of connected threads; ended threads are removed when the next thread connects */
  get callerCount(): number {
    return this.callers.size
  }

  /** Answers all pending calls, and returns their number. */
  drain(): number {
    for (let hello = take<Hello>(this.reception); hello !== undefined; hello = take<Hello>(this.reception)) {
      this.admit(hello)
    }
    let answers = 0
    for (const caller of this.callers) {
      const call = take<Call>(caller.end) // a waiting caller has sent one call
      if (call === undefined) continue
      this.answer(caller, call)
      answers++
    }
    return answers
  }

  private admit({ channel, mark, answered }: Hello): void {
    for (const caller of this.callers) if (hasEnded(caller.mark)) this.dismiss(caller)
    const caller = { end: openChannel(channel), mark, answered, thread: new ThreadState() }
    listen<Call>(caller.end, call => this.answer(caller, call))
    this.callers.add(caller)
    wake(answered)
  }

  private dismiss(caller: Caller): void {
    caller.end.close()
    caller.thread.end()
    this.callers.delete(caller)
  }

  private answer(caller: Caller, call: Call): void {
    caller.end.postMessage(this.driver.actAs(caller.thread, () => this.run(call)))
    wake(caller.answered)
  }

  private run({ number, member, args, targetBytes }: Call): Answer {
    const target = targetBytes === undefined ? undefined : new Uint8Array(targetBytes)
    try {
      const value: unknown = this.driver[member as keyof SimulatedDriver]
      if (typeof value !== 'function') return { number, result: value }
      const result: unknown = value.apply(this.driver, target === undefined ? args : [target, ...args.slice(1)])
      return target === undefined ? { number, result } : { number, result, target }
    } catch (error) {
      return { number, error: carry(error) }
    }
  }
}
