// Serves a pool that several threads share: in a thread of its own it makes all driver calls. It finds and moves
// memory, asks how far streams have come, and clears up behind threads that have ended. It uses the central heap of a
// pool of one thread, under the lock. Each driver call releases the lock meanwhile.
//
// The owner word of a block names its thread. When a thread has died, its live blocks stay until they are reclaimed.
// Blocks that it cached or had sent go back to their heaps: their records say which work they wait for.
//
// The file is long because all requests work on the same heaps under the same lock.

import { assert } from '../../base/assert.js'
import { CudaError, PoolError } from '../../base/errors.js'
import { slotOfKey } from '../../heap/key.js'
import { NO_THREAD, Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { State, Word } from '../../heap/records.js'
import { classOf, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { openChannel } from '../../threads/broadcast-channel.js'
import { LATER } from '../../threads/request-channel.js'
import { ThreadRegistry } from '../../threads/thread-registry.js'
import { PinnedSegments } from '../backing/pinned-segments.js'
import { SegmentBacking } from '../backing/segment-backing.js'
import type { PoolSegment } from '../backing/segment-watch.js'
import { CentralHeap } from '../caching/central/central-heap.js'
import type { Use, User } from '../caching/central/deferred.js'
import type { Waiting } from '../caching/central/parts.js'
import type { PoolConfig } from '../caching/options.js'
import { growthStep } from '../policy.js'
import type { GroupQuestion } from './groups/group-question.js'
import { GroupServer } from './groups/group-server.js'
import { CLOSED, Figure, type SharedState } from './shared-state.js'
import type { UnlockedDriver } from './unlocked-driver.js'
import { type Result, WaitingRequests } from './waiting-requests.js'

/** A request to the pool server. */
export type Question =
  | BlockQuestion
  | GroupQuestion
  /** `stamp` null: the use lasts until the free */
  | { readonly ask: 'recordUse'; readonly record: number; readonly slot: number; readonly stamp: number | null }
  | { readonly ask: 'memory'; readonly channel: string }
  | { readonly ask: 'devicePtr'; readonly address: number }
  | { readonly ask: 'defer'; readonly record: number; readonly slot: number; readonly stamp: number }
  | { readonly ask: 'begin' | 'settle' | 'shortage' | 'check' | 'leave' | 'close' }
  | { readonly ask: 'prepare'; readonly units: number }
  /** those behind an address */
  | { readonly ask: 'segments'; readonly after: number }
  | { readonly ask: 'trim' | 'reserve'; readonly bytes: number }
  | { readonly ask: 'reclaim'; readonly thread: number }
  | { readonly ask: 'hasRoom'; readonly bytes: number; readonly liveBytes: number }
  /** null: no limit, for JSON has no Infinity */
  | { readonly ask: 'limit'; readonly bytes: number | null }

interface BlockQuestion {
  readonly ask: 'allocate'
  readonly units: number
  readonly alignUnits: number
  readonly slot: number
}

/** The live buffers that `reclaim` has freed for a thread that has ended. */
export interface Reclaimed {
  /** number of buffers */
  readonly buffers: number
  /** the bytes of their blocks */
  readonly bytes: number
}

/** The most segments in an answer, which has 16 KiB of text. */
const SEGMENTS_AT_A_TIME = 256
/** Milliseconds between sweeps for ended threads: at first, and at most, since an idle pool should cost nothing. */
const SWEEP_MS = 50
const MOST_SWEEP_MS = 10_000
const SERVER_AND_MAKER = 2
/** How often it looks whether the GPU has done the work that a request waits for. */
const POLL_MS = 0.25

export class PoolServer {
  private readonly central: CentralHeap
  /** by stream slot */
  private readonly users: SlotUser[] = []
  /** new memory taken beyond a request: at least a granule, or nothing */
  private aheadUnits = 0
  /** whether such memory is taken at all */
  private readonly isAhead: boolean
  /** the option `readyBytes`, in whole steps of the backing */
  private readonly readyUnits: number
  /** whether the pool was trimmed after the last request for memory */
  private isTrimmed = false
  /** bytes reserved when no memory could be taken ahead; while that stays so, the next attempt would fail again */
  private refusedAtBytes = -1
  /** dead threads that hold live buffers; their cached blocks were taken back */
  private readonly buried = new Set<number>()
  private readonly waitingRequests: WaitingRequests<Question>
  private readonly groups: GroupServer
  /** the memory was given back */
  closed = false
  private sweptAt = 0
  /** the reserved bytes that the program was told last */
  private toldBytes = 0
  /** `baseChanges` of the bases that all threads know; -1 for none */
  private publishedBases = -1
  /** until the next sweep */
  private sweepMs = SWEEP_MS
  /** the sum of all threads' counters at the last look at all blocks; -1 forces another look */
  private counted = -1

  constructor(
    private readonly state: SharedState,
    private readonly clocks: Clocks,
    config: PoolConfig,
    private readonly outside: UnlockedDriver,
    /** called when the memory was given back, before the closing thread gets its answer */
    private readonly onClose: () => void = () => {},
    /** called after a round in which the reserved bytes have changed; null if the program did not ask for that */
    private readonly onChange: ((reservedBytes: number) => void) | null = null,
  ) {
    state.caches.biasedLock.prepare()
    this.waitingRequests = new WaitingRequests(clocks)
    const { records, caches, seen, memory } = state
    this.central = this.within(() => new CentralHeap({ records, caches, clocks, seen, config }, memory))
    this.groups = new GroupServer(state, clocks, this.central)
    const { granuleBytes } = this.central.backing
    const isPlanned = typeof config.backing === 'object' // the plan fixes how much is taken at a time
    this.readyUnits = (Math.ceil(config.readyBytes / granuleBytes) * granuleBytes) / UNIT_BYTES
    this.isAhead = !isPlanned && this.readyUnits === 0
    this.noteLimit(config.maxPoolBytes)
    state.figures[Figure.server] = state.thread
  }

  /** The limit is now `maxPoolBytes`, which may be Infinity. */
  private noteLimit(maxPoolBytes: number): void {
    const { maxPoolBytes: mostBytes, granuleBytes } = this.central.backing
    const aheadBytes = growthStep(mostBytes)
    if (this.isAhead) this.aheadUnits = (Math.floor(aheadBytes / granuleBytes) * granuleBytes) / UNIT_BYTES
    this.refusedAtBytes = -1
    this.state.figures[Figure.maxPoolBytes] = maxPoolBytes
  }

  /** The pool cannot be served any more: every request throws `reason` from now on. */
  fail(reason: unknown): void {
    this.state.channel.fail(reason)
  }

  /** One round: answers new requests or lets them wait, and continues waiting ones. Returns how many are new. */
  serve(now = performance.now()): number {
    if (this.state.channel.isAsked) {
      this.sweepMs = SWEEP_MS
      this.counted = -1
    }
    if (now - this.sweptAt >= this.sweepMs) this.unlessRefused(() => this.sweep(now))
    else this.unlessRefused(() => this.buryDead()) // other threads may have noticed deaths
    if (this.state.memory.wantsMarks) this.unlessRefused(() => this.within(() => this.central.placeMarks()))
    const { channel, registry, thread } = this.state
    for (const asker of this.waitingRequests.askers) channel.reply(asker, () => this.goOn(asker))
    const requests = channel.answer((question, asker) => this.begin(question as Question, asker))
    if (this.closed) registry.forget(thread)
    else {
      this.keepReady()
      this.tellChange()
    }
    return requests
  }

  private tellChange(): void {
    const { reservedBytes } = this.central.backing
    if (this.onChange === null || reservedBytes === this.toldBytes) return
    this.toldBytes = reservedBytes
    this.onChange(reservedBytes)
  }

  /** How many milliseconds the pool needs no round, unless the doorbell rings. */
  restMs(now: number): number {
    if (this.closed) return 0
    if (!this.waitingRequests.isEmpty) return POLL_MS
    // The pool server dies with the thread that made the pool, so the two need not watch each other.
    const isWatching = this.sweepMs === SWEEP_MS || this.state.registry.living > SERVER_AND_MAKER
    return isWatching ? Math.max(0, this.sweptAt + this.sweepMs - now) : Infinity
  }

  private begin(question: Question, asker: number): unknown {
    return answerOf(this.within(() => this.waitingRequests.begin(asker, question, this.reply(question, asker))))
  }

  private goOn(asker: number): unknown {
    return this.waitingRequests.isReady(asker) ? answerOf(this.within(() => this.waitingRequests.resume(asker))) : LATER
  }

  /** Does work that no thread has requested. A refused driver call is tried again in the next round. */
  private unlessRefused(work: () => void): void {
    try {
      work()
    } catch (error) {
      if (!(error instanceof CudaError || error instanceof PoolError)) throw error
    }
  }

  /** Takes memory ahead of demand, as the option `readyBytes` asks. */
  private keepReady(): void {
    const { large } = this.state.memory
    if (this.readyUnits === 0 || this.isTrimmed || large.freeUnits >= this.readyUnits) return
    const { backing } = this.central
    const { reservedBytes } = backing
    if (reservedBytes === this.refusedAtBytes) return
    this.unlessRefused(() => this.within(() => this.central.growAhead(large, this.readyUnits)))
    this.refusedAtBytes = backing.reservedBytes === reservedBytes ? reservedBytes : -1
  }

  /** Clears up behind threads that have ended. */
  sweep(now = performance.now()): void {
    const { registry, caches, counts } = this.state
    this.sweptAt = now
    this.sweepMs = Math.min(2 * this.sweepMs, MOST_SWEEP_MS)
    registry.findDead()
    this.buryDead()
    this.clocks.buryStreams()
    const counted = counts.reduce((sum, count) => sum + count)
    if (counted === this.counted) return // a look at all blocks takes long
    caches.noteSums()
    this.counted = counted
  }

  /**
   * Takes back the cached blocks of dead threads. Threads without live buffers are forgotten; others keep their
   * numbers until `reclaim`.
   */
  private buryDead(): void {
    const { registry } = this.state
    for (const thread of registry.dead()) {
      if (this.buried.has(thread)) continue
      this.within(() => {
        this.forgetRequest(thread)
        this.bury(thread)
        if (this.sumHeld(thread).buffers === 0) this.forget(thread)
        else this.buried.add(thread)
      })
    }
  }

  private forgetRequest(thread: number): void {
    this.state.channel.forget(thread)
    this.waitingRequests.forget(thread)
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
        this.isTrimmed = true
        return central.trimTo(question.bytes)
      case 'reserve':
        return central.reserve(question.bytes)
      case 'hasRoom':
        central.processDeferred()
        return central.mayHaveRoom(question.bytes, question.liveBytes)
      case 'limit':
        return this.setLimit(question.bytes ?? Infinity)
      case 'shortage':
        return central.shortage()
      case 'segments':
        return this.segments(question.after)
      case 'check':
        return this.check()
      case 'reclaim':
        return this.reclaim(question.thread)
      case 'leave':
        return this.leave(asker)
      case 'close':
        return this.close(asker)
      default:
        return yield* this.groups.reply(question, asker)
    }
  }

  /** Finds a block and makes the asking thread its owner; 0 when memory has run out. */
  private *allocate(question: BlockQuestion, asker: number): Waiting<number> {
    const { units, alignUnits, slot } = question
    this.isTrimmed = false
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
    // Another thread is likely to need memory too, and would have to ask for it.
    if (this.central.growths > growths && this.aheadUnits > units && this.waitingRequests.before(asker) === null) {
      this.unlessRefused(() => this.central.growAhead(this.state.memory.heapFor(units), this.aheadUnits))
    }
    return record
  }

  /** Whether taking `units` could starve the oldest waiting request, which comes first. */
  private isInTheWay(units: number, asker: number): boolean {
    const oldest = this.waitingRequests.before(asker)
    if (oldest?.ask !== 'allocate') return false
    return !this.central.couldServe(oldest, units) && this.central.couldServe(oldest, 0)
  }

  /** Searches again if a thread has died whose blocks were not taken back yet. */
  private *retryAfterSweep(units: number, alignUnits: number, slot: number): Waiting<number> {
    const { registry } = this.state
    const dead = registry.findDead().filter(thread => !this.buried.has(thread))
    for (const thread of dead) this.bury(thread)
    return dead.length === 0 ? 0 : yield* this.central.search(units, alignUnits, slot)
  }

  /** Obtains memory for a block unless one is free; false when the device has no room. */
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
    const end = openChannel(channel)
    end.postMessage(this.pinned.all())
    end.close()
  }

  /** The pinned segments behind a host pool. */
  private get pinned(): PinnedSegments {
    const { backing } = this.central
    assert(backing instanceof SegmentBacking && backing.source instanceof PinnedSegments, 'only host pools ask for it')
    return backing.source
  }

  private setLimit(maxPoolBytes: number): void {
    const { central } = this
    central.setLimit(maxPoolBytes)
    this.noteLimit(maxPoolBytes)
  }

  /** The first segments behind an address, in its order. */
  private segments(after: number): PoolSegment[] {
    const behind = this.central.backing.segments().filter(({ ptr }) => ptr > after)
    return behind.sort((a, b) => a.ptr - b.ptr).slice(0, SEGMENTS_AT_A_TIME)
  }

  /** A thread leaves: its blocks go back, each after the work of its stream. It gives up its number itself. */
  private leave(thread: number): Reclaimed {
    const sum = this.sumHeld(thread)
    for (const record of this.held(thread, Phase.live)) this.takeBack(record)
    this.bury(thread)
    this.groups.giveBack(thread, false)
    return sum
  }

  /** Gives back the live blocks of a dead thread, after all work that may use them. Ignores any other name. */
  private reclaim(name: number): Reclaimed {
    const { registry } = this.state
    const thread = ThreadRegistry.numberIn(name)
    if (thread !== NO_THREAD) {
      if (registry.nameOf(thread) !== name || !registry.hasDied(thread)) return { buffers: 0, bytes: 0 }
      this.forgetRequest(thread) // an answer would give another block to its number
      this.bury(thread)
    }
    const sum = this.sumHeld(thread)
    for (const record of this.held(thread, Phase.live)) this.giveBackLate(record)
    this.groups.giveBack(thread, true)
    if (thread !== NO_THREAD) this.forget(thread)
    return sum
  }

  private close(asker: number): Reclaimed {
    const { state } = this
    state.checkAlone(asker)
    state.figures[Figure.server] = CLOSED // refuses threads that attach from now on
    const held = this.sumOf(this.live())
    const inGroups = this.groups.heldByAll()
    const sum = { buffers: held.buffers + inGroups.buffers, bytes: held.bytes + inGroups.bytes }
    state.caches.noteSums() // the last look for the peak
    try {
      this.clocks.context.finishWork()
      this.clocks.context.giveBack(() => this.central.backing.close())
      this.onClose()
    } catch (error) {
      state.figures[Figure.server] = state.thread
      throw error
    }
    this.closed = true
    return sum
  }

  /** Takes back the cached blocks of a thread that has ended or leaves, and its graphs. */
  private bury(thread: number): void {
    const { caches } = this.state
    this.groups.bury(thread)
    for (const record of caches.drainThread(thread)) this.giveToHeap(record)
    const sent = this.held(thread, Phase.sent)
    const arrived = caches.remoteFrees.all() // read after `sent`: a block taken out meanwhile has another owner
    for (const record of sent) {
      if (arrived.has(record) || !caches.remoteFrees.claim(record, thread)) continue
      caches.handBack(record)
      this.giveToHeap(record)
    }
  }

  private giveToHeap(record: number): void {
    const { records, memory } = this.state
    memory.giveToHeap(record, slotOfKey(records.keyOf(record)), records.stampOf(record))
  }

  /** Frees a live block on its own stream. */
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

  /** Gives back a block that any stream may be using: it waits for the work of all streams. */
  private giveBackLate(record: number): void {
    const { clocks, state } = this
    this.central.deferred.takeUses(record) // covered by the work of all streams
    state.caches.handBack(record)
    state.records.words[(record << 4) | Word.owner] = 0
    const uses: Use[] = []
    for (let slot = 0; slot < clocks.slotLimit; slot++) {
      const stamp = clocks.coveringSoon(slot)
      if (stamp > clocks.completed[slot]) uses.push({ clocks, slot, stamp })
    }
    this.central.giveBackAfter(record, uses)
  }

  /** The taken blocks of a thread in one phase. */
  private held(thread: number, phase: Phase): number[] {
    const { records } = this.state
    return [...records.taken()].filter(record => {
      const ownerWord = records.ownerWord(record)
      return workerOf(ownerWord) === thread && phaseOf(ownerWord) === phase
    })
  }

  private live(): number[] {
    const { records } = this.state
    return [...records.taken()].filter(record => phaseOf(records.ownerWord(record)) === Phase.live)
  }

  /** What a thread holds, in graph groups too. */
  private sumHeld(thread: number): Reclaimed {
    const { buffers, bytes } = this.sumOf(this.held(thread, Phase.live))
    const inGroups = this.groups.heldBy(thread)
    return { buffers: buffers + inGroups.buffers, bytes: bytes + inGroups.bytes }
  }

  private sumOf(held: readonly number[]): Reclaimed {
    const { records } = this.state
    const bytes = held.reduce((sum, record) => sum + records.requestedBytesOf(record), 0)
    return { buffers: held.length, bytes }
  }

  /** Asserts that heaps, backing and owner words agree. No other thread may be in the middle of a call. */
  private check(): void {
    const { records, caches, registry } = this.state
    this.central.check()
    const sent = caches.remoteFrees.all()
    for (const record of records.taken()) {
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
    const units = [...records.taken()].reduce((sum, record) => sum + records.unitsOf(record), 0)
    assert(units === caches.handedUnits, 'taken blocks add up to the counter')
  }

  private within<R>(work: () => R): R {
    return this.outside.within(
      {
        acquire: () => this.state.acquire(),
        release: () => {
          this.publishFigures()
          this.state.release()
        },
      },
      work,
    )
  }

  /** Tells all threads the figures of the backing; before the lock is released. */
  private publishFigures(): void {
    if (this.central === undefined) return // the constructor is still making it
    const { figures, bases } = this.state
    const { backing } = this.central
    if (backing.baseChanges !== this.publishedBases) {
      for (let range = 0; range < backing.bases.length; range++) bases[range] = backing.bases[range]
      this.publishedBases = backing.baseChanges
    }
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

/** The streams that have a slot, one after another. Work of the next stream comes after all work of the last one. */
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
