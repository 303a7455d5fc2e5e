// Order between streams that share an arena. Each reset starts an epoch on one stream. That stream waits for every
// stream that used the arena; a stream that allocates in the new epoch first waits, once, for the reset. With a
// single stream the driver is never called.
//
// A call that is cut short can only make streams wait more often.

import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import { openStreams, type Stream } from '../../order/stream.js'

export class Epochs {
  /** times that a stream was made to wait for another */
  insertedWaits = 0
  private epoch = 1
  /** by stream slot: the latest epoch that the stream has joined */
  private readonly joined = new Float64Array(MOST_STREAMS)
  /** slots of streams whose work may use live memory, and streams of other devices whose work may */
  private readonly users = new Set<number>()
  private readonly peers = new Set<Stream>()
  /** the point where the epoch began; slot -1 in the first epoch */
  private slot = -1
  private stamp = 0

  constructor(private readonly clocks: Clocks) {}

  /** An open stream gets memory. */
  join(stream: Stream): void {
    if (this.joined[stream.slot] === this.epoch) return
    if (this.slot !== -1) this.order(this.slot, this.stamp, stream)
    this.users.add(stream.slot)
    this.joined[stream.slot] = this.epoch
  }

  /** `stream` uses memory allocated on another stream. It may be closed, or of another device. */
  use(stream: Stream): void {
    if (stream.clocks === this.clocks) this.users.add(stream.covering[0])
    else this.peers.add(stream)
  }

  /** Memory is about to be given back on `stream`. */
  begin(stream: Stream): void {
    const { clocks, users } = this
    for (const slot of users) this.order(slot, clocks.covering(slot), stream)
    for (const peer of this.peers) peer.clocks.orderPeer(...peer.covering, stream)
    this.epoch++
    this.slot = stream.slot
    this.stamp = clocks.marked[stream.slot] + 1
    users.add(stream.slot)
  }

  /** After `begin`: all memory was given back on `stream`, and no other stream uses it any more. */
  end(stream: Stream): void {
    const { users, peers } = this
    if (users.size > 1) {
      users.clear()
      users.add(stream.slot)
    }
    if (peers.size > 0) peers.clear()
  }

  /** Waits on the host for work of other devices. */
  finishPeers(): void {
    for (const { clocks, covering } of this.peers) clocks.catchUp(...covering, true)
  }

  /** The only stream that uses the memory, which needs no wait; null when several do. */
  get only(): Stream | null {
    const [slot] = this.users
    return this.users.size === 1 ? openStreams(this.clocks)[slot] : null
  }

  /**
   * Work submitted to `stream` from now on starts after the work that `stamp` of a slot covers. The host does not
   * wait.
   */
  private order(slot: number, stamp: number, stream: Stream): void {
    const { known, completed } = this.clocks
    if (slot === stream.slot || completed[slot] >= stamp || known[stream.slot * MOST_STREAMS + slot] >= stamp) return
    if (this.clocks.order(stream.slot, slot, stamp, false)) this.insertedWaits++
  }
}
