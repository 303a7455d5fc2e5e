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
import type { Waiting } from '../central/parts.js'

/** A stream of this or another device. */
type User = OrderedStream & { readonly clocks: Clocks }

/** The stamp of a use that lasts until the next launch. */
const UNTIL_NEXT = Infinity

export class GroupOrder implements LaunchRule {
  /** the number of the graph that was launched last; 0 for none, a refused one, and once its outputs are gone */
  latest = 0
  /** launches so far */
  launches = 0
  /** how often a stream was made to wait */
  waits = 0
  /** of the latest launch: its stream slot, its stamp and its graph; -1 before the first */
  private launchSlot = -1
  private launchStamp = 0
  private launched = 0
  /** what the next launch waits for on that stream: the launch, or a use since then */
  private dueStamp = 0
  /** of each use since then on another stream: its slot and stamp */
  private readonly slots: number[] = []
  private readonly stamps: number[] = []
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
    if (slot !== this.launchSlot || this.count > 0 || this.peers.length > 0) this.orderAll(call, graph, stream)
    this.launchSlot = slot
    this.noteStamp()
    this.launched = graph
    this.count = 0
    this.latest = 0 // until the driver has taken the launch: a refused one may have left contents of no graph
    this.launches++
    if (this.poison !== null) this.poison(stream)
  }

  leave(): void {
    this.noteStamp() // another thread may have placed a mark on the stream, which does not cover the launch
    this.latest = this.launched
    if (this.isSpread) this.mark(this.launchSlot)
  }

  /** The next mark of the stream covers the launch. */
  private noteStamp(): void {
    this.launchStamp = this.clocks.marked[this.launchSlot] + 1
    this.dueStamp = this.launchStamp
  }

  /**
   * Work that is submitted to an open stream next uses an output: it comes after the latest launch, and before the
   * next. Throws as `enter` does.
   */
  noteUse(call: string, stream: User): void {
    if (this.launches > 0) this.followLaunch(call, stream)
    // In a shared order a thread may place a mark on the stream before the work is there.
    this.addUse(stream, stream.clocks.slots.me === 0)
  }

  /** Work on an open stream uses an output from now on, until the next launch. */
  noteUses(stream: User): void {
    this.addUse(stream, false)
  }

  /** A group that refuses launches relies on events of the program, which come after the next mark. */
  private addUse({ clocks, slot }: User, isNext: boolean): void {
    this.add({ clocks, slot, stamp: isNext || this.refuses ? clocks.marked[slot] + 1 : UNTIL_NEXT })
  }

  private followLaunch(call: string, stream: User): void {
    const { clocks, slot } = stream
    const earlier = this.launchSlot
    const stamp = this.launchStamp
    if (this.clocks.completed[earlier] >= stamp) return
    const isOwn = clocks === this.clocks
    if (isOwn && (earlier === slot || clocks.known[slot * MOST_STREAMS + earlier] >= stamp)) return
    const launch = { clocks: this.clocks, slot: earlier, stamp }
    if (this.refuses) throw unordered(`${call}: a use of an output`, stream, launch, this.launched)
    if (this.makeWait(stream, launch)) this.waits++
  }

  /** Adds a use that the next launch waits for. */
  add({ clocks, slot, stamp }: Use): void {
    if (clocks !== this.clocks) {
      this.peers = this.peers.filter(use => use.clocks !== clocks || use.slot !== slot || use.stamp > stamp)
      this.peers.push({ clocks, slot, stamp })
      return
    }
    if (slot === this.launchSlot) {
      if (stamp > this.dueStamp) this.dueStamp = stamp
      return
    }
    for (let index = 0; index < this.count; index++) {
      if (this.slots[index] !== slot) continue
      if (stamp > this.stamps[index]) this.stamps[index] = stamp
      return
    }
    this.slots[this.count] = slot
    this.stamps[this.count] = stamp
    this.count++
  }

  /** Work on other devices that uses the memory. */
  get workOfPeers(): readonly Use[] {
    return this.peers.map(covered)
  }

  /** Whether the host sees all uses complete, asking the driver. */
  isComplete(): boolean {
    return this.uses().filter(use => !isDone(use)).length === 0
  }

  /** Waits until all uses so far are complete. */
  *finish(): Waiting<void> {
    const uses = this.uses().map(covered)
    const own = uses.filter(({ clocks }) => clocks === this.clocks)
    const marks = own.map(({ clocks, slot, stamp }) => clocks.watcher.find(slot, stamp, false))
    const open = marks.filter(mark => mark !== null)
    if (open.length > 0) yield open
    for (const { clocks, slot, stamp } of uses) clocks.catchUp(slot, stamp, true)
  }

  private uses(): Use[] {
    const { clocks, peers, stamps, launchSlot, dueStamp } = this
    const launch = launchSlot === -1 ? [] : [{ clocks, slot: launchSlot, stamp: dueStamp }]
    const others = this.slots.slice(0, this.count).map((slot, index) => ({ clocks, slot, stamp: stamps[index] }))
    return [...launch, ...others, ...peers]
  }

  /** Makes the stream of a launch wait for all that used the memory before. */
  private orderAll(call: string, graph: number, stream: OrderedStream): void {
    if (this.launchSlot !== -1) this.order(call, graph, stream, this.launchSlot, this.dueStamp, this.launched)
    for (let index = 0; index < this.count; index++) {
      this.order(call, graph, stream, this.slots[index], this.stamps[index], 0)
    }
    if (this.peers.length > 0) this.orderPeers(call, graph, stream)
  }

  /** The same for one use: the launch of graph `other`, or 0 for another use. */
  private order(call: string, graph: number, stream: OrderedStream, slot: number, stamp: number, other: number): void {
    const { completed, known } = this.clocks
    if (slot === stream.slot || completed[slot] >= stamp || known[stream.slot * MOST_STREAMS + slot] >= stamp) return
    const use = this.useAt(slot, stamp)
    if (this.refuses) throw unordered(`${call}: graph ${graph} of the group`, stream, use, other)
    if (!this.makeWait(stream, use)) return
    this.waits++
    this.isSpread = true
  }

  private orderPeers(call: string, graph: number, stream: OrderedStream): void {
    for (const use of this.workOfPeers) {
      if (use.clocks.completed[use.slot] >= use.stamp) continue
      if (this.refuses) throw unordered(`${call}: graph ${graph} of the group`, stream, use, 0)
      if (this.makeWait(stream, use)) this.waits++
    }
    this.peers = []
  }

  /** Makes an open stream wait for a use on the device; returns whether there was something to wait for. */
  private makeWait(later: OrderedStream, { clocks, slot, stamp }: Use): boolean {
    if (clocks === later.clocks) return clocks.order(later.slot, slot, stamp, false)
    return clocks.orderPeer(slot, stamp, later)
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
}

/** A use whose stamp is a mark, or the next one. */
function covered(use: Use): Use {
  return use.stamp === UNTIL_NEXT ? { ...use, stamp: use.clocks.covering(use.slot) } : use
}

/** Whether the host sees a use complete, asking the driver: for a mark, or about all work of the stream. */
function isDone(use: Use): boolean {
  const { clocks, slot, stamp } = covered(use)
  if (clocks.completed[slot] >= stamp) return true
  const stream = clocks.registry.streamOf(slot)
  if (use.stamp === UNTIL_NEXT && stream !== null && stream.slot === slot) return stream.query()
  clocks.catchUp(slot, stamp, false)
  return clocks.completed[slot] >= stamp
}

/** The error for work that may run beside a use: a launch of a graph, or 0 for any other use. */
function unordered(work: string, stream: OrderedStream, { clocks, slot }: Use, graph: number): PoolError {
  const other = graph === 0 ? 'a use of the same memory' : `graph ${graph}`
  return new PoolError(
    `${work} on ${streamName(stream.handle)} may run beside ${other} on ${streamName(clocks.handles[slot])}; ` +
      "let the stream wait first (stream.wait(event)), or make the group with whenUnordered 'wait'",
    'ERR_STREAM_ORDER',
  )
}
