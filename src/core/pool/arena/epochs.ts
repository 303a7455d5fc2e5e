// Order between streams that share an arena. Each reset or rewind ends an epoch on one stream. That stream waits for
// every stream that used the arena; a stream that allocates in the next epoch first waits, once, for the end of the
// last. With a single stream the driver is never called. Epochs are int32 and wrap around.
//
// The state may lie in memory that threads share, so it changes by atomic operations. A call that is cut short can
// only make streams wait more often.

import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import { loadAcquire } from '../../threads/memory-order.js'
import type { Region } from '../../threads/region.js'
import type { Use } from '../caching/central/deferred.js'

/** The first epoch. */
export const FIRST_EPOCH = 1
/** Epochs between two refreshes, and the age that a refresh cuts older epochs down to. */
const REFRESH = 2 ** 20
const LONG_AGO = 2 ** 29

/** The words of an arena's epochs. */
export interface EpochsState {
  /** by stream slot: the latest epoch that the stream has joined; it waited for the point where that epoch began */
  readonly joined: Int32Array
  /** by stream slot: the latest epoch in which the stream's work may use the memory */
  readonly used: Int32Array
  /** by the last bit of an epoch: the slot and stamp where it began; slots are one more, 0 for none */
  readonly slots: Int32Array
  readonly stamps: Float64Array
}

/** The state, laid out in `region`. */
export function epochsIn(region: Pick<Region, 'int32' | 'float64'>): EpochsState {
  return {
    joined: region.int32(MOST_STREAMS),
    used: region.int32(MOST_STREAMS),
    slots: region.int32(2),
    stamps: region.float64(2),
  }
}

export class Epochs {
  /** times that this thread made a stream wait for another */
  insertedWaits = 0
  /**
   * streams of other devices, and the latest epoch in which their work may use the memory; an arena of several threads
   * has none
   */
  private readonly peers = new Map<Stream, number>()

  private readonly isShared: boolean

  constructor(
    private readonly state: EpochsState,
    private readonly clocks: Clocks,
  ) {
    this.isShared = state.used.buffer instanceof SharedArrayBuffer
  }

  /** Begins the first epoch after the work submitted to `stream` so far, which may be closed. */
  beginBehind(stream: Stream): void {
    this.beginAt(FIRST_EPOCH, ...stream.covering)
    this.begun(FIRST_EPOCH)
  }

  /** An open stream is about to get memory of an epoch; false when `isNow` says that the epoch has ended. */
  join(stream: Stream, epoch: number, isNow: () => boolean): boolean {
    const { joined, slots, stamps } = this.state
    if (joined[stream.slot] === epoch) return true
    const slot = slots[epoch & 1] - 1
    const stamp = stamps[epoch & 1]
    if (!isNow()) return false // slot and stamp may be of another epoch
    if (slot !== -1) this.order(slot, stamp, stream)
    this.use(stream, epoch)
    this.raise(joined, stream.slot, epoch)
    return true
  }

  /** `stream` uses memory of an epoch that was allocated on another stream. It may be closed, or of another device. */
  use(stream: Stream, epoch: number): void {
    if (stream.clocks === this.clocks)
      this.raise(this.state.used, stream.slot < 0 ? stream.lastSlot : stream.slot, epoch)
    else this.peers.set(stream, epoch)
  }

  /**
   * The memory of an epoch is about to be given back on `stream`, where the next epoch begins. `isAll`: all of it;
   * otherwise those who used it may go on to.
   */
  end(epoch: number, stream: Stream, isAll: boolean): void {
    const { clocks } = this
    const { slotLimit } = clocks
    for (let slot = 0; slot < slotLimit; slot++) {
      if (!this.isUser(slot, epoch)) continue
      if (slot !== stream.slot) this.order(slot, clocks.covering(slot), stream)
      if (!isAll) this.raise(this.state.used, slot, epoch + 1)
    }
    if (this.peers.size > 0) this.endPeers(epoch, stream, isAll)
    this.beginAt(epoch + 1, stream.slot, clocks.marked[stream.slot] + 1)
  }

  /** An epoch has begun, or is about to: its end must wait for the point where it began. */
  begun(epoch: number): void {
    this.raise(this.state.used, this.state.slots[epoch & 1] - 1, epoch)
    if ((epoch & (REFRESH - 1)) === 0) this.refresh((epoch - LONG_AGO) | 0)
  }

  /** The work that may use memory of an epoch, of this and of other devices. */
  usesIn(epoch: number): Use[] {
    const { clocks } = this
    const uses: Use[] = []
    for (let slot = 0; slot < clocks.slotLimit; slot++) {
      if (this.isUser(slot, epoch)) uses.push({ clocks, slot, stamp: clocks.covering(slot) })
    }
    for (const [peer, used] of this.peers) {
      const [slot, stamp] = peer.covering
      if (((used - epoch) | 0) >= 0) uses.push({ clocks: peer.clocks, slot, stamp })
    }
    return uses
  }

  /**
   * An epoch ends, and the next begins at a stamp of a slot that comes after all use of the memory that is given back.
   * Those who used other memory go on to.
   */
  endAt(epoch: number, slot: number, stamp: number): void {
    const { slotLimit } = this.clocks
    for (let user = 0; user < slotLimit; user++) {
      if (this.isUser(user, epoch)) this.raise(this.state.used, user, epoch + 1)
    }
    for (const [peer, used] of this.peers) if (((used - epoch) | 0) >= 0) this.peers.set(peer, epoch + 1)
    this.beginAt(epoch + 1, slot, stamp)
  }

  /** Work of a slot may use memory of an epoch. */
  useIn(epoch: number, slot: number): void {
    this.raise(this.state.used, slot, epoch)
  }

  /** Waits on the host for work of other devices. */
  finishPeers(): void {
    for (const { clocks, covering } of this.peers.keys()) clocks.catchUp(...covering, true)
  }

  /** The slot of the only stream that uses the memory; -1 when several do. */
  only(epoch: number): number {
    const { slotLimit } = this.clocks
    let only = -1
    for (let slot = 0; slot < slotLimit; slot++) {
      if (!this.isUser(slot, epoch)) continue
      if (only !== -1) return -1
      only = slot
    }
    return only
  }

  /** Whether a slot's work may use memory of an epoch. An end that was cut short has raised some to the next epoch. */
  private isUser(slot: number, epoch: number): boolean {
    return ((loadAcquire(this.state.used, slot) - epoch) | 0) >= 0
  }

  /** As `end`, for the streams of other devices. */
  private endPeers(epoch: number, stream: Stream, isAll: boolean): void {
    for (const [peer, used] of this.peers) {
      if (((used - epoch) | 0) < 0) this.peers.delete(peer)
      else peer.clocks.orderPeer(...peer.covering, stream)
    }
    if (!isAll) for (const peer of this.peers.keys()) this.peers.set(peer, epoch + 1)
  }

  private beginAt(epoch: number, slot: number, stamp: number): void {
    this.state.stamps[epoch & 1] = stamp
    this.state.slots[epoch & 1] = slot + 1
  }

  /** Raises very old epochs, so that all differences stay below 2^31 and tell which of two comes first. */
  private refresh(longAgo: number): void {
    for (let slot = 0; slot < MOST_STREAMS; slot++) {
      this.raise(this.state.joined, slot, longAgo)
      this.raise(this.state.used, slot, longAgo)
    }
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

  /** Raises a word to an epoch, unless it holds a later one. */
  private raise(words: Int32Array, index: number, epoch: number): void {
    for (;;) {
      const before = loadAcquire(words, index)
      if (((epoch - before) | 0) <= 0) return
      if (!this.isShared) {
        words[index] = epoch // a tenth of a reset's time less
        return
      }
      if (Atomics.compareExchange(words, index, before, epoch) === before) return
    }
  }
}
