// A host pool that several threads share: the host pool over a shared pool, whose pool server registers the memory.
// All threads must know the uses of a buffer, so each use is sent to the pool server.

import type { ByteSize } from '../../base/byte-size.js'
import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import type { PinnedOptions } from '../backing/pinned-segments.js'
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
import { PinnedMemoryClient } from './pinned-memory-client.js'

/**
 * The largest block that a thread caches, and the most bytes that it caches by stream, as shares of the pool's limit.
 */
const CACHED_BLOCK_SHARE = 1 / 64
const CACHED_STREAM_SHARE = 1 / 16

/** A host pool for other threads of this process; can be cloned into any message. */
export interface SharedHostState<D = unknown> extends SharedPoolState<D> {
  /** tells descriptors of different kinds of pool apart */
  readonly kind: 'host'
}

/** The state of a new pool, before its pool server has started. */
export function newSharedHost<D>(clocks: Clocks, options: HostPoolOptions, device: D): SharedHostState<D> {
  const { maxPoolBytes, ...pinned } = parseHostPoolOptions('createSharedHostPool', clocks.context, options)
  const config = hostConfig(maxPoolBytes, { segments: 'pinned', ...pinned })
  return newState('host', clocks, config, 0, device)
}

/** The shared pool of host addresses under a shared host pool. */
class HostBlocks<D> extends SharedPool<D> {
  protected override cacheLimits(config: PoolConfig): CacheLimits {
    return cacheLimits(config, CACHED_BLOCK_SHARE, CACHED_STREAM_SHARE)
  }

  /** Notes that work submitted to a stream until `stamp` uses a live block; Infinity stands for the free. */
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
 * Pinned host memory for several threads: a `HostPool` whose memory lies in SharedArrayBuffers. A buffer belongs to
 * one thread, until `transfer` and `adopt` pass it on. Each copy and each `recordUse` asks the pool server's thread,
 * which takes 20 to 50 µs.
 */
export class SharedHostPool<D = unknown> extends HostPool {
  /** @internal */
  declare readonly memory: PinnedMemoryClient
  declare protected readonly blocks: HostBlocks<D>

  /** Made by the device: `device.createSharedHostPool()`, and in other threads `attachPool(shared)`. */
  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    private readonly descriptor: SharedHostState<D>,
    creator: boolean,
    meanwhile: () => void,
  ) {
    const blocks = new HostBlocks<D>(clocks, defaultStream, descriptor, creator, meanwhile)
    const memory = new PinnedMemoryClient(
      channel => blocks.sendMemory(channel),
      address => blocks.devicePtrOf(address),
      (descriptor.config.backing as PinnedOptions).numaNode,
    )
    super(clocks, blocks, memory)
  }

  /** The number of this thread in the pool. */
  get thread(): number {
    return this.blocks.thread
  }

  /**
   * Waits until the pool server runs; throws the error that kept it from making the pool.
   * @internal
   */
  begin(): void {
    this.blocks.begin()
  }

  /**
   * The descriptor that another thread of this process gives to `attachPool`. It can be sent in any message. Throws
   * PoolError when the pool is closed.
   */
  override share(): SharedHostState<D> {
    this.blocks.share() // throws when closed
    return this.descriptor
  }

  /** Takes over a buffer that another thread gave up by `buffer.transfer()`; see `SharedPool.adopt`. */
  adopt(transferred: TransferredBuffer): HostBuffer {
    return new HostBuffer(this, this.blocks.adopt(transferred))
  }

  /** Takes over all buffers of a list, or none; see `SharedPool.adoptAll`. */
  adoptAll(transferred: readonly TransferredBuffer[]): HostBuffer[] {
    return this.blocks.adoptAll(transferred).map(block => new HostBuffer(this, block))
  }

  /** The threads that use the pool, and ended threads that left live buffers. */
  threads(): PoolThread[] {
    return this.blocks.threads()
  }

  /** Frees the buffers that an ended thread left; see `SharedPool.reclaim`. */
  reclaim(thread: number): Reclaimed {
    return this.blocks.reclaim(thread)
  }

  override trimTo(bytes: ByteSize): number {
    const trimmed = super.trimTo(bytes)
    this.memory.forget()
    return trimmed
  }

  protected override checkUser(stream: Stream): void {
    super.checkUser(stream)
    stream.checkShareable('allocate')
  }

  protected override note(block: DeviceBuffer, stream: Stream, stamp: number, call: string): void {
    stream.checkShareable(call)
    stream.checkUncaptured(call)
    this.blocks.noteUse(block.record, stream, stamp)
  }
}
