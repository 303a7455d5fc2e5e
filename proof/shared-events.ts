// The events of the threads that share a device: one thread has each, and can pass it on.

import { Event } from '../src/core/order/event.js'
import type { Stream } from '../src/core/order/stream.js'
import type { SharedThread } from './shared-thread.js'

export class SharedEvents {
  private readonly events = new Map<number, { readonly thread: SharedThread; readonly event: Event }>()

  /** A thread records an event of its own; a new one where another thread has that of this name, which is closed. */
  record(thread: SharedThread, name: number, view: Stream): void {
    const known = this.events.get(name)
    const event = known?.thread === thread ? known.event : new Event(thread.context)
    try {
      event.record(view)
    } catch (error) {
      if (event !== known?.event) event.close()
      throw error
    }
    this.events.set(name, { thread, event })
    if (event !== known?.event) known?.event.close()
  }

  /** A stream waits for an event, as the thread has it that has the event. */
  wait(name: number, viewIn: (thread: SharedThread) => Stream | null): void {
    const known = this.events.get(name)
    if (known !== undefined) viewIn(known.thread)?.wait(known.event)
  }

  pass(name: number, thread: SharedThread): void {
    const known = this.events.get(name)
    if (known === undefined || known.thread === thread) return
    this.events.set(name, { thread, event: Event.adopt(thread.clocks, known.event.transfer()) })
  }

  closeAllOf(thread: SharedThread): void {
    for (const [name, known] of this.events) {
      if (known.thread !== thread) continue
      known.event.close()
      this.events.delete(name)
    }
  }
}
