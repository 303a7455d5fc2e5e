// The order of a group's launches. Graphs of a group use the same memory, so a launch comes after all that used the
// memory before: the launch before it, uses of outputs since, and work on blocks that were freed since.
//
// These are a list of streams and stamps. A launch makes its stream wait for those that it does not come after already.
// From then on the next mark of its stream covers all of them. So the launch alone takes their place in the list, even
// if the driver then refuses it. The list must not change before all waits were made: a refused wait would be lost.
//
// The list is one array of numbers, which may lie in memory that threads share. Then each thread has such an object.
// A lock is held from the look at the list until the launch is submitted and noted. Without it two threads would wait
// for the same launch, and run beside each other. A thread may die or be cut short between any two stores, so the list
// is right after each: a launch that is under way covers all work of its stream until it has its stamp.
//
// The lock is left before work that uses an output is submitted. So a thread uses a 'shared' output only while no other
// thread launches. Otherwise the use is refused, or finds contents of another graph.

import { isDriverError } from '../../../base/thrown.js'
import { CU_STREAM_PER_THREAD } from '../../../driver/constants.js'
import { type Clocks, MOST_STREAMS } from '../../../order/clocks.js'
import type { LaunchRule, SharingGraph } from '../../../order/graph-memory.js'
import type { OrderedStream } from '../../../order/ordered-stream.js'
import type { RobustLock } from '../../../threads/robust-lock.js'
import type { Use } from '../central/deferred.js'
import type { Waiting } from '../central/parts.js'
import { elsewhere, perThread, unordered } from './group-errors.js'
import { covered, isDone, UNTIL_NEXT } from './lasting-use.js'

/** A stream of this or another device. */
type User = OrderedStream & { readonly clocks: Clocks }

/** An output that is used. */
interface UsedOutput {
  /** the only graph that may use it in its launches; null if others may, too */
  readonly onlyGraph: SharingGraph | null
  /** Throws PoolError, in the name of `call`, if a launch has overwritten it. */
  checkValid(call: string): void
}

/** Index of a number in the state; all are 0 at first. A launch uses the first six, which share a cache line. */
export const enum At {
  /** the number of the graph that was launched last; 0 for none, a refused one, and once its outputs are gone */
  latest,
  launches,
  /** of the latest launch: its stream slot and its stamp */
  launchSlot,
  launchStamp,
  /** 1 once a wait was needed: then each launch gets a mark, so that the next wait is for that launch alone */
  isSpread,
  /** uses since then */
  count,
  /** how often a stream was made to wait */
  waits,
  /** of each of those: its slot and stamp */
  uses,
}

export interface GroupOrderConfig {
  /** whether a launch that needs a wait is refused */
  readonly refuses: boolean
  /** fills the memory of a graph on the stream of its launch */
  readonly poison: ((stream: OrderedStream, graph: number) => void) | null
  /** `GroupOrder.WORDS` numbers, which are 0 before the first use; in memory that threads share if there is a lock */
  readonly state: Float64Array
  /** of a group that threads share; it must serve simulated drivers while it waits, since launches are made under it */
  readonly lock: RobustLock | null
}

export class GroupOrder implements LaunchRule {
  /** numbers that the state has */
  static readonly WORDS = At.uses + 2 * MOST_STREAMS

  private readonly refuses: boolean
  private readonly poison: ((stream: OrderedStream, graph: number) => void) | null
  private readonly state: Float64Array
  private readonly lock: RobustLock | null
  /** uses on other devices since then; null for none */
  private peers: readonly Use[] | null = null

  constructor(
    private readonly clocks: Clocks,
    { refuses, poison, state, lock }: GroupOrderConfig,
  ) {
    this.refuses = refuses
    this.poison = poison
    this.state = state
    this.lock = lock
  }

  /** whether threads share the group */
  get isShared(): boolean {
    return this.lock !== null
  }

  /** the number of the graph that was launched last; 0 for none, a refused one, and once its outputs are gone */
  get latest(): number {
    return this.state[At.latest]
  }

  /** launches so far */
  get launches(): number {
    return this.state[At.launches]
  }

  /** how often a stream was made to wait */
  get waits(): number {
    return this.state[At.waits]
  }

  submit(graph: SharingGraph, stream: OrderedStream, work: (handle: number) => void): void {
    const { clocks } = this
    if (clocks.slots.me !== 0) {
      this.submitBesideThreads(graph, stream, work)
      return
    }
    // No other thread places marks, so the next one covers the launch, also if the driver refuses it.
    this.begin('launch', graph, stream, clocks.marked[stream.slot] + 1)
    stream.submit('launch', work)
    this.noteLaunch(graph)
  }

  enter(call: string, graph: SharingGraph, stream: OrderedStream): void {
    if (this.lock !== null) this.checkStream(call, stream as User)
    this.acquire()
    try {
      this.begin(call, graph, stream, UNTIL_NEXT)
    } catch (error) {
      this.release()
      throw error
    }
  }

  leave(graph: SharingGraph, isLaunched: boolean): void {
    const { state } = this
    try {
      // Read after the launch: a mark that another thread has placed meanwhile does not cover it.
      const stamp = this.clocks.marked[state[At.launchSlot]] + 1
      state[At.launchStamp] = stamp
      graph.launchStamp = stamp
      if (isLaunched) this.noteLaunch(graph)
    } finally {
      this.release()
    }
  }

  private submitBesideThreads(graph: SharingGraph, stream: OrderedStream, work: (handle: number) => void): void {
    this.enter('launch', graph, stream)
    let isLaunched = false
    try {
      stream.submit('launch', work)
      isLaunched = true
    } finally {
      this.leave(graph, isLaunched)
    }
  }

  /** The launch of a graph comes next. `stamp` covers it. */
  private begin(call: string, graph: SharingGraph, stream: OrderedStream, stamp: number): void {
    const { state } = this
    const { slot } = stream
    if (slot !== state[At.launchSlot] || state[At.count] > 0 || this.peers !== null) {
      this.orderAll(call, graph.number, stream)
    }
    state[At.launchStamp] = stamp // first: beside other threads the list covers too much from here on
    state[At.launchSlot] = slot
    state[At.count] = 0
    state[At.latest] = 0 // until the driver has taken the launch: a refused one may have left contents of no graph
    graph.launchStamp = stamp
    graph.launchSlot = slot
    if (this.poison !== null) this.poison(stream, graph.number)
  }

  private noteLaunch(graph: SharingGraph): void {
    const { state } = this
    state[At.latest] = graph.number
    state[At.launches]++
    if (state[At.isSpread] === 1) this.mark(state[At.launchSlot])
  }

  /** Shared outputs have no contents any more. */
  loseContents(): void {
    this.acquire()
    this.state[At.latest] = 0
    this.release()
  }

  /**
   * Work that is submitted to an open stream next uses an output: it comes after the latest launch that may use the
   * output, and before the next launch of the group. Throws as `enter` does.
   */
  noteUse(call: string, stream: User, output: UsedOutput): void {
    this.checkStream(call, stream)
    this.acquire()
    try {
      output.checkValid(call)
      this.followLaunch(call, stream, output.onlyGraph)
      // In a shared order a thread may place a mark on the stream before the work is there.
      this.addUse(stream, stream.clocks.slots.me === 0)
    } finally {
      this.release()
    }
  }

  /** Work on an open stream uses an output from now on, until the next launch. */
  noteUses(stream: User): void {
    this.acquire()
    this.addUse(stream, false)
    this.release()
  }

  /** Adds a use that the next launch waits for; see `checkStream`. */
  add(use: Use): void {
    this.acquire()
    this.push(use)
    this.release()
  }

  /** Throws PoolError, in the name of `call`, for a stream that threads which share the group could not wait for. */
  checkStream(call: string, stream: User): void {
    if (this.lock === null) return
    if (stream.clocks !== this.clocks) throw elsewhere(call)
    if (stream.handle === CU_STREAM_PER_THREAD) throw perThread(call)
  }

  /** Takes the lock over from a dead thread; called before another thread gets its number. */
  bury(thread: number): void {
    if (this.lock?.owner !== thread) return
    this.acquire()
    this.release()
  }

  /** The latest launch, which comes after all others; null for none. */
  get launch(): Use | null {
    const { clocks, state } = this
    const stamp = state[At.launchStamp]
    return stamp === 0 ? null : covered({ clocks, slot: state[At.launchSlot], stamp })
  }

  /** Work on other devices that uses the memory. */
  get workOfPeers(): readonly Use[] {
    return (this.peers ?? []).map(covered)
  }

  /** Whether the host sees all uses complete, asking the driver. */
  isComplete(): boolean {
    return this.uses().every(isDone)
  }

  /** The latest launch, and uses since then. */
  get work(): readonly Use[] {
    return this.uses().map(covered)
  }

  /** Waits until all uses so far are complete. */
  *finish(): Waiting<void> {
    const pending = this.work.filter(({ clocks, slot, stamp }) => clocks.completed[slot] < stamp)
    const own = pending.filter(({ clocks }) => clocks === this.clocks)
    const marks = own.map(({ clocks, slot, stamp }) => clocks.watcher.find(slot, stamp, false))
    const open = marks.filter(mark => mark !== null)
    if (open.length > 0) yield open
    for (const { clocks, slot, stamp } of pending) clocks.catchUp(slot, stamp, true)
  }

  private acquire(): void {
    // The list is right after each store, so nothing is repaired after a death.
    if (this.lock !== null) this.lock.acquire()
  }

  private release(): void {
    if (this.lock !== null) this.lock.release()
  }

  private uses(): Use[] {
    const { clocks, state, peers } = this
    this.acquire()
    const uses = [{ clocks, slot: state[At.launchSlot], stamp: state[At.launchStamp] }]
    for (let index = 0; index < state[At.count]; index++) {
      uses.push({ clocks, slot: this.slotAt(index), stamp: this.stampAt(index) })
    }
    this.release()
    return peers === null ? uses : [...uses, ...peers]
  }

  private slotAt(index: number): number {
    return this.state[At.uses + 2 * index]
  }

  private stampAt(index: number): number {
    return this.state[At.uses + 2 * index + 1]
  }

  /** A group that refuses launches relies on events of the program, which come after the next mark. */
  private addUse({ clocks, slot }: User, isNext: boolean): void {
    this.push({ clocks, slot, stamp: isNext || this.refuses ? clocks.marked[slot] + 1 : UNTIL_NEXT })
  }

  private push({ clocks, slot, stamp }: Use): void {
    const { state } = this
    if (clocks !== this.clocks) {
      const others = this.peers?.filter(use => use.clocks !== clocks || use.slot !== slot || use.stamp > stamp) ?? []
      this.peers = [...others, { clocks, slot, stamp }]
      return
    }
    for (let index = 0; index < state[At.count]; index++) {
      if (this.slotAt(index) !== slot) continue
      if (stamp > this.stampAt(index)) state[At.uses + 2 * index + 1] = stamp
      return
    }
    const index = state[At.count]
    state[At.uses + 2 * index] = slot
    state[At.uses + 2 * index + 1] = stamp
    state[At.count] = index + 1
  }

  /** Makes a stream wait for the latest launch of a graph, or of the group. */
  private followLaunch(call: string, stream: User, graph: SharingGraph | null): void {
    const { clocks, slot } = stream
    this.settleLaunch()
    if (graph !== null && graph.launchStamp === UNTIL_NEXT) graph.launchStamp = this.clocks.covering(graph.launchSlot)
    const earlier = graph === null ? this.state[At.launchSlot] : graph.launchSlot
    const stamp = graph === null ? this.state[At.launchStamp] : graph.launchStamp
    if (this.clocks.completed[earlier] >= stamp) return
    const isOwn = clocks === this.clocks
    if (isOwn && (earlier === slot || clocks.known[slot * MOST_STREAMS + earlier] >= stamp)) return
    const launch = { clocks: this.clocks, slot: earlier, stamp }
    if (this.refuses) throw unordered(`${call}: a use of an output`, stream, launch, graph?.number ?? this.latest)
    if (this.makeWait(stream, launch)) this.state[At.waits]++
  }

  /** A launch that was cut short may have been submitted: all work of its stream so far counts. */
  private settleLaunch(): void {
    const { state } = this
    if (state[At.launchStamp] === UNTIL_NEXT) state[At.launchStamp] = this.clocks.covering(state[At.launchSlot])
  }

  /**
   * Makes the stream of a launch wait for all that used the memory before. The launch comes last: a wait for a use on
   * its stream covers it.
   */
  private orderAll(call: string, graph: number, stream: OrderedStream): void {
    const { state } = this
    this.settleLaunch()
    for (let index = 0; index < state[At.count]; index++) {
      this.order(call, graph, stream, this.slotAt(index), this.stampAt(index), 0)
    }
    this.order(call, graph, stream, state[At.launchSlot], state[At.launchStamp], state[At.latest])
    if (this.peers !== null) this.orderPeers(call, graph, stream)
  }

  /** The same for one use: the launch of graph `other`, or 0 for another use. */
  private order(call: string, graph: number, stream: OrderedStream, slot: number, stamp: number, other: number): void {
    const { completed, known } = this.clocks
    if (slot === stream.slot || completed[slot] >= stamp || known[stream.slot * MOST_STREAMS + slot] >= stamp) return
    const use = this.useAt(slot, stamp)
    if (this.refuses) throw unordered(`${call}: graph ${graph} of the group`, stream, use, other)
    if (!this.makeWait(stream, use)) return
    this.state[At.waits]++
    this.state[At.isSpread] = 1
  }

  private orderPeers(call: string, graph: number, stream: OrderedStream): void {
    for (const use of this.workOfPeers) {
      if (use.clocks.completed[use.slot] >= use.stamp) continue
      if (this.refuses) throw unordered(`${call}: graph ${graph} of the group`, stream, use, 0)
      if (this.makeWait(stream, use)) this.state[At.waits]++
    }
    this.peers = null
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
