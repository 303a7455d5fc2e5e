import type { Stream } from '../src/index.js'
import type { ObservedDriver } from './observed-driver.js'

/** Streams that are kept from going on, and go on in the order in which they were stopped. */
export class Holds {
  private holds: { readonly stream: Stream; readonly ticket: number }[] = []

  hold(stream: Stream): void {
    const driver = stream.context.activate() as ObservedDriver
    this.holds.push({ stream, ticket: driver.holdOperation(stream.handle) })
  }

  /** The oldest one goes on. */
  release(): void {
    const oldest = this.holds.shift()
    if (oldest === undefined) return
    const driver = oldest.stream.context.activate() as ObservedDriver
    driver.releaseThrough(oldest.stream.handle, oldest.ticket)
  }

  /** Streams that have ended go on by themselves. */
  forget(hasEnded: (stream: Stream) => boolean): void {
    this.holds = this.holds.filter(({ stream }) => !hasEnded(stream))
  }
}
