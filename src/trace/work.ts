// The work that a recording does not hold. A trace knows no kernels, so each allocation is taken to submit one operation
// to its stream, which completes after `lag` further events of that stream; a block whose free completed late is taken to
// be in use on another stream until then. On a real device nothing is modelled: work takes the time it takes.

import type { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import type { Stream } from '../order/stream.js'

/** Events of a stream after which an operation completes; Infinity: only when something waits for it. */
export type Lag = number

export class ModelledWork {
  /** by stream and due event, the last ticket to release there; -1 for none */
  private readonly due: Int32Array
  private readonly counts: Int32Array
  private readonly window: number
  private readonly idleSides: { stream: Stream; ticket: number }[] = []
  private readonly busySides = new Map<number, { stream: Stream; ticket: number }>()

  constructor(
    private readonly driver: SimulatedDriver,
    private readonly streams: readonly Stream[],
    private readonly lag: Lag,
    private readonly createStream: () => Stream,
  ) {
    this.window = Number.isFinite(lag) ? lag + 1 : 0
    this.due = new Int32Array(streams.length * this.window).fill(-1)
    this.counts = new Int32Array(streams.length)
  }

  /** An event of a stream has happened. */
  tick(stream: number): void {
    if (this.window === 0) return
    const count = ++this.counts[stream]
    const place = stream * this.window + (count % this.window)
    const ticket = this.due[place]
    if (ticket === -1) return
    this.due[place] = -1
    this.driver.releaseThrough(this.streams[stream].handle, ticket)
  }

  /** An allocation submits its operation. */
  submit(stream: number): void {
    if (this.lag === 0) return
    const ticket = this.driver.holdOperation(this.streams[stream].handle)
    if (this.window > 0) this.due[stream * this.window + ((this.counts[stream] + this.lag) % this.window)] = ticket
  }

  /** A block that is being freed is in use elsewhere until `endUse`; returns the stream of that use. */
  beginUse(block: number): Stream {
    const side = this.idleSides.pop() ?? { stream: this.createStream(), ticket: 0 }
    side.ticket = this.driver.holdOperation(side.stream.handle)
    this.busySides.set(block, side)
    return side.stream
  }

  endUse(block: number): void {
    const side = this.busySides.get(block)
    if (side === undefined) return
    this.busySides.delete(block)
    this.driver.releaseThrough(side.stream.handle, side.ticket)
    this.idleSides.push(side)
  }
}
