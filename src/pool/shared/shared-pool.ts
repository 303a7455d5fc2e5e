// A caching pool that several threads of a process share. Each has an object of this class over the same state: on the
// cached path it takes a block from its own stacks and puts it back there (thread-cache.ts), which neither waits nor writes where
// another thread does. Behind that stand the heaps, under a lock, and behind those the pool server (pool-server.ts), which alone calls
// the driver.
//
// One thread uses and frees a live block; `transfer` and `adopt` hand it on. A free needs no atomic operation, since no other
// thread changes the owner word of a live block.
//
// The file is long because the hot path, the counters it keeps and the public verbs share private state.

import { checkByteCount, describe } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { checkStack } from '../../base/stack.js'
import { type Context, unreachable } from '../../driver/context.js'
import { slotOfKey } from '../../heap/key.js'
import { NOBODY, ownerWordOf, Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { Double, State, Word } from '../../heap/records.js'
import { classOf, UNIT_BYTES } from '../../heap/size-classes.js'
import { streamIn } from '../../order/borrowed.js'
import type { Clocks } from '../../order/clocks.js'
import { checkIsStream, checkStreamOf, type Stream } from '../../order/stream.js'
import { storeRelease } from '../../threads/memory-order.js'
import { MOST_WORKERS, ThreadRegistry } from '../../threads/thread-registry.js'
import { MOST_ALIGNMENT_BYTES, SMALL_CLASSES } from '../backing/backing.js'
import { DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { AddressIndex } from '../caching/address-index.js'
import { checkAlignment } from '../caching/alignment.js'
import { type Block, type BlockOwner, slackOf } from '../caching/block.js'
import { blockUnits } from '../caching/block-units.js'
import { type CloseReport, type LiveBlock, unknownAddress } from '../caching/caching-pool.js'
import { seenBy } from '../caching/central-heap.js'
import { CrossStreamReuse } from '../caching/cross-stream.js'
import type { PoolConfig } from '../caching/options.js'
import { outOfMemory } from '../caching/shortage.js'
import { classUnits } from '../caching/stream-caches.js'
import { Pool, type PoolStats } from '../pool.js'
import { checkTransferred, checkTransferredList, type TransferredBuffer } from '../transferred.js'
import { AdoptedBlock, type AdoptedOwner } from './adopted-block.js'
import type { Question, Reclaimed, SharedShortage } from './pool-server.js'
import { ServerWatch } from './server-watch.js'
import { COUNT_LINE, Figure, type SharedPoolState, SharedState } from './shared-state.js'
import { type CacheLimits, cacheLimits, ThreadCache } from './thread-cache.js'

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

/** A thread caches no block larger than this share of what the pool may reserve, and no more than the other one for a stream. */
const CACHED_BLOCK_SHARE = 1 / 512
const CACHED_STREAM_SHARE = 1 / 64
/** Large blocks given back to the heaps, by all threads, after which the pool server is woken to place marks. */
const FREES_PER_RING = 32
/** How long to wait for /proc to drop a thread that has exited. */
const REAP_TIMEOUT_MS = 200
const NO_CAPTURES = 'a shared pool does not serve a stream that is being captured; use a pool of this thread'

/** Where the record of a block on its way between threads says which of the streams that had its slot it is for. */
const GENERATION = Word.binPrevious

const enum Tag {
  /** tags above this have no room for another generation */
  last = (2 ** 28 - 1) * 8,
}

const enum Shift {
  units = 8,
}

/** One thread that uses a pool, or that ended without closing it there. */
export interface PoolThread {
  /** the pool's number of it, for `reclaim` */
  readonly thread: number
  /** what `worker_threads` called it; -1 for the pool server of the pool */
  readonly threadId: number
  readonly alive: boolean
  readonly liveBuffers: number
  readonly liveBytes: number
}

/** What each thread counts. */
const enum Count {
  allocations,
  misses,
}

export class SharedPool<D = unknown> extends Pool implements BlockOwner, AdoptedOwner, Disposable {
  readonly context: Context
  readonly config: PoolConfig
  /** the pool's number of this thread, which no later thread gets */
  readonly thread: number
  private readonly state: SharedState
  private readonly cache: ThreadCache
  /** by record on another thread's page: what is known of it here, once it was adopted */
  private readonly adopted: (AdoptedBlock | undefined)[] = []
  private readonly words: Int32Array
  private readonly doubles: Float64Array
  /** made at the first `deallocate` */
  private addresses: AddressIndex | null = null
  private readonly crossStream: CrossStreamReuse
  private readonly counts: Float64Array
  private readonly roundingMask: number
  private readonly smallMask: number
  /** by stream slot: the latest stamp that the host has seen complete, as far as the pool may know */
  private readonly seen: Float64Array
  /** the stamps of frees less one: the clocks', or all -1 for a pool that is not stream-ordered */
  private readonly marked: Float64Array
  /** those of the streams to allocate for; null once closed */
  private acceptedClocks: Clocks | null
  /** the last request to the pool server */
  private asked: Question | null = null
  /** nobody writes here: to wait for some time */
  private readonly patience = new Int32Array(new SharedArrayBuffer(4))

  /** Made by the device: `device.createPool({ shared: true })`, and in other threads `attachPool(shared)`. */
  constructor(
    readonly clocks: Clocks,
    readonly defaultStream: Stream,
    protected readonly descriptor: SharedPoolState<D>,
    /** made the pool, and so may close it for all */
    protected readonly creator: boolean,
    /** what the thread does each millisecond while it waits for the pool server */
    private readonly meanwhile: () => void,
  ) {
    super()
    const { config } = descriptor
    this.config = config
    this.context = clocks.context
    this.seen = seenBy(clocks, config)
    this.state = new SharedState(descriptor, this.seen, meanwhile)
    const { records, caches, thread } = this.state
    this.thread = this.state.registry.nameOf(thread)
    this.cache = new ThreadCache(this.state, this, this.cacheLimits(config))
    this.words = records.words
    this.doubles = records.doubles
    this.crossStream = new CrossStreamReuse(records, caches, clocks, this.seen, config.deterministic, () => {})
    this.counts = this.state.counts.subarray(thread * COUNT_LINE, (thread + 1) * COUNT_LINE)
    this.roundingMask = config.minBlockBytes - 1
    this.smallMask = config.powerOfTwo ? 0 : 2 ** 30 - 1
    this.marked = config.streamOrdered ? clocks.marked : new Float64Array(clocks.marked.length).fill(-1)
    this.acceptedClocks = clocks
  }

  /** Returns when the pool server is there; throws what kept it from making the pool. */
  begin(): void {
    this.ask({ ask: 'begin' })
  }

  /** What another thread of this process needs to use the pool: send it there, and give it to `attachPool`. */
  share(): SharedPoolState<D> {
    this.checkOpen('share')
    return this.descriptor
  }

  /** What one thread may cache. */
  protected cacheLimits(config: PoolConfig): CacheLimits {
    return cacheLimits(config, CACHED_BLOCK_SHARE, CACHED_STREAM_SHARE)
  }

  allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    // Two call sites: one variable for both streams would lose what V8 knows of each.
    if (stream === undefined) return this.take(bytes, this.defaultStream, alignment, false)!
    return this.take(bytes, stream, alignment, false)!
  }

  tryAllocate(bytes: number, stream: Stream = this.defaultStream, alignment?: number): DeviceBuffer | null {
    return this.take(bytes, stream, alignment, true)
  }

  private take(bytes: number, stream: Stream, alignment: number | undefined, mayFail: boolean): DeviceBuffer | null {
    const { slot } = stream
    // The comparison of bytes with some of their bits holds for whole numbers from 0 to 2^30 - 1 only.
    if (
      stream.trusted === this.acceptedClocks &&
      slot >= 0 &&
      (bytes & this.smallMask) === bytes &&
      alignment === undefined
    ) {
      const mask = this.roundingMask
      const small = bytes | 0
      const units = ((small + mask) & ~mask) >>> Shift.units
      const { blocks } = this.cache
      const stack = blocks.stackFor(slot, units)
      const block = stack.top
      if (blocks.holds(stack, units) && this.cache.claimTop(stack)) {
        return this.handOut(block, ((block.units << Shift.units) - small) | 0, stream)
      }
      return this.takeBelow(units, small, stream, mayFail)
    }
    return this.takeSlowly(bytes, stream, alignment, mayFail)
  }

  /** A block of the stream that is not on top of its stack, or not cached. */
  private takeBelow(units: number, bytes: number, stream: Stream, mayFail: boolean): DeviceBuffer | null {
    const { cache } = this
    cache.begin()
    const block = cache.blocks.takeAny(stream.slot, classUnits(units))
    const isMine = block !== null && cache.claim(block)
    if (block !== null && !isMine) cache.abandon(block)
    cache.end()
    if (isMine) return this.handOut(block, slackOf(block, bytes), stream)
    return this.takeSlowly(bytes, stream, undefined, mayFail)
  }

  /** A live block of this thread, of whose bytes `slack` are not asked for. */
  private handOut(block: Block, slack: number, stream: Stream): DeviceBuffer {
    // Most programs ask for what they asked for before.
    if (slack !== block.slack) this.setSlack(block, slack)
    // And for the stream that had it last, without a wrapper.
    if (block.stream !== stream) block.stream = stream
    if (block.wrapper !== null) block.wrapper = null
    this.counts[Count.allocations]++
    return new DeviceBuffer(block, block.tag)
  }

  /** Of a block's bytes so many are not asked for, which other threads can see. */
  private setSlack(block: Block, slack: number): void {
    block.slack = slack
    this.doubles[(block.record << 3) | Double.requested] = block.units * UNIT_BYTES - slack
  }

  /** A buffer has fewer bytes than were asked of the pool for it. */
  protected shorten(buffer: DeviceBuffer, bytes: number): void {
    const block = buffer.allocation as Block
    this.setSlack(block, slackOf(block, bytes))
  }

  release(buffer: DeviceBuffer, stream?: Stream): void {
    const block = buffer.allocation as Block
    const { tag } = block
    const { slot } = block.stream
    if (
      tag !== buffer.tag ||
      tag > Tag.last ||
      slot < 0 ||
      stream !== undefined ||
      !this.cache.keep(block, this.marked[slot])
    ) {
      this.releaseSlowly(buffer, stream)
    }
  }

  /** The same of an adopted block, which mostly goes back to the thread on whose page its record is. */
  releaseAdopted(buffer: DeviceBuffer, stream?: Stream): void {
    const block = buffer.allocation as AdoptedBlock
    const { tag } = buffer
    const { slot } = block.stream
    if (
      block.tag !== (tag | 1) ||
      tag > Tag.last ||
      slot < 0 ||
      stream !== undefined ||
      block.state === State.shared ||
      !this.returns(block, slot, this.marked[slot] + 1)
    ) {
      this.releaseSlowly(buffer, stream)
    }
  }

  /** Frees a block whose record is on another thread's page by sending it back there; false for one of another stream, or too large. */
  private returns(block: Block | AdoptedBlock, slot: number, stamp: number): boolean {
    const { words, state } = this
    const { record } = block
    const base = record << 4
    const owner = state.records.ownerOf(record)
    const isSmall = this.cache.isSmall(words[base | Word.units])
    if (owner === state.thread || words[base | Word.key] !== slot + 1 || !isSmall) return false
    this.give(block)
    this.doubles[(record << 3) | Double.stamp] = stamp
    const sent = ownerWordOf(words[base], state.thread, Phase.sent)
    if (!state.caches.remoteFrees.send(record, sent, owner) || !this.arrives(record, owner))
      this.giveBack(record, slot, stamp)
    return true
  }

  /** Whether somebody looks after a block that was sent back: its thread, or the pool server when that has died. If not it is in no queue. */
  private arrives(record: number, owner: number): boolean {
    const { state } = this
    const { caches } = state
    if (state.registry.isAlive(owner)) return true
    // Under the lock nobody else clears up, and no other thread gets that number.
    return state.locked(() => state.registry.isAlive(owner) || !caches.remoteFrees.takeBack(record, owner))
  }

  /** Frees by address, a block of this thread's. Throws PoolError for an address that this thread does not hold, or that lies inside a block. */
  deallocate(ptr: number, stream?: Stream): void {
    this.checkOpen('deallocate')
    if (this.mayStillBeHeard) this.ask({ ask: 'settle' }) // a free that was cut short is done before
    const index = this.addresses ?? this.indexAddresses()
    this.addresses = index
    // The first record of a range changes under the lock. Once all pages of records are taken, a block may come back to a
    // thread that had none at that address before.
    const record =
      this.liveAt(ptr, index) ||
      this.state.locked(() => {
        this.addresses = this.indexAddresses()
        return this.liveAt(ptr, this.addresses)
      })
    if (record === 0) throw unknownAddress(ptr)
    const tag = this.words[record << 4]
    const known = this.allocationOf(record) as Block | AdoptedBlock | undefined
    // A call that was cut short may not have come so far as to note that it has the block, and for which stream.
    const block = known !== undefined && (known.tag | 1) === (tag | 1) ? known : this.cache.admit(record)
    const { slot, lastSlot } = block.stream
    if (this.words[(record << 4) | Word.key] !== (slot < 0 ? lastSlot : slot) + 1) block.stream = this.streamAt(record)
    const buffer = new DeviceBuffer(block, tag & ~1)
    if (block instanceof AdoptedBlock) this.releaseAdopted(buffer, stream)
    else this.release(buffer, stream)
  }

  /**
   * Gives a live buffer of this thread up, for another thread to adopt; using it here from now on throws PoolError. Work
   * submitted to its stream before this call may still use it. A buffer that is never adopted stays live.
   */
  transfer(buffer: DeviceBuffer): TransferredBuffer {
    const { record, tag } = buffer
    const block = buffer.allocation as Block | AdoptedBlock
    if ((block.tag | 1) !== (tag | 1)) this.refuseStale('transfer')
    this.give(block)
    this.words[(record << 4) | GENERATION] = block.stream.generation
    if (tag > Tag.last) this.disown(record) // should it come back, no generation tells the handles apart
    storeRelease(this.words, (record << 4) | Word.owner, ownerWordOf(tag, NOBODY, Phase.live))
    return { pool: this.descriptor.number, record, tag }
  }

  /**
   * Takes over a buffer that another thread has transferred; it belongs to the stream that it was allocated on. Throws
   * TypeError for what is no such thing, PoolError for a buffer that is not on its way: adopted already, or of another pool.
   */
  adopt(transferred: TransferredBuffer): DeviceBuffer {
    this.checkOpen('adopt')
    checkTransferred('adopt', transferred, this.descriptor.number)
    if (!this.claim(transferred)) this.refuseAdoption('adopt')
    try {
      return this.adoptedBuffer(transferred.record, this.adoptedStream(transferred.record))
    } catch (error) {
      this.giveUp(transferred.record, transferred.tag)
      throw error
    }
  }

  /**
   * Takes over all buffers of a list, or none where that throws as `adopt` does. Faster than one after another: what the other
   * thread has written of them is fetched at once. Nothing of the list is kept: it can be used again.
   */
  adoptAll(transferred: readonly TransferredBuffer[]): DeviceBuffer[] {
    this.checkOpen('adoptAll')
    checkTransferredList('adoptAll', transferred)
    for (let index = 0; index < transferred.length; index++) {
      checkTransferred('adoptAll', transferred[index], this.descriptor.number)
      const { record } = transferred[index]
      if (this.isKnown(record)) this.words[(record << 4) | Word.touched] = 1
    }
    let claimed = 0
    try {
      // All before the first buffer is made: each claim waits until what was stored before has left the core, and new memory takes long.
      while (claimed < transferred.length && this.claim(transferred[claimed])) claimed++
      if (claimed < transferred.length) this.refuseAdoption('adoptAll')
      return this.adoptedBuffers(transferred)
    } catch (error) {
      for (const { record, tag } of transferred.slice(0, claimed)) this.giveUp(record, tag)
      throw error
    }
  }

  /** The buffers of blocks just claimed. */
  private adoptedBuffers(transferred: readonly TransferredBuffer[]): DeviceBuffer[] {
    const { words } = this
    const buffers = new Array<DeviceBuffer>(transferred.length)
    let stream = this.defaultStream
    let key = 0 // that of the stream; most blocks of a list are of one
    for (let index = 0; index < transferred.length; index++) {
      const { record } = transferred[index]
      const base = record << 4
      if (words[base | Word.key] !== key || words[base | GENERATION] !== stream.generation) {
        stream = this.adoptedStream(record)
        key = words[base | Word.key]
      }
      buffers[index] = this.adoptedBuffer(record, stream)
    }
    return buffers
  }

  private isKnown(record: number): boolean {
    return record >= this.state.records.first && record < this.state.records.used
  }

  /** Makes a buffer on its way this thread's, in a new generation; false for what is none. */
  private claim({ record, tag }: TransferredBuffer): boolean {
    const { words } = this
    const index = (record << 4) | Word.owner
    const waiting = ownerWordOf(tag, NOBODY, Phase.live)
    // Handles from before the transfer are stale also in the thread that had the buffer before, should it come back there.
    const next = nextGeneration(tag)
    // To look at the block before would fetch its line from the other thread twice.
    const mine = ownerWordOf(next, this.state.thread, Phase.live)
    if (!this.isKnown(record) || Atomics.compareExchange(words, index, waiting, mine) !== waiting) return false
    if ((words[record << 4] & ~1) !== tag) {
      Atomics.store(words, index, waiting) // another generation, of which the owner word has not all bits
      return false
    }
    words[record << 4] = next | (words[record << 4] & 1)
    return true
  }

  /** A block just claimed is on its way again, in the generation of `tag`. */
  private giveUp(record: number, tag: number): void {
    this.words[record << 4] = tag | (this.words[record << 4] & 1)
    storeRelease(this.words, (record << 4) | Word.owner, ownerWordOf(tag, NOBODY, Phase.live))
  }

  private adoptedBuffer(record: number, stream: Stream): DeviceBuffer {
    this.addresses?.note(record)
    const tag = this.words[record << 4]
    const isOwn = this.state.records.ownerOf(record) === this.state.thread
    const block = isOwn ? this.cache.admit(record) : this.adoptedBlock(record, tag, stream)
    if (block.stream !== stream) block.stream = stream
    if (block.wrapper !== null) block.wrapper = null
    return new DeviceBuffer(block, tag & ~1)
  }

  private adoptedBlock(record: number, tag: number, stream: Stream): AdoptedBlock {
    const block = this.adopted[record] ?? this.newAdopted(record, stream)
    block.tag = tag | 1
    block.state = (tag & 1) === 0 ? State.live : State.shared
    return block
  }

  private newAdopted(record: number, stream: Stream): AdoptedBlock {
    const block = new AdoptedBlock(this, record, stream)
    this.adopted[record] = block
    return block
  }

  /** What this thread knows of a live block that it has; of another one perhaps undefined, or what it knew before. */
  private allocationOf(record: number): Block | AdoptedBlock {
    const { records, thread } = this.state
    const adopted = records.ownerOf(record) === thread ? undefined : this.adopted[record]
    return adopted !== undefined && adopted.tag !== 0 ? adopted : this.cache.blocks.blockOf(record)
  }

  /** A live block goes to another thread or to its heap; handles of it are stale from now on. */
  private give(block: Block | AdoptedBlock): void {
    block.tag = 0
  }

  private disown(record: number): void {
    this.adopted[record] = undefined
    this.cache.blocks.disown(record)
  }

  /** Notices which frees have completed, without waiting; returns how many blocks depend on nothing since. */
  processDeferred(): number {
    this.checkOpen('processDeferred')
    return this.ask({ ask: 'settle' }) as number
  }

  /** Gives idle memory back to the device until at most `bytes` are reserved; work still pending is not waited for. Returns the bytes given back. */
  trimTo(bytes: number): number {
    this.checkOpen('trimTo')
    if (bytes !== 0) checkByteCount(bytes, 'trimTo: bytes')
    const before = this.state.figures[Figure.reservedBytes]
    this.ask({ ask: 'trim', bytes })
    return Math.max(0, before - this.state.figures[Figure.reservedBytes])
  }

  /** Of all threads together, and nobody is stopped for it: while others work each block is counted as it is found. Peaks are those that were noticed when memory was found. */
  stats(): PoolStats {
    const { caches, memory, figures, counts } = this.state
    const { liveBlocks, liveUnits, requestedBytes, cachedUnits } = caches.sums()
    const sum = (count: Count) =>
      counts.reduce((all, one, index) => (index % COUNT_LINE === count ? all + one : all), 0)
    const allocations = sum(Count.allocations)
    const open = !this.closed
    return {
      liveBytes: liveUnits * UNIT_BYTES,
      peakLiveBytes: Math.max(caches.peakUnits, liveUnits) * UNIT_BYTES,
      requestedBytes,
      reservedBytes: figures[Figure.reservedBytes],
      peakReservedBytes: figures[Figure.peakReservedBytes],
      cachedBytes: cachedUnits * UNIT_BYTES,
      pendingBytes: open ? memory.pendingUnits * UNIT_BYTES + figures[Figure.deferredBytes] : 0,
      largestFreeBytes: open ? memory.largestFreeUnits * UNIT_BYTES : 0,
      limitBytes: this.config.limitBytes,
      liveBuffers: liveBlocks,
      allocations,
      frees: Math.max(0, allocations - liveBlocks), // a thread counts a buffer just after it has it
      cacheMisses: sum(Count.misses),
      growths: figures[Figure.growths],
      insertedWaits: figures[Figure.insertedWaits],
    }
  }

  /** Every buffer that some thread holds, or that is on its way to one, in no particular order. */
  live(): (LiveBlock & { readonly thread: number })[] {
    const { records } = this.state
    const blocks: (LiveBlock & { readonly thread: number })[] = []
    for (let record = records.first; record < records.used; record++) {
      const ownerWord = records.ownerWord(record)
      if (!records.isLive(record) || phaseOf(ownerWord) !== Phase.live) continue
      blocks.push({
        ptr: this.addressOfRecord(record),
        byteLength: records.requestedBytesOf(record),
        blockBytes: records.unitsOf(record) * UNIT_BYTES,
        stream: this.handleOf(slotOfKey(records.keyOf(record))),
        thread: workerOf(ownerWord) === NOBODY ? NOBODY : this.state.registry.nameOf(workerOf(ownerWord)),
      })
    }
    return blocks
  }

  /** The threads that use the pool, its pool server among them, and those that ended with buffers that they still held. */
  threads(): PoolThread[] {
    const { registry, threadIds, figures } = this.state
    const live = this.live()
    const threads: PoolThread[] = []
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      const alive = registry.isAlive(thread) && !registry.look(thread)
      if (!alive && !registry.isDead(thread)) continue
      const name = registry.nameOf(thread)
      const held = live.filter(block => block.thread === name)
      threads.push({
        thread: name,
        threadId: thread === figures[Figure.server] ? -1 : threadIds[thread],
        alive,
        liveBuffers: held.length,
        liveBytes: held.reduce((sum, block) => sum + block.blockBytes, 0),
      })
    }
    return threads
  }

  /**
   * Gives back what a thread that has ended still held, once all work submitted so far has completed; `thread` is the pool's
   * number of it, as in `threads()`, or 0 for buffers that were transferred and that nobody will adopt. Returns how much that
   * was: nothing for a thread that lives or held nothing. Waits a little for a thread that is about to end.
   */
  reclaim(thread: number): Reclaimed {
    this.checkOpen('reclaim')
    const worker = ThreadRegistry.numberIn(thread)
    if (!Number.isInteger(thread) || thread < 0 || worker > MOST_WORKERS) {
      throw new RangeError(`reclaim: thread must be a number of threads(), not ${describe(thread)}`)
    }
    const { registry } = this.state
    const isThere = () => registry.isAlive(worker) && registry.nameOf(worker) === thread
    for (let looks = 0; looks < REAP_TIMEOUT_MS && isThere() && !registry.look(worker); looks++) {
      Atomics.wait(this.patience, 0, 0, 1)
    }
    return this.ask({ ask: 'reclaim', thread }) as Reclaimed
  }

  /** Asserts that heaps, caches, backing and counters tell one story; for when no other thread is in the middle of a call. */
  check(): void {
    this.checkOpen('check')
    this.ask({ ask: 'check' })
    this.cache.check()
  }

  get closed(): boolean {
    return this.acceptedClocks === null
  }

  /**
   * In the thread that made the pool: waits for pending work and gives all memory back; throws PoolError while other threads
   * use it. In another thread: that is done with the pool, and what it still held is freed on the streams it is for. Says
   * how much was held. A second close does nothing.
   */
  close(): CloseReport {
    if (this.closed) return { lostBuffers: 0, lostBytes: 0 }
    if (this.creator) this.clocks.checkNoCapture('close')
    const { buffers, bytes } = this.isLost ? this.leaveLost() : this.askToClose()
    this.state.registry.forget(this.state.thread) // not before the answer is here: the next thread of this number asks in the same place
    this.acceptedClocks = null
    this.cache.blocks.clear()
    for (const block of this.adopted) if (block !== undefined) block.tag = 0
    return { lostBuffers: buffers, lostBytes: bytes }
  }

  [Symbol.dispose](): void {
    this.close()
  }

  announceUse(block: Block | AdoptedBlock, stream: Stream): void {
    this.checkStream('recordUse', stream)
    if (!this.config.streamOrdered) return
    this.askToRecord(block.record, stream.slot, null)
  }

  /** Work of a stream slot uses a live block: until `stamp` of it, null for until the free. */
  protected askToRecord(record: number, slot: number, stamp: number | null): void {
    const allocation = this.allocationOf(record)
    const { state } = allocation
    allocation.state = State.shared // before it is: where this call is cut short, the block's free asks the pool server
    try {
      this.ask({ ask: 'recordUse', record, slot, stamp })
    } catch (error) {
      if (!this.mayStillBeHeard) allocation.state = state
      throw error
    }
  }

  reachableFrom(context: Context): boolean {
    return context.sharesDevice(this.context)
  }

  requestedBytesOfRecord(record: number): number {
    return this.doubles[(record << 3) | Double.requested]
  }

  addressOfRecord(record: number): number {
    const base = record << 4
    return this.state.bases[this.words[base | Word.range]] + this.words[base | Word.offset] * UNIT_BYTES
  }

  /** What the fast path leaves alone: a special wish, or a size that is not on top of its stack. */
  private takeSlowly(
    bytes: number,
    stream: Stream,
    alignment: number | undefined,
    mayFail: boolean,
  ): DeviceBuffer | null {
    this.checkStream('allocate', stream)
    const units = blockUnits(bytes, this.config)
    if (alignment !== undefined) checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    const block =
      stream.trusted === undefined
        ? this.findLent(units, stream, alignment)
        : this.findBlock(units, stream.slot, alignment)
    if (block === null && mayFail) return null
    if (block === null) throw this.outOfMemory(bytes)
    return this.handOut(block, slackOf(block, bytes), stream)
  }

  /** A block for the open stream of a slot, live; null for none. */
  private findBlock(units: number, slot: number, alignment: number | undefined): Block | null {
    const cached = alignment === undefined ? this.takeCached(units, slot) : null
    if (cached !== null) return cached
    this.counts[Count.misses]++
    const alignUnits = Math.max(1, (alignment ?? 1) / UNIT_BYTES)
    const record = this.takeFromHeap(units, alignUnits, slot) || this.askFor(units, alignUnits, slot)
    if (record === 0) return null
    this.addresses?.note(record)
    return this.cache.admit(record)
  }

  /** The same for a stream that another thread may end meanwhile: then it gets none, and is refused. */
  private findLent(units: number, stream: Stream, alignment: number | undefined): Block | null {
    const { slot } = stream
    let block: Block | null = null
    try {
      block = this.findBlock(units, slot, alignment)
      return block
    } finally {
      if (!stream.isOpen) {
        if (block !== null) {
          this.give(block)
          this.giveBack(block.record, slot, this.clocks.coveringSoon(slot))
        }
        stream.checkOpen('allocate')
      }
    }
  }

  /** A block that this thread caches, or gets back from another thread, for the stream or one that it comes after; null for none. */
  private takeCached(units: number, slot: number): Block | null {
    const { cache } = this
    const { blocks } = cache
    const { caches } = this.state
    const { known } = this.clocks
    caches.meet(slot)
    if (caches.biasedLock.isShut) this.state.locked(() => {}) // until the pool server has taken what it needs
    cache.begin()
    cache.receive(slot, classOf(units), units)
    let block: Block | null
    for (;;) {
      block =
        blocks.takeGiven(slot, units, known, this.seen) ??
        blocks.takeAny(slot, units) ??
        blocks.takeTop(slot, units, known, this.seen)
      if (block === null || cache.claimFor(block, slot)) break
      cache.abandon(block)
    }
    cache.end()
    return block
  }

  /** A free block out of the heaps that the stream may use, as far as that is known, or a part of a larger one that this thread has cached; 0 for none. */
  private takeFromHeap(units: number, alignUnits: number, slot: number): number {
    const { state } = this
    this.cache.mend()
    state.acquire()
    let record: number
    try {
      record = this.takeLocked(units, alignUnits, slot)
    } catch (error) {
      state.releaseBroken()
      throw error
    }
    state.release()
    return record
  }

  private takeLocked(units: number, alignUnits: number, slot: number): number {
    const { state, words, crossStream, cache } = this
    const { memory, caches } = state
    const heap = memory.heapFor(units)
    cache.look()
    cache.emptyQueue()
    if (!state.hasRecords) return 0
    let record = heap.allocate(units, alignUnits, slot + 1)
    // To have the pool server do it would take as long as a hundred of these.
    if (record === 0 && heap === memory.small && cache.breakLarger(units, slot, SMALL_CLASSES)) {
      record = heap.allocate(units, alignUnits, slot + 1)
    }
    if (record === 0) {
      crossStream.look(slot)
      record = crossStream.takeFree(heap, units, alignUnits)
    }
    if (record === 0) return 0
    caches.handOut(slot, record)
    words[(record << 4) | Word.key] = slot + 1
    words[(record << 4) | Word.sizeClass] = classOf(words[(record << 4) | Word.units])
    return state.handOver(record, state.thread)
  }

  private askFor(units: number, alignUnits: number, slot: number): number {
    return this.ask({ ask: 'allocate', units, alignUnits, slot }) as number
  }

  /** A free on a named or closed stream, of a block of another thread, or that other streams use, or that there is no room for. */
  private releaseSlowly(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    const block = buffer.allocation as Block | AdoptedBlock
    const { record } = block
    if (!block.isLive(record, buffer.tag)) this.refuseStale('free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) throw unreachable('free: the stream', stream.context, this.context)
    stream.checkShareable('free')
    if (stream.capture !== null) throw new PoolError(`free: ${NO_CAPTURES}`)
    const hasSlot = !stream.closed && stream.slot >= 0
    const slot = hasSlot ? stream.slot : stream.lastSlot
    const covering = hasSlot ? this.clocks.coveringSoon(slot) : stream.lastStamp
    const stamp = this.config.streamOrdered ? covering : 0
    if (block.state === State.shared) this.defer(block, slot, stamp)
    else if (stream.isOpen && buffer.tag <= Tag.last) this.sendOrCache(block, slot, stamp)
    else {
      this.give(block)
      this.giveBack(record, slot, stamp)
    }
  }

  /** The pool server frees a block that other streams use. Its handles are stale before: a call that is cut short may have freed it. */
  private defer(block: Block | AdoptedBlock, slot: number, stamp: number): void {
    const { tag, record } = block
    this.give(block)
    try {
      this.ask({ ask: 'defer', record, slot, stamp })
    } catch (error) {
      if (!this.mayStillBeHeard) block.tag = tag
      throw error
    }
  }

  /** A block freed on an open stream goes to the thread on whose page its record is, or into a stack, or where there is no room to its heap. */
  private sendOrCache(block: Block | AdoptedBlock, slot: number, stamp: number): void {
    if (this.returns(block, slot, stamp)) return
    const { record } = block
    const { state, words, cache } = this
    this.give(block)
    if (cache.isSmall(words[(record << 4) | Word.units])) {
      state.caches.meet(slot)
      words[(record << 4) | Word.key] = slot + 1
      const own = cache.admit(record, words[(record << 4) | Word.sizeClass])
      if (cache.keep(own, stamp - 1)) return
      this.give(own)
    }
    this.giveBack(record, slot, stamp)
  }

  private giveBack(record: number, slot: number, stamp: number): void {
    const { state } = this
    state.locked(() => {
      this.cache.look()
      state.caches.handBack(record)
      state.memory.giveToHeap(record, slot, stamp)
    })
    if (state.memory.unmarkedFrees >= FREES_PER_RING) state.channel.bell.ring()
  }

  /** The stream that a block just claimed was transferred with; see `streamAt`. */
  private adoptedStream(record: number): Stream {
    return this.streamAt(record, this.words[(record << 4) | GENERATION])
  }

  /**
   * The stream that a block of this thread is for: the one that had its slot in a generation, or else has it now. Where that is
   * closed its work is waited for, and the block is the default stream's.
   */
  private streamAt(record: number, generation?: number): Stream {
    const { clocks } = this
    const key = (record << 4) | Word.key
    const slot = this.words[key] - 1
    const stream = streamIn(clocks, slot, generation ?? clocks.slots.generationOf(slot))
    if (stream !== null) return stream
    this.words[key] = this.defaultStream.slot + 1
    return this.defaultStream
  }

  private handleOf(slot: number): number | null {
    return this.clocks.isOpen(slot) ? this.clocks.handles[slot] : null
  }

  private holds(record: number): boolean {
    const ownerWord = this.words[(record << 4) | Word.owner]
    return workerOf(ownerWord) === this.state.thread && phaseOf(ownerWord) === Phase.live
  }

  /** The block of this thread that begins at an address, as far as the index knows; 0 for none. */
  private liveAt(ptr: number, index: AddressIndex): number {
    const range = Number.isSafeInteger(ptr) ? this.rangeAt(ptr) : -1
    const record = range === -1 ? 0 : index.find(range, (ptr - this.state.bases[range]) / UNIT_BYTES)
    return record !== 0 && this.holds(record) ? record : 0
  }

  /** Of all that is live or cached: the cached may be this thread's later. */
  private indexAddresses(): AddressIndex {
    const { records } = this.state
    const index = new AddressIndex(records, records)
    for (let record = records.first; record < records.used; record++) if (records.isLive(record)) index.note(record)
    return index
  }

  /** The range that an address lies in; -1 for none. */
  private rangeAt(ptr: number): number {
    const { bases, memory } = this.state
    for (const heap of [memory.small, memory.large]) {
      for (const [range, first] of heap.firstRecords) {
        const start = bases[range] + this.words[(first << 4) | Word.offset] * UNIT_BYTES
        if (ptr >= start && ptr < start + heap.firstRecords.unitsOf(range) * UNIT_BYTES) return range
      }
    }
    return -1
  }

  protected ask(question: Question): unknown {
    const { state } = this
    checkStack()
    // Where an earlier call was cut short, this thread may still hold what the pool server needs.
    state.caches.biasedLock.leave()
    state.lock.dropStale()
    this.clocks.slots.dropStale()
    const server = new ServerWatch(state, question, this.meanwhile)
    const meanwhile = (slept: boolean) => server.look(slept)
    if (state.channel.isLate(state.thread)) {
      const answer = state.channel.takeLate(state.thread, meanwhile)
      const { asked } = this
      if ((asked?.ask === 'close' || asked?.ask === 'leave') && answer !== null) return answer
      if (asked?.ask === 'allocate') this.giveBackUnseen(answer as number, asked.slot)
    }
    this.asked = question
    return state.channel.ask(state.thread, question, meanwhile)
  }

  /** Whether the last question was asked and not answered, since its call was cut short, say for want of stack. */
  private get mayStillBeHeard(): boolean {
    return this.state.channel.isLate(this.state.thread)
  }

  /** A block that the pool server handed to a call which was cut short: no buffer of it was made. */
  private giveBackUnseen(record: number, slot: number): void {
    if (record !== 0) this.giveBack(record, slot, this.clocks.coveringSoon(slot))
  }

  /** Whether the pool server has ended, of itself or with the thread that made the pool: no memory is given back any more. */
  private get isLost(): boolean {
    const { figures, registry, channel } = this.state
    const server = figures[Figure.server]
    return server > 0 && (channel.failure !== null || registry.look(server))
  }

  private askToClose(): Reclaimed {
    return this.ask({ ask: this.creator ? 'close' : 'leave' }) as Reclaimed
  }

  private leaveLost(): Reclaimed {
    if (this.creator) this.state.checkAlone(this.state.thread)
    const held = this.live().filter(block => block.thread === this.thread)
    return { buffers: held.length, bytes: held.reduce((sum, { byteLength }) => sum + byteLength, 0) }
  }

  protected outOfMemory(bytes: number): OutOfMemoryError {
    const { freeBytes, totalBytes } = this.context.activate().cuMemGetInfo()
    const { streams, largestFreeBytes, kind, stepBytes } = this.ask({ ask: 'shortage' }) as SharedShortage
    return outOfMemory({
      bytes,
      blockBytes: blockUnits(bytes, this.config) * UNIT_BYTES,
      stats: this.stats(),
      streams,
      largestFreeBytes,
      deviceFreeBytes: freeBytes,
      deviceTotalBytes: totalBytes,
      config: this.config,
      backing: { kind, stepBytes },
    })
  }

  private checkOpen(call: string): void {
    if (this.closed) throw new PoolError(`${call}: the pool is closed; create another`)
  }

  protected checkStream(call: string, stream: Stream): void {
    this.checkOpen(call)
    checkStreamOf(call, stream, this.clocks)
    stream.checkShareable(call)
    if (stream.capture !== null) throw new PoolError(`${call}: ${NO_CAPTURES}`)
    stream.checkOpen(call)
  }

  private refuseAdoption(call: string): never {
    throw new PoolError(
      `${call}: the buffer is not on its way to another thread; each buffer.transfer() of this pool can be adopted once`,
    )
  }

  refuseStale(call: string): never {
    if (this.closed) throw new PoolError(`${call}: the buffer's pool is closed`)
    throw new PoolError(
      `${call}: the buffer was already freed, or handed to another thread; keep no reference to it after that`,
    )
  }
}

/** The tag of a live block in its next generation, or in the same one where there is none left. */
function nextGeneration(tag: number): number {
  return tag > Tag.last ? tag : tag + 8
}
