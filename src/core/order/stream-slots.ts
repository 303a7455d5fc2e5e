// The slots of a device's streams, for all its threads: whether each is open, which thread owns it, and which threads
// have it pinned.
//
// Any thread may place a mark on any open stream by its handle, and the stream must not be destroyed during that
// call. So a thread pins the slot of another thread's stream for the call. A thread that ends a stream closes it to
// others first, and waits until no thread has it pinned. The lock is held for a few loads and stores at a time, and
// never over a driver call. Before the order is shared there is no lock.

import { PoolError } from '../base/errors.js'
import { CU_STREAM_LEGACY_DEFAULT, CU_STREAM_PER_THREAD } from '../driver/constants.js'
import { serveWaiting } from '../driver/serve-waiting.js'
import { RobustLock } from '../threads/robust-lock.js'
import { MOST_WORKERS, ThreadRegistry } from '../threads/thread-registry.js'
import { Life, newIdentity, type OrderState, takeEvent } from './shared-order.js'
import { MOST_STREAMS } from './vector-clocks.js'

/** How long to sleep before looking at another thread's progress again. */
const PATIENCE_MS = 1

export class StreamSlots {
  /** this thread's number in the registry, 0 while the order is not shared */
  me = 0
  private readonly registry: ThreadRegistry
  private lock: RobustLock | null = null
  /** This thread has the number of a dead thread, and that thread's streams and events are not cleared up yet. */
  hasEstate = false
  /** by slot: its life before this thread began to end its stream */
  private readonly livesBefore = new Int32Array(MOST_STREAMS)

  constructor(private readonly state: OrderState) {
    this.registry = new ThreadRegistry(state.registry, 0)
  }

  /**
   * This thread enters the registry, in the place of a dead thread if the registry is full. Throws PoolError for a
   * closed device, for too many threads, or if the system offers no way to tell that a thread has died.
   */
  join(): void {
    const free = this.registry.enter()
    const me = free || this.registry.takeOver()
    if (me === 0) throw new PoolError(`${MOST_WORKERS} threads share this device, which is the limit; close it in one`)
    this.lock = new RobustLock(this.state.lock, 0, this.registry, me)
    this.acquire()
    const isClosed = this.state.closed[0] === 1
    if (isClosed) this.registry.forget(me)
    else {
      this.me = me
      this.hasEstate = free === 0
      if (this.hasEstate) Atomics.store(this.state.pins, me, 0)
      if (this.state.identity[0] === 0) this.begin(me)
    }
    this.release()
    if (isClosed) {
      throw new PoolError('the device was closed by the thread that opened it; open it again', 'ERR_DEVICE_CLOSED')
    }
  }

  /** This thread leaves the registry after its streams are closed. */
  leave(): void {
    if (this.me === 0) return
    this.acquire()
    this.state.eventCounts[this.me] = 0
    this.release()
    this.registry.forget(this.me)
    this.me = 0
    this.lock = null
  }

  /** Undoes `join` after the dead thread's estate could not be cleared up: another thread will do that. */
  resign(): void {
    this.registry.bury(this.me)
    this.me = 0
    this.lock = null
  }

  /**
   * Lets no further thread in, and returns true; returns false, and changes nothing, while other threads are
   * attached.
   */
  shut(): boolean {
    if (this.me === 0) return true
    this.registry.findDead()
    this.acquire()
    const isAlone = this.isAlone
    if (isAlone) this.state.closed[0] = 1
    this.release()
    return isAlone
  }

  /** Undoes `shut`. */
  admit(): void {
    this.state.closed[0] = 0
  }

  /** Whether no other living thread has the device attached. */
  get isAlone(): boolean {
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      if (worker !== this.me && this.registry.isAlive(worker)) return false
    }
    return true
  }

  /**
   * The lock of a dead holder can be taken over at once: each step of a slot is one store, so slots are always whole.
   */
  acquire(): void {
    this.lock?.acquire()
  }

  release(): void {
    this.lock?.release()
  }

  /**
   * After a call of this thread was cut short: drops its lock (RobustLock) and its pin, and reopens streams that it
   * was about to end.
   */
  dropStale(): void {
    this.lock?.dropStale()
    this.unpin()
    for (let slot = 0; slot < this.state.limit[0]; slot++) this.takeBackEnd(slot)
  }

  /** Undoes `stop` after a call of this thread was cut short between `stop` and the end of the stream. */
  takeBackEnd(slot: number): void {
    const { lives, owners } = this.state
    if (lives[slot] !== Life.closing || owners[slot] !== this.me) return
    if (this.livesBefore[slot] === Life.suspended) this.suspend(slot)
    else this.reopen(slot)
  }

  /** The slot of an open stream with this handle that a thread of this device made; -1 for none. */
  ownedBy(handle: number): number {
    const { handles, owned, limit } = this.state
    for (let slot = 0; slot < limit[0]; slot++) {
      if (handles[slot] === handle && this.isOpen(slot) && owned[slot] === 1) return slot
    }
    return -1
  }

  generationOf(slot: number): number {
    return this.state.generations[slot]
  }

  isOpen(slot: number): boolean {
    return this.state.lives[slot] === Life.open
  }

  /**
   * Whether the clock of a slot may tick: the slot is open, or this thread is about to end its stream, or the end
   * waits for this thread's pin.
   */
  isTicking(slot: number): boolean {
    const { lives, owners, pins } = this.state
    if (this.isOpen(slot)) return true
    return lives[slot] === Life.closing && (owners[slot] === this.me || pins[this.me] === slot + 1)
  }

  /** Whether a slot still has the stream of that generation, and it is open. */
  isOpenIn(slot: number, generation: number): boolean {
    return this.isOpen(slot) && this.state.generations[slot] === generation
  }

  /** Whether the stream that a slot had in that generation was closed. */
  hasEnded(slot: number, generation: number): boolean {
    return !this.isTaken(slot) || this.state.generations[slot] !== generation
  }

  /** Whether a slot has a stream that is not closed. */
  private isTaken(slot: number): boolean {
    const life: Life = this.state.lives[slot]
    return life !== Life.retired && life !== Life.free
  }

  /** Whether a slot still has the stream of that generation, open or captured. */
  isCurrent(slot: number, generation: number): boolean {
    const life = this.state.lives[slot]
    return (life === Life.open || life === Life.suspended) && this.state.generations[slot] === generation
  }

  /** The handle of a stream that is being captured, in any thread; null for none. */
  captured(): number | null {
    const { lives, handles, limit } = this.state
    for (let slot = 0; slot < limit[0]; slot++) {
      const isIdle = handles[slot] <= CU_STREAM_LEGACY_DEFAULT // suspended because its work would break a capture
      if (lives[slot] === Life.suspended && !isIdle) return handles[slot]
    }
    return null
  }

  /** Gives a free slot to an open stream, which knows nothing of other streams yet; -1 if all are taken. */
  claim(handle: number, owned: boolean): number {
    const { state } = this
    this.acquire()
    const slot = state.lives.indexOf(Life.free)
    if (slot !== -1) {
      // No thread writes to this row late: a writer has the slot pinned, or owns its open stream.
      // Entries from the limit on were never written.
      state.known.fill(0, slot * MOST_STREAMS, slot * MOST_STREAMS + state.limit[0])
      if (this.lock !== null) state.completed[slot] = ++state.marked[slot] // see StreamClocks.lateTicks
      state.generations[slot]++
      state.handles[slot] = handle
      state.owned[slot] = Number(owned)
      state.owners[slot] = handle === CU_STREAM_LEGACY_DEFAULT ? 0 : this.me
      if (slot >= state.limit[0]) state.limit[0] = slot + 1
      Atomics.store(state.lives, slot, Life.open)
    }
    this.release()
    return slot
  }

  /**
   * Whether this thread can mark the stream of a slot, or need not because the stream has ended. It cannot mark
   * another thread's per-thread default stream.
   */
  isReachable(slot: number): boolean {
    const { handles, owners } = this.state
    return handles[slot] !== CU_STREAM_PER_THREAD || owners[slot] === this.me || !this.isTaken(slot)
  }

  /**
   * Keeps other threads from ending the open stream of a slot until `unpin`; with a generation, only the stream of
   * that generation. Returns false if that stream has ended or is captured, or if this thread cannot mark it. A
   * thread pins one slot at a time.
   */
  pin(slot: number, generation = this.state.generations[slot]): boolean {
    const { state, me } = this
    if (slot === -1) return false // a closed stream
    // No other thread ends a stream of this thread. `claim` writes the life of a slot last, so the life is read
    // first.
    const life = Atomics.load(state.lives, slot)
    if (state.owners[slot] === me && life === Life.open) return state.generations[slot] === generation
    if (!this.isReachable(slot)) return false
    this.acquire()
    const isOpen = this.isOpenIn(slot, generation)
    if (isOpen) Atomics.store(state.pins, me, slot + 1)
    this.release()
    return isOpen
  }

  unpin(): void {
    if (this.me !== 0) Atomics.store(this.state.pins, this.me, 0)
  }

  /**
   * This thread is about to end or suspend an open stream: returns true once no other thread calls the driver for it.
   * Returns false, and changes nothing, for a stream that is not open.
   */
  stop(slot: number): boolean {
    const { state } = this
    this.acquire()
    const isOpen = this.isOpen(slot)
    if (isOpen) {
      this.livesBefore[slot] = Life.open
      state.owners[slot] = this.me
      Atomics.store(state.lives, slot, Life.closing)
    }
    this.release()
    if (isOpen) this.awaitPins(slot)
    return isOpen
  }

  /** Goes on after `stop`: the stream is being captured, or is kept idle by a capture. */
  suspend(slot: number): void {
    Atomics.store(this.state.lives, slot, Life.suspended)
  }

  /** Undoes `stop`, or ends `suspend`. */
  reopen(slot: number): void {
    const { lives, handles, owners, marked } = this.state
    this.acquire()
    if (handles[slot] === CU_STREAM_LEGACY_DEFAULT) owners[slot] = 0
    if (this.lock !== null && lives[slot] === Life.suspended) marked[slot]++ // see StreamClocks.lateTicks
    Atomics.store(lives, slot, Life.open)
    this.release()
  }

  /**
   * The stream is closed. It is destroyed after this: a thread that dies in between leaves a stream, and none is
   * destroyed twice.
   */
  retire(slot: number): void {
    Atomics.store(this.state.lives, slot, Life.retired)
  }

  /** All work of a closed stream has completed. */
  free(slot: number): void {
    this.acquire()
    const { lives, completed, marked } = this.state
    if (lives[slot] === Life.retired && completed[slot] >= marked[slot]) Atomics.store(lives, slot, Life.free)
    this.release()
  }

  /**
   * True if no other thread is about to end or suspend the stream of a slot. Else waits a millisecond, and returns
   * false.
   */
  awaitClosing(slot: number): boolean {
    const { lives } = this.state
    this.takeBackEnd(slot)
    if (Atomics.load(lives, slot) !== Life.closing) return true
    Atomics.wait(lives, slot, Life.closing, PATIENCE_MS)
    serveWaiting()
    return false
  }

  /** Numbers of dead threads that may have left streams or events. */
  dead(): number[] {
    if (this.me === 0) return []
    const dead = this.registry.findDead()
    return this.hasEstate ? [this.me, ...dead] : dead
  }

  private isDead(worker: number): boolean {
    return this.registry.isDead(worker) || (worker === this.me && this.hasEstate)
  }

  /**
   * Takes over a slot of a dead thread, to end its stream. Returns the slot's life before that; null for a slot
   * without such a stream.
   */
  inherit(slot: number, dead: number): Life | null {
    const { lives, owners, handles } = this.state
    this.acquire()
    const was: Life = lives[slot]
    // Another thread may have cleaned up, and a new thread may have the number.
    let inherits = this.isDead(dead) && owners[slot] === dead && this.isTaken(slot)
    if (inherits && handles[slot] === CU_STREAM_LEGACY_DEFAULT) {
      inherits = false
      owners[slot] = 0
      Atomics.store(lives, slot, Life.open)
    }
    if (inherits) {
      this.livesBefore[slot] = was
      owners[slot] = this.me
      Atomics.store(lives, slot, Life.closing)
    }
    this.release()
    if (inherits) this.awaitPins(slot)
    return inherits ? was : null
  }

  /** Takes one of the events that a dead thread made for its marks; 0 once all are taken. */
  takeEvent(dead: number): number {
    this.acquire()
    const event = this.isDead(dead) ? takeEvent(this.state, dead) : 0
    this.release()
    return event
  }

  /**
   * Undoes `inherit`. If a new thread has the dead thread's number by now, this thread keeps the stream, which ends
   * with it.
   */
  disown(slot: number, dead: number): void {
    this.takeBackEnd(slot)
    this.acquire()
    if (this.isDead(dead)) this.state.owners[slot] = dead
    this.release()
  }

  /** Frees the number of a dead thread, unless it still has open streams or another thread was first. */
  forget(dead: number): void {
    const { owners, pins, limit } = this.state
    this.acquire()
    let isEmpty = true
    for (let slot = 0; slot < limit[0]; slot++) if (owners[slot] === dead && this.isTaken(slot)) isEmpty = false
    if (isEmpty && this.isDead(dead)) {
      pins[dead] = 0
      this.state.eventCounts[dead] = 0
      if (dead === this.me) this.hasEstate = false
      else this.registry.forgetDead(dead)
    }
    this.release()
  }

  /** The order is shared from now on: this thread owns all streams that are open. */
  private begin(me: number): void {
    const { lives, handles, owners, identity, limit } = this.state
    for (let slot = 0; slot < limit[0]; slot++) {
      if (lives[slot] !== Life.free && handles[slot] !== CU_STREAM_LEGACY_DEFAULT) owners[slot] = me
      if (lives[slot] === Life.suspended) owners[slot] = me
    }
    identity[0] = newIdentity()
  }

  private awaitPins(slot: number): void {
    const { pins } = this.state
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      while (Atomics.load(pins, worker) === slot + 1 && this.registry.isAlive(worker)) {
        if (Atomics.wait(pins, worker, slot + 1, PATIENCE_MS) === 'timed-out') this.registry.hasDied(worker)
        serveWaiting() // the other thread's call may need a simulated driver that this thread has opened
      }
    }
  }
}
