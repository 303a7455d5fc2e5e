// What keeps a pool that several threads share: in a thread of its own it does all that needs the driver, for whoever asks.
// It finds memory and moves it, asks how far streams have come, and clears up behind threads that have ended. It
// works with the central heap of a pool of one thread, under the lock, which each driver call leaves for as long as it takes.
//
// The owner word of a block names its thread. When a thread has died, its live blocks stay until they are reclaimed. Blocks that
// it cached or had sent go back to their heaps: their records say which work they wait for.

import { assert } from '../../base/assert.js'
import { MiB } from '../../base/bytes.js'
import { CudaError, PoolError, type StreamMemory } from '../../base/errors.js'
import { slotOfKey } from '../../heap/key.js'
import { NOBODY, Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { State, Word } from '../../heap/records.js'
import { classOf, UNIT_BYTES } from '../../heap/size-classes.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import { openEnd } from '../../threads/channel-end.js'
import { LATER } from '../../threads/request-channel.js'
import { ThreadRegistry } from '../../threads/thread-registry.js'
import { PinnedSegments } from '../backing/pinned-segments.js'
import { SegmentBacking } from '../backing/segment-backing.js'
import { CentralHeap } from '../caching/central-heap.js'
import type { Use, User } from '../caching/deferred.js'
import type { PoolConfig } from '../caching/options.js'
import type { Waiting } from '../caching/slow-path/waiting.js'
import { type Result, SetAside } from './set-aside.js'
import { CLOSED, Figure, type SharedState } from './shared-state.js'
import type { UnlockedDriver } from './unlocked-driver.js'

/** What a thread can ask of the pool server. */
export type Question =
  | BlockQuestion
  /** `stamp` null: until the free */
  | { readonly ask: 'recordUse'; readonly record: number; readonly slot: number; readonly stamp: number | null }
  | { readonly ask: 'memory'; readonly channel: string }
  | { readonly ask: 'devicePtr'; readonly address: number }
  | { readonly ask: 'defer'; readonly record: number; readonly slot: number; readonly stamp: number }
  | { readonly ask: 'begin' | 'settle' | 'shortage' | 'check' | 'leave' | 'close' }
  | { readonly ask: 'prepare'; readonly units: number }
  | { readonly ask: 'trim'; readonly bytes: number }
  | { readonly ask: 'reclaim'; readonly thread: number }

interface BlockQuestion {
  readonly ask: 'allocate'
  readonly units: number
  readonly alignUnits: number
  readonly slot: number
}

/** What is known of a request that got nothing. */
export interface SharedShortage {
  readonly streams: readonly StreamMemory[]
  readonly largestFreeBytes: number
  readonly kind: CentralHeap['backing']['kind']
  readonly stepBytes: number
}

/** What a thread had live that has ended. */
export interface Reclaimed {
  readonly buffers: number
  readonly bytes: number
}

/** New memory is taken so much at a time at most, where the pool may be that large. */
const MOST_AHEAD_BYTES = 32 * MiB
const AHEAD_SHARE = 1 / 64
/** How often the pool server looks for threads that have ended: while it is asked, and in the end, since an idle pool should cost next to nothing. */
const SWEEP_MS = 50
const MOST_SWEEP_MS = 10_000
const SERVER_AND_MAKER = 2
/** How often it looks whether the GPU has done what a request waits for. */
const POLL_MS = 0.25

export class PoolServer {
  private readonly central: CentralHeap
  /** by stream slot */
  private readonly users: SlotUser[] = []
  /** how much is taken beyond what was asked for: at least a granule, or nothing */
  private readonly aheadUnits: number
  /** dead threads that still hold buffers, and nothing else */
  private readonly buried = new Set<number>()
  private readonly setAside: SetAside<Question>
  /** the memory was given back */
  closed = false
  private sweptAt = 0
  /** until the next sweep */
  private sweepMs = SWEEP_MS
  /** what all threads had counted when the blocks were looked at last; -1 where they should be looked at anyway */
  private counted = -1

  constructor(
    private readonly state: SharedState,
    private readonly clocks: Clocks,
    config: PoolConfig,
    private readonly outside: UnlockedDriver,
    /** called when the memory was given back, before the thread that closes is told */
    private readonly onClose: () => void = () => {},
  ) {
    state.caches.biasedLock.prepare()
    this.setAside = new SetAside(clocks)
    this.central = this.within(() => new CentralHeap(state.records, state.caches, clocks, config, state.memory))
    const most = Math.min(MOST_AHEAD_BYTES, this.central.backing.limitBytes * AHEAD_SHARE)
    const { stepBytes } = this.central.backing
    const isPlanned = typeof config.backing === 'object' // how much is taken at a time
    this.aheadUnits = isPlanned ? 0 : (Math.floor(most / stepBytes) * stepBytes) / UNIT_BYTES
    state.figures[Figure.server] = state.thread
  }

  /** The pool cannot be served any more: every thread that asks is told why. */
  fail(reason: unknown): void {
    this.state.channel.fail(reason)
  }

  /** Answers whoever asks, or sets the request aside; returns how many asked. */
  serve(now = performance.now()): number {
    if (this.state.channel.isAsked) {
      this.sweepMs = SWEEP_MS
      this.counted = -1
    }
    if (now - this.sweptAt >= this.sweepMs) this.unlessRefused(() => this.sweep(now))
    else this.unlessRefused(() => this.buryDead()) // those that another thread has noticed
    if (this.central.wantsMarks) this.unlessRefused(() => this.within(() => this.central.placeMarks()))
    const { channel, registry, thread } = this.state
    for (const asker of this.setAside.askers) channel.reply(asker, () => this.goOn(asker))
    const requests = channel.answer((question, asker) => this.begin(question as Question, asker))
    if (this.closed) registry.forget(thread)
    return requests
  }

  /** How long the pool may be left alone, in milliseconds, unless the bell rings. */
  restMs(now: number): number {
    if (this.closed) return 0
    if (!this.setAside.isEmpty) return POLL_MS
    // The death of the thread that made the pool is the pool server's as well.
    const isWatching = this.sweepMs === SWEEP_MS || this.state.registry.living > SERVER_AND_MAKER
    return isWatching ? Math.max(0, this.sweptAt + this.sweepMs - now) : Infinity
  }

  private begin(question: Question, asker: number): unknown {
    return answerOf(this.within(() => this.setAside.begin(asker, question, this.reply(question, asker))))
  }

  private goOn(asker: number): unknown {
    return this.setAside.isReady(asker) ? answerOf(this.within(() => this.setAside.resume(asker))) : LATER
  }

  /** Work that no thread has asked for: where the driver refuses a call, or a capture forbids one, the next round tries again. A lost device is the end. */
  private unlessRefused(work: () => void): void {
    try {
      work()
    } catch (error) {
      if (!(error instanceof CudaError || error instanceof PoolError)) throw error
    }
  }

  /** Clears up behind threads that have ended. */
  sweep(now = performance.now()): void {
    const { registry, caches, counts } = this.state
    this.sweptAt = now
    this.sweepMs = Math.min(2 * this.sweepMs, MOST_SWEEP_MS)
    registry.lookAtAll()
    this.buryDead()
    this.clocks.buryStreams()
    const counted = counts.reduce((sum, count) => sum + count)
    if (counted === this.counted) return // to look at all blocks takes long
    caches.look()
    this.counted = counted
  }

  /** Takes back what the dead had cached. Those that had nothing live are forgotten; the others keep their numbers until they are reclaimed. */
  private buryDead(): void {
    const { registry } = this.state
    for (const thread of registry.dead()) {
      if (this.buried.has(thread)) continue
      this.within(() => {
        this.forgetRequest(thread)
        this.bury(thread)
        if (this.held(thread, Phase.live).length === 0) this.forget(thread)
        else this.buried.add(thread)
      })
    }
  }

  private forgetRequest(thread: number): void {
    this.state.channel.forget(thread)
    this.setAside.forget(thread)
  }

  private forget(thread: number): void {
    this.buried.delete(thread)
    this.state.registry.forgetDead(thread)
  }

  private *reply(question: Question, asker: number): Waiting<unknown> {
    const { central } = this
    switch (question.ask) {
      case 'begin':
        return true
      case 'allocate':
        return yield* this.allocate(question, asker)
      case 'recordUse':
        return this.recordUse(question.record, question.slot, question.stamp)
      case 'memory':
        return this.sendMemory(question.channel)
      case 'devicePtr':
        return this.pinned.devicePtrAt(question.address)
      case 'defer':
        return this.defer(question.record, question.slot, question.stamp)
      case 'prepare':
        return yield* this.prepare(question.units)
      case 'settle':
        return central.processDeferred()
      case 'trim':
        return central.trimTo(question.bytes)
      case 'shortage':
        return this.shortage()
      case 'check':
        return this.check()
      case 'reclaim':
        return this.reclaim(question.thread)
      case 'leave':
        return this.leave(asker)
      case 'close':
        return this.close(asker)
    }
  }

  /** A block for a thread, which becomes its owner; 0 when nothing helps. */
  private *allocate(question: BlockQuestion, asker: number): Waiting<number> {
    const { units, alignUnits, slot } = question
    if (!this.state.hasRecords) {
      const most = this.state.records.inUse
      throw new PoolError(`allocate: the pool has ${most} blocks, which is the limit; make another, or larger blocks`)
    }
    while (this.isInTheWay(units, asker)) yield []
    const { growths } = this.central
    const taken =
      (yield* this.central.search(units, alignUnits, slot)) || (yield* this.retryAfterSweep(units, alignUnits, slot))
    const { mostPieces } = this.central.backing
    if (taken === 0 && mostPieces > 0) {
      const fact = `the pool has ${mostPieces} driver allocations, which is the limit`
      throw new PoolError(`allocate: ${fact}; make another, or one whose memory moves (backing 'virtual')`)
    }
    if (taken === 0) return 0
    const record = this.state.handOver(taken, asker)
    // Another thread is likely to need memory, too, and would have to come here for it.
    if (this.central.growths > growths && this.aheadUnits > units && this.setAside.before(asker) === null) {
      this.unlessRefused(() => this.central.growAhead(this.state.memory.heapFor(units), this.aheadUnits))
    }
    return record
  }

  /** Whether new memory for so many units might be what the oldest request that waits needs: that comes first. */
  private isInTheWay(units: number, asker: number): boolean {
    const oldest = this.setAside.before(asker)
    if (oldest?.ask !== 'allocate') return false
    return !this.central.couldServe(oldest, units) && this.central.couldServe(oldest, 0)
  }

  /** Once more, if a thread has died that nothing was taken back from yet. */
  private *retryAfterSweep(units: number, alignUnits: number, slot: number): Waiting<number> {
    const { registry } = this.state
    const dead = registry.lookAtAll().filter(thread => !this.buried.has(thread))
    for (const thread of dead) this.bury(thread)
    return dead.length === 0 ? 0 : yield* this.central.search(units, alignUnits, slot)
  }

  /** Obtains memory for a block, if there is none free; false when there is no room for it. */
  private *prepare(units: number): Waiting<boolean> {
    const record = yield* this.central.search(units, 1, 0)
    if (record !== 0) this.central.free(record, 0, 0)
    return record !== 0
  }

  private recordUse(record: number, slot: number, stamp: number | null): void {
    this.users[slot] ??= new SlotUser(this.clocks, slot)
    this.central.deferred.announce(record, this.users[slot], stamp ?? Infinity)
    this.state.records.setState(record, State.shared)
  }

  /** Sends the pinned memory of a host pool to another thread. */
  private sendMemory(channel: string): void {
    const end = openEnd(channel)
    end.postMessage(this.pinned.all())
    end.close()
  }

  /** What the pool of host memory stands on. */
  private get pinned(): PinnedSegments {
    const { backing } = this.central
    assert(backing instanceof SegmentBacking && backing.source instanceof PinnedSegments, 'only host pools ask for it')
    return backing.source
  }

  private shortage(): SharedShortage {
    const { backing } = this.central
    return {
      streams: this.central.byStream(),
      largestFreeBytes: this.central.longestFreeBytes(),
      kind: backing.kind,
      stepBytes: backing.stepBytes,
    }
  }

  /** A thread is done: what it still has goes back, each block after the work of the stream it is for. It gives its number up itself. */
  private leave(thread: number): Reclaimed {
    const held = this.held(thread, Phase.live)
    const sum = this.sumOf(held)
    for (const record of held) this.takeBack(record)
    this.bury(thread)
    return sum
  }

  /** Gives back what a dead thread had live, after all work that may be using it; nothing for a name that is no dead thread's. */
  private reclaim(name: number): Reclaimed {
    const { registry } = this.state
    const thread = ThreadRegistry.numberIn(name)
    if (thread !== NOBODY) {
      if (registry.nameOf(thread) !== name || !registry.look(thread)) return { buffers: 0, bytes: 0 }
      this.forgetRequest(thread) // an answer would give another block to its number
      this.bury(thread)
    }
    const held = this.held(thread, Phase.live)
    const sum = this.sumOf(held)
    for (const record of held) this.giveBackLate(record)
    if (thread !== NOBODY) this.forget(thread)
    return sum
  }

  private close(asker: number): Reclaimed {
    const { state } = this
    state.checkAlone(asker)
    state.figures[Figure.server] = CLOSED // whoever comes from now on is refused
    const sum = this.sumOf(this.live())
    try {
      this.clocks.finishWork()
      this.clocks.context.giveBack(() => this.central.backing.close())
      this.onClose()
    } catch (error) {
      state.figures[Figure.server] = state.thread
      throw error
    }
    this.closed = true
    return sum
  }

  /** Takes back what a thread that has ended, or is about to, had cached. */
  private bury(thread: number): void {
    const { caches } = this.state
    for (const record of caches.drainThread(thread)) this.giveToHeap(record)
    const sent = this.held(thread, Phase.sent)
    const arrived = caches.remoteFrees.all() // read later: a block that another thread takes out meanwhile has another owner
    for (const record of sent) {
      if (arrived.has(record) || !caches.remoteFrees.claim(record, thread)) continue
      caches.handBack(record)
      this.giveToHeap(record)
    }
  }

  private giveToHeap(record: number): void {
    const { records } = this.state
    this.central.giveToHeap(record, slotOfKey(records.keyOf(record)), records.stampOf(record))
  }

  /** A live block is freed on the stream that it is for. */
  private takeBack(record: number): void {
    const { records } = this.state
    const slot = slotOfKey(records.keyOf(record))
    records.words[(record << 4) | Word.owner] = 0
    const stamp = this.clocks.coveringSoon(slot)
    if (records.state(record) !== State.shared) this.central.free(record, slot, stamp)
    else this.defer(record, slot, stamp)
  }

  /** Frees a block that other streams use. */
  private defer(record: number, slot: number, stamp: number): void {
    const { central } = this
    if (central.forgetUses(record, slot, stamp)) central.free(record, slot, stamp)
    else central.defer(record, slot, stamp)
  }

  /** A block goes back of which nobody knows which streams use it. */
  private giveBackLate(record: number): void {
    const { clocks, state } = this
    this.central.deferred.takeUses(record) // which are among the work of all streams
    state.caches.handBack(record)
    state.records.words[(record << 4) | Word.owner] = 0
    const uses: Use[] = []
    for (let slot = 0; slot < MOST_STREAMS; slot++) {
      const stamp = clocks.coveringSoon(slot)
      if (stamp > clocks.completed[slot]) uses.push({ clocks, slot, stamp })
    }
    this.central.giveBackAfter(record, uses)
  }

  /** The taken blocks of a thread in one phase. */
  private held(thread: number, phase: Phase): number[] {
    const { records } = this.state
    return this.taken().filter(record => {
      const ownerWord = records.ownerWord(record)
      return workerOf(ownerWord) === thread && phaseOf(ownerWord) === phase
    })
  }

  private live(): number[] {
    const { records } = this.state
    return this.taken().filter(record => phaseOf(records.ownerWord(record)) === Phase.live)
  }

  private taken(): number[] {
    const { records } = this.state
    const taken: number[] = []
    for (let record = records.first; record < records.used; record++) if (records.isLive(record)) taken.push(record)
    return taken
  }

  private sumOf(held: readonly number[]): Reclaimed {
    const { records } = this.state
    const bytes = held.reduce((sum, record) => sum + records.requestedBytesOf(record), 0)
    return { buffers: held.length, bytes }
  }

  /** Asserts that heaps, backing and owner words tell one story; for when no other thread is in the middle of a call. */
  private check(): void {
    const { records, caches, registry } = this.state
    this.central.check()
    const sent = caches.remoteFrees.all()
    for (const record of this.taken()) {
      const phase = phaseOf(records.ownerWord(record))
      const thread = workerOf(records.ownerWord(record))
      assert(
        phase !== Phase.cached || registry.isAlive(thread) || registry.isDead(thread),
        'a cached block has an owner',
      )
      assert((phase === Phase.sent) === sent.has(record), 'a block is in a queue exactly if it was sent')
      assert(records.sizeClassOf(record) === classOf(records.unitsOf(record)), 'a taken block has its class')
      assert(records.keyOf(record) <= caches.slotLimit, 'the stream of a taken block is known')
    }
    const units = this.taken().reduce((sum, record) => sum + records.unitsOf(record), 0)
    assert(units === caches.handedUnits, 'taken blocks add up to the counter')
  }

  private within<R>(work: () => R): R {
    return this.outside.within(
      {
        acquire: () => this.state.acquire(),
        release: () => {
          this.storeRelease()
          this.state.release()
        },
      },
      work,
    )
  }

  /** Tells all threads what the backing knows; before the lock is left. */
  private storeRelease(): void {
    if (this.central === undefined) return // it is just being made
    const { figures, bases } = this.state
    const { backing } = this.central
    for (let range = 0; range < backing.bases.length; range++) bases[range] = backing.bases[range]
    figures[Figure.reservedBytes] = backing.reservedBytes
    figures[Figure.peakReservedBytes] = backing.peakReservedBytes
    figures[Figure.growths] = this.central.growths
    figures[Figure.insertedWaits] = this.central.insertedWaits
    figures[Figure.deferredBytes] = this.central.deferred.bytes
  }
}

function answerOf(result: Result | null): unknown {
  return result === null ? LATER : result.value
}

/** The streams of a slot, one after another: work of the next one comes after all of the last one's. */
class SlotUser implements User {
  constructor(
    readonly clocks: Clocks,
    private readonly slot: number,
  ) {}

  get covering(): readonly [slot: number, stamp: number] {
    const { clocks, slot } = this
    return [slot, clocks.coveringSoon(slot)]
  }
}
