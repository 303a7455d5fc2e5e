// The work that a recording does not contain. A trace has no kernels, so each allocation is taken to submit one
// operation to its stream. The operation completes after `lag` further events of that stream. A block whose free
// completed late is taken to be in use on another stream until then. On a GPU no work is modelled.

import { MOST_STREAMS } from '../../core/order/clocks.js'
import type { Stream } from '../../core/order/stream.js'
import type { SimulatedDriver } from './replay-device.js'

/** The most streams of a replay: all of a device but the default stream. */
export const MOST_REPLAYED_STREAMS = MOST_STREAMS - 1
/** A late use gets a stream of its own while a replay has fewer streams than this. */
const MANY_STREAMS = 63

/**
 * Events of a stream after which an operation completes; with Infinity, an operation completes only when a call waits
 * for it.
 */
export type Lag = number

/**
 * A block's use by another stream. When it has ended in the replay, it still waits on the device for older uses of
 * that stream.
 */
interface Use {
  readonly side: Side
  readonly ticket: number
  ended: boolean
}

/** A stream that stands for others of the recording, with its uses, oldest first. */
interface Side {
  readonly stream: Stream
  readonly uses: Use[]
}

export class ModelledWork {
  /** the last ticket to release, by stream and due event; -1 for none */
  private readonly due: Int32Array
  private readonly counts: Int32Array
  private readonly window: number
  private readonly sides: Side[] = []
  private readonly uses = new Map<number, Use>()

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

  /** Notes that a stream had an event, and completes the operation that is due. */
  tick(stream: number): void {
    if (this.window === 0) return
    const count = ++this.counts[stream]
    const place = stream * this.window + (count % this.window)
    const ticket = this.due[place]
    if (ticket === -1) return
    this.due[place] = -1
    this.driver.releaseThrough(this.streams[stream].handle, ticket)
  }

  /** Submits the operation of an allocation. */
  submit(stream: number): void {
    if (this.lag === 0) return
    const ticket = this.driver.holdOperation(this.streams[stream].handle)
    if (this.window > 0) this.due[stream * this.window + ((this.counts[stream] + this.lag) % this.window)] = ticket
  }

  /** Begins a use of a block that is being freed, until `endUse`; returns the stream of the use. */
  beginUse(block: number): Stream {
    const side = this.idleSide()
    const use = { side, ticket: this.driver.holdOperation(side.stream.handle), ended: false }
    side.uses.push(use)
    this.uses.set(block, use)
    return side.stream
  }

  endUse(block: number): void {
    const use = this.uses.get(block)
    if (use === undefined) return
    this.uses.delete(block)
    use.ended = true
    const { stream, uses } = use.side
    while (uses[0]?.ended) this.driver.releaseThrough(stream.handle, uses.shift()!.ticket)
  }

  /** A stream without uses; if the replay has many streams, the stream with the fewest uses. */
  private idleSide(): Side {
    const idle = this.sides.find(({ uses }) => uses.length === 0)
    if (idle !== undefined) return idle
    if (this.sides.length === 0 || this.streams.length + this.sides.length < MANY_STREAMS) {
      const side = { stream: this.createStream(), uses: [] }
      this.sides.push(side)
      return side
    }
    return this.sides.reduce((least, side) => (side.uses.length < least.uses.length ? side : least))
  }
}
