import type { Stream } from '../src/index.js'
import type { ObservedDriver } from './observed-driver.js'

/** Streams that are kept from going on, and go on in the order in which they were stopped. */
export class Holds {
  private holds: { readonly stream: Stream | null; readonly release: () => void }[] = []

  hold(stream: Stream): void {
    const driver = stream.context.activate() as ObservedDriver
    this.holds.push({ stream, release: driver.hold(stream.handle) })
  }

  /** A stream that the library has for itself. */
  add(release: () => void): void {
    this.holds.push({ stream: null, release })
  }

  /** The oldest one goes on; false for none. */
  release(): boolean {
    const oldest = this.holds.shift()
    if (oldest === undefined) return false
    oldest.release()
    return true
  }

  /** Leaves out the holds of streams whose thread has ended. */
  forget(hasEnded: (stream: Stream) => boolean): void {
    this.holds = this.holds.filter(({ stream }) => stream === null || !hasEnded(stream))
  }
}
