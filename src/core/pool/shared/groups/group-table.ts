// The part of graph groups that all threads of a pool share: the order of launches, the lock that is held over a
// launch, and whether the group is open. The table lies in the pool's shared state. The memory of a group is in the
// pool server (group-server.ts).

import { serveWaiting } from '../../../driver/serve-waiting.js'
import type { Region } from '../../../threads/region.js'
import { RobustLock } from '../../../threads/robust-lock.js'
import type { ThreadRegistry } from '../../../threads/thread-registry.js'
import { GroupOrder, type GroupOrderConfig } from '../../caching/captures/group-order.js'

/** The part of an order's configuration that lies in the table. */
type OrderMemory = Pick<GroupOrderConfig, 'state' | 'lock'>

/** Groups of a pool at a time. */
export const MOST_GROUPS = 32

/** The words of a place. */
const enum At {
  lock,
  /** the number of the group, which no other one of the pool has; 0 once it is closed */
  number,
  /** captures that have ended: each may have taken scratch that was idle */
  captures,
  /** the processor's cache lines are of 16 words */
  count = 16,
}

/** A thread, as locks know it. */
interface Thread {
  readonly registry: ThreadRegistry
  readonly thread: number
}

export class GroupTable {
  private readonly words: Int32Array
  private readonly orders: Float64Array
  /** by place: of the latest group there that this thread uses */
  private readonly locks: (RobustLock | undefined)[] = []

  constructor(region: Region) {
    this.words = region.int32(MOST_GROUPS * At.count)
    this.orders = region.float64(MOST_GROUPS * GroupOrder.WORDS)
  }

  /** Begins a group in a place that no other one has. */
  open(place: number, number: number): void {
    this.ordersOf(place).fill(0)
    Atomics.store(this.words, place * At.count + At.number, number)
  }

  close(place: number): void {
    Atomics.store(this.words, place * At.count + At.number, 0)
  }

  /** Whether the group with this number has the place; false for numbers that no group has. */
  isOpen(place: number, number: number): boolean {
    return (
      number > 0 &&
      place >= 0 &&
      place < MOST_GROUPS &&
      Atomics.load(this.words, place * At.count + At.number) === number
    )
  }

  capturesOf(place: number): number {
    return Atomics.load(this.words, place * At.count + At.captures)
  }

  noteCapture(place: number): void {
    Atomics.add(this.words, place * At.count + At.captures, 1)
  }

  /** State and lock of a group's order, for an object of this thread. */
  memoryOf(place: number, { registry, thread }: Thread): OrderMemory {
    const lock = new RobustLock(this.words, place * At.count + At.lock, registry, thread, serveWaiting)
    this.locks[place] = lock
    return { state: this.ordersOf(place), lock }
  }

  /** Releases locks that calls of this thread have held when they were cut short. */
  dropStale(): void {
    for (const lock of this.locks) lock?.dropStale()
  }

  private ordersOf(place: number): Float64Array {
    return this.orders.subarray(place * GroupOrder.WORDS, (place + 1) * GroupOrder.WORDS)
  }
}
