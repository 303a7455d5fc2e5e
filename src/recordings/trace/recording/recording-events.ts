import { UNIT_BYTES } from '../../../core/heap/size-classes.js'
import type { DeviceBuffer } from '../../../core/pool/buffer.js'
import { Block } from '../../../core/pool/caching/block.js'
import type { Pool } from '../../../core/pool/pool.js'
import { type TaggedPool, taggedPoolOf } from '../../../core/pool/wrappers/tagged.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'

// The names of globals are looked up at each use, and `timeOrigin` is computed each time.
const { performance } = globalThis
const ORIGIN_MS = performance.timeOrigin

/** The events of a recording of a pool, as they happen. Streams are handles, `stack` a number of `stacks`. */
export class RecordingEvents {
  private readonly builder = new TraceBuilder()
  readonly stacks = this.builder.stacks
  /** gives buffers their tags, if any does */
  private readonly tagging: TaggedPool | null

  constructor(pool: Pool) {
    this.tagging = taggedPoolOf(pool)
  }

  get count(): number {
    return this.builder.events
  }

  trace(name: string): Trace {
    return this.builder.build({ file: name, recorder: 'cuda-mempool', dropped: 0 })
  }

  allocated({ allocation, ptr, byteLength, stream }: DeviceBuffer, stack: number): void {
    const event = this.builder.add(Action.alloc, ptr, byteLength, stream.handle, unixMicroseconds(), stack)
    if (allocation instanceof Block) this.builder.noteGranted(event, allocation.units * UNIT_BYTES)
    if (this.tagging !== null) this.builder.noteTag(event, this.tagging.currentTag ?? '')
  }

  /** Adds a block that was allocated before, when its call stack and its tag are not known any more. */
  held(ptr: number, bytes: number, stream: number, grantedBytes: number | undefined): void {
    const event = this.builder.add(Action.alloc, ptr, bytes, stream, unixMicroseconds())
    if (grantedBytes !== undefined) this.builder.noteGranted(event, grantedBytes)
  }

  freed(ptr: number, bytes: number, stream: number): void {
    const timeUs = unixMicroseconds()
    this.builder.add(Action.freeRequested, ptr, bytes, stream, timeUs)
    this.builder.add(Action.freeCompleted, ptr, bytes, stream, timeUs)
  }

  failed(bytes: number, stream: number, deviceFreeBytes: number, stack: number): void {
    this.builder.add(Action.outOfMemory, deviceFreeBytes, bytes, stream, unixMicroseconds(), stack)
  }
}

/** Microseconds since 1970. */
function unixMicroseconds(): number {
  return Math.round((ORIGIN_MS + performance.now()) * 1000)
}
