// The end of a shared simulated driver in the thread that opened it: answers the calls of other threads, from the event
// loop, or when the thread serves them while it waits for something itself.

import type { BroadcastChannel } from 'node:worker_threads'
import { listen, openChannel, take } from '../../../threads/broadcast-channel.js'
import { carry } from '../../../threads/carried-error.js'
import { hasEnded } from '../../../threads/os-thread.js'
import { addServed } from '../../served-drivers.js'
import type { SimulatedDriver } from '../simulated-driver.js'
import { ThreadState } from '../thread-state.js'
import { type Answer, type Call, type Hello, wake } from './call-channel.js'

interface Caller {
  readonly end: BroadcastChannel
  readonly mark: string
  readonly answered: Int32Array
  readonly thread: ThreadState
}

/** Lets other threads call `driver` from now on, under a name that no other driver of the process has. */
export function serve(driver: SimulatedDriver, name: string): ServedDriver {
  const serving = new ServedDriver(driver, name)
  addServed(serving)
  return serving
}

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

  /** threads that are connected, as far as is known: one that has ended is noticed when the next one comes */
  get callerCount(): number {
    return this.callers.size
  }

  /** Answers all who wait now. */
  drain(): number {
    for (let hello = take<Hello>(this.reception); hello !== undefined; hello = take<Hello>(this.reception)) {
      this.admit(hello)
    }
    let answers = 0
    for (const caller of this.callers) {
      const call = take<Call>(caller.end) // a caller that waits has sent one
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
