// The caching pool that finds mistakes of its users. Redzones surround every buffer, and every call is checked before
// it runs. Freed memory stays in quarantine before the pool gets it back. Frees wait on the host.

import { assert } from '../../base/assert.js'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { disposeOf } from '../../base/disposal.js'
import { type DebugError, PoolError } from '../../base/errors.js'
import { State } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { checkIsStream, Stream } from '../../order/stream.js'
import { checkUser } from '../access.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { CachingPool, type CachingPoolStats } from '../caching/caching-pool.js'
import type { DebugConfig } from '../caching/debug-options.js'
import type { PoolConfig } from '../caching/options.js'
import { type LiveBlock, unknownAddress } from '../caching/reserving-pool.js'
import { publishOutOfMemory } from '../channels.js'
import type { CloseReport } from '../closable-pool.js'
import { groupLive, type LiveGroup, labelOf } from '../labels.js'
import { type AllocateOptions, allocateLong, isLongForm } from '../long-form.js'
import { checkNotRunning } from '../sleep/running-work.js'
import { DebugAllocation, siteText } from './debug-allocation.js'
import { fillPattern, firstChange, Pattern, waitUnnoticed } from './fill-patterns.js'
import { Quarantine } from './quarantine.js'

/** A live buffer and where it was allocated. */
export interface DebugLiveBlock extends LiveBlock {
  /**
   * the call of the program: `function (file:line:column)`, or a note that it was not remembered (`debug: { sites }`)
   */
  readonly allocatedAt: string
}

/** The findings of `close` of a pool in debug mode. */
export interface DebugCloseReport extends CloseReport {
  /** the buffers that were not freed before */
  readonly lost: readonly DebugLiveBlock[]
  /**
   * damage around the lost buffers, and writes to freed memory, unless reported before; each is a process
   * warning, too
   */
  readonly faults: readonly DebugError[]
}

/**
 * A caching pool that finds mistakes: writes out of bounds, writes and uses after the free, uses that no order of
 * streams puts between allocation and free, and lost buffers. Each is a DebugError with the places in the program.
 * Calls mean the same as in a `CachingPool`; frees wait on the host. Made by `device.createPool({ debug: true })`.
 */
export class DebugPool extends CachingPool {
  /**
   * false: the checks would read memory that captured work has not written yet
   * @internal
   */
  override readonly servesCaptures = false
  /** the options of debug mode, with defaults filled in */
  readonly debug: DebugConfig
  /** the live buffers, by address */
  private readonly held = new Map<number, DebugAllocation>()
  private readonly quarantine: Quarantine
  /** null when `warnOnLeak` is off */
  private readonly registry: FinalizationRegistry<DebugAllocation> | null
  /** buffers handed out so far; every `sites`-th remembers its call sites */
  private served = 0
  /** for memory whose stream takes no work now; made at first need, closed with the pool */
  private inspector: Stream | null = null

  constructor(clocks: Clocks, defaultStream: Stream, config: PoolConfig & { readonly debug: DebugConfig }) {
    super(clocks, defaultStream, config)
    this.debug = config.debug
    this.quarantine = new Quarantine(
      stream => this.inspectorFor(stream),
      ({ allocation, slot, stamp }) => this.central.memory.giveToHeap(allocation.block.record, slot, stamp),
    )
    this.registry = config.debug.warnOnLeak ? new FinalizationRegistry(warnOfLoss) : null
  }

  override allocate(
    bytes: ByteSize,
    stream: Stream | AllocateOptions = this.defaultStream,
    alignment?: number,
  ): DeviceBuffer {
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, false)!
    const buffer = this.tryAllocate(bytes, stream, alignment)
    if (buffer === null) throw this.outOfMemory(bytes as number, this.redzonedBytes(bytes as number, alignment))
    return buffer
  }

  protected override noteRefusal(): void {
    // tryAllocate tells of a refusal once it has tried everything.
  }

  override tryAllocate(
    bytes: ByteSize,
    stream: Stream | AllocateOptions = this.defaultStream,
    alignment?: number,
  ): DeviceBuffer | null {
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, true)
    checkByteCount(bytes, 'bytes')
    checkIsStream('allocate', stream)
    if (alignment !== undefined) checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    const { quarantineBytes, sites } = this.debug
    this.quarantine.shrinkTo(quarantineBytes, 'allocate')
    const frontBytes = this.frontBytes(alignment)
    const blockBytes = this.redzonedBytes(bytes, alignment)
    let block = super.tryAllocate(blockBytes, stream, alignment)
    if (block === null && this.hasRoomFor(blockBytes) && this.quarantine.shrinkTo(0, 'allocate')) {
      block = super.tryAllocate(blockBytes, stream, alignment)
    }
    if (block === null) {
      publishOutOfMemory(this, bytes)
      return null
    }
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

  /** @internal */
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

  override trimTo(bytes: ByteSize): number {
    this.checkOpen('trimTo')
    bytesOf(bytes, 'trimTo: bytes', this.context, 0) // before anything leaves quarantine
    this.quarantine.shrinkTo(0, 'trimTo')
    return super.trimTo(bytes)
  }

  /**
   * The figures of `CachingPool.stats`, with two differences: quarantined memory is pending, and live bytes include
   * redzones.
   */
  override stats(): CachingPoolStats {
    const stats = super.stats()
    return { ...stats, pendingBytes: stats.pendingBytes + this.quarantine.bytes }
  }

  override live(): DebugLiveBlock[] {
    return [...this.held.values()].map(({ ptr, byteLength, block, stream, allocatedAt }) => ({
      ptr,
      byteLength,
      blockBytes: this.blockBytes(block),
      stream: stream.closed ? null : stream.handle,
      label: labelOf(this, block.record, block.tag),
      allocatedAt: siteText(allocatedAt),
    }))
  }

  override check(): void {
    super.check()
    assert(this.held.size === this.stats().liveBuffers, 'every live buffer is known')
    for (const { block } of this.held.values()) assert(!block.freed, 'a held buffer is live')
  }

  /**
   * Closes the pool like `CachingPool.close`, after a check of the redzones of live buffers and of quarantined
   * memory.
   */
  override close(): DebugCloseReport {
    checkNotRunning('close', this)
    this.finishWork()
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

  /** As of `CachingPool`; the warning names the places of the allocations. */
  override [Symbol.dispose](): void {
    disposeOf(this, () => {
      const { lost } = this.close()
      if (this.warnOnHeld && !this.debug.warnOnLeak && lost.length > 0) warnOfHeld(lost)
    })
  }

  /** The live buffers by the place of their allocation, most bytes first. */
  liveBySite(): LiveGroup[] {
    return groupLive(this.live(), ({ allocatedAt }) => allocatedAt)
  }

  private forgetAll(): void {
    for (const allocation of this.held.values()) {
      allocation.isLost = true
      this.registry?.unregister(allocation)
    }
    this.held.clear()
    this.quarantine.clear()
  }

  /** All checks come before the first change, so that a refused free leaves the buffer as it was. */
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

  /** Puts a freed block into quarantine; returns false if work on other streams may still use it. */
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

  /** The error for damage around a buffer; null without damage, or if it was reported before. */
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

  /** Fills the redzones, too: writes to them after the free are faults as well. */
  private fillFreed(allocation: DebugAllocation, stream: Stream): void {
    const open = this.inspectorFor(stream)
    fillPattern(allocation.block.ptr, this.filledBytes(allocation), Pattern.freed, open)
    // No stamp covers this fill, so it must complete before the memory is handed out again.
    if (open !== stream || !this.config.streamOrdered) waitUnnoticed(open)
  }

  private lastFaults(): DebugError[] {
    const held = [...this.held.values()].map(allocation => this.redzoneFault(allocation, 'close', allocation.stream))
    return [...held.filter(fault => fault !== null), ...this.quarantine.faults('close')]
  }

  /** A stream whose work comes after all of `stream`, which may be closed, captured or kept idle by a capture. */
  private inspectorFor(stream: Stream): Stream {
    if (!stream.closed && stream.slot !== -1 && this.clocks.isOpen(stream.slot)) return stream
    this.clocks.catchUp(...stream.covering, true)
    this.inspector ??= Stream.create(this.clocks)
    return this.inspector
  }

  /** The bytes before a buffer: a redzone, rounded up so that the buffer stays aligned. */
  private frontBytes(alignment = UNIT_BYTES): number {
    return Math.ceil(this.debug.redzoneBytes / alignment) * alignment
  }

  private redzonedBytes(bytes: number, alignment: number | undefined): number {
    return Math.min(this.frontBytes(alignment) + bytes + this.debug.redzoneBytes, Number.MAX_SAFE_INTEGER)
  }

  private tailBytes({ block, frontBytes, byteLength }: DebugAllocation): number {
    return Math.min(this.blockBytes(block) - frontBytes - byteLength, this.debug.redzoneBytes + UNIT_BYTES)
  }

  /** The bytes of a block that hold a pattern: the buffer and its redzones. */
  private filledBytes(allocation: DebugAllocation): number {
    return allocation.frontBytes + allocation.byteLength + this.tailBytes(allocation)
  }

  /** Whether a block fits beside the live ones, so that releasing quarantined memory may help. */
  private hasRoomFor(blockBytes: number): boolean {
    return this.stats().liveBytes + blockBytes <= this.central.backing.maxPoolBytes
  }

  private blockBytes({ record }: DeviceBuffer): number {
    return this.records.unitsOf(record) * UNIT_BYTES
  }

  /** The pool knows the bytes of the block; the program asked for fewer. */
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
  const places = groupLive(lost, ({ allocatedAt }) => allocatedAt)
  const list = places.map(({ name, buffers }) => `${buffers} from ${name}`).join('; ')
  process.emitWarning(
    `${lost.length} buffers of ${formatBytes(bytes)} were held when their pool was closed: ${list}`,
    'PoolWarning',
  )
}
