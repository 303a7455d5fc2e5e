// The blocks of a shared pool that one thread has: live ones, and those it caches in stacks that only it can see. The owner word
// of each record says the same to the other threads, so that the pool server can take cached blocks away (thread-caches.ts). A
// block that the thread takes from a stack is its own once its owner word, read behind the biased lock, still says that it is cached.
//
// A call can be cut short while its thread lives on. The engine does that where a function begins, a built-in one too, or a loop goes
// round, so the cached path changes stack and owner word with no call in between. Whatever else changes the stacks says so in `isChanging`; where that
// was left set, the next such call builds the stacks again from the owner words.

import { assert } from '../../base/assert.js'
import { ownerWordOf, Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { Double, State, Word } from '../../heap/records.js'
import { classOf, MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import { storeRelease } from '../../threads/memory-order.js'
import { type Block, type BlockOwner, type Stack, slackOf } from '../caching/block.js'
import type { PoolConfig } from '../caching/options.js'
import { FULL_CLASS, StreamCaches } from '../caching/stream-caches.js'
import { BATCH_WORDS } from './remote-frees.js'
import type { SharedState } from './shared-state.js'

const enum Tag {
  stateMask = 7,
}
/** Blocks that were sent back and that the stacks have no room for: so many go back to the heaps. */
const CROWD = 64
/** Blocks of a class in a thread's stack: bursts of that many are hits. The byte limits bound what that keeps from other threads. */
const PLACES = 64
/** Units, 64 MiB, and a share of the pool: a thread may cache the smaller of both for a stream, however small the pool is. */
const LEAST_STREAM_UNITS = 2 ** 18
const MOST_STREAM_SHARE = 1 / 8

/** How much a thread may cache, in units. */
export interface CacheLimits {
  /** of one block */
  readonly blockUnits: number
  /** for one stream */
  readonly streamUnits: number
}

/** Shares of what the pool may reserve: the largest block that is cached, and all blocks that a thread caches for a stream. */
export function cacheLimits({ limitBytes }: PoolConfig, blockShare: number, streamShare: number): CacheLimits {
  const units = Math.min(limitBytes / UNIT_BYTES, MAX_UNITS)
  const leastUnits = Math.min(units * MOST_STREAM_SHARE, LEAST_STREAM_UNITS)
  return {
    blockUnits: Math.floor(units * blockShare),
    streamUnits: Math.floor(Math.max(units * streamShare, leastUnits)),
  }
}

export class ThreadCache {
  /** the stacks, and what is known of every block that the thread has */
  readonly blocks: StreamCaches
  private readonly words: Int32Array
  private readonly doubles: Float64Array
  /** owner words of this thread's blocks, of generation 0 */
  private readonly live: number
  private readonly cached: number
  /** how often blocks had been taken away when that was looked at last */
  private losses: number
  /** whether so many blocks were sent back to this thread that do not fit what it asks for */
  private isCrowded = false
  /** blocks for which the last look into the queue found no room */
  private left = 0
  /** found set: the call that set it was cut short */
  private isChanging = false

  constructor(
    private readonly state: SharedState,
    pool: BlockOwner,
    private readonly limits: CacheLimits,
  ) {
    const { records, caches, thread } = state
    this.blocks = new StreamCaches(records, limits.streamUnits, pool, PLACES, PLACES, false)
    this.words = records.words
    this.doubles = records.doubles
    this.live = ownerWordOf(0, thread, Phase.live)
    this.cached = ownerWordOf(0, thread, Phase.cached)
    this.losses = caches.lossesOf(thread)
  }

  /** From here to `end` the stacks are being changed, other than by `claimTop` and `keep`. */
  begin(): void {
    this.mend()
    this.isChanging = true
  }

  end(): void {
    this.isChanging = false
  }

  /** Builds the stacks again where a call was cut short in the middle of changing them. Takes the lock: what that call held is repaired before. */
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
      block.mark = doubles[(record << 3) | Double.stamp] - 1
      blocks.link(block)
    }
  }

  /**
   * The block on top of a stack that holds it is taken out and live, in its next generation; false, and it stays there, when another
   * thread has it, or the biased lock is shut.
   */
  claimTop(stack: Stack): boolean {
    const { biasedLock } = this.state.caches
    if (!biasedLock.enter()) return false
    const block = stack.top
    const isMine = this.own(block)
    if (isMine) {
      const { share } = stack
      stack.top = block.below!
      share.cached = (share.cached - block.units) | 0
    }
    biasedLock.leave()
    return isMine
  }

  /** The same of a block that is in no stack any more. */
  claim(block: Block): boolean {
    const { biasedLock } = this.state.caches
    if (!biasedLock.enter()) return false
    const isMine = this.own(block)
    biasedLock.leave()
    return isMine
  }

  /** Behind the biased lock: a cached block is live, in its next generation; false when it was taken away. */
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

  /** The same of a block that was cached for another stream. */
  claimFor(block: Block, slot: number): boolean {
    if (!this.claim(block)) return false
    this.words[(block.record << 4) | Word.key] = slot + 1
    return true
  }

  /** A block in no stack could not be claimed: once the pool server is done it is another's, or goes back to its heap. */
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

  /** Keeps a live block of this thread for its stream, after the mark `mark`; false when there is no room. */
  keep(block: Block, mark: number): boolean {
    const { record, tag } = block
    const stack = block.stack!
    const { share } = stack
    const below = stack.top
    if (below.height >= stack.places || share.cached + block.units > this.limits.streamUnits) return false
    this.doubles[(record << 3) | Double.stamp] = mark + 1
    storeRelease(this.words, (record << 4) | Word.owner, ((tag >> 3) << 12) | this.cached)
    // Nothing is called from here on.
    block.tag = (tag & ~Tag.stateMask) | State.cached | 0
    block.mark = mark
    block.below = below
    block.height = (below.height + 1) | 0
    share.cached = (share.cached + block.units) | 0
    stack.top = block
    return true
  }

  /** What this thread knows of a record that has just become its own, live or about to be cached for the stream of its key. */
  admit(record: number, sizeClass = this.classFor(record)): Block {
    const { blocks } = this
    const block = blocks.admit(this.words[(record << 4) | Word.key] - 1, record, sizeClass)
    block.slack = slackOf(block, this.doubles[(record << 3) | Double.requested])
    return block
  }

  /** The class of a block's stack: one that has no room where the record is on another thread's page, or the block too large. */
  private classFor(record: number): number {
    const { words, state } = this
    const base = record << 4
    const isCached = state.records.ownerOf(record) === state.thread && this.isSmall(words[base | Word.units])
    return isCached ? words[base | Word.sizeClass] : FULL_CLASS
  }

  /** Under the lock: cached blocks that were taken away are forgotten. */
  look(): void {
    const losses = this.state.caches.lossesOf(this.state.thread)
    if (losses === this.losses) return
    this.losses = losses
    this.blocks.purge(block => this.isCached(block))
  }

  /** Caches what other threads have freed and sent back, a batch at a time, until there is a block for the stream of the class and at least `units`. */
  receive(slot: number, sizeClass: number, units: number): void {
    const { biasedLock, remoteFrees } = this.state.caches
    if (!biasedLock.enter()) return
    remoteFrees.look()
    this.left = 0
    // A batch that is still being filled comes last: its sender fetches the line again.
    const found = this.unpackAll(true, slot, sizeClass, units) || this.unpackAll(false, slot, sizeClass, units)
    this.isCrowded = !found && this.left >= CROWD
    biasedLock.leave()
  }

  /** Under the lock: when many blocks were sent back for which the stacks have no room, they go back to the heaps. */
  emptyQueue(): void {
    if (!this.isCrowded) return
    this.isCrowded = false
    for (const record of this.state.caches.remoteFrees.takeAll()) this.returnToHeap(record)
  }

  /** Under the lock, after `look`: the smallest small block larger than `units` that is cached for the stream goes back to its heap; false for none. */
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
        if (!this.isCached(block)) continue // taken away, and not looked at since
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

  /** Under the lock: a block that says itself which work it waits for goes back to its heap. */
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
      // The lines of the next one arrive while the blocks of this one are used.
      const next = remoteFrees.batchAt(position + 1)
      if (((position + 1) | 0) !== remoteFrees.seen && remoteFrees.isComplete(next)) this.fetch(next)
      const { left } = this
      const found = this.unpack(batch, slot, sizeClass, units)
      if (complete && this.left === left) remoteFrees.finish(position)
      if (found) return true
    }
    return false
  }

  /** Asks for all lines of the records in a batch, since each comes from another core. */
  private fetch(batch: number): void {
    const { words } = this
    const entries = this.state.caches.remoteFrees.words
    for (let entry = batch + 1; entry < batch + BATCH_WORDS; entry++) {
      if (entries[entry] !== 0) words[(entries[entry] << 4) | Word.touched] = 1
    }
  }

  /** Says whether a block as asked for is among it. */
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
      block.mark = this.doubles[(record << 3) | Double.stamp] - 1
      storeRelease(words, (record << 4) | Word.owner, ((block.tag >> 3) << 12) | this.cached)
      storeRelease(entries, entry, 0)
      blocks.link(block)
      if (block.slot === slot && block.stack!.sizeClass === sizeClass && block.units >= units) found = true
    }
    return found
  }
}
