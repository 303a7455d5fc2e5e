// Builds a trace from a recording that has an address for each allocation and each free, and nothing of streams that
// use a block after its free. Such recordings are written by several threads, so a free may come after the next
// allocation at its address.

import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'

type Origin = Omit<Parameters<TraceBuilder['build']>[0], 'skippedEvents'>

export class AddressEvents {
  readonly stacks
  /** events that were left out; a reader adds those of its own */
  skipped = 0
  private readonly builder = new TraceBuilder()
  /** the bytes of the live block at an address, FREE after its free */
  private readonly live = new Map<number, number>()
  /** by address and bytes, how many blocks a later allocation ended whose own frees are still to come */
  private readonly owed = new Map<number, Map<number, number>>()
  private lastUs = -Infinity

  constructor() {
    this.stacks = this.builder.stacks
  }

  /** How many events there are so far. */
  get count(): number {
    return this.builder.events
  }

  /** Adds an allocation. A block that is still live at its address ends there, since its free was not recorded. */
  allocate(address: number, bytes: number, stream: number, timeUs: number, stack = 0): void {
    const before = this.live.get(address)
    if (before !== undefined && before !== FREE) {
      this.skipped++
      this.end(address, before, stream, timeUs)
      const owed = this.owed.get(address) ?? new Map<number, number>()
      this.owed.set(address, owed.set(before, (owed.get(before) ?? 0) + 1))
    }
    this.live.set(address, bytes)
    this.builder.add(Action.alloc, address, bytes, stream, this.time(timeUs), stack)
  }

  /** Adds a free. Left out are the late free of a block that has ended, and one of another size than the live block. */
  free(address: number, bytes: number, stream: number, timeUs: number): void {
    const owed = this.owed.get(address)
    const late = owed?.get(bytes) ?? 0
    if (late > 0) {
      owed!.set(bytes, late - 1)
      this.skipped++
      return
    }
    const before = this.live.get(address)
    if (before === undefined || before === bytes) this.end(address, bytes, stream, timeUs)
    else this.skipped++
  }

  /** Adds a request that failed. */
  fail(bytes: number, stream: number, timeUs: number, stack = 0): void {
    this.builder.add(Action.outOfMemory, NaN, bytes, stream, this.time(timeUs), stack)
  }

  /** The trace of all events so far. */
  build(origin: Origin): Trace {
    return this.builder.build({ ...origin, skippedEvents: this.skipped })
  }

  private end(address: number, bytes: number, stream: number, timeUs: number): void {
    this.live.set(address, FREE)
    this.builder.add(Action.freeRequested, address, bytes, stream, this.time(timeUs))
    this.builder.add(Action.freeCompleted, address, bytes, stream, this.time(timeUs))
  }

  /** Threads read the clock before they write, so that times may go back a little. */
  private time(timeUs: number): number {
    this.lastUs = Math.max(this.lastUs, timeUs)
    return this.lastUs
  }
}

const FREE = -1
