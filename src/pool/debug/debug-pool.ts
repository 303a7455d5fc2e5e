// The caching pool that looks for mistakes. It stands before the ordinary one: every block has redzones around the buffer, every
// call is judged first, and what is freed is kept in quarantine before the pool gets it back. Frees wait on the host.

import { assert } from '../../base/assert.js'
import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { type DebugError, PoolError } from '../../base/errors.js'
import { State } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { checkIsStream, Stream } from '../../order/stream.js'
import { checkUser } from '../access.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { CachingPool, type CloseReport, type LiveBlock, unknownAddress } from '../caching/caching-pool.js'
import type { DebugConfig } from '../caching/debug-options.js'
import type { PoolConfig } from '../caching/options.js'
import type { PoolStats } from '../pool.js'
import { DebugAllocation, siteText } from './debug-allocation.js'
import { fillPattern, firstChange, Pattern, waitUnnoticed } from './patterns.js'
import { Quarantine } from './quarantine.js'

/** A live buffer and where it was allocated. */
export interface DebugLiveBlock extends LiveBlock {
  readonly allocatedAt: string
}

/** What `close` of a pool in debug mode found. */
export interface DebugCloseReport extends CloseReport {
  /** the buffers that were still held */
  readonly lost: readonly DebugLiveBlock[]
  /** damage around those, and writes to freed memory, not reported before; each is a process warning, too */
  readonly faults: readonly DebugError[]
}

export class DebugPool extends CachingPool {
  /** no: it would have to look at memory that captured work has not touched yet */
  override readonly servesCaptures = false
  readonly debug: DebugConfig
  /** the buffers handed out, by address */
  private readonly held = new Map<number, DebugAllocation>()
  private readonly quarantine: Quarantine
  /** tells of buffers that the garbage collector took */
  private readonly registry: FinalizationRegistry<DebugAllocation> | null
  private served = 0
  /** for memory of streams that take no work; made at the first need, ended with the pool */
  private inspector: Stream | null = null

  constructor(clocks: Clocks, defaultStream: Stream, config: PoolConfig & { readonly debug: DebugConfig }) {
    super(clocks, defaultStream, config)
    this.debug = config.debug
    this.quarantine = new Quarantine(
      stream => this.inspectorFor(stream),
      ({ allocation, slot, stamp }) => this.central.giveToHeap(allocation.block.record, slot, stamp),
    )
    this.registry = config.debug.warnOnLeak ? new FinalizationRegistry(warnOfLoss) : null
  }

  override allocate(bytes: number, stream: Stream = this.defaultStream, alignment?: number): DeviceBuffer {
    const buffer = this.tryAllocate(bytes, stream, alignment)
    if (buffer === null) throw this.outOfMemory(bytes, this.redzonedBytes(bytes, alignment))
    return buffer
  }

  override tryAllocate(bytes: number, stream: Stream = this.defaultStream, alignment?: number): DeviceBuffer | null {
    checkByteCount(bytes, 'bytes')
    if (alignment !== undefined) checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    const { quarantineBytes, sites } = this.debug
    this.quarantine.shrinkTo(quarantineBytes, 'allocate')
    const frontBytes = this.frontBytes(alignment)
    const blockBytes = this.redzonedBytes(bytes, alignment)
    let block = super.tryAllocate(blockBytes, stream, alignment)
    if (block === null && this.hasRoomFor(blockBytes) && this.quarantine.shrinkTo(0, 'allocate')) {
      block = super.tryAllocate(blockBytes, stream, alignment)
    }
    if (block === null) return null
    const isSampled = sites > 0 && this.served++ % sites === 0
    const allocation = new DebugAllocation(this, block, frontBytes, bytes, isSampled)
    try {
      fillPattern(block.ptr, frontBytes, Pattern.redzone, stream)
      fillPattern(allocation.ptr, bytes, Pattern.fresh, stream)
      fillPattern(allocation.ptr + bytes, this.tailBytes(allocation), Pattern.redzone, stream)
    } catch (error) {
      super.release(block)
      throw error
    }
    this.noteRequested(block.record, bytes)
    this.held.set(allocation.ptr, allocation)
    const buffer = new DeviceBuffer(allocation, block.tag)
    this.registry?.register(buffer, allocation, allocation)
    return buffer
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    if (!(buffer.allocation instanceof DebugAllocation)) throw new PoolError('free: the buffer came from another pool')
    this.end(buffer.allocation, stream)
  }

  override deallocate(ptr: number, stream?: Stream): void {
    this.checkOpen('deallocate')
    const allocation = this.held.get(ptr)
    if (allocation === undefined) throw unknownAddress(ptr)
    this.end(allocation, stream)
  }

  override trimTo(bytes: number): number {
    this.checkOpen('trimTo')
    if (bytes !== 0) checkByteCount(bytes, 'trimTo: bytes')
    this.quarantine.shrinkTo(0, 'trimTo')
    return super.trimTo(bytes)
  }

  /** As ever, but that what is in quarantine is pending, and what is live has its redzones. */
  override stats(): PoolStats {
    const stats = super.stats()
    return { ...stats, pendingBytes: stats.pendingBytes + this.quarantine.bytes }
  }

  override live(): DebugLiveBlock[] {
    return [...this.held.values()].map(({ ptr, byteLength, block, stream, allocatedAt }) => ({
      ptr,
      byteLength,
      blockBytes: this.blockBytes(block),
      stream: stream.closed ? null : stream.handle,
      allocatedAt: siteText(allocatedAt),
    }))
  }

  override check(): void {
    super.check()
    assert(this.held.size === this.stats().liveBuffers, 'every live buffer is known')
    for (const { block } of this.held.values()) assert(!block.freed, 'a held buffer is live')
  }

  /** As ever; looks at the redzones of what is still held and at what is in quarantine first. */
  override close(): DebugCloseReport {
    if (!this.closed) this.clocks.finishWork()
    const faults: DebugError[] = []
    const lost = this.live()
    let report: CloseReport
    try {
      if (!this.closed) this.context.giveBack(() => faults.push(...this.lastFaults()))
    } finally {
      this.forgetAll()
      report = super.close()
      this.inspector?.close()
    }
    for (const fault of faults) process.emitWarning(fault)
    if (this.debug.warnOnLeak && lost.length > 0) warnOfHeld(lost)
    return { ...report, lost, faults }
  }

  private forgetAll(): void {
    for (const allocation of this.held.values()) {
      allocation.isLost = true
      this.registry?.unregister(allocation)
    }
    this.held.clear()
    this.quarantine.clear()
  }

  /** Everything that is looked at comes before the first change, so that a refused free leaves the buffer as it was. */
  private end(allocation: DebugAllocation, stream: Stream = allocation.stream): void {
    allocation.checkLive('free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) {
      checkUser('free', stream, this)
      allocation.recordUse(0, 0, stream)
      stream = allocation.stream
    }
    stream.checkUncaptured('free')
    allocation.checkFree(stream)
    let isFilled = false // not on a lost device
    this.context.giveBack(() => {
      for (const user of allocation.announced) user.clocks.catchUp(...user.covering, true)
      this.checkRedzones(allocation, stream)
      this.fillFreed(allocation, stream)
      isFilled = true
    })
    allocation.noteFree()
    this.held.delete(allocation.ptr)
    this.registry?.unregister(allocation)
    const { block } = allocation
    if (!isFilled || !this.setAside(allocation, stream))
      super.release(block, stream === block.stream ? undefined : stream)
  }

  /** Into quarantine with what was freed; false where its uses are not known to be over. */
  private setAside(allocation: DebugAllocation, stream: Stream): boolean {
    const { block } = allocation
    const { record } = block
    const blockBytes = this.blockBytes(block)
    const [slot, covering] = stream.covering
    if (this.caches.state(record) === State.shared && !this.central.forgetUses(record, slot, covering)) return false
    this.central.setAside(record)
    const stamp = this.config.streamOrdered ? covering : 0
    this.quarantine.add({ allocation, blockBytes, filledBytes: this.filledBytes(allocation), slot, stamp, stream })
    return true
  }

  private checkRedzones(allocation: DebugAllocation, stream: Stream): void {
    const fault = this.redzoneFault(allocation, 'free', stream)
    if (fault !== null) throw fault
  }

  /** The damage around a buffer that was not reported yet. */
  private redzoneFault(allocation: DebugAllocation, call: string, stream: Stream): DebugError | null {
    if (allocation.isReported) return null
    const { ptr, frontBytes, byteLength } = allocation
    const open = this.inspectorFor(stream)
    const before = firstChange(ptr - frontBytes, frontBytes, Pattern.redzone, open)
    const behind = firstChange(ptr + byteLength, this.tailBytes(allocation), Pattern.redzone, open)
    if (before === -1 && behind === -1) return null
    allocation.isReported = true
    return allocation.damage('outOfBounds', call, before === -1 ? byteLength + behind : before - frontBytes)
  }

  /** The redzones, too: nothing may write there any more. */
  private fillFreed(allocation: DebugAllocation, stream: Stream): void {
    const open = this.inspectorFor(stream)
    fillPattern(allocation.block.ptr, this.filledBytes(allocation), Pattern.freed, open)
    // No stamp covers it, so that it must be over before anybody else gets the memory.
    if (open !== stream || !this.config.streamOrdered) waitUnnoticed(open)
  }

  private lastFaults(): DebugError[] {
    this.central.finishPeers()
    const held = [...this.held.values()].map(allocation => this.redzoneFault(allocation, 'close', allocation.stream))
    return [...held.filter(fault => fault !== null), ...this.quarantine.faults('close')]
  }

  /** A stream for work that comes after all of `stream`, which may be closed, captured or kept idle by a capture. */
  private inspectorFor(stream: Stream): Stream {
    if (!stream.closed && stream.slot !== -1 && this.clocks.isOpen(stream.slot)) return stream
    this.clocks.catchUp(...stream.covering, true)
    this.inspector ??= Stream.create(this.clocks)
    return this.inspector
  }

  /** The redzone before a buffer, which keeps the buffer aligned. */
  private frontBytes(alignment = UNIT_BYTES): number {
    return Math.ceil(this.debug.redzoneBytes / alignment) * alignment
  }

  private redzonedBytes(bytes: number, alignment: number | undefined): number {
    return Math.min(this.frontBytes(alignment) + bytes + this.debug.redzoneBytes, Number.MAX_SAFE_INTEGER)
  }

  private tailBytes({ block, frontBytes, byteLength }: DebugAllocation): number {
    return Math.min(this.blockBytes(block) - frontBytes - byteLength, this.debug.redzoneBytes + UNIT_BYTES)
  }

  /** Of the block, the buffer and its redzones. */
  private filledBytes(allocation: DebugAllocation): number {
    return allocation.frontBytes + allocation.byteLength + this.tailBytes(allocation)
  }

  /** Whether a block fits beside what is live, so that it may help to let quarantined memory go. */
  private hasRoomFor(blockBytes: number): boolean {
    return this.stats().liveBytes + blockBytes <= this.central.backing.limitBytes
  }

  private blockBytes({ record }: DeviceBuffer): number {
    return this.records.unitsOf(record) * UNIT_BYTES
  }

  /** The bytes that the program asked for are fewer than the block was asked for. */
  private noteRequested(record: number, bytes: number): void {
    const block = this.caches.blockOf(record)
    const slack = block.units * UNIT_BYTES - bytes
    this.caches.slackBytes += slack - block.slack
    block.slack = slack
  }
}

function warnOfLoss(allocation: DebugAllocation): void {
  process.emitWarning(
    `a buffer was lost without a free: ${allocation.describe()}; free it, or declare it by using`,
    'PoolWarning',
  )
}

function warnOfHeld(lost: readonly DebugLiveBlock[]): void {
  const bytes = lost.reduce((sum, block) => sum + block.byteLength, 0)
  const places = new Map<string, number>()
  for (const { allocatedAt } of lost) places.set(allocatedAt, (places.get(allocatedAt) ?? 0) + 1)
  const list = [...places].map(([place, count]) => `${count} from ${place}`).join('; ')
  process.emitWarning(
    `${lost.length} buffers of ${formatBytes(bytes)} were held when their pool was closed: ${list}`,
    'PoolWarning',
  )
}
