// A buffer of a capture in a graph group of a pool that threads share. Its block is the pool server's, which alone has
// the memory of groups. It stays in the thread that captures.

import { PoolError } from '../../../base/errors.js'
import type { Capture } from '../../../order/capture.js'
import { checkStreamOf, type Stream } from '../../../order/stream.js'
import { type BufferOwner, type BufferSource, looksOnly } from '../../allocation.js'
import { spoiltError } from '../../caching/captures/group-errors.js'
import { SlowAllocation } from '../../record-allocation.js'
import type { GroupClient } from './group-client.js'
import type { TakenBlock } from './group-question.js'

/** The pool in this thread. */
interface BlockHome extends BufferSource {
  /** the pool that hands buffers out */
  readonly owner: BufferOwner
  /** the live ones of this thread */
  readonly blocks: Set<CapturedBlock>
}

export class CapturedBlock extends SlowAllocation {
  readonly record = -1
  /** labels are by this */
  readonly span = this
  owner: BufferOwner
  private isFreed = false
  /** other streams that use it until it is freed */
  private readonly users = new Set<Stream>()

  constructor(
    readonly pool: BlockHome,
    private readonly group: GroupClient,
    private readonly capture: Capture,
    readonly stream: Stream,
    private readonly block: TakenBlock,
    readonly bytes: number,
  ) {
    super()
    this.owner = pool.owner
    pool.blocks.add(this)
  }

  get address(): number {
    return this.block.address
  }

  addressOf(_record: number, _tag: number, call: string): number {
    this.checkLive(call)
    if (call !== 'ptr' && !looksOnly(call)) this.checkGraph(call)
    return this.address
  }

  requestedBytesOf(_record: number, _tag: number, call: string): number {
    this.checkLive(call)
    return this.bytes
  }

  isLive(): boolean {
    return !this.isFreed && !this.group.lost
  }

  recordUse(_record: number, _tag: number, stream: Stream): void {
    this.checkLive('recordUse')
    this.checkUser('recordUse', stream)
    this.checkGraph('recordUse')
    this.users.add(stream)
  }

  /**
   * Frees the buffer. On a stream of its capture, which no other stream then uses it in, later captured work may have
   * the memory. Otherwise the next launch of the group waits for the work that was submitted so far.
   */
  end(stream = this.stream): void {
    this.checkLive('free')
    this.checkUser('free', stream)
    const { capture, users } = this
    const { record } = this.block
    this.isFreed = true // first: if this call is cut short, the pool server may have the block already
    try {
      if (stream.capture === capture && users.size === 0) {
        const { lastSlot: slot } = stream
        this.group.free(record, { slot, stamp: capture.marked[slot] + 1 })
      } else {
        this.announceUses(stream)
        this.group.free(record, null)
      }
    } catch (error) {
      if (!this.group.mayStillBeHeard) this.isFreed = false
      throw error
    }
    this.pool.blocks.delete(this)
  }

  /** The next launch of the group waits for the work that uses the memory. */
  announceUses(stream = this.stream): void {
    for (const { clocks, covering } of [stream, ...this.users]) {
      this.group.order.add({ clocks, slot: covering[0], stamp: covering[1] })
    }
  }

  private checkUser(call: string, stream: Stream): void {
    checkStreamOf(call, stream, this.group.pool.clocks)
    this.group.order.checkStream(call, stream)
    if (stream.capture !== null && stream.capture !== this.capture) throw heldByGraph(call)
  }

  private checkGraph(call: string): void {
    if (this.capture.failed) throw spoiltError(call)
  }

  private checkLive(call: string): void {
    if (this.isLive()) return
    this.group.pool.checkOpen(call)
    throw new PoolError(
      `${call}: the buffer was already freed; keep no reference to it after free()`,
      'ERR_BUFFER_FREED',
    )
  }
}

/** The error for a buffer of a shared pool that is freed, or announced, on a stream which another capture has. */
export function heldByGraph(call: string): PoolError {
  return new PoolError(
    `${call}: a captured stream cannot have the buffer, which is not of its capture; hold it until the graph is closed`,
    'ERR_STREAM_CAPTURED',
  )
}
