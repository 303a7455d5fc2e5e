// Order between streams of several threads that share an arena: epochs.ts with its state in shared memory. For each
// stream the state holds the latest epoch in which it joined, and in which it used memory. Epochs are int32 and wrap
// around.

import type { Region } from '../../base/region.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'

/** Epochs between two refreshes, and the age that a refresh cuts older epochs down to. */
const REFRESH = 2 ** 20
const LONG_AGO = 2 ** 29

/** The shared part. */
interface EpochsState {
  /** by stream slot: the latest epoch that the stream has joined; it waited for the point where that epoch began */
  readonly joined: Int32Array
  /** by stream slot: the latest epoch in which the stream's work may use the memory */
  readonly used: Int32Array
  /** by the last bit of an epoch: the slot and stamp where it began; slots are one more, 0 for none */
  readonly slots: Int32Array
  readonly stamps: Float64Array
}

/** The shared part, laid out in `region`. */
export function epochsIn(region: Region): EpochsState {
  return {
    joined: region.int32(MOST_STREAMS),
    used: region.int32(MOST_STREAMS),
    slots: region.int32(2),
    stamps: region.float64(2),
  }
}

export class SharedEpochs {
  /** times that this thread made a stream wait for another */
  insertedWaits = 0

  constructor(
    readonly known: EpochsState,
    private readonly clocks: Clocks,
  ) {}

  /** An open stream is about to get memory of an epoch; false when `isNow` says that the epoch has ended. */
  join(stream: Stream, epoch: number, isNow: () => boolean): boolean {
    if (this.known.joined[stream.slot] === epoch) return true
    const slot = this.known.slots[epoch & 1] - 1
    const stamp = this.known.stamps[epoch & 1]
    if (!isNow()) return false // slot and stamp may be of another epoch
    if (slot !== -1) this.order(slot, stamp, stream)
    this.use(stream, epoch)
    raise(this.known.joined, stream.slot, epoch)
    return true
  }

  /** A stream, open or closed, uses memory of an epoch that was allocated on another stream. */
  use(stream: Stream, epoch: number): void {
    raise(this.known.used, stream.covering[0], epoch)
  }

  /** The memory of an epoch is about to be given back on `stream`, where the next epoch begins. */
  end(epoch: number, stream: Stream): void {
    const { clocks } = this
    for (const slot of this.users(epoch)) this.order(slot, clocks.covering(slot), stream)
    this.known.stamps[(epoch + 1) & 1] = clocks.marked[stream.slot] + 1
    this.known.slots[(epoch + 1) & 1] = stream.slot + 1
  }

  /** An epoch has begun: its end must wait for the point where it began. */
  begun(epoch: number): void {
    raise(this.known.used, this.known.slots[epoch & 1] - 1, epoch)
    if ((epoch & (REFRESH - 1)) === 0) this.refresh((epoch - LONG_AGO) | 0)
  }

  /** The slot of the only stream that uses the memory; -1 when several do. */
  only(epoch: number): number {
    const users = this.users(epoch)
    return users.length === 1 ? users[0] : -1
  }

  private users(epoch: number): number[] {
    const slots: number[] = []
    const { slotLimit } = this.clocks
    for (let slot = 0; slot < slotLimit; slot++) if (Atomics.load(this.known.used, slot) === epoch) slots.push(slot)
    return slots
  }

  /** Raises very old epochs, so that all differences stay below 2^31 and tell which of two comes first. */
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

/** Raises a word to an epoch, unless it holds a later one. */
function raise(words: Int32Array, index: number, epoch: number): void {
  for (;;) {
    const before = Atomics.load(words, index)
    if (((epoch - before) | 0) <= 0 || Atomics.compareExchange(words, index, before, epoch) === before) return
  }
}
