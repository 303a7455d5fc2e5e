import { Event } from '../src/core/order/event.js'
import type { Stream } from '../src/core/order/stream.js'

/** The events of a program, by number. Each is of the context, and so of the thread, that recorded it last. */
export class Events {
  private readonly byName = new Map<number, Event>()

  get(name: number): Event | undefined {
    return this.byName.get(name)
  }

  /** Records the event of that number, or a new one where that is of another context. */
  record(name: number, stream: Stream, record: (event: Event) => void): void {
    const known = this.byName.get(name)
    const event = known?.context === stream.context ? known : new Event(stream.context)
    try {
      record(event)
    } catch (error) {
      if (event !== known) event.close()
      throw error
    }
    this.byName.set(name, event)
    if (event !== known) known?.close()
  }

  /** An event has gone to another thread. */
  replace(name: number, event: Event): void {
    this.byName.set(name, event)
  }

  close(isWanted: (event: Event) => boolean = () => true): void {
    for (const [name, event] of this.byName) {
      if (!isWanted(event)) continue
      event.close()
      this.byName.delete(name)
    }
  }
}
