// The order of a group's launches. Graphs of a group use the same memory, so a launch comes after all that used the
// memory before: the launch before it, uses of outputs since, and work on blocks that were freed since.
//
// These are a list of streams and stamps. A launch makes its stream wait for those that it does not come after already.
// From then on the next mark of its stream covers all of them, so the launch alone takes their place in the list, also
// if the driver then refuses it. The list must not change before all waits were made: a refused wait would be lost.

import { PoolError } from '../../../base/errors.js'
import { isDriverError } from '../../../base/thrown.js'
import { type Clocks, MOST_STREAMS } from '../../../order/clocks.js'
import type { LaunchRule } from '../../../order/graph-memory.js'
import { type OrderedStream, streamName } from '../../../order/ordered-stream.js'
import type { Use } from '../central/deferred.js'

/** The stamp of a use that lasts until the next launch. */
const UNTIL_NEXT = Infinity

export class GroupOrder implements LaunchRule {
  /** the number of the graph that was launched last; 0 for none, and once its shared outputs are gone */
  latest = 0
  /** launches so far */
  launches = 0
  /** how often a stream was made to wait */
  waits = 0
  /** of each use: its stream slot, its stamp, and the graph if it is a launch */
  private readonly slots: number[] = []
  private readonly stamps: number[] = []
  private readonly graphs: number[] = []
  private count = 0
  /** uses on other devices */
  private peers: Use[] = []
  /** whether a wait was needed so far: then each launch gets a mark, so that the next wait is for that launch alone */
  private isSpread = false

  constructor(
    private readonly clocks: Clocks,
    /** whether a launch that needs a wait is refused */
    private readonly refuses: boolean,
    /** fills the memory on the stream of a launch, or does nothing */
    private readonly poison: ((stream: OrderedStream) => void) | null,
  ) {}

  enter(call: string, graph: number, stream: OrderedStream): void {
    const { slot } = stream
    const { completed, known, marked } = this.clocks
    for (let index = 0; index < this.count; index++) {
      const earlier = this.slots[index]
      const stamp = this.stamps[index]
      if (earlier === slot || completed[earlier] >= stamp || known[slot * MOST_STREAMS + earlier] >= stamp) continue
      this.order(call, graph, slot, index)
    }
    if (this.peers.length > 0) this.orderPeers(call, graph, stream)
    this.slots[0] = slot
    this.stamps[0] = marked[slot] + 1
    this.graphs[0] = graph
    this.count = 1
    this.latest = graph
    this.launches++
    if (this.poison !== null) this.poison(stream)
  }

  leave(): void {
    // Another thread may have placed a mark on the stream, which does not cover the launch.
    const slot = this.slots[0]
    this.stamps[0] = this.clocks.marked[slot] + 1
    if (this.isSpread) this.mark(slot)
  }

  /**
   * Work that is submitted to a stream next uses memory of the group. Among several threads another one may place a mark
   * in between, and then all work until the next launch counts.
   */
  noteUse(stream: OrderedStream & { readonly clocks: Clocks }): void {
    const { clocks, slot } = stream
    if (slot >= 0) this.add({ clocks, slot, stamp: clocks.slots.me === 0 ? clocks.marked[slot] + 1 : UNTIL_NEXT })
  }

  /** Work on a stream uses memory of the group until the next launch. */
  noteUses({ clocks, slot }: OrderedStream & { readonly clocks: Clocks }): void {
    if (slot >= 0) this.add({ clocks, slot, stamp: UNTIL_NEXT })
  }

  /** Adds a use that the next launch waits for. */
  add({ clocks, slot, stamp }: Use): void {
    if (clocks !== this.clocks) {
      this.peers = this.peers.filter(use => use.clocks !== clocks || use.slot !== slot || use.stamp > stamp)
      this.peers.push({ clocks, slot, stamp })
      return
    }
    for (let index = 0; index < this.count; index++) {
      if (this.slots[index] !== slot) continue
      if (stamp > this.stamps[index]) this.stamps[index] = stamp
      return
    }
    this.slots[this.count] = slot
    this.stamps[this.count] = stamp
    this.graphs[this.count] = 0
    this.count++
  }

  /** Work on other devices that uses the memory. */
  get workOfPeers(): readonly Use[] {
    return this.peers.map(covered)
  }

  /** Whether the host sees all uses complete, asking the driver. */
  isComplete(): boolean {
    const own = this.slots.slice(0, this.count).map((slot, index) => this.useAt(slot, this.stamps[index]))
    const pending = [...own, ...this.workOfPeers].filter(({ clocks, slot, stamp }) => {
      if (clocks.completed[slot] < stamp) clocks.catchUp(slot, stamp, false)
      return clocks.completed[slot] < stamp
    })
    return pending.length === 0
  }

  /** Makes the stream of slot `later` wait for a use. */
  private order(call: string, graph: number, later: number, index: number): void {
    const { clocks } = this
    const { slot, stamp } = this.useAt(this.slots[index], this.stamps[index])
    if (this.refuses) throw this.unordered(call, graph, later, slot, this.graphs[index])
    if (!clocks.order(later, slot, stamp, false)) return
    this.waits++
    this.isSpread = true
  }

  private orderPeers(call: string, graph: number, stream: OrderedStream): void {
    for (const { clocks, slot, stamp } of this.workOfPeers) {
      if (clocks.completed[slot] >= stamp) continue
      if (this.refuses) throw this.unordered(call, graph, stream.slot, null, 0)
      if (clocks.orderPeer(slot, stamp, stream as Parameters<Clocks['orderPeer']>[2])) this.waits++
    }
    this.peers = []
  }

  private useAt(slot: number, stamp: number): Use {
    return covered({ clocks: this.clocks, slot, stamp })
  }

  private mark(slot: number): void {
    try {
      this.clocks.watcher.mark(slot)
    } catch (error) {
      if (!isDriverError(error)) throw error // the launch was made; a later wait places its own mark
    }
  }

  private unordered(call: string, graph: number, later: number, earlier: number | null, other: number): PoolError {
    const { handles } = this.clocks
    const where = earlier === null ? 'another device' : streamName(handles[earlier])
    const what = other === 0 ? 'a use of its memory' : `graph ${other}`
    return new PoolError(
      `${call}: graph ${graph} of the group on ${streamName(handles[later])} may run beside ${what} on ${where}; ` +
        "let the stream wait first (stream.wait(event)), or make the group with whenUnordered 'wait'",
      'ERR_STREAM_ORDER',
    )
  }
}

/** A use whose stamp is a mark, or the next one. */
function covered(use: Use): Use {
  return use.stamp === UNTIL_NEXT ? { ...use, stamp: use.clocks.covering(use.slot) } : use
}
