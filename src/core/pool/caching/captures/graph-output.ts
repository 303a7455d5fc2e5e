// Buffers that captured work fills for readers outside of the graph. A shared output lies in the scratch of its group,
// so the launch of another graph overwrites it. An output of its own has a block that no other graph gets.

import { PoolError } from '../../../base/errors.js'
import type { Capture } from '../../../order/capture.js'
import type { GraphMemory } from '../../../order/graph-memory.js'
import type { Stream } from '../../../order/stream.js'
import { type BufferOwner, type BufferSource, looksOnly } from '../../allocation.js'
import { DeviceBuffer } from '../../buffer.js'
import { SlowAllocation } from '../../record-allocation.js'
import type { GroupCaptures } from './group-captures.js'

/** How long an output is valid: until another graph of its group is launched, or until its own is launched again. */
export type OutputLifetime = 'shared' | 'own'

/** The part of a caching pool that outputs use. */
export interface OutputPool extends BufferSource {
  readonly isGuarded: boolean
  checkUse(call: string): void
  checkOpen(call: string): void
}

/** Made by `group.allocateOutput`: a buffer for results that captured work hands to other work. */
export class GraphOutput extends DeviceBuffer {
  /**
   * the output's own allocation
   * @internal
   */
  declare readonly allocation: OutputAllocation

  /**
   * Whether a shared output does not have the contents of its graph's latest launch: before the first one, once another
   * graph of the group was launched, and once the pool has slept. A use throws PoolError then. False for an own output.
   */
  get overwritten(): boolean {
    return this.allocation.overwritten
  }

  /**
   * An output is its group's, and the pool of the group takes it, too.
   * @internal
   */
  override ownerFor(pool: BufferOwner): BufferOwner {
    return this.allocation.home === pool ? this.pool : super.ownerFor(pool)
  }
}

export class OutputAllocation extends SlowAllocation {
  readonly record = -1
  /** labels of outputs are by this */
  readonly span = this
  readonly stream: Stream
  /** the pool that the program knows */
  readonly home: BufferOwner
  private readonly address: number
  private readonly bytes: number
  private readonly graph: number
  private isFreed = false
  /** of a shared output, whose capture has ended: its block is freed, and it has none */
  private isScratch = false
  /** whether other graphs may use it in their launches */
  private isUsedByOthers = false

  constructor(
    readonly pool: OutputPool,
    public owner: BufferOwner,
    private readonly group: GroupCaptures,
    private readonly capture: Capture,
    /** the block under it */
    readonly block: DeviceBuffer,
    private readonly lifetime: OutputLifetime,
  ) {
    super()
    this.stream = block.stream
    this.home = block.pool
    this.address = block.addressFor('allocateOutput')
    this.bytes = block.byteLength
    this.graph = capture.number
    if (lifetime === 'shared') group.share(this)
  }

  get overwritten(): boolean {
    const { order, store } = this.group
    return this.lifetime === 'shared' && (store.closed || order.latest !== this.graph)
  }

  get onlyGraph(): GraphMemory | null {
    return this.isUsedByOthers ? null : this.capture.memory
  }

  addressOf(_record: number, _tag: number, call: string): number {
    this.checkLive(call)
    if (this.pool.isGuarded) this.pool.checkUse(call)
    if (call !== 'ptr' && !looksOnly(call) && this.capture.ended) this.checkValid(call)
    return this.address
  }

  requestedBytesOf(_record: number, _tag: number, call: string): number {
    this.checkLive(call)
    return this.bytes
  }

  isLive(): boolean {
    return !this.isFreed && !this.group.store.lost && (this.isScratch || !this.block.freed)
  }

  /** Captured work of its own graph may use it. Any other use must come before the next launch, which waits for it. */
  noteUse(stream: Stream, call: string): void {
    if (stream.capture === null) {
      if (!this.capture.ended) throw this.notCaptured(call)
      this.group.order.noteUse(call, stream, this)
    } else if (stream.capture !== this.capture) {
      if (this.lifetime === 'shared') throw this.captured(call)
      this.isUsedByOthers = true
    }
  }

  recordUse(_record: number, _tag: number, stream: Stream): void {
    this.checkLive('recordUse')
    if (this.pool.isGuarded) this.pool.checkUse('recordUse')
    this.noteUse(stream, 'recordUse')
    if (stream.capture === null) this.group.order.noteUses(stream)
    else if (stream.capture !== this.capture) this.block.recordUse(stream)
  }

  /** Frees the output. The memory of a shared one is scratch anyway. */
  end(stream?: Stream): void {
    this.checkLive('free')
    if (this.lifetime === 'own') this.block.free(stream)
    this.isFreed = true
  }

  becomeScratch(): void {
    if (this.block.freed)
      this.isFreed = true // by its address
    else this.freeBlock()
    this.isScratch = true
  }

  /** A pool whose call was cut short takes nothing back. Its capture must end, so that the pool can be closed. */
  private freeBlock(): void {
    try {
      this.block.free()
    } catch (error) {
      if (!(error instanceof PoolError)) throw error
    }
  }

  private checkLive(call: string): void {
    if (this.isLive()) return
    this.pool.checkOpen(call)
    throw new PoolError(
      `${call}: the output was already freed; keep no reference to it after free()`,
      'ERR_BUFFER_FREED',
    )
  }

  /** Throws PoolError, in the name of `call`, if the output has no contents of its graph. */
  checkValid(call: string): void {
    if (!this.overwritten) return
    throw new PoolError(
      `${call}: the output has no contents of its graph, which was not launched since a launch of another graph of the ` +
        "group, or a sleep; use it right after its launch, or allocate it as 'own'",
      'ERR_BUFFER_FREED',
    )
  }

  private notCaptured(call: string): PoolError {
    return new PoolError(
      `${call}: the output is being captured, and this stream is not; use it once its graph was launched`,
      'ERR_STREAM_CAPTURED',
    )
  }

  private captured(call: string): PoolError {
    return new PoolError(
      `${call}: a shared output cannot be used in another capture, whose graph may overwrite it; allocate it as 'own'`,
      'ERR_STREAM_CAPTURED',
    )
  }
}
