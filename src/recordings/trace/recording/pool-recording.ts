// Records a pool for a while without a wrapper. The pool object gets methods of its own in front of those of its
// class, and loses them at the end. So a pool that is not being recorded pays nothing.

import { OutOfMemoryError } from '../../../core/base/errors.js'
import type { Stream } from '../../../core/order/stream.js'
import type { Allocation } from '../../../core/pool/allocation.js'
import type { DeviceBuffer } from '../../../core/pool/buffer.js'
import type { Pool } from '../../../core/pool/pool.js'
import type { TransferredBuffer } from '../../../core/pool/transferred-buffer.js'
import type { Trace } from '../trace.js'
import { CallStacks } from './call-stacks.js'
import { RecordingEvents } from './recording-events.js'

/** A recording ends here: 2 million events take 100 MB of host memory. */
const MOST_EVENTS = 2_000_000

/**
 * The methods that a recording replaces on a pool. In pools with a fast path, a free calls `releaseBlock`, or
 * `releaseAdopted` for some blocks of other threads.
 */
interface Recordable {
  allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer
  tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null
  release(buffer: DeviceBuffer, stream?: Stream): void
  releaseBlock?(block: Allocation, tag: number, stream?: Stream): void
  releaseAdopted?(block: Allocation, tag: number, stream?: Stream): void
  deallocate?(ptr: number, stream?: Stream): void
  handOver(buffer: DeviceBuffer): TransferredBuffer
  adopt?(transferred: TransferredBuffer): DeviceBuffer
  adoptAll?(transferred: readonly TransferredBuffer[]): DeviceBuffer[]
}

/** A live buffer, as pools list them. */
interface Listed {
  readonly ptr: number
  readonly byteLength: number
  readonly blockBytes?: number
  readonly stream?: number | null
}

/** Pools that are being recorded. */
const recording = new WeakSet<Pool>()

/** A recording of the pools that buffers of `pool` come from, from now until `stop`. */
export class PoolRecording {
  private readonly recorded: RecordingEvents
  private readonly callStacks: CallStacks | null
  private readonly pools: readonly Pool[]
  private readonly undo: (() => void)[] = []
  /** running calls of the pool's methods, which may call each other */
  private depth = 0
  /** running requests to the pools and to the recorded wrapper, which may ask several pools in turn */
  private requests = 0
  /** the call stack of the outermost of them, as a number of the table */
  private stack = 0

  /** `stacks` and `stackMinBytes` are as of `recorded()`. Check `isRecording` first. */
  constructor(
    pool: Pool,
    stacks: boolean | number,
    stackMinBytes = 0,
    private readonly mostEvents = MOST_EVENTS,
  ) {
    this.recorded = new RecordingEvents(pool, () => this.stopIfFull())
    this.callStacks = CallStacks.of(this.recorded.stacks, stacks, stackMinBytes)
    this.pools = pool.sources
    for (const source of this.pools) {
      recording.add(source)
      this.noteListed(source)
      this.interceptRequests(source)
      this.interceptFrees(source)
      this.interceptTransfers(source)
    }
    if (!this.pools.includes(pool)) this.interceptRequests(pool)
  }

  /** Whether one of the pool's sources is being recorded. */
  static isRecording(pool: Pool): boolean {
    return pool.sources.some(source => recording.has(source))
  }

  /** How many events were recorded. */
  get events(): number {
    return this.recorded.count
  }

  /** Ends the recording; a second call does nothing. */
  stop(): void {
    const undo = this.undo.splice(0).reverse()
    if (undo.length === 0) return
    for (const restore of undo) restore()
    for (const source of this.pools) recording.delete(source)
    this.recorded.settle()
  }

  /**
   * The trace of all events. Buffers that were live at its beginning are allocated there, without a call stack, if
   * the pool lists them.
   */
  trace(name: string): Trace {
    return this.recorded.trace(name)
  }

  /** Records what a pool serves. The outermost of nested calls gives the call stack, and only its failure counts. */
  private interceptRequests(pool: Pool): void {
    const { callStacks } = this
    const isSource = this.pools.includes(pool)
    for (const name of ['allocate', 'tryAllocate'] as const) {
      const method = pool[name]
      this.replace(pool as Recordable, name, (bytes, stream, alignment) => {
        const call = () => method.call(pool, bytes, stream, alignment)
        if (isSource ? this.depth > 0 : this.requests > 0) return call()
        if (this.requests === 0) this.stack = callStacks?.begin(bytes) ? callStacks.numberOf(new Error()) : 0
        const serve = isSource ? () => this.noteAllocation(this.inside(call)) : call
        return this.request(serve, deviceFreeBytes => {
          this.recorded.failed(bytes, (stream ?? pool.defaultStream).handle, deviceFreeBytes, this.stack)
        })
      })
    }
  }

  private request(serve: () => DeviceBuffer | null, onFailure: (deviceFreeBytes: number) => void): DeviceBuffer | null {
    const isOutermost = this.requests++ === 0
    try {
      const buffer = serve()
      if (buffer === null && isOutermost) onFailure(Number.NaN)
      return buffer
    } catch (error) {
      if (error instanceof OutOfMemoryError && isOutermost) onFailure(error.figures.deviceFreeBytes)
      throw error
    } finally {
      this.requests--
    }
  }

  private interceptFrees(source: Pool): void {
    const pool = source as Recordable
    const { release, releaseBlock, releaseAdopted, deallocate } = pool
    this.replace(pool, 'release', (buffer, stream) => {
      this.freeing(buffer.allocation, buffer.record, buffer.tag, stream, () => release.call(pool, buffer, stream))
    })
    if (releaseBlock !== undefined) {
      this.replace(pool, 'releaseBlock', (block, tag, stream) => {
        this.freeing(block, block.record, tag, stream, () => releaseBlock.call(pool, block, tag, stream))
      })
    }
    if (releaseAdopted !== undefined) {
      this.replace(pool, 'releaseAdopted', (block, tag, stream) => {
        this.freeing(block, block.record, tag, stream, () => releaseAdopted.call(pool, block, tag, stream))
      })
    }
    if (deallocate !== undefined) {
      this.replace(pool, 'deallocate', (ptr, stream) => {
        this.recorded.freeingAt(ptr, () => this.inside(() => deallocate.call(pool, ptr, stream)))
      })
    }
  }

  /** A buffer that goes to another thread ends here, as that thread's free is not seen. One that comes begins. */
  private interceptTransfers(source: Pool): void {
    const pool = source as Recordable
    const { handOver, adopt, adoptAll } = pool
    if (adopt === undefined || adoptAll === undefined) return
    this.replace(pool, 'handOver', buffer => {
      const ptr = buffer.freed ? 0 : buffer.ptr
      const transferred = handOver.call(pool, buffer)
      this.recorded.end(ptr)
      return transferred
    })
    this.replace(pool, 'adopt', transferred => {
      const buffer = adopt.call(pool, transferred)
      this.noteAllocation(buffer, 0)
      return buffer
    })
    this.replace(pool, 'adoptAll', transferred => {
      const buffers = adoptAll.call(pool, transferred)
      for (const buffer of buffers) this.noteAllocation(buffer, 0)
      return buffers
    })
  }

  /** Puts a method in front of the class's, and remembers how to take it away. */
  private replace<Name extends keyof Recordable>(pool: Recordable, name: Name, method: NonNullable<Recordable[Name]>) {
    const before = Object.getOwnPropertyDescriptor(pool, name)
    Object.defineProperty(pool, name, { value: method, configurable: true, enumerable: false, writable: true })
    this.undo.push(() => {
      if (before === undefined) delete (pool as Partial<Recordable>)[name]
      else Object.defineProperty(pool, name, before)
    })
  }

  private inside<R>(work: () => R): R {
    this.depth++
    try {
      return work()
    } finally {
      this.depth--
    }
  }

  private noteAllocation(buffer: DeviceBuffer | null, stack = this.stack): DeviceBuffer | null {
    if (buffer !== null) this.recorded.allocated(buffer, stack)
    return buffer
  }

  private noteListed(pool: Pool & { readonly closed?: boolean; live?(): readonly Listed[] }): void {
    if (pool.closed === true || pool.live === undefined) return
    const isDropped = () => pool.closed === true
    for (const { ptr, byteLength: bytes, blockBytes, stream } of pool.live()) {
      this.recorded.held(ptr, blockBytes, { bytes, stream: stream ?? 0, isDropped })
    }
  }

  /** Does `work`, which frees a block; only the outermost call of a pool's method is recorded. */
  private freeing(block: Allocation, record: number, tag: number, stream: Stream | undefined, work: () => void): void {
    if (this.depth > 0 || !block.isLive(record, tag)) work()
    else this.recorded.freeing(block, record, tag, stream, () => this.inside(work))
  }

  private stopIfFull(): void {
    if (this.recorded.count >= this.mostEvents) this.stop()
  }
}
