// Order between streams of several threads that share memory which is given back all at once: epochs.ts, with all it knows in
// shared memory. What a stream has done is the epoch in which it did so last. Epochs go round in all int32.

import type { Region } from '../../base/region.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'

/** Epochs between two refreshments, and how far the latter put back what is older. */
const REFRESH = 2 ** 20
const LONG_AGO = 2 ** 29

/** What the threads know of it together. */
export function epochsIn(region: Region) {
  return {
    /** by stream slot: the latest epoch that the stream has joined: it waits for where that began */
    joined: region.int32(MOST_STREAMS),
    /** by stream slot: the latest epoch in which its work may use the memory */
    used: region.int32(MOST_STREAMS),
    /** by the last bit of an epoch: where it began; one more than the slot, 0 for nowhere */
    slots: region.int32(2),
    stamps: region.float64(2),
  }
}

export class SharedEpochs {
  /** times that this thread made a stream wait for another */
  insertedWaits = 0

  constructor(
    readonly known: ReturnType<typeof epochsIn>,
    private readonly clocks: Clocks,
  ) {}

  /** An open stream is about to get memory of an epoch; it gets none if `isNow` says that this has ended. */
  join(stream: Stream, epoch: number, isNow: () => boolean): boolean {
    if (this.known.joined[stream.slot] === epoch) return true
    const slot = this.known.slots[epoch & 1] - 1
    const stamp = this.known.stamps[epoch & 1]
    if (!isNow()) return false // and what was read is perhaps of another one
    if (slot !== -1) this.order(slot, stamp, stream)
    this.use(stream, epoch)
    raise(this.known.joined, stream.slot, epoch)
    return true
  }

  /** A stream, open or closed, uses memory of an epoch that another one got. */
  use(stream: Stream, epoch: number): void {
    raise(this.known.used, stream.covering[0], epoch)
  }

  /** Memory of an epoch is about to be given back on `stream`, where the next one begins. */
  end(epoch: number, stream: Stream): void {
    const { clocks } = this
    for (const slot of this.users(epoch)) this.order(slot, clocks.covering(slot), stream)
    this.known.stamps[(epoch + 1) & 1] = clocks.marked[stream.slot] + 1
    this.known.slots[(epoch + 1) & 1] = stream.slot + 1
  }

  /** An epoch has begun: whoever ends it must wait for where it began. */
  begun(epoch: number): void {
    raise(this.known.used, this.known.slots[epoch & 1] - 1, epoch)
    if ((epoch & (REFRESH - 1)) === 0) this.refresh((epoch - LONG_AGO) | 0)
  }

  /** The slot of the only stream that uses the memory; -1 when there is no such. */
  only(epoch: number): number {
    const users = this.users(epoch)
    return users.length === 1 ? users[0] : -1
  }

  private users(epoch: number): number[] {
    const slots: number[] = []
    for (let slot = 0; slot < MOST_STREAMS; slot++) if (Atomics.load(this.known.used, slot) === epoch) slots.push(slot)
    return slots
  }

  /** Keeps what streams did long ago within half of all numbers, in which it is known which of two comes first. */
  private refresh(longAgo: number): void {
    for (let slot = 0; slot < MOST_STREAMS; slot++) {
      raise(this.known.joined, slot, longAgo)
      raise(this.known.used, slot, longAgo)
    }
  }

  private order(slot: number, stamp: number, stream: Stream): void {
    const { known, completed } = this.clocks
    if (slot === stream.slot || completed[slot] >= stamp || known[stream.slot * MOST_STREAMS + slot] >= stamp) return
    if (this.clocks.order(stream.slot, slot, stamp, false)) this.insertedWaits++
  }
}

/** Makes a word the later of itself and an epoch; another thread may have made it later still. */
function raise(words: Int32Array, index: number, epoch: number): void {
  for (;;) {
    const before = Atomics.load(words, index)
    if (((epoch - before) | 0) <= 0 || Atomics.compareExchange(words, index, before, epoch) === before) return
  }
}
