// One heap for many threads. All of its state lies in one shared buffer of fixed size: a roster of the threads, a lock, the
// records, the segregated fit behind the lock, and slots in front of it that need no lock. The heap and its records are
// the same code that one thread has for itself.
//
// A thread may die between any two stores. What it can leave behind, and who finds it: a lock (the next one who wants it,
// who then repairs bins and sums from the chain of blocks), blocks in its slots or on the way from or to them
// (`bury`), and what it held live (`holdings`, `reclaim`). A block on the way is one that its holder word calls cached by that
// thread and that is in no slot; only the thread itself takes blocks out of its slots without the lock, so when it is dead
// and its slots are empty every such block is one.

import { assert } from '../base/assert.js'
import { PoolError } from '../base/errors.js'
import { RobustLock } from '../base/robust-lock.js'
import { MOST_WORKERS, ROSTER_WORDS, Roster } from '../base/roster.js'
import { holderOf, isHeldLive, Phase, phaseOf, workerOf } from './holder.js'
import { rebuild } from './rebuild.js'
import { Double, LAST_GENERATION, RecordTable, State, Stride, Word } from './records.js'
import { Region } from './region.js'
import { SegregatedFit } from './segregated-fit.js'
import { SharedSlots } from './shared-slots.js'
import { classOf } from './size-classes.js'

/** Grows with each change of what lies where. */
const LAYOUT_VERSION = 2
/** A cut at both ends of a block, and a fresh record for it. */
const RECORDS_OF_CALL = 3
/** All bits of a tag below the generation. */
const LAST_STATE = 7

/** How much room there is; fixed for good. */
export interface SharedRoom {
  readonly streams: number
  readonly records: number
  readonly ranges: number
}

/** What another thread needs to work on the same heap; can be sent to it as it is. */
export interface SharedState extends SharedRoom {
  readonly version: number
  readonly buffer: SharedArrayBuffer
}

/** A block that a thread has. */
export interface Holding {
  readonly record: number
  /** with the record its handle */
  readonly tag: number
  readonly range: number
  readonly offset: number
  readonly units: number
}

/** The state of a new heap without ranges. */
export function newSharedState(room: SharedRoom): SharedState {
  const region = new Region(null)
  layOut(region, room)
  return { ...room, version: LAYOUT_VERSION, buffer: new SharedArrayBuffer(region.bytes) }
}

/** The same in every thread: this is the layout. */
function layOut(region: Region, { streams, records: capacity, ranges }: SharedRoom) {
  const lockWords = region.int32(1)
  const roster = new Roster(region.int32(ROSTER_WORDS), 0)
  const records = new RecordTable(region, capacity)
  const fit = new SegregatedFit(records, { region, keys: streams + 1, ranges })
  return { lockWords, roster, records, fit, slots: new SharedSlots(records, region, streams) }
}

export class SharedHeap {
  readonly records: RecordTable
  readonly roster: Roster
  /** this thread's number */
  readonly worker: number
  /** the tag of the block that was handed out last */
  lastTag = 0
  /** misses of the slots, and heaps that were repaired after a death, by this thread */
  misses = 0
  repairs = 0
  private readonly fit: SegregatedFit
  private readonly slots: SharedSlots
  private readonly lock: RobustLock

  /**
   * Enters the roster; `leave` when done, or `bury` by another thread. Throws PoolError when there is no place, the state is
   * another version's, or the system is not Linux.
   */
  constructor(state: SharedState) {
    if (state.version !== LAYOUT_VERSION) {
      throw new PoolError(
        `the shared heap has layout ${state.version}, not ${LAYOUT_VERSION}; use one version in all threads`,
      )
    }
    const { lockWords, roster, records, fit, slots } = layOut(new Region(state.buffer), state)
    this.worker = roster.enter()
    if (this.worker === 0)
      throw new PoolError(`${MOST_WORKERS} threads share this heap, which is the limit; let one leave`)
    this.lock = new RobustLock(lockWords, 0, roster, this.worker)
    this.roster = roster
    this.records = records
    this.fit = fit
    this.slots = slots
  }

  /** Adds `units` of addresses with memory behind them. */
  addRange(range: number, start: number, units: number): void {
    this.locked(() => this.fit.addRange(range, start, units, 'free'))
  }

  /**
   * A block of at least `units` for a stream (from 0), of its class, and less than a sixteenth larger; 0 for none. Its handle is the
   * record and `lastTag`.
   */
  allocate(units: number, stream: number): number {
    const record = this.slots.pop(this.worker, stream, classOf(units), units)
    if (record === 0) return this.take(units, stream)
    const { words } = this.records
    const tag = words[record << 4] + (LAST_STATE + 1)
    words[record << 4] = tag
    words[(record << 4) | Word.holder] = holderOf(tag, this.worker, Phase.live)
    this.lastTag = tag
    return record
  }

  /** Gives a block back on a stream, whoever had it; others may use it once `stamp` of that stream has passed. False for a stale handle. */
  free(record: number, tag: number, stream: number, stamp: number): boolean {
    const { words, doubles } = this.records
    const base = record << 4
    const index = base | Word.holder
    const held = words[index]
    if (words[base] !== tag || !isHeldLive(held, tag)) return false
    const mine = holderOf(tag, this.worker, Phase.cached)
    if (Atomics.compareExchange(words, index, held, mine) !== held) return false
    words[base | Word.key] = stream + 1
    doubles[(record << 3) | Double.stamp] = stamp
    const isSpent = tag >> 3 === LAST_GENERATION
    if (isSpent || !this.slots.push(this.worker, stream, classOf(words[base | Word.units]), record)) {
      this.giveBack(record)
    }
    return true
  }

  /** A live block that thread `from` has is held by this one from now on. False for a stale handle, or when somebody else was first. */
  adopt(record: number, tag: number, from: number): boolean {
    const { words } = this.records
    const held = holderOf(tag, from, Phase.live)
    const mine = holderOf(tag, this.worker, Phase.live)
    return (
      words[record << 4] === tag && Atomics.compareExchange(words, (record << 4) | Word.holder, held, mine) === held
    )
  }

  isLive(record: number, tag: number): boolean {
    const base = record << 4
    return this.records.words[base] === tag && isHeldLive(this.records.words[base | Word.holder], tag)
  }

  /** Work of a stream up to `stamp` has completed. */
  settle(stream: number, stamp: number): number {
    return this.locked(() => this.fit.settle(stream + 1, stamp))
  }

  /** Gives the cached blocks of all threads back, so that neighbours merge. */
  drain(): void {
    this.locked(() => this.drainAll())
  }

  /** This thread is done: its cached blocks go back; throws PoolError while it still holds live ones. */
  leave(): void {
    const { length } = this.holdings(this.worker)
    if (length > 0)
      throw new PoolError(`this thread holds ${length} blocks of the shared heap; free them or hand them over first`)
    this.locked(() => this.slots.drain(this.worker, record => this.giveBackLocked(record)))
    this.roster.forget(this.worker)
  }

  /**
   * Another thread has ended: what it had cached or under way goes back; some of it was perhaps about to be freed on a stream that
   * nobody knows, so it waits for `stamp` of `stream`, or for nothing when -1. Can be called again. What it held
   * live stays as it is.
   */
  bury(worker: number, stream: number, stamp: number): void {
    this.roster.bury(worker)
    assert(this.roster.isDead(worker), 'only a thread that was in the roster is buried')
    this.locked(() => {
      this.slots.drain(worker, record => this.giveBackLocked(record))
      for (const { record } of this.held(worker, Phase.cached)) this.fit.free(record, stream + 1, stamp)
    })
  }

  /** What a thread holds live, in no particular order. Exact for this thread and for dead ones. */
  holdings(worker: number): Holding[] {
    return this.locked(() => this.held(worker, Phase.live))
  }

  /** Gives back what a buried thread held live, and its number; all of it may be used after `stamp` of `stream` (-1: at once). Returns what it was. */
  reclaim(worker: number, stream: number, stamp: number): Holding[] {
    assert(this.roster.isDead(worker), 'only what the dead held is reclaimed')
    return this.locked(() => {
      // Others may free or adopt such a block at this moment, if they have its handle.
      const holdings = this.held(worker, Phase.live).filter(({ record, tag }) => this.adopt(record, tag, worker))
      for (const { record } of holdings) this.fit.free(record, stream + 1, stamp)
      this.roster.forget(worker)
      return holdings
    })
  }

  /** Free units, those in slots not among them. */
  get freeUnits(): number {
    return this.locked(() => this.fit.freeUnits)
  }

  /** Asserts that heap, records and slots tell one story; for when no other thread is in the middle of a call. */
  check(): void {
    this.locked(() => {
      this.fit.check()
      const inSlots = new Set<number>()
      for (let worker = 1; worker <= MOST_WORKERS; worker++) {
        for (const { record, sizeClass } of this.slots.entries(worker)) {
          const base = record * Stride.words
          assert(record > 0 && !inSlots.has(record), 'a block is in one slot')
          assert(this.records.state(record) === State.live, 'a block in a slot is none of the heap')
          const holder = this.records.words[base + Word.holder]
          assert(
            phaseOf(holder) === Phase.cached && workerOf(holder) === worker,
            'a block in a slot is cached by its thread',
          )
          assert(classOf(this.records.words[base + Word.units]) === sizeClass, 'a block in a slot has its class')
          inSlots.add(record)
        }
      }
      for (let worker = 1; worker <= MOST_WORKERS; worker++) {
        const cached = this.held(worker, Phase.cached)
        assert(
          cached.every(({ record }) => inSlots.has(record)),
          'a cached block is in a slot',
        )
      }
    })
  }

  /** What the slots cannot give: a block of the heap, if need be after all slots were given back. */
  private take(units: number, stream: number): number {
    this.misses++
    this.lockAndRepair()
    const { words } = this.records
    let record = this.find(units, stream)
    if (record === 0) {
      this.drainAll()
      record = this.find(units, stream)
    }
    if (record !== 0) {
      if (this.records.isSpent(record)) record = this.fit.rehouse(record)
      // Until the last store the block is the heap's.
      const tag = (words[record << 4] & ~LAST_STATE) + (LAST_STATE + 1) + State.live
      words[(record << 4) | Word.holder] = holderOf(tag, this.worker, Phase.live)
      words[record << 4] = tag
      this.lastTag = tag
    }
    this.lock.release()
    return record
  }

  private find(units: number, stream: number): number {
    return this.records.available < RECORDS_OF_CALL ? 0 : this.fit.allocate(units, 1, stream + 1)
  }

  private giveBack(record: number): void {
    this.lockAndRepair()
    this.giveBackLocked(record)
    this.lock.release()
  }

  private giveBackLocked(record: number): void {
    this.fit.free(
      record,
      this.records.words[record * Stride.words + Word.key],
      this.records.doubles[record * Stride.doubles + Double.stamp],
    )
  }

  private drainAll(): void {
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      this.slots.drain(worker, record => this.giveBackLocked(record))
    }
  }

  /** The taken blocks of a thread in one phase. */
  private held(worker: number, phase: Phase): Holding[] {
    const holdings: Holding[] = []
    const { words } = this.records
    for (let record = this.records.first; record < this.records.used; record++) {
      const base = record * Stride.words
      const holder = words[base + Word.holder]
      if (this.records.state(record) !== State.live || workerOf(holder) !== worker || phaseOf(holder) !== phase)
        continue
      holdings.push({
        record,
        tag: words[base + Word.tag],
        range: words[base + Word.range],
        offset: words[base + Word.offset],
        units: words[base + Word.units],
      })
    }
    return holdings
  }

  /** Does `work` under the lock. */
  private locked<R>(work: () => R): R {
    this.lockAndRepair()
    try {
      return work()
    } finally {
      this.lock.release()
    }
  }

  /** The driver is never called from here to the release. */
  private lockAndRepair(): void {
    if (this.lock.acquire() !== 0) this.repair()
  }

  private repair(): void {
    this.repairs++
    rebuild([this.fit])
    this.slots.finish(record => {
      const isCached = phaseOf(this.records.words[record * Stride.words + Word.holder]) === Phase.cached
      if (this.records.state(record) === State.live && isCached) this.giveBackLocked(record)
    })
  }
}
