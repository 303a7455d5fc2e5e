// How a thread calls the simulated driver of another one: over two ends of a broadcast channel, since a name can be given
// to any thread. The caller sleeps on a word of shared memory until the answer lies on its end. No end keeps its thread
// alive, and each can be read without the event loop.

import { BroadcastChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads'
import type { CarriedError } from '../../base/carried-error.js'

/** The first message of a caller, on the channel that its driver has for all. */
export interface Hello {
  /** the channel for its calls */
  readonly channel: string
  /** of `markOfThread` */
  readonly mark: string
  /** its one word is 0 while the caller waits */
  readonly answered: Int32Array
}

export interface Call {
  /** a method, or a property to be read */
  readonly member: string
  readonly args: readonly unknown[]
  /** size of the first argument where that is memory of the caller's to be written; it comes back with the answer */
  readonly targetBytes?: number
}

export interface Answer {
  readonly result?: unknown
  readonly error?: CarriedError
  readonly target?: Uint8Array
}

export function openEnd(name: string): BroadcastChannel {
  const end = new BroadcastChannel(name)
  letGo(end)
  return end
}

/** Has `receive` called for what comes while the thread is idle; what `take` takes first, it does not get. */
export function listen<Message>(end: BroadcastChannel, receive: (message: Message) => void): void {
  end.onmessage = event => receive(event.data as Message)
  letGo(end)
}

/** The next message; undefined when there is none. */
export function take<Message>(end: BroadcastChannel): Message | undefined {
  // A broadcast channel does for a port here, which the types do not know.
  return receiveMessageOnPort(end as unknown as MessagePort)?.message as Message | undefined
}

export function wake(answered: Int32Array): void {
  Atomics.store(answered, 0, 1)
  Atomics.notify(answered, 0)
}

function letGo(end: BroadcastChannel): void {
  const known = end as unknown as { unref(): void } // as the types do not know
  known.unref()
}
