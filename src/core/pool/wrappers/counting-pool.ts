// The base of the wrappers that count and limit. Each buffer counts for one account from its allocation to its end: a
// free, a transfer, or a drop by its pool. Which account that is, and what happens beyond its limit, is all that the
// wrappers differ in.

import type { ByteSize } from '../../base/byte-size.js'
import { formatBytes } from '../../base/bytes.js'
import type { OutOfMemoryError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { publishOutOfMemory } from '../channels.js'
import type { AllocateOptions } from '../long-form.js'
import { announcePool } from '../new-pools.js'
import { overLimit } from '../out-of-memory.js'
import type { Pool, PoolStats } from '../pool.js'
import type { Counters, TagStats } from './counters.js'
import { HandedOut } from './handed-out.js'
import { Wrapper } from './wrapper.js'

/** A pool that counts its live buffers, by one account or by several. */
export abstract class CountingPool extends Wrapper {
  private readonly handedOut: HandedOut<{ readonly account: Counters; readonly bytes: number }>
  private readonly isListed: boolean

  constructor(upstream: Pool) {
    super(upstream)
    this.handedOut = new HandedOut(
      upstream,
      ({ account, bytes }) => account.noteFree(bytes, 1),
      () => {
        for (const account of this.accounts()) account.noteFree(account.bytes.current, account.allocations.current)
      },
    )
    this.isListed = this.handedOut.isListed
    announcePool(this)
  }

  /** The account of an allocation at this moment. */
  protected abstract account(): Counters

  /** All accounts: one, unless a wrapper has several. */
  protected accounts(): Iterable<Counters> {
    return [this.account()]
  }

  /** As of `Pool`. Throws OutOfMemoryError if a limit of this wrapper would be exceeded. */
  override allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    const account = this.account()
    // Compared here and not in `exceeds`, since V8 has no budget left to inline it (docs/internals/v8.md).
    const mayExceed = typeof bytes !== 'number' || bytes > account.maxPoolBytes - account.bytes.value
    if (mayExceed) return this.allocateLarge(bytes, stream, alignment, account)
    return this.note(this.upstream.allocate(bytes, stream, alignment), bytes, account)
  }

  /** As of `Pool`. Returns null if a limit of this wrapper would be exceeded. */
  override tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    if (typeof bytes === 'string') return this.tryAllocate(this.bytesOf(bytes), stream, alignment)
    const account = this.account()
    if (account.exceeds(bytes)) {
      publishOutOfMemory(this, bytes)
      return null
    }
    const buffer = this.upstream.tryAllocate(bytes, stream, alignment)
    return buffer === null ? null : this.note(buffer, bytes, account)
  }

  /**
   * What was allocated by this wrapper: requested bytes, which count as reserved, too. Of several tags the peaks are
   * added, though they may have been at different times. `pool.upstream.stats()` has the rest.
   */
  override stats(): PoolStats {
    const parts = this.parts().map(([, stats]) => stats)
    const sum = (of: (stats: TagStats) => number) => parts.reduce((total, stats) => total + of(stats), 0)
    const [liveBytes, peakLiveBytes] = [sum(each => each.requestedBytes), sum(each => each.peakRequestedBytes)]
    const [liveBuffers, allocations] = [sum(each => each.liveBuffers), sum(each => each.allocations)]
    const maxPoolBytes = sum(each => each.maxPoolBytes)
    return {
      liveBytes,
      peakLiveBytes,
      requestedBytes: liveBytes,
      reservedBytes: liveBytes,
      peakReservedBytes: peakLiveBytes,
      cachedBytes: 0,
      pendingBytes: 0,
      largestFreeBytes: 0,
      maxPoolBytes,
      liveBuffers,
      allocations,
      frees: allocations - liveBuffers,
      cacheMisses: 0,
      growths: 0,
      insertedWaits: 0,
    }
  }

  /**
   * For watching: the figures of each part, by its tag; '' for the wrapper as a whole.
   * @internal
   */
  parts(): [string, TagStats][] {
    return [['', this.account().stats()]]
  }

  /** The wrapper's own figures, and the line of the pool that it wraps. */
  override toString(): string {
    const { liveBytes, liveBuffers, maxPoolBytes } = this.stats()
    const limit = maxPoolBytes === Infinity ? '' : ` of ${formatBytes(maxPoolBytes)}`
    const buffers = liveBuffers === 1 ? '1 buffer' : `${liveBuffers} buffers`
    const name = this.constructor.name
    return `${name} { ${formatBytes(liveBytes)} live in ${buffers}${limit} } around ${this.upstream}`
  }

  /** @internal */
  override mayServe(bytes: number): boolean {
    const account = this.account()
    if (bytes > account.maxPoolBytes) throw this.overLimit(bytes, account)
    return super.mayServe(bytes) && !account.exceeds(bytes)
  }

  protected override noteGone(buffer: DeviceBuffer, bytes: number): void {
    if (this.isListed) this.unlist(buffer, bytes)
    else this.accountOf(buffer).noteFree(bytes, 1)
  }

  /** Notices what pools have dropped. */
  protected settle(): void {
    this.handedOut.settle()
  }

  /** Remembers the account of a buffer that is not listed, if there are several. */
  protected remember(_buffer: DeviceBuffer, _account: Counters): void {}

  /** The account of a buffer that is not listed. */
  protected accountOf(_buffer: DeviceBuffer): Counters {
    return this.account()
  }

  /** A request that may exceed the limit, or whose size is a text or bad. */
  private allocateLarge(
    size: ByteSize,
    stream: Stream | AllocateOptions | undefined,
    alignment: number | undefined,
    account: Counters,
  ): DeviceBuffer {
    const bytes = this.bytesOf(size)
    if (account.exceeds(bytes)) {
      publishOutOfMemory(this, bytes)
      throw this.overLimit(bytes, account)
    }
    return this.note(this.upstream.allocate(bytes, stream, alignment), bytes, account)
  }

  private note(buffer: DeviceBuffer, bytes: number, account: Counters): DeviceBuffer {
    if (this.isListed) this.list(buffer, bytes, account)
    else this.remember(buffer, account)
    account.noteAllocation(bytes)
    buffer.allocation = buffer.allocation.ownedBy(this)
    return buffer
  }

  private list(buffer: DeviceBuffer, bytes: number, account: Counters): void {
    this.handedOut.settle() // first, since the peak is taken now
    this.handedOut.add(buffer, { account, bytes })
  }

  private unlist(buffer: DeviceBuffer, bytes: number): void {
    this.handedOut.get(buffer)?.account.noteFree(bytes, 1)
    this.handedOut.delete(buffer)
  }

  private overLimit(bytes: number, { bytes: { current }, maxPoolBytes, holder }: Counters): OutOfMemoryError {
    return overLimit(this.upstream, bytes, current, maxPoolBytes, holder)
  }
}
