// Messages between threads that know no more of each other than a name: what shared memory alone cannot carry, such as a
// SharedArrayBuffer. No end keeps its thread alive, and each can be read without the event loop.

import { BroadcastChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads'

export function openChannel(name: string): BroadcastChannel {
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

/** Spins until a message that was sent already arrives. Node delivers nothing to a terminating thread, whose termination ends the loop. */
export function takeSent<Message>(end: BroadcastChannel): Message {
  for (;;) {
    const message = take<Message>(end)
    if (message !== undefined) return message
  }
}

function letGo(end: BroadcastChannel): void {
  const known = end as unknown as { unref(): void } // as the types do not know
  known.unref()
}
