// The live blocks that this thread owns, and how they change threads. The owner word of a record names the thread; a
// compare-and-swap of that word adopts a block. A block has a new generation in the thread that adopts it, so that
// older handles stay stale, also when it comes back.

import { PoolError } from '../../base/errors.js'
import { NO_THREAD, ownerWordOf, Phase } from '../../heap/owner-word.js'
import { LAST_GENERATION, State, Word } from '../../heap/records.js'
import { streamIn } from '../../order/borrowed.js'
import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import { storeRelease } from '../../threads/memory-order.js'
import { DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import type { Block } from '../caching/block.js'
import type { TransferredBuffer } from '../transferred-buffer.js'
import type { AddressLookup } from './address-lookup.js'
import { AdoptedBlock, type AdoptedOwner } from './adopted-block.js'
import type { SharedState } from './shared-state.js'
import type { ThreadCache } from './thread-cache.js'

/**
 * Word of a transferred block's record: the generation of its stream, since several streams have a slot one after
 * another.
 */
const GENERATION = Word.binPrevious
/** Tags above this have no room for another generation. */
const LAST_TAG = LAST_GENERATION * 8

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

export class BlockOwnership {
  /** by record on another thread's page: its object here, once it was adopted */
  private readonly adopted: (AdoptedBlock | undefined)[] = []
  private readonly words: Int32Array

  constructor(
    private readonly state: SharedState,
    private readonly cache: ThreadCache,
    private readonly addresses: AddressLookup,
    private readonly pool: AdoptedOwner,
    private readonly clocks: Clocks,
    private readonly defaultStream: Stream,
    /** the pool's number, which its buffers carry from thread to thread */
    private readonly number: number,
  ) {
    this.words = state.records.words
  }

  /** Gives a live buffer of this thread up, for another thread to adopt. */
  transfer(buffer: DeviceBuffer): TransferredBuffer {
    const { record, tag } = buffer
    const block = buffer.allocation as Block | AdoptedBlock
    if ((block.tag | 1) !== (tag | 1)) this.pool.refuseStale('transfer')
    block.tag = 0 // its handles are stale
    this.words[(record << 4) | GENERATION] = block.stream.generation
    if (tag > LAST_TAG) this.disown(record) // should it come back, no generation tells the handles apart
    storeRelease(this.words, (record << 4) | Word.owner, ownerWordOf(tag, NO_THREAD, Phase.live))
    return { pool: this.number, record, tag }
  }

  adopt(transferred: TransferredBuffer): DeviceBuffer {
    if (!this.claim(transferred)) this.refuseAdoption('adopt')
    try {
      return this.adoptedBuffer(transferred.record, this.adoptedStream(transferred.record))
    } catch (error) {
      this.giveUp(transferred.record, transferred.tag)
      throw error
    }
  }

  adoptAll(transferred: readonly TransferredBuffer[]): DeviceBuffer[] {
    let claimed = 0
    try {
      // Claim all before the first buffer is made. A claim waits until earlier stores have left the core, and new
      // objects store much.
      while (claimed < transferred.length && this.claim(transferred[claimed])) claimed++
      if (claimed < transferred.length) this.refuseAdoption('adoptAll')
      return this.adoptedBuffers(transferred)
    } catch (error) {
      for (const { record, tag } of transferred.slice(0, claimed)) this.giveUp(record, tag)
      throw error
    }
  }

  /** Asks for the line of a record that is about to be claimed. */
  prefetch(record: number): void {
    if (this.isKnown(record)) this.words[(record << 4) | Word.touched] = 1
  }

  /** The buffers of blocks just claimed. */
  private adoptedBuffers(transferred: readonly TransferredBuffer[]): DeviceBuffer[] {
    const { words } = this
    const buffers = new Array<DeviceBuffer>(transferred.length)
    let stream = this.defaultStream
    let key = 0 // the stream's; most blocks of a list have one stream
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

  /** Makes this thread the owner of a transferred block, in a new generation; false when it is not on its way. */
  private claim({ record, tag }: TransferredBuffer): boolean {
    const { words } = this
    const index = (record << 4) | Word.owner
    const waiting = ownerWordOf(tag, NO_THREAD, Phase.live)
    // Handles from before the transfer are stale also in the thread that had the buffer before, should it come back
    // there.
    const next = nextGeneration(tag)
    // A look before the exchange would fetch the line from the other core twice.
    const mine = ownerWordOf(next, this.state.thread, Phase.live)
    if (!this.isKnown(record) || Atomics.compareExchange(words, index, waiting, mine) !== waiting) return false
    if ((words[record << 4] & ~1) !== tag) {
      Atomics.store(words, index, waiting) // another generation: the owner word holds its low bits only
      return false
    }
    words[record << 4] = next | (words[record << 4] & 1)
    return true
  }

  /** A block just claimed is on its way again, in the generation of `tag`. */
  private giveUp(record: number, tag: number): void {
    this.words[record << 4] = tag | (this.words[record << 4] & 1)
    storeRelease(this.words, (record << 4) | Word.owner, ownerWordOf(tag, NO_THREAD, Phase.live))
  }

  private adoptedBuffer(record: number, stream: Stream): DeviceBuffer {
    this.addresses.note(record)
    const tag = this.words[record << 4]
    const { labels } = this.state
    if (labels.any) labels.retag(record, (tag & ~1) - 8, tag & ~1)
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
    const block = new AdoptedBlock(this.pool, record, stream)
    this.adopted[record] = block
    return block
  }

  /** The object of a live block that this thread owns. For any other record perhaps undefined, or an old object. */
  blockOf(record: number): Block | AdoptedBlock {
    const { records, thread } = this.state
    const adopted = records.ownerOf(record) === thread ? undefined : this.adopted[record]
    return adopted !== undefined && adopted.tag !== 0 ? adopted : this.cache.blocks.blockOf(record)
  }

  /** The same by the records alone: a call that was cut short may not have noted the block or its stream. */
  recordedBlock(record: number): Block | AdoptedBlock {
    const base = record << 4
    const tag = this.words[base]
    const known = this.blockOf(record) as Block | AdoptedBlock | undefined
    const block = known !== undefined && (known.tag | 1) === (tag | 1) ? known : this.cache.admit(record)
    const { slot, lastSlot } = block.stream
    if (this.words[base | Word.key] !== (slot < 0 ? lastSlot : slot) + 1) block.stream = this.streamAt(record)
    return block
  }

  private disown(record: number): void {
    this.adopted[record] = undefined
    this.cache.blocks.disown(record)
  }

  /** All handles are stale from now on. */
  clear(): void {
    this.cache.blocks.clear()
    for (const block of this.adopted) if (block !== undefined) block.tag = 0
  }

  /** The stream that a block just claimed was transferred with; see `streamAt`. */
  private adoptedStream(record: number): Stream {
    return this.streamAt(record, this.words[(record << 4) | GENERATION])
  }

  /**
   * The stream of a block of this thread: the one that had the slot in `generation`, or else has it now. If that
   * stream is closed, this waits for its work, and the block becomes the default stream's.
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

  private refuseAdoption(call: string): never {
    throw new PoolError(
      `${call}: the buffer is not on its way to another thread; each buffer.transfer() of this pool can be adopted once`,
    )
  }
}

/** The tag of a live block in its next generation, or in the same generation when none is left. */
function nextGeneration(tag: number): number {
  return tag > LAST_TAG ? tag : tag + 8
}
