// One buffer of a pool in debug mode: the place of its allocation, the streams that have used it, and the mistakes
// that follow.
//
// Work of the buffer's own stream may use it from the allocation on. Work of another stream may use it if it comes
// after a mark that the buffer's stream placed since the allocation. A use is stamped like a free: with the first
// mark that will cover the use. A free is in order after a use if its stream comes after that mark, or if the use was
// announced. The clocks know the order, and see calls of this package only. So streams made elsewhere, and streams of
// other devices, are not judged.

import { formatBytes } from '../../base/bytes.js'
import { DebugError, type Fault, type FaultSites, PoolError } from '../../base/errors.js'
import { CU_STREAM_LEGACY_DEFAULT } from '../../driver/constants.js'
import { MOST_STREAMS } from '../../order/clocks.js'
import { streamName } from '../../order/ordered-stream.js'
import type { Stream } from '../../order/stream.js'
import type { BufferOwner } from '../allocation.js'
import type { DeviceBuffer } from '../buffer.js'
import type { CachingPool } from '../caching/caching-pool.js'
import type { DebugConfig } from '../caching/debug-options.js'
import { labelOf } from '../labels.js'
import { checkNote, SlowAllocation } from '../record-allocation.js'
import { CallSite } from './call-site.js'

/** The pool of a `DebugAllocation`, named by its parts so that this file does not import the pool's. */
type CheckingPool = CachingPool & { readonly debug: DebugConfig }

/** Null if the place was not remembered, undefined if the call did not happen. */
type Place = CallSite | null | undefined

/** The advice for work on a closed stream, which takes no event any more. */
const HOST_WAIT =
  'the stream is closed: wait on the host first (device.synchronize()), or order the work before the close'

interface Use {
  readonly call: string
  readonly slot: number
  readonly stamp: number
  readonly site: CallSite | null
}

export class DebugAllocation extends SlowAllocation {
  owner: BufferOwner
  readonly stream: Stream
  readonly record: number
  readonly ptr: number
  readonly allocatedAt: CallSite | null
  freedAt: CallSite | null = null
  freed = false
  /** true if the pool was closed before the free */
  isLost = false
  /** whether damage around the buffer was reported; it is reported once */
  isReported = false
  /** streams given to `recordUse` */
  readonly announced = new Set<Stream>()
  /** the last use, by stream */
  private readonly uses = new Map<Stream, Use>()
  /** the first mark of the buffer's own stream after the allocation */
  private readonly since: Use

  constructor(
    readonly pool: CheckingPool,
    /** the pool's block, redzones included */
    readonly block: DeviceBuffer,
    readonly frontBytes: number,
    readonly byteLength: number,
    /** whether the call sites are remembered */
    readonly isSampled: boolean,
  ) {
    super()
    this.owner = pool
    this.stream = block.stream
    this.record = block.record
    this.ptr = block.ptr + frontBytes
    this.allocatedAt = this.here()
    const [slot, stamp] = block.stream.covering
    this.since = { call: 'allocate', slot, stamp, site: this.allocatedAt }
  }

  addressOf(_record: number, _tag: number, call: string): number {
    this.checkLive(call)
    return this.ptr
  }

  requestedBytesOf(_record: number, _tag: number, call: string): number {
    this.checkLive(call)
    return this.byteLength
  }

  isLive(): boolean {
    return !this.freed && !this.isLost
  }

  recordUse(_record: number, _tag: number, stream: Stream): void {
    this.checkLive('recordUse')
    this.block.allocation.recordUse(this.block.record, this.block.tag, stream)
    this.announced.add(stream)
  }

  noteUse(stream: Stream, call: string): void {
    checkNote(stream, call)
    this.checkLive(call)
    this.checkAllocated(stream, call)
    const [slot, stamp] = stream.covering
    this.uses.set(stream, { call, slot, stamp, site: this.here() })
  }

  /** Refuses a buffer that was freed, or that belongs to a closed pool. */
  checkLive(call: string): void {
    if (this.isLost)
      throw new PoolError(`${call}: the buffer's pool is closed; allocate from an open one`, 'ERR_POOL_CLOSED')
    if (this.freed)
      throw this.fault('useAfterFree', `${call}: the buffer was already freed; keep no reference to it after free()`, {
        freedAt: this.freedAt,
        usedAt: thisCall(),
      })
  }

  /** Refuses a free on `stream` unless it comes after the allocation and after every use. */
  checkFree(stream: Stream): void {
    this.checkAllocated(stream, 'free')
    if (!this.isJudged(stream)) return
    const { streamOrdered } = this.pool.config
    const wait = stream.closed ? '' : 'let the stream of the free wait for it (stream.wait(event)), '
    for (const [user, use] of this.uses) {
      if (this.announced.has(user) || !this.isJudged(user)) continue
      if (this.isComplete(use) || (streamOrdered && (user === stream || this.comesAfter(stream, use)))) continue
      const remedy = user.closed
        ? HOST_WAIT
        : streamOrdered
          ? `${wait}announce it (buffer.recordUse(stream)), or free on that stream`
          : 'this pool is not stream-ordered: wait on the host first (stream.synchronize())'
      throw this.fault(
        'freeBeforeUse',
        `free: a use (${use.call}) on ${nameOf(user)} may come after the free on ${nameOf(stream)}; ${remedy}`,
        { usedAt: use.site, freedAt: thisCall() },
      )
    }
  }

  /** The error for a changed byte; `offset` counts from the start of the buffer. */
  damage(fault: 'outOfBounds' | 'writeAfterFree', call: string, offset: number): DebugError {
    const isInside = offset >= 0 && offset < this.byteLength
    const side = offset < 0 ? `${-offset} before the start` : `${offset - this.byteLength + 1} past the end`
    const place = isInside ? `byte ${offset} was written` : `byte ${offset} was written, ${side}`
    const what =
      fault === 'writeAfterFree'
        ? `${place}${isInside ? '' : ','} after the free`
        : `${place}; the buffer is left as it is, free it again to let it go`
    const freedAt = fault === 'writeAfterFree' ? this.freedAt : call === 'free' ? thisCall() : undefined
    return this.fault(fault, `${call}: ${what}`, { freedAt })
  }

  /** Marks the buffer as freed and remembers the call site. */
  noteFree(): void {
    this.freed = true
    this.freedAt = this.here()
  }

  describe(): string {
    return `${this.name}${formatBytes(this.byteLength)} at 0x${this.ptr.toString(16)}, allocated at ${siteText(this.allocatedAt)}`
  }

  /** The label in quotation marks, for messages; '' without one. */
  private get name(): string {
    const label = labelOf(this.pool, this.record, this.block.tag)
    return label === '' ? '' : `'${label}' `
  }

  private checkAllocated(stream: Stream, call: string): void {
    if (stream === this.stream || !this.isJudged(stream) || !this.isJudged(this.stream)) return
    if (this.isComplete(this.since) || this.comesAfter(stream, this.since)) return
    const remedy =
      this.stream.closed || stream.closed
        ? HOST_WAIT
        : 'record an event there since, and let this stream wait for it (stream.wait(event))'
    throw this.fault(
      'useBeforeAllocation',
      `${call}: ${nameOf(stream)} may come before the allocation on ${nameOf(this.stream)}; ${remedy}`,
      call === 'free' ? { freedAt: thisCall() } : { usedAt: thisCall() },
    )
  }

  private isJudged({ clocks, owned, handle }: Stream): boolean {
    return this.pool.debug.order && clocks === this.pool.clocks && (owned || handle <= CU_STREAM_LEGACY_DEFAULT)
  }

  private isComplete({ slot, stamp }: Use): boolean {
    return this.pool.clocks.completed[slot] >= stamp
  }

  /** Whether `stream` is known to come after a use, or may come after it by way of another device. */
  private comesAfter(stream: Stream, { slot, stamp }: Use): boolean {
    const { known, orderedElsewhere } = this.pool.clocks
    const [later] = stream.covering // a captured or idle stream has left its slot
    return known[later * MOST_STREAMS + slot] >= stamp || orderedElsewhere[slot] >= stamp
  }

  private here(): CallSite | null {
    const { warnOnLeak, frames } = this.pool.debug
    return this.isSampled ? new CallSite(warnOnLeak, frames) : null
  }

  private fault(fault: Fault, what: string, calls: { freedAt?: Place; usedAt?: Place }): DebugError {
    const { freedAt, usedAt } = calls
    const sites: FaultSites = {
      allocatedAt: siteText(this.allocatedAt),
      ...(usedAt === undefined ? {} : { usedAt: siteText(usedAt) }),
      ...(freedAt === undefined ? {} : { freedAt: siteText(freedAt) }),
    }
    const places = Object.entries(sites).map(([call, site]) => `${call.replace('At', ' at')} ${site}`)
    const buffer = `Buffer ${this.name}of ${this.byteLength} bytes at 0x${this.ptr.toString(16)}`
    return new DebugError(fault, `${what}. ${buffer}, ${places.join(', ')}`, sites)
  }
}

/** Handles are used again after a stream is closed, so only open streams go by their handle alone. */
function nameOf({ handle, closed }: Stream): string {
  return closed ? `${streamName(handle)} (closed)` : streamName(handle)
}

/** The running call, with its stack as text at once: the error needs it anyway. */
function thisCall(): CallSite {
  return new CallSite(true)
}

/** A call site for messages; not every allocation remembers its own. */
export function siteText(site: CallSite | null): string {
  return site === null ? 'a place that was not remembered (debug: sites)' : `${site}`
}
