// A host pool that several threads share: host-pool.ts on a shared pool, whose pool server registers the memory. What a copy or a
// kernel uses must be known to all threads, so that each use is told to the pool server.

import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { PoolConfig } from '../caching/options.js'
import { newState } from '../shared/new-shared-pool.js'
import type { Reclaimed } from '../shared/pool-server.js'
import { SharedPool } from '../shared/shared-pool.js'
import type { PoolThread } from '../shared/shared-report.js'
import type { SharedPoolState } from '../shared/shared-state.js'
import { type CacheLimits, cacheLimits } from '../shared/thread-cache.js'
import type { TransferredBuffer } from '../transferred-buffer.js'
import { HostBuffer } from './host-buffer.js'
import { type HostPoolOptions, hostConfig, parseHostPoolOptions } from './host-options.js'
import { HostPool } from './host-pool.js'
import { PinnedViews } from './pinned-views.js'

/** A thread caches no block larger than this share of what the pool may reserve, and no more than the other one for a stream. */
const CACHED_BLOCK_SHARE = 1 / 64
const CACHED_STREAM_SHARE = 1 / 16

/** What makes a host pool one that threads share. */
export type SharedHost = HostPoolOptions & { readonly shared: true }

/** A host pool for other threads of this process; can be cloned into any message. */
export interface SharedHostState<D = unknown> extends SharedPoolState<D> {
  readonly kind: 'host'
}

/** The state of a new one, before its pool server has begun. */
export function newSharedHost<D>(clocks: Clocks, options: HostPoolOptions, device: D): SharedHostState<D> {
  const { limitBytes, segmentBytes, mapped } = parseHostPoolOptions(options)
  const config = hostConfig(limitBytes, { segments: 'pinned', segmentBytes, mapped })
  return newState('host', clocks, config, 0, device)
}

/** The shared pool under it, of host addresses. */
class HostBlocks<D> extends SharedPool<D> {
  protected override cacheLimits(config: PoolConfig): CacheLimits {
    return cacheLimits(config, CACHED_BLOCK_SHARE, CACHED_STREAM_SHARE)
  }

  /** Work submitted to a stream until `stamp`, Infinity for the free, uses a live block. */
  noteUse(record: number, stream: Stream, stamp: number): void {
    const [slot, last] = stream.covering
    const until = stream.closed ? last : stamp
    this.askToRecord(record, slot, until === Infinity ? null : until)
  }

  sendMemory(channel: string): void {
    this.ask({ ask: 'memory', channel })
  }

  devicePtrOf(address: number): number {
    return this.ask({ ask: 'devicePtr', address }) as number
  }
}

/**
 * Pinned host memory for several threads: as `HostPool`, in SharedArrayBuffers. A buffer is one thread's, until it is handed
 * on by `transfer` and `adopt`. Each copy, and each `recordUse`, costs a question to another thread, of some 20 to 50 µs.
 */
export class SharedHostPool<D = unknown> extends HostPool {
  declare readonly memory: PinnedViews
  declare protected readonly blocks: HostBlocks<D>

  /** Made by the device: `device.createHostPool({ shared: true })`, and in other threads `attachPool(shared)`. */
  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    private readonly descriptor: SharedHostState<D>,
    creator: boolean,
    meanwhile: () => void,
  ) {
    const blocks = new HostBlocks<D>(clocks, defaultStream, descriptor, creator, meanwhile)
    const memory = new PinnedViews(
      channel => blocks.sendMemory(channel),
      address => blocks.devicePtrOf(address),
    )
    super(clocks, { blocks, memory })
  }

  /** The pool's number of this thread. */
  get thread(): number {
    return this.blocks.thread
  }

  /** Returns when the pool server is there; throws what kept it from making the pool. */
  begin(): void {
    this.blocks.begin()
  }

  /** What another thread of this process needs to use the pool: send it there, and give it to `attachPool`. */
  share(): SharedHostState<D> {
    this.blocks.share() // refuses when closed
    return this.descriptor
  }

  /** Takes over a buffer that another thread gave up by `buffer.transfer()`; see `SharedPool.adopt`. */
  adopt(transferred: TransferredBuffer): HostBuffer {
    return new HostBuffer(this, this.blocks.adopt(transferred))
  }

  /** All of a list, or none; see `SharedPool.adoptAll`. */
  adoptAll(transferred: readonly TransferredBuffer[]): HostBuffer[] {
    return this.blocks.adoptAll(transferred).map(block => new HostBuffer(this, block))
  }

  /** The threads that use the pool, and those that ended with buffers that they still held. */
  threads(): PoolThread[] {
    return this.blocks.threads()
  }

  /** Gives back what a thread that has ended still held; see `SharedPool.reclaim`. */
  reclaim(thread: number): Reclaimed {
    return this.blocks.reclaim(thread)
  }

  override trimTo(bytes: number): number {
    const trimmed = super.trimTo(bytes)
    this.memory.forget()
    return trimmed
  }

  protected override checkUser(stream: Stream): void {
    super.checkUser(stream)
    stream.checkShareable('allocate')
  }

  protected override note(block: DeviceBuffer, stream: Stream, stamp: number): void {
    stream.checkShareable('recordUse')
    stream.checkUncaptured('recordUse')
    this.blocks.noteUse(block.record, stream, stamp)
  }
}
