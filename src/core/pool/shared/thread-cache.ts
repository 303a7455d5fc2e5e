// The blocks of a shared pool that one thread has: live ones, and cached ones in stacks that only this thread can
// see. The owner word of each record says the same in shared memory, so that the pool server can take cached blocks
// away (thread-caches.ts). So a thread that takes a block from a stack reads the owner word behind the biased lock:
// it must still say `cached`.
//
// A call can be cut short while its thread lives on. V8 stops calls where a function begins, a built-in one too, and
// where a loop goes round. Therefore the cached path changes stack and owner word with no call in between. All other
// changes of the stacks set `isChanging`. If it was left set, the next such call rebuilds the stacks from the owner
// words.

import { assert } from '../../base/assert.js'
import { ownerWordOf, Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { Double, State, Word } from '../../heap/records.js'
import { classOf, MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import { storeRelease } from '../../threads/memory-order.js'
import { type Block, type BlockOwner, markBefore, type Stack, slackOf, Tag } from '../caching/block.js'
import type { PoolConfig } from '../caching/options.js'
import { FULL_CLASS, StreamCaches } from '../caching/stream-caches.js'
import { policy } from '../policy.js'
import { BATCH_WORDS } from './remote-frees.js'
import type { SharedState } from './shared-state.js'

/**
 * Units, 64 MiB, and a share of the pool: a thread may cache the smaller of both for a stream, however small the pool
 * is.
 */
const LEAST_STREAM_UNITS = 2 ** 18
const MOST_STREAM_SHARE = 1 / 8

/** How much a thread may cache, in units. */
export interface CacheLimits {
  /** of one block */
  readonly blockUnits: number
  /** for one stream */
  readonly streamUnits: number
}

/**
 * Limits from shares of the pool's limit: for one cached block, and for all blocks that a thread caches for a stream.
 */
export function cacheLimits({ maxPoolBytes }: PoolConfig, blockShare: number, streamShare: number): CacheLimits {
  const units = Math.min(maxPoolBytes / UNIT_BYTES, MAX_UNITS)
  const leastUnits = Math.min(units * MOST_STREAM_SHARE, LEAST_STREAM_UNITS)
  return {
    blockUnits: Math.floor(units * blockShare),
    streamUnits: Math.floor(Math.max(units * streamShare, leastUnits)),
  }
}

export class ThreadCache {
  /** the stacks, and the object of every block that the thread has */
  readonly blocks: StreamCaches
  private readonly words: Int32Array
  private readonly doubles: Float64Array
  /** owner words of this thread's blocks, of generation 0 */
  private readonly live: number
  private readonly cached: number
  /** how often blocks had been taken away at the last look */
  private losses: number
  /** whether the queue holds many blocks that the stacks have no room for */
  private isCrowded = false
  /** blocks that the last look into the queue found no room for */
  private left = 0
  /** true when a call begins: the call that set it was cut short */
  private isChanging = false

  constructor(
    private readonly state: SharedState,
    pool: BlockOwner,
    private readonly limits: CacheLimits,
  ) {
    const { records, caches, thread } = state
    this.blocks = new StreamCaches(records, limits.streamUnits, pool, false)
    this.words = records.words
    this.doubles = records.doubles
    this.live = ownerWordOf(0, thread, Phase.live)
    this.cached = ownerWordOf(0, thread, Phase.cached)
    this.losses = caches.lossesOf(thread)
  }

  /** Announces changes of the stacks, until `end`; `claimTop` and `keep` need no announcement. */
  begin(): void {
    this.mend()
    this.isChanging = true
  }

  end(): void {
    this.isChanging = false
  }

  /**
   * Rebuilds the stacks after a call was cut short in a change of them. Taking the lock repairs what that call held.
   */
  mend(): void {
    if (!this.isChanging) return
    this.state.caches.biasedLock.leave()
    this.state.locked(() => this.restack())
    this.isChanging = false
  }

  private restack(): void {
    const { words, doubles, blocks } = this
    const { caches, thread } = this.state
    blocks.empty()
    for (const record of caches.freed()) {
      const ownerWord = words[(record << 4) | Word.owner]
      if (workerOf(ownerWord) !== thread || phaseOf(ownerWord) !== Phase.cached) continue
      const block = this.admit(record, words[(record << 4) | Word.sizeClass])
      block.tag = (block.tag & ~Tag.stateMask) | State.cached
      block.mark = markBefore(doubles[(record << 3) | Double.stamp])
      blocks.link(block)
    }
  }

  /**
   * A live block that is cached or was sent back, and that the stream may use: its own, or one whose work is complete
   * for it; null for none.
   */
  take(units: number, slot: number, known: Float64Array, seen: Float64Array): Block | null {
    const { blocks } = this
    const { caches } = this.state
    caches.includeSlot(slot)
    if (caches.biasedLock.isShut) this.state.locked(() => {}) // waits until the pool server has taken its blocks
    this.begin()
    this.receive(slot, classOf(units), units)
    let block: Block | null
    for (;;) {
      block = blocks.takeElsewhere(slot, units, known, seen)
      if (block === null || this.claimFor(block, slot)) break
      this.abandon(block)
    }
    this.end()
    return block
  }

  /**
   * Takes the top block out of a stack; it is live, in its next generation. False, and it stays, when another thread
   * has the block or the biased lock is shut.
   */
  claimTop(stack: Stack): boolean {
    const { biasedLock } = this.state.caches
    if (!biasedLock.enter()) return false
    const block = stack.top
    const isMine = this.own(block)
    if (isMine) {
      const { totals } = stack
      stack.top = block.below!
      totals.cached = (totals.cached - block.units) | 0
    }
    biasedLock.leave()
    return isMine
  }

  /** The same for a block that has left its stack. */
  claim(block: Block): boolean {
    const { biasedLock } = this.state.caches
    if (!biasedLock.enter()) return false
    const isMine = this.own(block)
    biasedLock.leave()
    return isMine
  }

  /** Behind the biased lock: makes a cached block live, in its next generation; false when it was taken away. */
  private own(block: Block): boolean {
    const { words } = this
    const base = block.record << 4
    const { tag } = block
    if (words[base | Word.owner] !== (((tag >> 3) << 12) | this.cached)) return false
    const next = ((tag | Tag.stateMask) + (1 + State.live)) | 0
    words[base | Word.owner] = ((next >> 3) << 12) | this.live
    words[base] = next
    block.tag = next
    return true
  }

  /** The same for a block that was cached for another stream. */
  claimFor(block: Block, slot: number): boolean {
    if (!this.claim(block)) return false
    this.words[(block.record << 4) | Word.key] = slot + 1
    return true
  }

  /**
   * A block in no stack could not be claimed. Once the pool server is done, the block is another thread's, or goes to
   * its heap.
   */
  abandon(block: Block): void {
    const { state } = this
    state.acquire()
    const isMine = this.isCached(block)
    block.state = State.unused
    if (isMine) this.returnToHeap(block.record)
    this.blocks.purge(other => this.isCached(other))
    state.release()
  }

  /** Whether a block is not too large to be cached. */
  isSmall(units: number): boolean {
    return units <= this.limits.blockUnits
  }

  /** Caches a live block of this thread for its stream, after the mark `mark`; false when there is no room. */
  keep(block: Block, mark: number): boolean {
    const { record, tag } = block
    const stack = block.stack!
    const { totals } = stack
    const below = stack.top
    if (below.height >= stack.places || totals.cached + block.units > this.limits.streamUnits) return false
    this.doubles[(record << 3) | Double.stamp] = mark + 1
    storeRelease(this.words, (record << 4) | Word.owner, ((tag >> 3) << 12) | this.cached)
    // Nothing is called from here on.
    block.tag = (tag & ~Tag.stateMask) | State.cached | 0
    block.mark = mark
    block.below = below
    block.height = (below.height + 1) | 0
    totals.cached = (totals.cached + block.units) | 0
    stack.top = block
    return true
  }

  /**
   * The object of a record that has just become this thread's, live or about to be cached for the stream of its key.
   */
  admit(record: number, sizeClass = this.classFor(record)): Block {
    const { blocks } = this
    const block = blocks.admit(this.words[(record << 4) | Word.key] - 1, record, sizeClass)
    block.slack = slackOf(block, this.doubles[(record << 3) | Double.requested])
    return block
  }

  /**
   * The class of a block's stack. It has no room if the record is on another thread's page, or the block too large.
   */
  private classFor(record: number): number {
    const { words, state } = this
    const base = record << 4
    const isCached = state.records.ownerOf(record) === state.thread && this.isSmall(words[base | Word.units])
    return isCached ? words[base | Word.sizeClass] : FULL_CLASS
  }

  /** Under the lock: drops cached blocks that were taken away. */
  dropLost(): void {
    const losses = this.state.caches.lossesOf(this.state.thread)
    if (losses === this.losses) return
    this.losses = losses
    this.blocks.purge(block => this.isCached(block))
  }

  /**
   * Caches blocks that other threads sent back, batch after batch, until one has the stream, the class and `units`.
   */
  receive(slot: number, sizeClass: number, units: number): void {
    const { biasedLock, remoteFrees } = this.state.caches
    if (!biasedLock.enter()) return
    remoteFrees.noteArrivals()
    this.left = 0
    // A batch that is still being filled comes last: its sender fetches the line again.
    const found = this.unpackAll(true, slot, sizeClass, units) || this.unpackAll(false, slot, sizeClass, units)
    // As many as a stack has places for go back to the heaps.
    this.isCrowded = !found && this.left >= policy.places
    biasedLock.leave()
  }

  /** Under the lock: empties a crowded queue into the heaps. */
  emptyQueue(): void {
    if (!this.isCrowded) return
    this.isCrowded = false
    for (const record of this.state.caches.remoteFrees.takeAll()) this.returnToHeap(record)
  }

  /**
   * Under the lock, after `dropLost`: the smallest cached block above the class of `units` goes back to its heap; false
   * for none.
   */
  breakLarger(units: number, slot: number, end: number): boolean {
    this.isChanging = true
    const record = this.blocks.takeLarger(slot, classOf(units), end)
    if (record !== 0) this.returnToHeap(record)
    this.end()
    return record !== 0
  }

  /** Asserts that the stacks hold exactly the blocks that their records say this thread caches. */
  check(): void {
    this.mend()
    const { words, state, blocks } = this
    let linked = 0
    for (let slot = 0; slot < blocks.slotLimit; slot++) {
      for (const block of blocks.entries(slot)) {
        if (!this.isCached(block)) continue // taken away since the last `dropLost`
        const base = block.record << 4
        assert(words[base | Word.units] === block.units, 'a stack knows the size of its block')
        assert(words[base | Word.key] === slot + 1, 'a cached block is of the stream that caches it')
        assert(words[base | Word.sizeClass] === block.stack!.sizeClass, 'a cached block has the class of its stack')
        linked++
      }
    }
    for (const record of state.caches.freed()) {
      const ownerWord = words[(record << 4) | Word.owner]
      if (workerOf(ownerWord) === state.thread && phaseOf(ownerWord) === Phase.cached) linked--
    }
    assert(linked === 0, 'every block that a thread caches is in exactly one of its stacks')
  }

  /** Under the lock: a block goes back to its heap. Its record says which work it waits for. */
  private returnToHeap(record: number): void {
    const { caches, memory } = this.state
    caches.handBack(record)
    memory.giveToHeap(record, this.words[(record << 4) | Word.key] - 1, this.doubles[(record << 3) | Double.stamp])
  }

  private isCached(block: Block): boolean {
    return this.words[(block.record << 4) | Word.owner] === (((block.tag >> 3) << 12) | this.cached)
  }

  private unpackAll(complete: boolean, slot: number, sizeClass: number, units: number): boolean {
    const { remoteFrees } = this.state.caches
    for (let position = remoteFrees.oldest; position !== remoteFrees.seen; position = (position + 1) | 0) {
      const batch = remoteFrees.batchAt(position)
      if (remoteFrees.isComplete(batch) !== complete) continue
      this.fetch(batch)
      // The cache lines of the next batch arrive while this one is unpacked.
      const next = remoteFrees.batchAt(position + 1)
      if (((position + 1) | 0) !== remoteFrees.seen && remoteFrees.isComplete(next)) this.fetch(next)
      const { left } = this
      const found = this.unpack(batch, slot, sizeClass, units)
      if (complete && this.left === left) remoteFrees.finish(position)
      if (found) return true
    }
    return false
  }

  /** Prefetches the records of a batch, since each line comes from another core. */
  private fetch(batch: number): void {
    const { words } = this
    const entries = this.state.caches.remoteFrees.words
    for (let entry = batch + 1; entry < batch + BATCH_WORDS; entry++) {
      if (entries[entry] !== 0) words[(entries[entry] << 4) | Word.touched] = 1
    }
  }

  /** Caches the blocks of a batch. Returns whether a wanted block is among them. */
  private unpack(batch: number, slot: number, sizeClass: number, units: number): boolean {
    const { words, blocks } = this
    const { remoteFrees } = this.state.caches
    const entries = remoteFrees.words
    let found = false
    for (let entry = batch + 1; entry < batch + BATCH_WORDS; entry++) {
      const record = entries[entry]
      if (record === 0) continue
      if (!remoteFrees.isSent(record)) {
        storeRelease(entries, entry, 0)
        continue
      }
      const block = this.admit(record, words[(record << 4) | Word.sizeClass])
      if (!blocks.hasRoom(block)) {
        block.state = State.unused
        this.left++
        continue
      }
      block.tag = (block.tag & ~Tag.stateMask) | State.cached
      block.mark = markBefore(this.doubles[(record << 3) | Double.stamp])
      storeRelease(words, (record << 4) | Word.owner, ((block.tag >> 3) << 12) | this.cached)
      storeRelease(entries, entry, 0)
      blocks.link(block)
      if (block.slot === slot && block.stack!.sizeClass === sizeClass && block.units >= units) found = true
    }
    return found
  }
}
