import { UNIT_BYTES } from '../../../core/heap/size-classes.js'
import type { Capture } from '../../../core/order/capture.js'
import type { Stream } from '../../../core/order/stream.js'
import type { Allocation } from '../../../core/pool/allocation.js'
import type { DeviceBuffer } from '../../../core/pool/buffer.js'
import { Block } from '../../../core/pool/caching/block.js'
import type { Pool } from '../../../core/pool/pool.js'
import { type TaggedPool, taggedPoolOf } from '../../../core/pool/wrappers/tagged.js'
import type { StackTable } from '../stack-table.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { EventRing } from './event-ring.js'

// The names of globals are looked up at each use, and `timeOrigin` is computed each time.
const { performance } = globalThis
const ORIGIN_MS = performance.timeOrigin

interface LiveBlock {
  readonly bytes: number
  /** the handle of the stream that it was allocated on */
  readonly stream: number
  /** whether it was dropped without a free, by a reset, a rewind or a close */
  isDropped(): boolean
}

/**
 * The events of a recording of a pool, as they happen, and the blocks that are live in it. Streams are handles,
 * `stack` a number of `stacks`. A block that its pool drops ends before the next event.
 */
export class RecordingEvents {
  private readonly builder: TraceBuilder | EventRing
  readonly stacks: StackTable
  /** gives buffers their tags, if any does */
  private readonly tagging: TaggedPool | null
  private readonly sources: readonly Pool[]
  private drops: number
  /** by address */
  private readonly live = new Map<number, LiveBlock>()

  /** `added` is called after each allocation, free and failure. All but the `last` events are forgotten. */
  constructor(
    pool: Pool,
    private readonly added: () => void = () => {},
    last = Infinity,
  ) {
    this.builder = last === Infinity ? new TraceBuilder() : new EventRing(last)
    this.stacks = this.builder.stacks
    this.tagging = taggedPoolOf(pool)
    this.sources = pool.sources
    this.drops = this.countDrops()
  }

  get count(): number {
    return this.builder.events
  }

  trace(name: string): Trace {
    return this.builder.build({ file: name, recorder: 'cuda-mempool', dropped: 0 })
  }

  allocated(buffer: DeviceBuffer, stack: number): void {
    const { allocation, ptr, byteLength: bytes, record, tag } = buffer
    const stream = buffer.stream.handle
    this.end(ptr) // a buffer that was freed by its address ends at the latest when that is handed out again
    this.live.set(ptr, { bytes, stream, isDropped: () => !allocation.isLive(record, tag) })
    const event = this.builder.add(Action.alloc, ptr, bytes, stream, unixMicroseconds(), stack)
    if (allocation instanceof Block) this.builder.noteGranted(event, allocation.units * UNIT_BYTES)
    if (this.tagging !== null) this.builder.noteTag(event, this.tagging.currentTag ?? '')
    if (buffer.stream.capture !== null) this.noteCapture(event, allocation, buffer.stream.capture)
    this.added()
  }

  /** Adds a block that was allocated before, when its call stack and its tag are not known any more. */
  held(ptr: number, grantedBytes: number | undefined, block: LiveBlock): void {
    this.live.set(ptr, block)
    const event = this.builder.add(Action.alloc, ptr, block.bytes, block.stream, unixMicroseconds())
    if (grantedBytes !== undefined) this.builder.noteGranted(event, grantedBytes)
    this.added()
  }

  /** Does `free`, which frees a block on a stream; if the block stays live, nothing is recorded. */
  freeing(block: Allocation, record: number, tag: number, stream: Stream | undefined, free: () => void): void {
    const ptr = block.addressOf(record, tag, 'free')
    const bytes = block.requestedBytesOf(record, tag, 'free')
    const { handle } = stream ?? block.stream
    this.settle()
    this.freeAnd(
      free,
      () => !block.isLive(record, tag),
      () => {
        this.live.delete(ptr)
        this.addFree(ptr, bytes, handle)
      },
    )
  }

  /** Does `free`, which frees the block at an address. */
  freeingAt(ptr: number, free: () => void): void {
    this.freeAnd(
      free,
      () => this.live.get(ptr)?.isDropped() === true,
      () => this.end(ptr),
    )
  }

  /** Ends the block at an address, if one is live there. */
  end(ptr: number): void {
    this.settle()
    const known = this.live.get(ptr)
    if (known === undefined) return
    this.live.delete(ptr)
    this.addFree(ptr, known.bytes, known.stream)
  }

  failed(bytes: number, stream: number, deviceFreeBytes: number, stack: number): void {
    this.settle()
    this.builder.add(Action.outOfMemory, deviceFreeBytes, bytes, stream, unixMicroseconds(), stack)
    this.added()
  }

  /** Ends the blocks that were dropped without a free. */
  settle(): void {
    const drops = this.countDrops()
    if (drops === this.drops) return
    this.drops = drops
    for (const [ptr, block] of this.live) if (block.isDropped()) this.end(ptr)
  }

  /** Captured memory is a private pool, named as PyTorch names those of graphs: by the group, or else the capture. */
  private noteCapture(event: number, { pool }: Allocation, capture: Capture): void {
    const group = pool.groupOf?.(capture) ?? 0
    this.builder.notePool(event, this.builder.pools.number(group > 0 ? `0,${group}` : `${capture.id},0`))
  }

  private countDrops(): number {
    let drops = 0
    for (const source of this.sources) drops += source.drops
    return drops
  }

  /** Calls `note` after a free, also after one that has taken place and ended in an observer's error. */
  private freeAnd(free: () => void, isFreed: () => boolean, note: () => void): void {
    try {
      free()
    } catch (error) {
      if (isFreed()) note()
      throw error
    }
    note()
  }

  private addFree(ptr: number, bytes: number, stream: number): void {
    const timeUs = unixMicroseconds()
    this.builder.add(Action.freeRequested, ptr, bytes, stream, timeUs)
    this.builder.add(Action.freeCompleted, ptr, bytes, stream, timeUs)
    this.added()
  }
}

/** Microseconds since 1970. */
function unixMicroseconds(): number {
  return Math.round((ORIGIN_MS + performance.now()) * 1000)
}
