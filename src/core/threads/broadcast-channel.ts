// Messages between threads that know a common name, for values that shared memory cannot carry, such as a
// SharedArrayBuffer. An open channel does not keep its thread alive, and can be read without the event loop.

import { BroadcastChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads'

export function openChannel(name: string): BroadcastChannel {
  const end = new BroadcastChannel(name)
  letGo(end)
  return end
}

/** Calls `receive` for messages that come while the thread is idle, unless `take` takes them first. */
export function listen<Message>(end: BroadcastChannel, receive: (message: Message) => void): void {
  end.onmessage = event => receive(event.data as Message)
  letGo(end)
}

/** The next message, or undefined. */
export function take<Message>(end: BroadcastChannel): Message | undefined {
  // receiveMessageOnPort accepts a broadcast channel, unlike its type.
  return receiveMessageOnPort(end as unknown as MessagePort)?.message as Message | undefined
}

/**
 * Spins until an already sent message arrives. Node delivers none to a terminating thread; the termination ends the
 * loop.
 */
export function takeSent<Message>(end: BroadcastChannel): Message {
  for (;;) {
    const message = take<Message>(end)
    if (message !== undefined) return message
  }
}

function letGo(end: BroadcastChannel): void {
  const known = end as unknown as { unref(): void } // missing in the type
  known.unref()
}
